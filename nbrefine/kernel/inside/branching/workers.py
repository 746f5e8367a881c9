"""Pools of workers that a fork leaves behind: made usable again, or made to say so.

Whoever waits in a branch for what a lost worker was to give must get an error, not wait for ever.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
from typing import Any

from . import threads

_REASON = "its worker belongs to the kernel that this one was branched from"

_LOST: list[Any] = []
"""Objects that were replaced. To collect them would be to wait for their workers."""


class Workers:
    """The pools of this process and what they work at, to be set right in a forked child."""

    def __init__(self) -> None:
        self._executors: dict[int, tuple[Any, list[Any]]] = {}
        frames = sys._current_frames()
        for thread in threading.enumerate():
            executor = threads.executor_of(thread)
            if executor is not None:
                _, work = self._executors.setdefault(id(executor), (executor, []))
                work.append(threads.work_of(thread, frames))

    def restore(self) -> None:
        """Let thread pools start new workers; let process pools say that they are broken."""
        for executor, work in self._executors.values():
            _renew(executor, [each.future for each in work if each is not None])
        for step in (_break_process_pools, _break_pools, _reset_multiprocessing, _drop_loky):
            with contextlib.suppress(AttributeError):  # this release of it is made otherwise
                step()


def _renew(executor: Any, running: list[Any]) -> None:
    while True:
        try:
            item = executor._work_queue.get_nowait()
        except queue.Empty:
            break
        if item is not None:
            running.append(item.future)
    for future in running:
        _fail(future)
    _LOST.append(executor._work_queue)
    executor._work_queue = queue.SimpleQueue()
    executor._idle_semaphore = threading.Semaphore(0)
    executor._shutdown_lock = threading.Lock()
    executor._threads.clear()


def _fail(future: Any) -> None:
    """End a future that nobody works at; whom it would call back is gone as well."""
    future._condition = threading.Condition()  # a lost thread may hold the old one
    future._done_callbacks.clear()
    future._waiters.clear()
    if not future.done():
        future.set_exception(RuntimeError(f"This was not finished: {_REASON}"))


def _break_process_pools() -> None:
    for module in ("concurrent.futures.process", "joblib.externals.loky.process_executor"):
        managers = getattr(sys.modules.get(module), "_threads_wakeups", None) or {}
        for manager in list(managers):
            executor = manager.executor_reference()
            if executor is not None:
                executor._broken = f"This pool cannot be used: {_REASON}"
                for item in list(executor._pending_work_items.values()):
                    _fail(item.future)
        if managers:
            managers.clear()


def _break_pools() -> None:
    module: Any = sys.modules.get("multiprocessing.pool")
    util: Any = sys.modules.get("multiprocessing.util")
    if module is None or util is None:
        return
    for finalizer in list(util._finalizer_registry.values()):
        pool = finalizer._weakref() if finalizer._weakref is not None else None
        if not isinstance(pool, module.Pool):
            continue
        pool._state = module.TERMINATE
        for result in list(pool._cache.values()):
            if isinstance(result, module.ApplyResult):
                result._success, result._value = False, RuntimeError(_REASON)
                result._event = threading.Event()
                result._event.set()


def _reset_multiprocessing() -> None:
    """Forget the parent's children and helpers, as `multiprocessing` does in its own forks."""
    util: Any = sys.modules.get("multiprocessing.util")
    queues: Any = sys.modules.get("multiprocessing.queues")
    process: Any = sys.modules.get("multiprocessing.process")
    if util is None or process is None:
        return
    process._children = set()
    util._finalizer_registry.clear()
    if queues is not None:
        for each in list(util._afterfork_registry.values()):
            if isinstance(each, queues.Queue):
                each._reset(after_fork=True)
                _free(each._rlock)
                _free(each._wlock)
    for module, instance in (
        ("multiprocessing.resource_tracker", "_resource_tracker"),
        ("multiprocessing.forkserver", "_forkserver"),
        ("joblib.externals.loky.backend.resource_tracker", "_resource_tracker"),
    ):
        helper = getattr(sys.modules.get(module), instance, None)
        if helper is not None:
            _LOST.append(dict(vars(helper)))
            type(helper).__init__(helper)


def _free(lock: Any) -> None:
    """Release a lock of a queue's own: who holds it waits in a process that is not the branch's."""
    if lock is not None and lock._semlock._is_zero():
        lock.release()


def _drop_loky() -> None:
    """Let joblib start processes of its own at its next parallel loop."""
    module: Any = sys.modules.get("joblib.externals.loky.reusable_executor")
    if module is not None and module._executor is not None:
        _LOST.append(module._executor)
        module._executor = module._executor_kwargs = None
