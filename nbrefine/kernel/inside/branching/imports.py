"""Imports that other threads are in the middle of, and that nobody would finish in a forked child.

Python has a lock for each module that is being imported; whoever imports it, too, waits for it.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from importlib import _bootstrap
from typing import Any

_PATIENCE, _PAUSE = 2.0, 0.001  # seconds

_locks: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})
"""Name of a module -> weak reference to the lock of its import."""

_given_up: weakref.WeakSet[Any] = weakref.WeakSet()
"""Locks of imports that have outlasted the patience once."""


def wait() -> None:
    """Wait a moment for the imports that other threads have begun."""
    for _ in range(round(_PATIENCE / _PAUSE)):  # a session may have stopped the clock
        if _given_up.issuperset(_held().values()):
            return
        time.sleep(_PAUSE)
    _given_up.update(_held().values())


def unfinished() -> list[str]:
    """Name the modules that other threads are importing."""
    return list(_held())


def begin_anew() -> None:
    """Let this forked child import from the start what a thread had begun just before the fork."""
    for name in _held():
        _locks.pop(name, None)
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if getattr(spec, "_initializing", False):
            del sys.modules[name]
    # Who waits for whom: a new thread may get the number of one that is lost.
    getattr(_bootstrap, "_blocking_on", {}).clear()


def _held() -> dict[str, Any]:
    own = threading.get_ident()
    found = {name: reference() for name, reference in _locks.copy().items()}
    return {
        name: lock
        for name, lock in found.items()
        if getattr(lock, "owner", None) not in (None, own)
    }
