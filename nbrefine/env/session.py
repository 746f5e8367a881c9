"""The live session of an environment: a kernel, the points it has been at, and where attempts run.

An attempt begins from a point: setup and accepted cells, and nothing else.  Where the kernel can
branch, a point keeps a dormant copy of that state, so attempts begin from it as often as anybody
likes, and an accepted one becomes the session.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Literal

from nbrefine._portal import Run, call_user
from nbrefine.env.again import After, numbered, run_again, run_without_files, set_up
from nbrefine.env.points import Acceptance, GoneOn, Place, Point, closed
from nbrefine.env.undo import Undo, keep_before
from nbrefine.errors import (
    BranchRefused,
    KernelDeadError,
    KernelError,
    KernelStartError,
    RunStopped,
)
from nbrefine.files import FileChanges
from nbrefine.kernel import Kernel
from nbrefine.kernel.acceptance import Commit
from nbrefine.kernel.branching import copy
from nbrefine.kernel.state.changes import differences
from nbrefine.kernel.state.digest import Snapshot, snapshot
from nbrefine.kernel.state.packages import packages
from nbrefine.outputs import CellResult
from nbrefine.values import Isolation, KernelInfo

IsolationPolicy = Literal["auto", "fork", "rebuild", "none"]
"""Where attempts may run: `auto` takes the first of the others that can be had."""

_NO_WAY_BACK = "The kernel is somebody else's, and cannot go back to the state of an earlier step"


class Session:
    """A kernel, and which point it is at.

    Parameters
    ----------
    kernel: a live one.
    ours: whether nobody else has put a state into it, and it is closed with the session.
    policy: where attempts may run.
    limit: seconds of recorded run time up to which a point is rebuilt in a fresh kernel.
    confirm: asked, with the reason, before an attempt runs in the session itself although that
        was not asked for.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        ours: bool,
        policy: IsolationPolicy,
        limit: float,
        confirm: Callable[[str], bool] | None,
    ) -> None:
        self.kernel = kernel
        self.here = Point((), 0.0)
        self._intact = True  # the kernel holds what `here` says, and nothing else
        self._epoch = kernel.epoch  # of the namespace that attempts have to do with
        self.ours = ours
        self._policy = policy
        self._limit = limit
        self._confirm = confirm
        self._setup: CellResult | None = None
        self.brought = ""
        """What the session began with that no cell can make again, or ""."""
        self.undo: Undo | None = None
        """What keeps the files that accepted attempts change."""
        self._committing: Run[Commit] | None = None
        self._points: weakref.WeakSet[Point] = weakref.WeakSet()
        self._lock = asyncio.Lock()
        self._parting: set[asyncio.Task[None]] = set()
        self._refused: str | None = None

    @property
    def language(self) -> str:
        return self.kernel.info.language

    @property
    def impure(self) -> str:
        """Why attempts may fare differently when they begin twice from a point; "" if they do not.

        As far as the newest attempt, or `prepare` before the first one, has found out.
        """
        if not self._branches:
            return f"attempts do not run in branches (isolation {self._policy!r})"
        if not self.kernel.owned:
            return _NO_WAY_BACK
        return "no attempt has branched yet" if self._refused is None else self._refused

    @property
    def _branches(self) -> bool:
        return self._policy in ("auto", "fork")

    async def described(self) -> KernelInfo:
        """Tell which kernel it is and which packages it has."""
        return replace(self.kernel.info, packages=await packages(self.kernel.core))

    async def handed_in(self) -> tuple[str, ...] | None:
        """Name the variables that the kernel has come with; None for a fresh one of ours."""
        if self.ours:
            return None
        return tuple(variable.name for variable in (await snapshot(self.kernel.core)).variables)

    async def setup(self, source: str) -> CellResult | None:
        """Run the setup cell, where there is one.

        Raises
        ------
        InvalidTaskError: the cell failed.
        """
        if (result := await set_up(self.kernel, source) if source else None) is not None:
            self._setup = result
            self.here = Point((), result.timing.seconds)
        return result

    async def look(self, point: Point) -> Snapshot:
        """Tell what the namespace holds at the point where the session is."""
        if point.seen is None:
            point.seen = await snapshot(self.kernel.core)
        return point.seen

    async def prepare(self) -> None:
        """Find out before the first attempt whether a kernel of ours can branch."""
        if self.ours and self._branches:
            async with self._lock:
                try:
                    await self._keep(self.here)
                    self._refused = ""
                except (BranchRefused, KernelStartError, KernelDeadError) as refused:
                    self._refused = refused.message

    async def begin(self, point: Point) -> Place:
        """Give a kernel that is at a point, for one attempt.

        Raises
        ------
        BranchRefused: there is no branch, and either only branches were asked for, or the
            session's kernel was handed in and nobody is there to be asked.
        KernelDeadError: the kernel that was handed in has ended.
        RunStopped: nobody wanted the attempt to run in the session itself.
        """
        async with self._lock:
            why = "asked for"
            if self._branches:
                try:
                    return await self._branch(point)
                except (BranchRefused, KernelStartError, KernelDeadError) as refused:
                    self._refused = refused.message
                    if self._policy == "fork":
                        raise
                    why = refused.message
            return await self._in_session(point, why)

    async def _branch(self, point: Point) -> Place:
        try:
            kernel = await self._branch_of(point)
        except KernelStartError:  # the copy's process may have been ended, as by a lack of memory
            kernel = await self._branch_of(point)
        hazards = kernel.core.hazards
        told = "; ".join(f"{hazard.detail} ({hazard.verdict})" for hazard in hazards)
        shared = tuple(hazard.detail for hazard in hazards if hazard.verdict == "shared")
        seen = point.seen
        try:
            # Whoever a kernel belongs to may have run something in it since.
            if seen is None or not self.kernel.owned:
                found = await snapshot(kernel.core)
                others = differences(seen.digest, found.digest) if seen is not None else ()
                changed = f"others changed the session: {'; '.join(others)}" if others else ""
                told, seen = "; ".join(part for part in (told, changed) if part), found
        except BaseException:
            await kernel.aclose()
            raise
        self._refused = ""
        return Place(kernel, "fork", told, kernel.epoch, seen, shared=shared)

    async def _branch_of(self, point: Point) -> Kernel:
        if not self.kernel.owned and not self._is_at(point):
            raise BranchRefused(_NO_WAY_BACK, hint="Go on from its last state")
        if point.copy is None or point.copy.closed:
            known = self._is_at(point) or point.branch is not None
            if not known and (refused := self._no_rebuild(point)):
                raise BranchRefused(f"There is no copy of that state: {refused}")
            await self._go_to(point)
            await self._keep(point)
        assert point.copy is not None
        return Kernel(await point.copy.branch())

    async def _keep(self, point: Point) -> None:
        point.release()  # an earlier copy, if its process has gone
        point.keep(await copy(self.kernel.core))
        self._points.add(point)

    async def _keep_what_is_left(self, point: Point) -> None:
        """Keep the state that the session leaves for another point, if somebody may come back."""
        here = self.here
        if self._branches and here is not point and self._is_at(here) and here.copy is None:
            with suppress(KernelError):  # then it is rebuilt for who comes back
                await self._keep(here)

    @property
    def _lives(self) -> bool:
        """Whether the kernel has the namespace still that the session is about."""
        return self.kernel.alive and self.kernel.epoch == self._epoch

    def _is_at(self, point: Point) -> bool:
        return self.here is point and self._intact and self._lives

    async def _in_session(self, point: Point, why: str) -> Place:
        """Have the attempt run in the session's own kernel, rebuilt if that can be done.

        A namespace that was lost with its process is built again in any case.
        """
        refused = self._no_rebuild(point) if self._policy != "none" else ""
        kept = self._policy == "none" or refused != ""
        isolation: Isolation = "none" if kept and self._lives else "rebuild"
        if kept and isolation == "rebuild":
            why = "an earlier cell had ended the kernel"
        elif refused:
            why = why if refused in why else f"{why}; {refused}"
            await self._ask(why)
        if isolation == "rebuild":
            await self._go_to(point)
        try:
            seen = await snapshot(self.kernel.core)
        except KernelDeadError:
            if not self.ours:
                raise
            await self._go_to(point)  # it had ended a moment ago, and nobody knew
            isolation, why = "rebuild", "the kernel had ended"
            seen = await snapshot(self.kernel.core)
        self._intact = False
        return Place(self.kernel, isolation, why, self.kernel.epoch, seen, kept)

    def _no_rebuild(self, point: Point) -> str:
        """Say why a point cannot be built again in a fresh kernel; "" where it can."""
        if not self.ours:
            return "the kernel was handed in with a state that cannot be rebuilt"
        if self.brought:
            return self.brought
        if point.seconds > self._limit:
            return f"setup and accepted cells ran {point.seconds:.1f} s, over {self._limit:g} s"
        return ""

    async def _ask(self, why: str) -> None:
        if self._confirm is None and not self.ours:
            raise BranchRefused(
                f"Attempts would change the kernel that was handed in: {why}",
                hint="Choose isolation='none' for that, or give confirm=, a function that is asked",
            )
        if self._confirm is not None and not await call_user(self._confirm, why):
            raise RunStopped(f"The attempt may not run in the session itself: {why}")

    async def _go_to(self, point: Point) -> FileChanges | None:
        """Bring the session's kernel to a point, if it is not there.

        Gives what that changes in the working folder; None where nothing was held back.

        Raises
        ------
        KernelDeadError: the kernel that was handed in has ended.
        KernelError: the way there is not known, or did not lead there.
        """
        if self._is_at(point):
            return None
        await self._keep_what_is_left(point)
        files, intact = None, True
        if (waiting := point.take()) is not None and waiting.alive:
            async with waiting:
                self._intact = False  # nor is it known where it is, if this is stopped
                files = await self.kernel.adopt(waiting)
            intact = point.seen is not None  # or its tests have run in it
        elif point.copy is not None and not point.copy.closed and self.kernel.owned:
            async with Kernel(await point.copy.branch()) as branch:
                self._intact = False
                await self.kernel.adopt(branch)
        elif self.ours:
            await self._rebuild(point)
        elif self._lives and not self.kernel.owned:
            raise KernelError(_NO_WAY_BACK, hint="Go on from its last state")
        elif self._lives:
            raise KernelError("the state of that step is not kept any more")
        else:
            raise KernelDeadError(
                "The kernel that was handed in has ended, and its state with it",
                hint="Start it again and bring it back to where it was",
            )
        self.here, self._intact, self._epoch = point, intact, self.kernel.epoch
        return files

    async def _rebuild(self, point: Point) -> None:
        """Run setup and accepted cells again in a fresh kernel."""
        self._intact = False
        if self.brought:
            raise KernelError(f"The session cannot be rebuilt: {self.brought}")
        await self.kernel.restart()
        setup = [("the setup", self._setup.source)] if self._setup is not None else []
        cells = [*setup, *numbered(point.accepted)]
        if self._branches and point.files:  # which no attempt has touched since
            await run_without_files(self.kernel, cells, point.seconds, (), point.made)
        else:
            await run_again(self.kernel, cells, point.seconds)

    @asynccontextmanager
    async def looking(self, point: Point, *, testing: bool = False) -> AsyncIterator[Kernel]:
        """Give a kernel that is at a point, for somebody who accepts nothing.

        It is a branch; where there is none, the session itself, which is brought to the point if
        attempts would be too.

        Parameters
        ----------
        testing: whether what runs there may change the state.

        Raises
        ------
        KernelError: it is not there and does not come back.
        BranchRefused: only branches were asked for, or nobody has agreed to tests in the session
            that was handed in.
        """
        branch: Kernel | None = None
        async with self._lock:
            why = "asked for"
            if self._branches:
                try:
                    branch = await self._branch_of(point)
                except (BranchRefused, KernelStartError, KernelDeadError) as refused:
                    if self._policy == "fork":
                        raise
                    why = refused.message
            if branch is None:
                await self._look_in_session(point, why, testing=testing)
        try:
            yield branch or self.kernel
        finally:
            if branch is not None:
                self.part(branch)

    async def _look_in_session(self, point: Point, why: str, *, testing: bool) -> None:
        """Bring the session itself to where somebody looks, if it is not kept as it is."""
        kept = self._policy == "none" or self._no_rebuild(point) != ""
        if testing and kept and self._policy != "none":
            await self._ask(why)
        elsewhere = self._policy != "none" and self.here is not point
        if elsewhere or not (kept and self._lives):
            await self._go_to(point)
        if testing:
            self._intact = False

    async def go_on(
        self,
        setup: CellResult | None,
        accepted: Sequence[CellResult],
        keep: Collection[str],
        files: Mapping[str, str],
        after: After | None = None,
    ) -> GoneOn:
        """Run the setup and the accepted cells of an earlier session again.

        What they do to the working folder is thrown away, in an overlay or by putting files back.

        Parameters
        ----------
        setup, accepted: how they went then, the accepted ones in order.
        files: what the accepted cells first did to each file.
        keep, after: see `run_without_files`.

        Raises
        ------
        KernelError: one of them ends with an error now.
        """
        cells = [("the setup", setup.source)] if setup is not None else []
        sources = tuple(result.source for result in accepted)
        before = accepted if setup is None else (setup, *accepted)
        point = Point(sources, sum(result.timing.seconds for result in before))
        point.files = files
        async with self._lock:
            self._setup = setup
            cells += numbered(sources)
            problems = await run_without_files(
                self.kernel, cells, point.seconds, keep, point.made, after=after
            )
            self.here, self._intact, self._epoch = point, True, self.kernel.epoch
        return GoneOn(point, problems)

    async def accept(
        self,
        place: Place,
        point: Point,
        result: CellResult,
        seen: Snapshot,
        *,
        tested: bool,
        timeout: float | None,  # noqa: ASYNC109 - see `Kernel.commit`
        tentative: bool = False,
    ) -> Acceptance:
        """Let an attempt become the session.

        Parameters
        ----------
        point: where the attempt began.
        seen: what its namespace holds after the cell.
        tested: whether tests ran in the attempt's own kernel.
        timeout: seconds the cell may run in a kernel that a branch cannot replace.
        tentative: whether it waits for `settle` first, if it has a branch to wait in.

        Raises
        ------
        KernelError: such a kernel is not where the attempt began any more.
        """
        new = Point((*point.accepted, result.source), point.seconds + result.timing.seconds)
        async with self._lock:
            if place.isolation == "fork" and not self.kernel.owned:
                return await self._commit(place, point, new, seen, tested=tested, timeout=timeout)
            new.seen = None if tested else seen
            if place.isolation == "fork" and tentative:
                new.hold_back(place.kernel)
                self._points.add(new)
                return Acceptance(new)
            files = None
            if place.isolation == "fork":
                await self._keep_what_is_left(point)
                await keep_before(self.undo, place.kernel, len(point.accepted))
                files = await self.kernel.adopt(place.kernel)
            self._intact = (place.isolation == "fork" or place.intact) and not tested
            self.here = new
        return Acceptance(new, files)

    async def _commit(
        self,
        place: Place,
        point: Point,
        new: Point,
        seen: Snapshot,
        *,
        tested: bool,
        timeout: float | None,  # noqa: ASYNC109 - see `Kernel.commit`
    ) -> Acceptance:
        """Run an accepted cell in a kernel that a branch cannot replace."""
        if not self._is_at(point):
            raise KernelError(_NO_WAY_BACK, hint="Go on from its last state")
        self._intact = False
        self._committing = self.kernel.commit(place.kernel, new.accepted[-1], timeout=timeout)
        try:
            committed = await self._committing
        finally:
            self._committing = None
        await place.kernel.aclose()
        if not committed.result.ok:
            note = "its cell had run without an error in a branch, and then failed in the kernel"
            return Acceptance(point, note=note, failed=committed.result)
        told = "; ".join(committed.differences)
        note = f"the kernel's state differs from the branch's: {told}" if told else ""
        new.seen = None if tested or note else seen
        self.here, self._intact = new, True
        return Acceptance(new, note=note)

    def interrupt_commit(self) -> None:
        """Interrupt an accepted cell that runs in a kernel that a branch cannot replace."""
        if self._committing is not None:
            self._committing.stop()

    def reject(self, place: Place) -> None:
        """Throw an attempt away."""
        if place.isolation == "fork":
            self.part(place.kernel)

    def part(self, branch: Kernel) -> None:
        """Close a branch while work goes on."""
        parting = asyncio.ensure_future(closed(branch))
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)

    async def settle(self, point: Point) -> FileChanges | None:
        """Bring the session to a point, which goes on from here; see `_go_to`."""
        async with self._lock:
            return await self._go_to(point)

    async def close(self) -> None:
        for point in list(self._points):
            if (waiting := point.take()) is not None:
                self.part(waiting)
            point.release()
        await asyncio.gather(*self._parting)
        if self.ours:
            await self.kernel.shutdown()
        elif self._points and (idle := self.kernel.core.copy) is not None:
            self.kernel.core.copy = None
            idle.retire()
