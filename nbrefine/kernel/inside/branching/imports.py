"""Imports that another thread is in the middle of, and that nobody would finish in a forked child.

Python has a lock for each module that is being imported; whoever imports it too waits for it.
"""

from __future__ import annotations

import sys
import threading
import time
from importlib import _bootstrap
from typing import Any

_PATIENCE = 2.0  # seconds; few imports take longer

_locks: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})
"""Name of a module -> weak reference to the lock of its import."""


def unfinished() -> list[str]:
    """Name the modules that other threads still import after a moment in which they could end."""
    end = time.monotonic() + _PATIENCE
    while (names := _of_others()) and time.monotonic() < end:
        time.sleep(0.001)
    return names


def begin_anew() -> None:
    """Let this forked child import what a thread of its parent's was importing, from the start."""
    for name in _of_others():
        del _locks[name]
        sys.modules.pop(name, None)


def _of_others() -> list[str]:
    own = threading.get_ident()
    held = [(name, reference()) for name, reference in list(_locks.items())]
    return [name for name, lock in held if lock is not None and lock.owner not in (None, own)]
