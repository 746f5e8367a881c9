"""The live session of an environment: a kernel, the points it has been at, and where attempts run.

An attempt begins from a point: setup and accepted cells, and nothing else.  Where the kernel can
branch, a point keeps a dormant copy of that state, so attempts begin from it as often as anybody
likes, and an accepted one becomes the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal

from nbrefine._portal import Run, call_user
from nbrefine.env.again import After, set_up
from nbrefine.env.points import Acceptance, GoneOn, Place, Point, closed
from nbrefine.env.track import NO_WAY_BACK, Track
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
from nbrefine.kernel.state.changes import differences
from nbrefine.kernel.state.digest import Snapshot, snapshot
from nbrefine.kernel.state.packages import packages
from nbrefine.outputs import CellResult
from nbrefine.values import Isolation, KernelInfo

IsolationPolicy = Literal["auto", "fork", "rebuild", "none"]
"""Where attempts may run: `auto` takes the first of the others that can be had."""


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
        self.ours = ours
        self._policy = policy
        self._branches = policy in ("auto", "fork")
        self._confirm = confirm
        self.track = Track(kernel, ours=ours, branches=self._branches, limit=limit)
        """Where the kernel is."""
        self.undo: Undo | None = None
        """What keeps the files that accepted attempts change."""
        self._committing: Run[Commit] | None = None
        self._lock = asyncio.Lock()
        self._ahead: asyncio.Task[None] | None = None
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
            return NO_WAY_BACK
        return "no attempt has branched yet" if self._refused is None else self._refused

    @property
    def here(self) -> Point:
        """The point that the kernel is at."""
        return self.track.here

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
            self.track.setup = result
            self.track.arrive(Point((), result.timing.seconds))
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
                    await self.track.keep(self.here)
                    self._refused = ""
                except (BranchRefused, KernelStartError, KernelDeadError) as refused:
                    self._refused = refused.message

    def prepare_next(self) -> None:
        """Have a kernel of ours copied for the next attempt while the model is asked for it."""
        if self._ahead is None or self._ahead.done():
            self._ahead = asyncio.ensure_future(self._prepare_next())

    async def _prepare_next(self) -> None:
        async with self._lock:
            await self.track.keep_ahead(self.here)

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
            kernel = await self.track.branch_of(point)
        except KernelStartError:  # the copy's process may have been ended, as by a lack of memory
            kernel = await self.track.branch_of(point)
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

    async def _in_session(self, point: Point, why: str) -> Place:
        """Have the attempt run in the session's own kernel, rebuilt if that can be done.

        A namespace that was lost with its process is built again in any case.
        """
        refused = self.track.no_rebuild(point) if self._policy != "none" else ""
        kept = self._policy == "none" or refused != ""
        isolation: Isolation = "none" if kept and self.track.lives else "rebuild"
        if kept and isolation == "rebuild":
            why = "an earlier cell had ended the kernel"
        elif refused:
            why = why if refused in why else f"{why}; {refused}"
            await self._ask(why)
        if isolation == "rebuild":
            await self.track.go_to(point)
        try:
            seen = await snapshot(self.kernel.core)
        except KernelDeadError:
            if not self.ours:
                raise
            await self.track.go_to(point)  # it had ended a moment ago, and nobody knew
            isolation, why = "rebuild", "the kernel had ended"
            seen = await snapshot(self.kernel.core)
        self.track.leave()
        return Place(self.kernel, isolation, why, self.kernel.epoch, seen, kept)

    async def _ask(self, why: str) -> None:
        if self._confirm is None and not self.ours:
            raise BranchRefused(
                f"Attempts would change the kernel that was handed in: {why}",
                hint="Choose isolation='none' for that, or give confirm=, a function that is asked",
            )
        if self._confirm is not None and not await call_user(self._confirm, why):
            raise RunStopped(f"The attempt may not run in the session itself: {why}")

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
                    branch = await self.track.branch_of(point)
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
        kept = self._policy == "none" or self.track.no_rebuild(point) != ""
        if testing and kept and self._policy != "none":
            await self._ask(why)
        elsewhere = self._policy != "none" and self.here is not point
        if elsewhere or not (kept and self.track.lives):
            await self.track.go_to(point)
        if testing:
            self.track.leave()

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
        async with self._lock:
            return await self.track.go_on(setup, accepted, keep, files, after)

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
                self.track.hold_back(new, place.kernel)
                return Acceptance(new)
            files = None
            if place.isolation == "fork":
                await self.track.keep_what_is_left(point)
                await keep_before(self.undo, place.kernel, len(point.accepted))
                files = await self.kernel.adopt(place.kernel)
            intact = (place.isolation == "fork" or place.intact) and not tested
            self.track.arrive(new, intact=intact)
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
        if not self.track.is_at(point):
            raise KernelError(NO_WAY_BACK, hint="Go on from its last state")
        self.track.leave()
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
        self.track.arrive(new)
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
        """Bring the session to a point, which goes on from here; see `Track.go_to`."""
        async with self._lock:
            return await self.track.go_to(point)

    async def close(self) -> None:
        """Let go of everything; a kernel of ours is shut down."""
        try:
            if self._ahead is not None:
                self._ahead.cancel()
                await asyncio.wait({self._ahead})
            for branch in self.track.release():
                self.part(branch)
            await asyncio.gather(*self._parting)
        finally:
            if self.ours:
                await self.kernel.shutdown()
