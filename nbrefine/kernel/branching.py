"""Copies of a live kernel's state, the branches that grow from them, and the one that is adopted.

A `Copy` is a dormant fork of the kernel's process; branches are forked from it.  It stays for as
long as somebody holds it, or a branch of it lives, or nothing has run in the kernel since: so k
branches taken one after the other, or at once, come from one copy, and nothing pins an old state.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from nbrefine.errors import BranchRefused, KernelDeadError, KernelError, KernelStartError
from nbrefine.kernel.attached import checkpoint, refusal
from nbrefine.kernel.core import Core
from nbrefine.kernel.link import Link
from nbrefine.kernel.processes.forked import Branch
from nbrefine.kernel.processes.forking import Nursery, Unattachable
from nbrefine.kernel.processes.line import answer
from nbrefine.kernel.selftest import proven
from nbrefine.outputs import Hazard

if TYPE_CHECKING:
    from nbrefine.files import FileChanges
    from nbrefine.kernel.processes.keeper import Keeper

MOST = 64
"""Branches of one session that may live at a time; each is a process with six threads."""

_FORK = 10.0  # seconds in which a kernel must have made a copy of itself
_START = 30.0  # seconds in which a branch must answer
_ANSWER = 2.0  # seconds in which a copy must react


class Copy:
    """A dormant copy of a kernel's state, counted by those who hold it.

    Parameters
    ----------
    core: the kernel it is a copy of.
    nursery: the way to its process.
    keeper: what the processes of its branches belong to.
    hazards: what the copy does not simply take along.
    """

    def __init__(
        self, core: Core, nursery: Nursery, keeper: Keeper, hazards: tuple[Hazard, ...]
    ) -> None:
        self.core = core
        self.hazards = hazards
        self._closed = False
        self._names = dict(core.names)
        self._layer = core.layer
        self._nursery = nursery
        self._keeper = keeper
        self._holders = 0
        self._branches = 0
        # In a kernel that is somebody else's, cells run of which nobody here knows.
        self._current = core.owned
        keeper.acquire()
        core.lineage.copies.add(self)

    @property
    def pid(self) -> int:
        return self._nursery.pid

    @property
    def closed(self) -> bool:
        """Whether its process was told to go, or was found to have gone."""
        return self._closed or self._nursery.closed or self.core.lineage.closed

    def hold(self) -> None:
        """Keep it until `release` is called as often."""
        self._holders += 1

    def release(self) -> None:
        """Let go of it."""
        self._holders -= 1
        self._settle()

    def retire(self) -> None:
        """The kernel goes on from here, so that this is no copy of its present state any more."""
        self._current = False
        self._settle()

    def _settle(self) -> None:
        if not (self._current or self._holders or self._branches):
            self.end()

    def end(self) -> None:
        """End the process; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self.core.lineage.copies.discard(self)
        # What goes on is an adopted branch, which belongs to the session's keeper from now on.
        self._nursery.leave()
        self._nursery.close()
        self._keeper.release()

    async def branch(self, *, overlaid: bool = True, direct: bool = False) -> Core:
        """Fork a branch and give it, ready to run cells.

        Parameters
        ----------
        overlaid: whether it sees the working folder through an overlay, where it can.
        direct: whether it speaks to us alone, which makes it in a third of the time; it cannot
            branch, and takes no interrupt by message.

        Raises
        ------
        KernelDeadError: the copy's process has ended, or the kernel was shut down.
        KernelError: too many branches live already.
        KernelStartError: the branch did not come up.
        """
        lineage = self.core.lineage
        if len(lineage.branches) + len(lineage.making) >= MOST:
            raise KernelError(
                f"{MOST} branches of this session live already", hint="Close some of them first"
            )
        return await self._branched(overlaid=overlaid, direct=direct)

    async def heir(self) -> Core:
        """Fork a branch that takes the place of the process that has become this copy.

        Raises
        ------
        KernelDeadError, KernelStartError: see `branch`.
        """
        return await self._branched(overlaid=False)

    async def _branched(self, *, overlaid: bool, direct: bool = False) -> Core:
        self.core.lineage.require_here()
        if self.closed:
            raise KernelDeadError("The checkpoint was closed", hint="Take another one")
        lineage = self.core.lineage
        work = asyncio.ensure_future(self._branch(overlaid=overlaid, direct=direct))
        lineage.making.add(work)
        try:
            return await work
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if lineage.closed and me is not None and not me.cancelling():
                raise KernelDeadError("The kernel was shut down", hint="Start one") from None
            raise
        finally:
            lineage.making.discard(work)

    async def _branch(self, *, overlaid: bool, direct: bool) -> Core:
        lineage = self.core.lineage
        self._branches += 1
        core = Core(self.core.launch, self.core.limits)
        try:
            if overlaid:
                core.layer = await lineage.layer(self._keeper.folder, self._layer)
            overlay = core.layer.settings if core.layer else None
            process = await Branch.start(
                self._keeper, self._nursery, self.core.launch, overlay=overlay, direct=direct
            )
            core.hazards = self._hazards_of(core, process)
            link = await Link.join(process, self.core.info, _START, core.late.feed)
        except BaseException as error:
            self._left(core)
            if core.layer is not None:
                await asyncio.to_thread(core.layer.close)
            if isinstance(error, KernelStartError) and not await self._nursery.answers(_ANSWER):
                self._nursery.leave()  # it can be branched from no more
            if isinstance(error, (OSError, Unattachable)):
                raise _not_set_up(error) from error
            raise
        core.become(self.core, link, self._names, lambda: self._left(core))
        lineage.branches.add(core)
        return core

    def _hazards_of(self, core: Core, process: Branch) -> tuple[Hazard, ...]:
        """Give the copy's hazards, but for open files that a branch's own view holds back."""
        left, folder = self.hazards, self.core.lineage.folder
        if core.layer is not None:
            left = tuple(
                hazard
                for hazard in self.hazards
                if hazard.verdict != "shared" or f" {folder}/" not in f" {hazard.detail}"
            )
        return (*left, *(Hazard(**each) for each in process.shared))

    def _left(self, core: Core) -> None:
        """A branch has ended, or is a session of its own now."""
        self.core.lineage.branches.discard(core)
        self._branches -= 1
        if not self._branches and not core.adopted:
            self._nursery.sweep()
        self._settle()


def _not_set_up(error: OSError | Unattachable) -> KernelStartError:
    why = error.reason if isinstance(error, Unattachable) else f"{type(error).__name__}: {error}"
    return KernelStartError(
        f"A branch could not be set up: {why}",
        hint="Undo what a cell did to the process's user, limits or private folder, or restart it",
    )


async def copy(core: Core) -> Copy:
    """Give the copy of a kernel's present state, the one there is or a new one, held once.

    Raises
    ------
    BranchRefused: a copy would not be true or safe, or this kernel cannot branch.
    KernelDeadError: the kernel has ended, or did not come back from its fork.
    """
    await core.queue()
    async with core.copying:
        await core.acquire()
        if isinstance(core.copy, Copy) and not core.copy.closed:
            core.copy.hold()
            core.release()
            return core.copy
        if core.copy is not None:
            core.copy.retire()
        if core.owned:  # in the turn, or the next cell would not know which copy it leaves behind
            return await _made(_copy_in_turn, core)
        core.release()  # it is asked by a cell
        return await _made(_copy_by_cell, core)


async def branch(core: Core, *, direct: bool = False) -> Core:
    """Give a branch of a kernel's present state.

    Parameters
    ----------
    direct: see `Copy.branch`.

    Raises
    ------
    BranchRefused, KernelDeadError: see `copy`.
    KernelError, KernelStartError: see `Copy.branch`.
    """
    made = await copy(core)
    try:
        return await made.branch(direct=direct)
    finally:
        made.release()


Making = Callable[[Core, asyncio.Future[Copy]], Coroutine[Any, Any, None]]


async def _made(making: Making, core: Core) -> Copy:
    """Have a copy made, which is let go again if nobody waits for it any more."""
    made: asyncio.Future[Copy] = asyncio.get_running_loop().create_future()
    work = asyncio.ensure_future(making(core, made))
    work.add_done_callback(lambda _: _pass_on(work, made))
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        made.add_done_callback(_let_go)
        raise


async def _copy_by_cell(core: Core, made: asyncio.Future[Copy]) -> None:
    """Copy a kernel of somebody else's."""
    made.set_result(_held(core, Copy(core, *await checkpoint(core))))


async def _copy_in_turn(core: Core, made: asyncio.Future[Copy]) -> None:
    """Give a copy as soon as there is one, and the turn back when the kernel can run cells."""
    try:
        process = core.link.process
        assert process is not None
        if process.keeper is None or process.line is None or process.unbranchable:
            raise refusal((Hazard("kernel", "refuse", process.unbranchable),))
        if wrong := await proven(process.keeper):
            raise refusal((Hazard("kernel", "refuse", wrong),))
        rested = await _rest(core, core.link)
        made.set_result(_held(core, rested or await _fork(core, core.link)))
        if rested is not None:
            core.heir = rested.heir
            with suppress(KernelError):  # who needs it next tries again
                await core.wake()
    finally:
        core.release()


def _pass_on(work: asyncio.Task[None], made: asyncio.Future[Copy]) -> None:
    error = None if work.cancelled() else work.exception()
    if not made.done():
        made.set_exception(error or KernelDeadError("The kernel was ended while it was copied"))


def _let_go(made: asyncio.Future[Copy]) -> None:
    if made.exception() is None:
        made.result().release()


async def _rest(core: Core, link: Link) -> Copy | None:
    """Let the process of a session that was adopted become the copy itself, if that loses nothing.

    A fork takes along what its parent's sockets have in memory, which nobody can free there. A
    session that is adopted hundreds of times would grow by it.
    """
    process = link.process
    if core.origin is not None or not isinstance(process, Branch) or process.line is None:
        return None
    content = _request() | {"rest": True}
    refused = asyncio.ensure_future(link.request("checkpoint_request", content, _FORK))
    resting = asyncio.ensure_future(answer(process.line, "resting", _FORK))
    await asyncio.wait({refused, resting}, return_when=asyncio.FIRST_COMPLETED)
    for each in (refused, resting):
        each.cancel()
    if not resting.done() or resting.cancelled():
        return None
    told, (connection,) = resting.result()
    nursery = Nursery(socket.socket(fileno=connection), told["pid"])
    return Copy(core, nursery, process.keeper, tuple(Hazard(**each) for each in told["hazards"]))


def _held(core: Core, made: Copy) -> Copy:
    made.hold()
    # Where others run cells, or threads and tasks go on, the state moves without our doing.
    if not core.owned or any(hazard.verdict == "lost" for hazard in made.hazards):
        made.retire()
    else:
        core.copy = made
    return made


async def _fork(core: Core, link: Link) -> Copy:
    process = link.process
    assert process is not None
    assert process.keeper is not None
    assert process.line is not None
    try:
        reply = await link.request("checkpoint_request", _request(), _FORK)
    except TimeoutError:
        if not await _is_forking(process.line):
            busy = f"it is busy and did not copy itself within {_FORK:g} s"
            raise refusal((Hazard("busy", "refuse", busy),)) from None
        await process.kill()  # it hangs in the middle of its fork, for ever
        raise KernelDeadError(
            f"The kernel did not come back from its fork within {_FORK:g} s and was ended",
            hint="Start it again",
        ) from None
    hazards = tuple(Hazard(**told) for told in reply.get("hazards", ()))
    if reply["status"] == "refused":
        raise refusal(hazards)
    if reply["status"] != "ok":
        raise KernelError(f"The kernel could not copy itself: {reply.get('evalue', reply)}")
    told, (connection, pidfd) = await answer(process.line, "checkpoint", _FORK)
    os.close(pidfd)
    nursery = Nursery(socket.socket(fileno=connection), told["pid"])
    return Copy(core, nursery, process.keeper, hazards)


def _request() -> dict[str, Any]:
    """Make the content of a request for a copy, of which nobody knows once its time is over."""
    return {"id": uuid4().hex, "deadline": time.time() + _FORK}


async def _is_forking(line: socket.socket) -> bool:
    """Tell whether a kernel has said that it begins to fork, and nothing since."""
    try:
        await answer(line, "forking", 0)
    except KernelError:
        return False
    return True


async def adopt(core: Core, branch: Core) -> FileChanges | None:
    """Let a branch become the session: its process takes the kernel's place, which ends.

    Gives what that changes in the working folder; None where nothing was held back.

    Raises
    ------
    BranchRefused: the kernel is not ours to replace.
    KernelError: the branch is none of this kernel's.
    KernelDeadError: the branch has ended, or the kernel was shut down.
    """
    await core.queue()
    if not core.owned:
        raise BranchRefused(
            "The kernel is somebody else's, so a branch cannot take its place",
            hint="Use commit(), which runs the accepted cell in it",
        )
    if not _descends(branch, core):
        raise KernelError("That is no branch of this kernel", hint="Adopt what branch() gave")
    return await core.adopt(branch)


def _descends(branch: Core, core: Core) -> bool:
    """Tell whether a branch grew from a kernel, itself or through others."""
    origin = branch.origin
    while origin is not None and origin is not core:
        origin = origin.origin
    return origin is core


async def rollback(core: Core, copy: Copy) -> None:
    """Let a branch of a copy become the session, in the working folder as it is.

    Raises
    ------
    BranchRefused, KernelError, KernelDeadError: see `adopt` and `Copy.branch`.
    """
    await core.queue()
    branch = await copy.branch(overlaid=False)
    try:
        await adopt(core, branch)
    except BaseException:
        await branch.close()
        raise


async def files(core: Core) -> FileChanges | None:
    """Tell what a branch has done to the working folder and holds back; None otherwise.

    Raises
    ------
    KernelDeadError: it was closed or adopted.
    """
    core.lineage.require_here()
    if core.closed:
        raise KernelDeadError("The branch was closed or adopted", hint="Ask before that")
    return await asyncio.to_thread(core.layer.changes) if core.layer else None
