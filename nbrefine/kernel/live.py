"""The live kernel: start or connect, run cells, interrupt, restart, shut down."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from nbrefine._portal import Run
from nbrefine.errors import KernelDeadError, KernelError
from nbrefine.kernel.collect import Collector, OutputLimits
from nbrefine.kernel.execution import Execution, Private
from nbrefine.kernel.names import bind
from nbrefine.outputs import CellResult, Death, Output
from nbrefine.redaction import Redactor, clean_text
from nbrefine.values import KernelInfo

if TYPE_CHECKING:
    from nbrefine.kernel.link import Link
    from nbrefine.kernel.namespace import Variable
    from nbrefine.kernel.process import Launch

_GRACE = 2.0  # seconds a kernel gets to shut down by itself
_RESTART = 60.0  # seconds until a kernel that was started once must answer again


class Kernel:
    """A live Jupyter kernel: a process and its namespace.

    Made by `start` or `connect`.  Cells run one at a time, in the order they were asked for;
    every method may be called from any thread and any event loop.
    """

    def __init__(self, launch: Launch | None, limits: OutputLimits) -> None:
        redactor = Redactor()
        self._redact: Callable[[str], str] = lambda text: redactor.redact(clean_text(text))[0]
        self._process_id = os.getpid()
        self._launch = launch
        self._limits = limits
        self._late = Collector(replace(limits, folder=None), late=True, redact=self._redact)
        self._names: dict[str, None] = {}
        self._epoch = 0
        self._turn = asyncio.Lock()
        self._running: Execution | None = None
        self._closing: asyncio.Task[None] | None = None
        self._reopening: asyncio.Task[tuple[str, ...]] | None = None
        self._link: Link

    @classmethod
    def start(
        cls,
        name: str = "python3",
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        seed: int | None = 0,
        timeout: float = 60.0,
        limits: OutputLimits = OutputLimits(),  # noqa: B008 - frozen
        arguments: tuple[str, ...] = (),
    ) -> Run[Kernel]:
        """Start a kernel that this process owns.

        Parameters
        ----------
        name: kernelspec name, as `jupyter kernelspec list` shows it.
        cwd: its working folder; the controller's own by default.
        env: variables added to its environment.  Keys, tokens and passwords of the
            controller's environment reach it only from here.
        seed: PYTHONHASHSEED of the process; None leaves the order of sets to chance.
        timeout: seconds until it must answer.
        limits: how much of a cell's output is kept.
        arguments: added to the kernel's command line.

        Raises
        ------
        UsageError: there is no such kernelspec or folder.
        KernelStartError: it ended or did not answer; its last words are quoted.
        """

        async def work() -> Kernel:
            from nbrefine.kernel.process import Launch

            folder = None if cwd is None else str(cwd)
            kernel = cls(Launch(name, folder, env, seed, arguments), limits)
            await kernel._open(timeout)
            return kernel

        return Run(work())

    @classmethod
    def connect(
        cls,
        connection_file: str | Path,
        *,
        timeout: float = 60.0,
        limits: OutputLimits = OutputLimits(),  # noqa: B008 - frozen
    ) -> Run[Kernel]:
        """Connect to a kernel that somebody else owns; it is never killed nor restarted.

        Parameters
        ----------
        connection_file: the JSON file the kernel was started with.
        timeout: seconds until it must answer; while it runs a cell it cannot.
        limits: how much of a cell's output is kept.

        Raises
        ------
        UsageError: the file is missing or is no connection file.
        KernelStartError: nothing answered.
        """

        async def work() -> Kernel:
            from nbrefine.kernel.link import Link

            kernel = cls(None, limits)
            kernel._link = await Link.connect(Path(connection_file), timeout, kernel._late.feed)
            kernel._epoch = 1
            return kernel

        return Run(work())

    @property
    def owned(self) -> bool:
        """Whether nbrefine started the process; only such a kernel is killed or restarted."""
        return self._launch is not None

    @property
    def info(self) -> KernelInfo:
        return self._link.info

    @property
    def epoch(self) -> int:
        """Counts the namespaces this object has had: 1, and one more with every restart."""
        return self._epoch

    @property
    def alive(self) -> bool:
        """Whether cells can run."""
        return self._closing is None and not self._link.died.done()

    @property
    def death(self) -> Death | None:
        """Why the process ended by itself, if it did."""
        died = self._link.died
        return died.result() if died.done() and self._closing is None else None

    @property
    def connection_file(self) -> str:
        """Path of the file other clients connect with; "" where the kernel is not ours."""
        return self._link.process.connection_file if self._link.process else ""

    def run(
        self,
        source: str,
        *,
        timeout: float | None = 120.0,
        on_output: Callable[[Output], object] | None = None,
    ) -> Run[CellResult]:
        """Run a cell; its error, time-out or death is part of the result.

        Output that came after an earlier cell had ended stands first in the result, marked
        `late`.  Stopping the run interrupts the cell and gives the result it has by then; a run
        that still waits for its turn is taken back.

        Parameters
        ----------
        timeout: seconds until the cell is interrupted; None lets it run.
        on_output: called in a worker thread with each output as it arrives, raw and in order;
            text that came since the last call arrives as one.

        Raises
        ------
        KernelDeadError: the kernel had ended before.
        KernelError: a kernel that is not ours reacted to no interrupt.
        """
        ticket = _Ticket()

        async def work() -> CellResult:
            ticket.begin()
            epoch = self._epoch
            result = await self._execute(
                source, timeout=timeout, on_output=on_output, ticket=ticket
            )
            if result.status != "aborted" and epoch == self._epoch:
                bind(self._names, source)
            late, cut = self._late.take()
            return replace(result, outputs=late + result.outputs, cut=cut + result.cut)

        return Run(work(), on_stop=ticket.stop)

    async def _execute(
        self,
        source: str,
        *,
        timeout: float | None,  # noqa: ASYNC109 - seconds until the ladder, not until a cancel
        store_history: bool = True,
        private: Private | None = None,
        on_output: Callable[[Output], object] | None = None,
        ticket: _Ticket | None = None,
    ) -> CellResult:
        """Run a cell on the portal: the core of `run`, and of helper code.

        Parameters
        ----------
        store_history: False for code that leaves no trace in `In` and the execution count.
        private: the nonce in `metadata["nbrefine"]` of display messages that are not outputs,
            and who gets their data, called on the portal.
        """
        # What helper code prints is in nobody's result.
        limits = replace(self._limits, folder=None) if private else self._limits
        async with self._turn:
            for _ in range(2):  # a kernel that refused to begin is asked once more
                execution = Execution(
                    source,
                    limits=limits,
                    redact=self._redact,
                    on_output=on_output,
                )
                if private is not None:
                    execution.listen(*private)
                if ticket is not None:
                    ticket.execution = execution
                try:
                    await self._conduct(execution, timeout, store_history=store_history)
                except BaseException:
                    execution.abandon()
                    raise
                if not execution.refused:
                    break
                execution.abandon()
            try:
                return await execution.result()
            except BaseException:
                execution.abandon()
                raise

    async def _conduct(
        self, execution: Execution, limit: float | None, *, store_history: bool
    ) -> None:
        """Send a cell and stay with it until it has ended, come what may."""
        await self._reopened()
        self._require_alive()
        link = self._link
        if link.occupied:
            raise KernelError(
                "The kernel still runs an earlier cell that reacted to no interrupt",
                hint="Wait for it, or restart the kernel where it was started",
            )
        link.execute(execution, store_history=store_history)
        self._running = execution
        try:
            execution.cause = await execution.attend(limit)
            if not execution.done:
                await self._climb(execution)
            if execution.mute:
                await self._repair(execution)
        except asyncio.CancelledError:
            if not execution.done:
                execution.cause = "interrupted"
                await asyncio.shield(self._climb(execution))
            raise
        finally:
            self._running = None
            execution.settled.set()

    async def _climb(self, execution: Execution) -> None:
        from nbrefine.kernel.interrupt import climb

        link = self._link
        await climb(execution, link)
        if link.died.done() and self._launch is not None and self._closing is None:
            execution.rungs.append("restart")
            execution.lost = await self._reopen()

    async def _repair(self, execution: Execution) -> None:
        """Restore the streams in whose absence a Python kernel runs and answers nothing."""
        if self.info.language != "python":
            return
        repair = self._link.restore_streams()
        if await repair.ended(_GRACE):
            execution.notes.append("sys.stdout and sys.stderr were restored")
            return
        execution.notes.append("the kernel does not answer any more")
        await self._climb(repair)
        execution.rungs += repair.rungs
        execution.lost = repair.lost

    def interrupt(self) -> Run[tuple[str, ...]]:
        """Interrupt the running cell and give the rungs it took, () where none was running.

        A cell of an owned kernel that reacts to nothing for `interrupt.PATIENCE` seconds is
        ended by killing and restarting the kernel, and the cell's result names what was lost.
        """

        async def work() -> tuple[str, ...]:
            execution = self._running
            if execution is None:
                return ()
            execution.ask_stop()
            await execution.settled.wait()
            return tuple(execution.rungs)

        return Run(work())

    def restart(self) -> Run[tuple[str, ...]]:
        """Start the kernel anew and give the names that were lost, as the cells bound them.

        A running cell ends with it.

        Raises
        ------
        KernelError: the kernel is not ours to restart.
        KernelDeadError: it was shut down.
        """

        async def work() -> tuple[str, ...]:
            if self._launch is None:
                raise KernelError(
                    "Only a kernel that nbrefine started can be restarted by it",
                    hint="Restart it where it was started, then connect again",
                )
            self._require_open()
            if self._running is not None and self._link.process is not None:
                self._running.cause = "interrupted"
                self._running.rungs.append("SIGKILL")
                await self._link.process.kill()
            async with self._turn:
                return await self._reopen()

        return Run(work())

    async def _open(self, limit: float) -> None:
        from nbrefine.kernel.link import Link

        assert self._launch is not None
        self._link = await Link.start(self._launch, limit, self._late.feed)
        self._epoch += 1
        self._names = {}

    async def _reopen(self) -> tuple[str, ...]:
        """Start anew; a caller that is cancelled does not leave it half done."""

        async def work() -> tuple[str, ...]:
            lost = tuple(self._names)
            await self._link.close(grace=0 if self._link.died.done() else _GRACE)
            await self._open(_RESTART)
            return lost

        self._reopening = asyncio.ensure_future(work())
        return await asyncio.shield(self._reopening)

    async def _reopened(self) -> None:
        """Wait for a restart whose caller has gone."""
        if self._reopening is not None:
            with contextlib.suppress(KernelError):
                await asyncio.shield(self._reopening)

    def shutdown(self) -> Run[None]:
        """End the kernel and everything it left running; let go of one that is not ours.

        A running cell is interrupted.  A second call does nothing.
        """

        async def work() -> None:
            if os.getpid() != self._process_id:
                return  # a forked child leaves the block that its parent is still in
            if self._closing is None:
                self._closing = asyncio.ensure_future(self._close())
            await asyncio.shield(self._closing)

        return Run(work())

    async def _close(self) -> None:
        if self._running is not None:
            self._running.cause = "interrupted"
            if self.owned and not self._link.died.done():
                await self._link.interrupt()
        await self._reopened()
        await self._link.close(grace=_GRACE)

    def variables(self) -> Run[tuple[Variable, ...]]:
        """List what the namespace holds, with types, sizes and previews."""

        async def work() -> tuple[Variable, ...]:
            from nbrefine.kernel.namespace import variables

            return await variables(self)

        return Run(work())

    def late(self) -> Run[tuple[Output, ...]]:
        """Take the outputs that came after their cells had ended and are in no result yet."""

        async def work() -> tuple[Output, ...]:
            return self._late.take()[0]

        return Run(work())

    def _require_open(self) -> None:
        if os.getpid() != self._process_id:
            raise KernelError(
                "The kernel belongs to the process that this one was forked from",
                hint="Start one here",
            )
        if self._closing is not None:
            raise KernelDeadError("The kernel was shut down", hint="Start a new one")

    def _require_alive(self) -> None:
        self._require_open()
        if self._link.died.done():
            how = str(self._link.died.result())
            next_step = "Call restart(), or start another one" if self.owned else "Connect again"
            raise KernelDeadError(how[0].upper() + how[1:], hint=next_step)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown().result()


class _Ticket:
    """What a stopped run needs to know about its cell."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.execution: Execution | None = None
        self._stopped = False

    def begin(self) -> None:
        self.task = asyncio.current_task()
        if self._stopped:  # before its first step
            raise asyncio.CancelledError

    def stop(self) -> None:
        self._stopped = True
        if self.execution is not None:
            self.execution.ask_stop()
        elif self.task is not None:
            self.task.cancel()
