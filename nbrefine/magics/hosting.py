"""The kernel itself as one to work with, from within a cell of it that awaits."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from nbrefine._portal import Run
from nbrefine.kernel import Kernel
from nbrefine.kernel.attached import Tell, here
from nbrefine.magics.asking import kernel_of
from nbrefine.magics.showing import Diverted


async def this_kernel(shell: Any) -> Kernel:
    """Give the kernel that runs the calling cell; cells run in it while that one awaits.

    Raises
    ------
    UsageError: this is plain IPython, or a subshell.
    """
    host = AwaitingCell(shell, kernel_of(shell))

    async def made() -> Kernel:
        return Kernel(await here(host.post, host=host))

    return await Run(made())


def load_tracebacks(shell: Any) -> None:
    """Load what shows a traceback, which takes every branch 0.2 s that has to do it by itself.

    An interrupt is waited for until its traceback is there.
    """
    shown = shell.InteractiveTB
    seen = getattr(shown, "tb", None)  # what %debug looks at
    try:
        _be_interrupted()
    except KeyboardInterrupt:
        with contextlib.suppress(Exception):  # it is IPython's own, and may be a user's
            shown.structured_traceback(*sys.exc_info())
    finally:
        shown.tb = seen


def _be_interrupted() -> None:
    raise KeyboardInterrupt


class AwaitingCell:
    """The cell that awaits, whose thread runs other cells meanwhile; see `attached.Host`.

    Made in it.

    Parameters
    ----------
    kernel: ipykernel's kernel of this process.
    """

    def __init__(self, shell: Any, kernel: Any) -> None:
        self._shell = shell
        self._kernel = kernel
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()  # has the cell that outputs belong to
        self._asking = asyncio.current_task()
        self._thread = threading.get_ident()
        self._task: asyncio.Task[None] | None = None
        self._from_us = False  # the interrupt is not a person's

    def post(self, job: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(job, context=self._context)

    def run(self, source: str, tell: Tell) -> None:
        def begin() -> None:
            self._task = self._loop.create_task(self._run(source, tell), context=self._context)

        self.post(begin)

    def interrupt(self) -> None:
        if self._task is not None and not self._task.done():
            self._from_us = True
            signal.pthread_kill(self._thread, signal.SIGINT)

    async def _run(self, source: str, tell: Tell) -> None:
        reply: dict[str, Any] = {"status": "error", "ename": "KeyboardInterrupt", "evalue": ""}
        try:
            assert self._task is not None
            with (
                Diverted(self._kernel, tell),
                interruptible(self._loop, self._task, self._on_signal),
            ):
                reply = await self._result(source)
        except (KeyboardInterrupt, asyncio.CancelledError):
            pass  # it came between two steps of the cell's; what awaits is told by the reply
        finally:
            tell("execute_reply", reply)

    async def _result(self, source: str) -> dict[str, Any]:
        shell, failed = self._shell, None
        try:
            transformed = shell.transform_cell(source)
        except Exception:  # noqa: BLE001 - a transformer of the user's; it is shown as the error
            transformed, failed = source, sys.exc_info()
        result = await shell.run_cell_async(
            source,
            store_history=False,
            transformed_cell=transformed,
            preprocessing_exc_tuple=failed,
        )
        shell.events.trigger("post_execute")
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            return {"status": "ok"}
        return {
            "status": "error",
            "ename": type(error).__name__,
            "evalue": str(error),
            "traceback": list(getattr(shell, "_last_traceback", None) or ()),
        }

    def _on_signal(self) -> None:
        if not self._from_us and self._asking is not None:
            self._loop.call_soon_threadsafe(self._asking.cancel)
        self._from_us = False


@contextlib.contextmanager
def interruptible(
    loop: asyncio.AbstractEventLoop,
    task: asyncio.Task[None],
    on_signal: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Have SIGINT interrupt the cell that a task runs on this loop's thread, the main one.

    Code that runs gets a KeyboardInterrupt, for which ipykernel's own handler would wait in vain;
    what awaits is cancelled.

    Parameters
    ----------
    on_signal: called first.
    """

    def handle(*_: object) -> None:
        on_signal()
        if asyncio.current_task(loop) is task:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(task.cancel)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
