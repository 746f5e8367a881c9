"""Whose the threads of this process are, and whether they may be calculating."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any

OWN = ("ipykernel", "IPython", "zmq", "nbrefine", "_nbrefine_branching", "debugpy", "pydevd")
"""Packages whose threads, tasks and sockets are the kernel's own."""

PROCESSES = ("nb-checkpoint", "nb-template", "nb-keeper", "nb-model")
"""Names of processes that nbrefine starts; "nb-kernel" is that of a user's forks, too."""

# By name: threads of the kernel and its controller that tell nothing of where they come from.
_OWN_NAMES = ("MainThread", "IOPub", "Control", "Heartbeat", "Shell channel")
_OWN_PREFIXES = ("nbrefine-", "subshell-", "pydevd.")

# Threads that carry messages for pools of processes, and run no code of the user's.
_OF_POOLS = ("multiprocessing.", "concurrent.futures.process", "joblib.externals.loky")
_MESSENGERS = (*_OF_POOLS, "asyncio", "subprocess", "logging")


def of_user() -> list[threading.Thread]:
    """Give the threads that are neither the kernel's own nor harmless."""
    return [each for each in threading.enumerate() if not _is_own(each)]


def origin(thread: threading.Thread) -> str:
    """Name the module that a thread's code is from; "" where it cannot be told."""
    if type(thread).__module__ not in ("threading", "multiprocessing.dummy"):
        return type(thread).__module__
    return str(getattr(getattr(thread, "_target", None), "__module__", None) or "")


def executor_of(thread: threading.Thread) -> Any:
    """Give the `ThreadPoolExecutor` that a thread works for, or None."""
    module = sys.modules.get("concurrent.futures.thread")
    target = getattr(thread, "_target", None)
    if target is None or target is not getattr(module, "_worker", None):
        return None
    return thread._args[0]()  # type: ignore[attr-defined]


def is_worker(thread: threading.Thread) -> bool:
    """Tell a worker of a thread pool, of `concurrent.futures` or of `multiprocessing`."""
    return getattr(thread, "_target", None) in _pools()


def serves_processes(thread: threading.Thread) -> bool:
    """Tell a thread that only serves a pool of processes, of which more is known than of it."""
    return not is_worker(thread) and origin(thread).startswith(_OF_POOLS)


def work_of(thread: threading.Thread, frames: dict[int, FrameType]) -> Any:
    """Give what a worker of a thread pool is working at, or None if it waits for work."""
    target: Any = getattr(thread, "_target", None)
    variable = _pools().get(target)
    frame = frames.get(thread.ident or 0)
    while variable is not None and frame is not None:
        if frame.f_code is target.__code__:
            return frame.f_locals.get(variable)
        frame = frame.f_back
    return None


def may_calculate(thread: threading.Thread, frames: dict[int, FrameType]) -> bool:
    """Tell whether a thread may be in a numerical library, now or at any moment.

    An idle worker of a thread pool is not: only another thread could give it work.
    """
    if is_worker(thread):
        return work_of(thread, frames) is not None
    return not origin(thread).startswith(_MESSENGERS)


def native_names() -> Counter[str]:
    """Count the names that native threads gave themselves, which Python's own do not."""
    names: Counter[str] = Counter()
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as file:
                names[file.read().strip()] += 1
        except OSError:  # it has ended
            continue
    return names


def _is_own(thread: threading.Thread) -> bool:
    name = thread.name
    if name in _OWN_NAMES or name.startswith(_OWN_PREFIXES):
        return True
    if _waits_for_ours(thread):
        return True
    module = origin(thread)
    # The monitor of tqdm only redraws bars; those of a branch are drawn by what advances them.
    return module.partition(".")[0] in OWN or module == "tqdm._monitor"


def _waits_for_ours(thread: threading.Thread) -> bool:
    """Tell a thread in which asyncio, before Python 3.12, waits for a process of nbrefine's."""
    target = getattr(thread, "_target", None)
    if getattr(target, "__qualname__", "") != "ThreadedChildWatcher._do_waitpid":
        return False
    try:
        with open(f"/proc/{thread._args[1]}/comm") as file:  # type: ignore[attr-defined]
            return file.read().strip() in PROCESSES
    except (OSError, AttributeError):  # one of them has ended
        return False


def _pools() -> dict[Any, str]:
    """Map the function that a pool's worker runs to the variable that holds its work."""
    return {
        getattr(sys.modules[module], function): variable
        for module, function, variable in (
            ("concurrent.futures.thread", "_worker", "work_item"),
            ("multiprocessing.pool", "worker", "task"),
        )
        if module in sys.modules
    }
