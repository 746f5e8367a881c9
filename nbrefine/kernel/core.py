"""The asynchronous core of a live kernel: one cell at a time, each brought to its end.

`Kernel` is its public face.  Code that asks a kernel on the controller's behalf (`helper`)
builds on it directly, since it runs on the portal's loop itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbrefine.errors import KernelDeadError, KernelError, UsageError
from nbrefine.kernel.lineage import Lineage, Passing
from nbrefine.kernel.messages.collect import Collector, OutputLimits
from nbrefine.kernel.messages.execution import Execution, OnMessage, Private, Ticket
from nbrefine.kernel.names import bind
from nbrefine.kernel.processes.line import leave_overlay, tell_adopted
from nbrefine.outputs import CellResult, Hazard, Output
from nbrefine.redaction import Redactor, clean_text

if TYPE_CHECKING:
    from nbrefine.files import FileChanges
    from nbrefine.kernel.link import Link
    from nbrefine.kernel.processes.keeper import Keeper
    from nbrefine.kernel.processes.process import Launch
    from nbrefine.kernel.workspace.overlays import Layer
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
        self.origin: Core | None = None
        """The kernel it was branched from; what has ended there is not started anew."""
        self.epoch = 0
        self.running: Execution | None = None
        self.limits = limits
        self.names: dict[str, None] = {}
        """What the cells have bound so far, in that order."""
        self._turn = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Task[None]] = set()  # of processes that were replaced
        self._earlier: tuple[Output, ...] = ()  # late outputs of processes that were replaced
        self._suspended = False  # its garbage is not collected, its exit handlers do not run
        self.adopted = False
        """Whether its process is another kernel's by now, as a branch's may be."""
        self.lineage = Lineage()
        """What it has in common with its branches."""
        self.layer: Layer | None = None
        """A branch's view of the working folder, where that is its own."""
        self.hazards: tuple[Hazard, ...] = ()
        """What a branch has not simply taken along."""
        self.copy: Passing | None = None
        """The copy of its present state, which is of no use once something runs."""
        self.copying = asyncio.Lock()
        self.restore: Callable[[], Awaitable[Core]] | None = None
        """Gives a branch of the last checkpoint that was asked for and is there still."""
        self.heir: Callable[[], Awaitable[Core]] | None = None
        """Gives a branch of the copy that this kernel's own process has become."""
        self._on_end: Callable[[], object] = lambda: None

    async def start(self, limit: float, keeper: Keeper | None = None) -> None:
        """Start the process and wait until it answers.

        Parameters
        ----------
        keeper: of the process that this one replaces.
        """
        from nbrefine.kernel.link import Link

        assert self.launch is not None
        self.link = await Link.start(self.launch, limit, self.late.feed, keeper)
        self.epoch += 1
        self.names = {}

    async def connect(self, path: Path, limit: float) -> None:
        """Connect to a kernel that runs and wait until it answers."""
        from nbrefine.kernel.link import Link

        self.lineage = Lineage(mode="auto")
        self.link = await Link.connect(path, limit, self.late.feed)
        self.epoch = 1

    def become(
        self, origin: Core, link: Link, names: dict[str, None], on_end: Callable[[], object]
    ) -> None:
        """Become a branch of a kernel.

        Parameters
        ----------
        link: what was made for it.
        names: those that its cells have bound so far.
        on_end: called when the branch has ended or was adopted.
        """
        self.link, self.origin, self.epoch = link, origin, 1
        self.lineage, self._on_end = origin.lineage, on_end
        self.names = dict(names)

    def _move_on(self) -> None:
        """Let go of the copy of what is about to be its past."""
        passing, self.copy = self.copy, None
        if passing is not None:
            passing.retire()

    @property
    def info(self) -> KernelInfo:
        return self.link.info

    @property
    def owned(self) -> bool:
        """Whether nbrefine started the process."""
        return self.link.process is not None

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
        on_message: OnMessage | None = None,
    ) -> CellResult:
        """Run a user's cell: its names are noted, and what came late stands first."""
        epoch = self.epoch
        result = await self.execute(
            source, timeout=timeout, on_output=on_output, on_message=on_message, ticket=ticket
        )
        if result.status != "aborted" and epoch == self.epoch:
            bind(self.names, source)
        late, cut = self.late.take()
        late = self._take_earlier() + late
        return replace(result, outputs=late + result.outputs, cut=cut + result.cut)

    def take_late(self) -> tuple[Output, ...]:
        """Take the outputs that came after their cells had ended and are in no result yet."""
        return self._take_earlier() + self.late.take()[0]

    def _take_earlier(self) -> tuple[Output, ...]:
        earlier, self._earlier = self._earlier, ()
        return earlier

    async def execute(
        self,
        source: str,
        *,
        timeout: float | None,  # noqa: ASYNC109 - seconds until the ladder, not until a cancel
        store_history: bool = True,
        private: Private | None = None,
        on_output: Callable[[Output], object] | None = None,
        on_message: OnMessage | None = None,
        ticket: Ticket | None = None,
    ) -> CellResult:
        """Run a cell when its turn has come; a caller that is cancelled interrupts it.

        Parameters
        ----------
        store_history: False for code that leaves no trace in `In` and the execution count.
        private: the nonce in `metadata["nbrefine"]` of display messages that are not outputs,
            and who gets their data, called on the portal.
        on_message: called on the portal with what shows, as it comes and whole.
        ticket: how somebody else can stop it.
        """
        self.lineage.require_here()
        ticket = ticket or Ticket()
        source = clean_text(source)
        # What helper code prints is in nobody's result.
        limits = replace(self.limits, folder=None) if private else self.limits

        def request() -> Execution:
            execution = Execution(
                source,
                limits=limits,
                redact=self.redact,
                on_output=on_output,
                on_message=on_message,
            )
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
        await self.wake()
        self._require_alive()
        link = self.link
        if link.occupied:
            raise KernelError(
                "The kernel still runs an earlier cell that reacted to no interrupt",
                hint="Wait for it, or restart the kernel where it was started",
            )
        self._move_on()
        self._resume()
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
        if not link.died.done() or not self._restarts or self.closed:
            return
        names = tuple(self.names)
        try:
            if self.restore is not None:
                execution.rungs.append("rollback")
                self._replace(await self.restore())
                self.epoch += 1
            else:
                execution.rungs.append("restart")
                await self._reopen()
        except (KernelError, UsageError) as error:  # the cell has its result all the same
            execution.notes.append(f"the kernel could not be started again: {error}")
            self.names = {}
        execution.lost = tuple(name for name in names if name not in self.names)

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

    @property
    def _restarts(self) -> bool:
        return self.launch is not None and self.origin is None

    async def queue(self) -> None:
        """Stand behind the cells that were asked for before, each of which does so in a task."""
        self.lineage.require_here()  # elsewhere those would never end
        await asyncio.sleep(0)

    async def acquire(self) -> Link:
        """Take the turn, in which nothing else runs in the kernel, and give the link with it.

        Raises
        ------
        KernelDeadError: the kernel has ended.
        KernelStartError: its process became a copy, and nothing could be branched from that.
        """
        await self._turn.acquire()
        try:
            await self.wake()
            self._require_alive()
        except BaseException:
            self._turn.release()
            raise
        return self.link

    def release(self) -> None:
        """Give the turn back."""
        self._turn.release()

    async def wake(self) -> None:
        """Go on with a branch of the copy that this kernel's own process has become, if it has."""
        if self.heir is not None:
            heir = await self.heir()
            self.heir = None
            self._end_later(self._take_over(heir).part())

    async def adopt(self, branch: Core) -> FileChanges | None:
        """Let a branch's process take the place of this kernel's, which ends.

        Gives what that changes in the working folder; None where nothing was held back.

        Raises
        ------
        KernelDeadError: the branch has ended, or this kernel was shut down.
        KernelError: the branch did not leave its view of the working folder.
        """
        async with self._turn, branch._turn:
            adopting = asyncio.ensure_future(self._adopt(branch))
            try:
                return await asyncio.shield(adopting)
            except asyncio.CancelledError:
                await asyncio.wait({adopting})  # files and process belong together
                raise

    async def _adopt(self, branch: Core) -> FileChanges | None:
        self._require_open()
        branch._require_alive()
        process, layer, branch.layer = branch.link.process, branch.layer, None
        assert process is not None
        assert process.line is not None  # a branch has been forked
        changed = None
        try:
            if layer is not None and self.origin is None:
                branch._move_on()  # its copy has a view of the folder that is about to end
                changed = await layer.adopt(partial(leave_overlay, process.line))
            elif layer is not None:  # a branch's own view grows by that of its branch
                if self.layer is not None:
                    await asyncio.to_thread(self.layer.close)
                self.layer = layer
        except BaseException:
            branch.layer = layer
            raise
        self._replace(branch)
        return changed

    def _replace(self, branch: Core) -> None:
        self._move_on()
        copy, dormant, self.heir = branch.copy, self.heir is not None, None
        old = self._take_over(branch)
        self.copy = copy
        self._end_later(old.part() if dormant else old.close(leave=True))

    def _take_over(self, branch: Core) -> Link:
        """Go on with a branch's process, and give the link to the old one."""
        old, self.link = self.link, branch.link
        self._earlier = self.take_late()
        self.late, branch.late = branch.late, self.late
        branch.copy = None
        self.names = branch.names
        self._suspended = self.origin is None
        branch.adopted = True
        branch._closing = asyncio.ensure_future(asyncio.sleep(0))
        branch._on_end()
        return old

    def _end_later(self, work: Coroutine[Any, Any, None]) -> None:
        ending = asyncio.ensure_future(work)
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    def _resume(self) -> None:
        """Tell a process that was adopted that it has the duties of a session's."""
        process, suspended = self.link.process, self._suspended
        self._suspended = False
        if suspended and process is not None and process.line is not None:
            tell_adopted(process.line)

    async def interrupt(self) -> tuple[str, ...]:
        """Interrupt the running cell, wait until it has ended, and give the rungs it took."""
        await self.queue()
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
        if self.origin is not None:
            raise KernelError(
                "A branch has nothing to start anew from", hint="Close it and branch again"
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
            lost, self.restore = tuple(self.names), None
            await self._reopen()
            return lost

    async def _reopen(self) -> None:
        """Start anew while the old process shuts down, which may run exit handlers of a cell's."""
        old, dormant, self.heir = self.link, self.heir is not None, None
        self._move_on()
        ending = asyncio.ensure_future(old.part() if dormant else old.close(grace=_GRACE))
        try:
            await self.start(_RESTART, old.process.keeper if old.process else None)
        finally:
            await ending

    async def close(self) -> None:
        """Shut the kernel down, or let go of one that is not ours; a second call does nothing."""
        if not self.lineage.here:
            return  # a forked child leaves the block that its parent is still in
        await self.queue()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._move_on()
        self._resume()
        if self.running is not None:
            self.running.cause = "interrupted"
            if self._restarts and not self.link.died.done():
                await self.link.interrupt()
        grace = _GRACE if self.origin is None else 0.0  # a branch just goes
        async with AsyncExitStack() as stack:  # each step whatever becomes of the others
            stack.callback(self._on_end)
            if self.layer is not None:
                stack.push_async_callback(asyncio.to_thread, self.layer.close)
            if self.origin is None:
                self.lineage.closed = True
                stack.push_async_callback(self.lineage.close)
            stack.push_async_callback(self._ended)
            await self.link.close(grace=grace)
            async with self._turn:  # a restart that was under way has made a new link
                await self.link.close(grace=grace)

    async def _ended(self) -> None:
        for trouble in await asyncio.gather(*self._endings, return_exceptions=True):
            if trouble is not None:
                raise trouble

    def _require_open(self) -> None:
        self.lineage.require_here()
        if self.adopted:
            raise KernelDeadError("The branch was adopted", hint="Use the kernel that adopted it")
        if self.closed:
            raise KernelDeadError("The kernel was shut down", hint="Start a new one")

    def _require_alive(self) -> None:
        self._require_open()
        if self.link.died.done():
            how = str(self.link.died.result())
            again = "Call restart(), or start another one" if self._restarts else "Connect again"
            again = again if self.origin is None else "Branch again"
            raise KernelDeadError(how[0].upper() + how[1:], hint=again)
