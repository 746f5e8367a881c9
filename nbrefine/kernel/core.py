"""The asynchronous core of a live kernel: one cell at a time, each brought to its end.

`Kernel` is its public face.  Code that asks a kernel on the controller's behalf (`helper`)
builds on it directly, since it runs on the portal's loop itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbrefine.errors import KernelDeadError, KernelError, UsageError
from nbrefine.kernel.collect import Collector, OutputLimits
from nbrefine.kernel.execution import Execution, Private
from nbrefine.kernel.names import bind
from nbrefine.outputs import CellResult, Output
from nbrefine.redaction import Redactor, clean_text

if TYPE_CHECKING:
    from nbrefine.kernel.link import Link
    from nbrefine.kernel.process import Launch
    from nbrefine.values import KernelInfo

_GRACE = 2.0  # seconds a kernel gets to shut down by itself
_RESTART = 60.0  # seconds until a kernel that was started once must answer again


class Core:
    """A kernel through all its lives, and whose turn it is.

    A cell that has begun, and a restart, hold the turn until they have ended, also when nobody
    waits for them any more: so none is met half done.

    Parameters
    ----------
    launch: how the kernel is started; None for one that somebody else owns.
    limits: how much of a cell's output is kept, and where all of it goes.
    """

    def __init__(self, launch: Launch | None, limits: OutputLimits) -> None:
        redactor = Redactor()
        self.launch = launch
        self.redact: Callable[[str], str] = lambda text: redactor.redact(clean_text(text))[0]
        self.late = Collector(replace(limits, folder=None), late=True, redact=self.redact)
        """Outputs that came after their cells had ended."""
        self.link: Link
        self.epoch = 0
        self.running: Execution | None = None
        self.limits = limits
        self._names: dict[str, None] = {}
        self._process_id = os.getpid()
        self._turn = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None

    async def start(self, limit: float) -> None:
        """Start the process and wait until it answers."""
        from nbrefine.kernel.link import Link

        assert self.launch is not None
        self.link = await Link.start(self.launch, limit, self.late.feed)
        self.epoch += 1
        self._names = {}

    async def connect(self, path: Path, limit: float) -> None:
        """Connect to a kernel that runs and wait until it answers."""
        from nbrefine.kernel.link import Link

        self.link = await Link.connect(path, limit, self.late.feed)
        self.epoch = 1

    @property
    def info(self) -> KernelInfo:
        return self.link.info

    @property
    def closed(self) -> bool:
        """Whether it was shut down or is about to be."""
        return self._closing is not None

    async def run(
        self,
        source: str,
        *,
        timeout: float | None,  # noqa: ASYNC109 - see `execute`
        on_output: Callable[[Output], object] | None,
        ticket: Ticket,
    ) -> CellResult:
        """Run a user's cell: its names are noted, and what came late stands first."""
        epoch = self.epoch
        result = await self.execute(source, timeout=timeout, on_output=on_output, ticket=ticket)
        if result.status != "aborted" and epoch == self.epoch:
            bind(self._names, source)
        late, cut = self.late.take()
        return replace(result, outputs=late + result.outputs, cut=cut + result.cut)

    async def execute(
        self,
        source: str,
        *,
        timeout: float | None,  # noqa: ASYNC109 - seconds until the ladder, not until a cancel
        store_history: bool = True,
        private: Private | None = None,
        on_output: Callable[[Output], object] | None = None,
        ticket: Ticket | None = None,
    ) -> CellResult:
        """Run a cell when its turn has come; a caller that is cancelled interrupts it.

        Parameters
        ----------
        store_history: False for code that leaves no trace in `In` and the execution count.
        private: the nonce in `metadata["nbrefine"]` of display messages that are not outputs,
            and who gets their data, called on the portal.
        ticket: how somebody else can stop it.
        """
        ticket = ticket or Ticket()
        source = clean_text(source)
        # What helper code prints is in nobody's result.
        limits = replace(self.limits, folder=None) if private else self.limits

        def request() -> Execution:
            execution = Execution(source, limits=limits, redact=self.redact, on_output=on_output)
            if private is not None:
                execution.listen(*private)
            return execution

        work = self._in_turn(request, ticket, timeout, store_history=store_history)
        return await ticket.hand_in(work)

    async def _in_turn(
        self,
        request: Callable[[], Execution],
        ticket: Ticket,
        limit: float | None,
        *,
        store_history: bool,
    ) -> CellResult:
        async with self._turn:
            execution = ticket.execution = request()
            try:
                await self._conduct(execution, limit, store_history=store_history)
                if execution.refused and not execution.stop_asked:  # asked once more
                    execution.abandon()
                    execution = ticket.execution = request()
                    await self._conduct(execution, limit, store_history=store_history)
                return await execution.result()
            finally:
                execution.abandon()

    async def _conduct(
        self, execution: Execution, limit: float | None, *, store_history: bool
    ) -> None:
        """Send a cell and stay with it until it has ended, come what may."""
        self._require_alive()
        link = self.link
        if link.occupied:
            raise KernelError(
                "The kernel still runs an earlier cell that reacted to no interrupt",
                hint="Wait for it, or restart the kernel where it was started",
            )
        link.execute(execution, store_history=store_history)
        self.running = execution
        try:
            execution.cause = await execution.attend(limit)
            if not execution.done:
                await self._climb(execution)
            if execution.mute:
                await self._repair(execution)
        finally:
            self.running = None
            execution.settled.set()

    async def _climb(self, execution: Execution) -> None:
        from nbrefine.kernel.interrupt import climb

        link = self.link
        await climb(execution, link)
        if link.died.done() and self.launch is not None and not self.closed:
            execution.rungs.append("restart")
            execution.lost = tuple(self._names)
            try:
                await self._reopen()
            except (KernelError, UsageError) as error:  # the cell has its result all the same
                execution.notes.append(f"the kernel could not be started again: {error}")

    async def _repair(self, execution: Execution) -> None:
        """Restore the streams in whose absence a Python kernel runs and answers nothing."""
        if self.info.language != "python":
            return
        repair = self.link.restore_streams()
        if await repair.ended(_GRACE):
            execution.notes.append("sys.stdout and sys.stderr were restored")
            return
        execution.notes.append("the kernel does not answer any more")
        await self._climb(repair)
        execution.rungs += repair.rungs
        execution.notes += repair.notes
        execution.lost = repair.lost

    async def interrupt(self) -> tuple[str, ...]:
        """Interrupt the running cell, wait until it has ended, and give the rungs it took."""
        await asyncio.sleep(0)  # a cell that was asked for before has begun then
        execution = self.running
        if execution is None:
            return ()
        execution.ask_stop()
        await execution.settled.wait()
        return tuple(execution.rungs)

    async def restart(self) -> tuple[str, ...]:
        """Start anew when a running cell has been ended, and give the names that were lost."""
        if self.launch is None:
            raise KernelError(
                "Only a kernel that nbrefine started can be restarted by it",
                hint="Restart it where it was started, then connect again",
            )
        self._require_open()
        return await asyncio.shield(asyncio.ensure_future(self._restart()))

    async def _restart(self) -> tuple[str, ...]:
        running, epoch = self.running, self.epoch
        if running is not None and self.link.process is not None:
            running.cause = "interrupted"
            running.rungs.append("SIGKILL")
            await self.link.process.kill()
        async with self._turn:
            self._require_open()
            if running is not None and self.epoch > epoch:  # the ladder was there already
                return running.lost
            lost = tuple(self._names)
            await self._reopen()
            return lost

    async def _reopen(self) -> None:
        """Start anew while the old process shuts down, which may run exit handlers of a cell's."""
        old = self.link
        ending = asyncio.ensure_future(old.close(grace=_GRACE))
        try:
            await self.start(_RESTART)
        finally:
            await ending

    async def close(self) -> None:
        """Shut the kernel down, or let go of one that is not ours; a second call does nothing."""
        if os.getpid() != self._process_id:
            return  # a forked child leaves the block that its parent is still in
        await asyncio.sleep(0)  # a cell that was asked for before has begun then
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self.running is not None:
            self.running.cause = "interrupted"
            if self.launch is not None and not self.link.died.done():
                await self.link.interrupt()
        await self.link.close(grace=_GRACE)
        async with self._turn:  # a restart that was under way has made a new link
            await self.link.close(grace=_GRACE)

    def _require_open(self) -> None:
        if os.getpid() != self._process_id:
            raise KernelError(
                "The kernel belongs to the process that this one was forked from",
                hint="Start one here",
            )
        if self.closed:
            raise KernelDeadError("The kernel was shut down", hint="Start a new one")

    def _require_alive(self) -> None:
        self._require_open()
        if self.link.died.done():
            how = str(self.link.died.result())
            again = (
                "Connect again" if self.launch is None else "Call restart(), or start another one"
            )
            raise KernelDeadError(how[0].upper() + how[1:], hint=again)


class Ticket:
    """A cell's place in the queue: by it the cell is taken back, or interrupted once it runs."""

    def __init__(self) -> None:
        self.execution: Execution | None = None
        self._work: asyncio.Task[CellResult] | None = None
        self._stopped = False

    async def hand_in(self, work: Coroutine[Any, Any, CellResult]) -> CellResult:
        """Begin the work and wait for it; who is cancelled stops it and sees it end."""
        self._work = asyncio.ensure_future(work)
        if self._stopped:  # before it began
            self._work.cancel()
        try:
            return await asyncio.shield(self._work)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait({self._work})
            raise

    def stop(self) -> None:
        """Take the cell back, or interrupt it; one that has ended is left alone."""
        self._stopped = True
        if self.execution is not None:
            self.execution.ask_stop()
        elif self._work is not None:
            self._work.cancel()
