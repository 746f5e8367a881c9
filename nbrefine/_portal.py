"""The private loop thread on which all kernel and model I/O runs, and the `Run` handle to it.

There is one asynchronous core and no synchronous twin: `start(coroutine)` begins work on the
portal's loop and gives back a `Run`, which a coroutine on any loop awaits and plain code asks
for its `result()`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from nbrefine.errors import RunStopped, UsageError, nearest

T = TypeVar("T")
P = ParamSpec("P")

HEARTBEAT = 0.1
"""Seconds between wake-ups of a loop that awaits a `Run`.

An idle selector does not see ipykernel's interrupt; with a 0.1 s heartbeat an interrupt
acted after 0.53 s instead of at the end of the wait.
"""

SETTLE = 15.0
"""Seconds that an interrupted wait gives the work it stopped to clean up."""


class Run(Generic[T]):
    """Work that has begun: `await` it, ask for its `result()`, or `stop()` it.

    A `Run` of something that must be closed is a context manager too, `with` and
    `async with`: entering waits for the thing and enters it, leaving closes it.

    Parameters
    ----------
    coroutine: what to run; it starts at once.
    on_stop: called on the portal's loop instead of cancelling when the run is stopped, for
        work that ends by itself with a result.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], *, on_stop: Callable[[], None] | None = None
    ) -> None:
        self._future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._task: asyncio.Task[T] | None = None
        self._on_stop = on_stop
        self._entered: Any = None
        self._loop = _portal().loop
        if on_portal():
            self._begin(coroutine)
        else:
            self._loop.call_soon_threadsafe(self._begin, coroutine)

    def _begin(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._task = self._loop.create_task(coroutine)
        self._task.add_done_callback(self._settle)

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._future.set_exception(
                RunStopped("The run was stopped before it had a result", hint="Start it again")
            )
        elif (error := task.exception()) is not None:
            self._future.set_exception(error)
        else:
            self._future.set_result(task.result())

    def stop(self) -> None:
        """Ask the work to end; what it leaves behind is told by `result()` or `await`."""
        self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._future.done() or self._task is None:
            return
        if self._on_stop is not None:
            self._on_stop()
        else:
            self._task.cancel()

    def done(self) -> bool:
        """Tell whether the work has ended, well or not."""
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the work and give its value.

        Parameters
        ----------
        timeout: seconds to wait; None waits for as long as it takes.

        Raises
        ------
        TimeoutError: `timeout` passed; the work goes on.
        RunStopped: the work was stopped and left no value.
        UsageError: called on the portal's own thread, which would wait for itself.
        KeyboardInterrupt: as pressed, after the work was stopped and had time to clean up.
        """
        if on_portal():
            raise UsageError(
                "result() would block the loop that does the work", hint="Await the run instead"
            )
        try:
            return self._future.result(timeout)
        except KeyboardInterrupt:
            self.stop()
            concurrent.futures.wait([self._future], timeout=SETTLE)
            self._discard()
            raise

    def __await__(self) -> Generator[Any, None, T]:
        return self._wait().__await__()

    async def _wait(self) -> T:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def wake(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish)

        beat = None if on_portal() else HEARTBEAT  # no interrupt comes to the portal's thread
        self._future.add_done_callback(wake)
        try:
            while not self._future.done():
                await asyncio.wait({done}, timeout=beat)
        except asyncio.CancelledError:
            self.stop()
            deadline = loop.time() + SETTLE
            while not self._future.done() and loop.time() < deadline:
                await asyncio.wait({done}, timeout=HEARTBEAT)
            if (closing := self._discard()) is not None:
                await closing
            raise
        return self._future.result()

    def _discard(self) -> Run[None] | None:
        """Close what was made all the same, since the one who waited for it never gets it."""
        future = self._future
        made = future.result() if future.done() and future.exception() is None else None
        return Run(made.aclose()) if isinstance(made, Closing) else None

    async def __aenter__(self) -> T:
        self._entered = await self
        await self._entered.__aenter__()
        return self._entered  # type: ignore[no-any-return]

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._entered.__aexit__(kind, error, trace)

    def __enter__(self) -> T:
        self._entered = self.result()
        self._entered.__enter__()
        return self._entered  # type: ignore[no-any-return]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered.__exit__(kind, error, trace)


def blocking(begin: Callable[P, Run[T]]) -> Callable[[Callable[[], None]], Callable[P, T]]:
    """Make of a name and its docstring the function that waits for what `begin` has begun.

    It takes what `begin` takes, so that parameters, types and defaults stand in one place.
    """

    def named(declared: Callable[[], None]) -> Callable[P, T]:
        taken = inspect.signature(begin)

        @functools.wraps(declared)
        def wait(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                taken.bind(*args, **kwargs)
            except TypeError as mistake:  # names the function that was called
                told = f"{declared.__name__}() {mistake}"
                unknown = [name for name in kwargs if name not in taken.parameters]
                meant = nearest(unknown[0], taken.parameters) if unknown else ""
                raise TypeError(f"{told}. {meant}".rstrip() if meant else told) from None
            return begin(*args, **kwargs).result()

        wait.__signature__ = taken.replace(  # type: ignore[attr-defined]
            return_annotation=inspect.Signature.empty
        )
        del wait.__wrapped__  # it says that there are no parameters
        return wait

    return named


class Closing(ABC):
    """Something that holds what must be released: `close`, `aclose`, `with`, `async with`."""

    @abstractmethod
    async def _close(self) -> None:
        """Release it; runs on the portal and may be called again."""

    def close(self) -> None:
        """Release what this holds and wait until it is gone."""
        Run(self._close()).result()

    async def aclose(self) -> None:
        """Release what this holds."""
        await Run(self._close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Portal:
    """The loop and the daemon thread that drives it for as long as the process lives."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # By its name a thread of ours is told from a user's where both are in one kernel.
        workers = concurrent.futures.ThreadPoolExecutor(thread_name_prefix="nbrefine-worker")
        self.loop.set_default_executor(workers)
        self.thread = threading.Thread(target=self._drive, name="nbrefine-portal", daemon=True)
        self.thread.start()

    def _drive(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


_lock = threading.Lock()
_current: _Portal | None = None


def _portal() -> _Portal:
    global _current
    with _lock:
        if _current is None:
            _current = _Portal()
        return _current


_inherited: list[_Portal | None] = []
"""Portals of parents, kept: a loop that is collected takes its descriptors out of the selector,
which the child has in common with its parent."""


def _forget_in_child() -> None:
    """Drop a portal inherited by fork: its thread exists in the parent only."""
    global _current, _lock
    _lock = threading.Lock()
    _inherited.append(_current)
    _current = None


os.register_at_fork(after_in_child=_forget_in_child)


def on_portal() -> bool:
    """Tell whether the calling thread is the portal's."""
    return _current is not None and threading.current_thread() is _current.thread


async def call_user(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a user's function, plain or `async`, in a worker thread and give its value.

    The thread is a daemon of its own, so that a function that never returns can neither block
    the portal nor the end of the process.

    Raises
    ------
    Exception: what the function raised; a RuntimeError where that was no `Exception`, as after
        `sys.exit()`.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(value: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def work() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(function, *args, **kwargs)
            if inspect.isawaitable(value):
                value = asyncio.run(_finish(value))
        except BaseException as raised:
            error = raised
            if isinstance(raised, StopIteration) or not isinstance(raised, Exception):
                # A future takes no StopIteration, SystemExit would end the portal's loop and
                # with it every wait, and a CancelledError would pass for a stopped run.
                error = RuntimeError(f"the function raised {raised!r}")
                error.__cause__ = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, value, error)

    threading.Thread(target=work, name="nbrefine-user", daemon=True).start()
    return await answer


async def _finish(awaitable: Any) -> Any:
    return await awaitable
