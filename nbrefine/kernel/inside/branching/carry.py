"""Carry over a fork what the system alone would share or break.

`Carried` is made in the live kernel just before the fork and restored in the child, once the
kernel's own plumbing is detached there.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import io
import os
import queue
import random
import sys
import threading
import weakref
from collections.abc import Iterable
from typing import Any

from . import descriptors

_KEPT: list[Any] = []
"""Objects whose workers are gone; collecting them would wait for those."""


class Carried:
    """What a fork takes along; `infrastructure` are the descriptors of the kernel's plumbing."""

    def __init__(self, infrastructure: set[int]) -> None:
        self._files = {
            descriptor: fcntl.fcntl(descriptor, fcntl.F_GETFL)
            for descriptor, target in descriptors.table().items()
            if descriptor not in infrastructure and descriptors.is_file(target)
        }
        _flush({n for n, flags in self._files.items() if flags & os.O_ACCMODE})
        self._executors = _thread_pools()
        self._random = random.getstate()

    def restore(self) -> None:
        """Make this child whole, once the kernel's own plumbing is detached."""
        forget_exit_work()
        _privatise(self._files)
        for executor in self._executors:
            _revive(executor)
        _drop_loky()
        _limit_openmp()
        self.restore_random()

    def restore_random(self) -> None:
        """Undo CPython's reseeding of `random` in a forked child."""
        random.setstate(self._random)


def forget_exit_work() -> None:
    """Let nothing that the parent registered run at this process's end."""
    atexit._clear()
    for finalizer in weakref.finalize._registry.values():  # type: ignore[attr-defined]
        finalizer.atexit = False


def _flush(writable: set[int]) -> None:
    """Write out buffered text, which both sides would write otherwise."""
    if not writable:
        return
    for thing in gc.get_objects():
        if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            with contextlib.suppress(Exception):
                if thing.fileno() in writable:
                    thing.flush()


def _privatise(files: dict[int, int]) -> None:
    """Give this process an offset of its own in every open file."""
    unwanted = os.O_CREAT | os.O_EXCL | os.O_TRUNC
    for descriptor, flags in files.items():
        with contextlib.suppress(OSError):
            position = os.lseek(descriptor, 0, os.SEEK_CUR)
            opened = os.open(f"/proc/self/fd/{descriptor}", flags & ~unwanted | os.O_CLOEXEC)
            os.lseek(opened, position, os.SEEK_SET)
            os.dup2(opened, descriptor, inheritable=os.get_inheritable(descriptor))
            os.close(opened)


def _thread_pools() -> Iterable[Any]:
    """Find the `ThreadPoolExecutor`s that have workers, through these."""
    module: Any = sys.modules.get("concurrent.futures.thread")
    found: dict[int, Any] = {}
    if module is not None:
        for thread in threading.enumerate():
            if getattr(thread, "_target", None) is module._worker:
                executor = thread._args[0]()  # type: ignore[attr-defined]
                if executor is not None:
                    found[id(executor)] = executor
    return list(found.values())


def _revive(executor: Any) -> None:
    _KEPT.append(executor._work_queue)
    executor._threads.clear()
    executor._idle_semaphore = threading.Semaphore(0)
    executor._work_queue = queue.SimpleQueue()
    executor._shutdown_lock = threading.Lock()


def _drop_loky() -> None:
    reusable: Any = sys.modules.get("joblib.externals.loky.reusable_executor")
    if reusable is not None:
        _KEPT.append(reusable._executor)
        reusable._executor = reusable._executor_kwargs = None
    tracker: Any = sys.modules.get("joblib.externals.loky.backend.resource_tracker")
    if tracker is not None:
        tracker._resource_tracker._fd = tracker._resource_tracker._pid = None


def _limit_openmp() -> None:
    """Let libgomp work alone: a team of one never waits for the threads that are gone."""
    with open("/proc/self/maps") as file:
        libraries = {line.split()[-1] for line in file if "libgomp" in line}
    for library in libraries:
        import ctypes

        ctypes.CDLL(library).omp_set_num_threads(1)
