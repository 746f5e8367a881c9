"""Carry over a fork what the system alone would share or break.

`Carried` is made in the live kernel just before the fork. The child, a checkpoint, is made whole
by `restore` once the kernel's own plumbing is detached there; each branch is separated from the
checkpoint, and so from its siblings, by `separate`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import logging
import random
import sys
import weakref
from collections.abc import Iterable
from typing import Any

from . import debugging, descriptors, imports, libraries, memory, workers

_SUSPENDED: list[Any] = []
"""Finalizers of the parent's objects that do not run at this process's end."""

_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


class Carried:
    """What a fork takes along.

    Parameters
    ----------
    infrastructure: the descriptors of the kernel's own plumbing, which are left alone.
    """

    def __init__(self, infrastructure: set[int]) -> None:
        self._descriptors = {
            each: target
            for each, target in descriptors.table().items()
            if each not in infrastructure
        }
        _flush(self._descriptors)
        self._workers = workers.Workers()
        self._memory = memory.Copies()
        self._limited = libraries.pause_openmp()
        self._random = random.getstate()

    def restore(self) -> None:
        """Make a checkpoint whole; it has one thread, and starts none."""
        imports.begin_anew()
        suspend_exit_work()
        debugging.forget()
        self._memory.place()
        self._descriptors = descriptors.part(self._descriptors)
        self._workers.restore()
        libraries.limit_openmp(self._limited)

    def separate(self) -> None:
        """Let a branch share with its checkpoint no more than that shares with the live kernel."""
        memory.Copies().place()
        descriptors.part(self._descriptors)
        random.setstate(self._random)  # CPython has seeded it anew


def suspend_exit_work() -> None:
    """Let nothing run at this process's end that was registered before the fork.

    It would remove the parent's temporary folders, and end its workers.
    """
    atexit._clear()
    atexit.register(logging.shutdown)
    finalize: Any = weakref.finalize
    for finalizer, info in finalize._registry.items():
        if info.atexit:
            info.atexit = False
            _SUSPENDED.append(finalizer)
    finalize._registered_with_atexit = False  # a new finalizer registers them anew
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        atexit.register(util._exit_function)


def resume_exit_work() -> None:
    """Take the duties of the parent over, as this process has become the session.

    Temporary folders made before the fork are removed at this process's end again. What was
    registered with `atexit` before the fork stays forgotten: Python does not tell what that was.
    """
    for finalizer in _SUSPENDED:
        if finalizer.alive:
            finalizer.atexit = True
    _SUSPENDED.clear()
    finalize: Any = weakref.finalize
    if not finalize._registered_with_atexit and finalize._registry:
        atexit.register(finalize._exitfunc)
        finalize._registered_with_atexit = True


def _flush(noted: dict[int, str]) -> None:
    """Write out what files have buffered, which both sides would write otherwise."""
    writable = {
        each
        for each, target in noted.items()
        if descriptors.is_file(each, target) and descriptors.is_writable(each)
    }
    if not writable:
        return
    for candidates in (_variables, gc.get_objects):
        for file in _files(candidates()):
            with contextlib.suppress(Exception):  # closed, or a write of the user's fails
                if file.fileno() in writable:
                    file.flush()
                    writable.discard(file.fileno())
        if not writable:  # to search all objects of a large session takes a tenth of a second
            return


def _variables() -> list[object]:
    return list(vars(sys.modules["__main__"]).values())


def _files(candidates: Iterable[object]) -> Iterable[Any]:
    """Pick the files: text before bytes, whose buffer it writes to."""
    found = [each for each in candidates if type(each) in _BUFFERED]
    return sorted(found, key=lambda each: _BUFFERED.index(type(each)))
