"""Which point a session's kernel is at, and how it comes to another one."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from nbrefine.env.again import After, numbered, run_again, run_without_files
from nbrefine.env.points import GoneOn, Point
from nbrefine.errors import BranchRefused, KernelDeadError, KernelError
from nbrefine.files import FileChanges
from nbrefine.kernel import Kernel
from nbrefine.kernel.branching import Copy, copy
from nbrefine.outputs import CellResult

NO_WAY_BACK = "The kernel is somebody else's, and cannot go back to the state of an earlier step"


class Track:
    """A session's kernel, and the points that it has been at.

    Parameters
    ----------
    kernel: a live one.
    ours: whether nobody else has put a state into it.
    branches: whether attempts run in branches where they can.
    limit: seconds of recorded run time up to which a point is rebuilt in a fresh kernel.
    """

    def __init__(self, kernel: Kernel, *, ours: bool, branches: bool, limit: float) -> None:
        self.kernel = kernel
        self.here = Point((), 0.0)
        self.ours = ours
        self.setup: CellResult | None = None
        self.brought = ""
        """What the session began with that no cell can make again, or ""."""
        self._branches = branches
        self._limit = limit
        self._intact = True  # the kernel holds what `here` says, and nothing else
        self._epoch = kernel.epoch  # of the namespace that attempts have to do with
        self._points: weakref.WeakSet[Point] = weakref.WeakSet()

    @property
    def lives(self) -> bool:
        """Whether the kernel has the namespace still that the session is about."""
        return self.kernel.alive and self.kernel.epoch == self._epoch

    def is_at(self, point: Point) -> bool:
        """Tell whether the kernel holds what a point says, and nothing else."""
        return self.here is point and self._intact and self.lives

    def leave(self) -> None:
        """Note that the kernel's state is about to be that of no point."""
        self._intact = False

    def arrive(self, point: Point, *, intact: bool = True) -> None:
        """Note which point the kernel is at.

        Parameters
        ----------
        intact: whether it holds nothing else.
        """
        self.here, self._intact = point, intact

    def no_rebuild(self, point: Point) -> str:
        """Say why a point cannot be built again in a fresh kernel; "" where it can."""
        if not self.ours:
            return "the kernel was handed in with a state that cannot be rebuilt"
        if self.brought:
            return self.brought
        if point.seconds > self._limit:
            return f"setup and accepted cells ran {point.seconds:.1f} s, over {self._limit:g} s"
        return ""

    async def keep(self, point: Point) -> Copy:
        """Keep a copy of the state that the kernel has, which is a point's, and give it.

        Raises
        ------
        BranchRefused, KernelDeadError: see `kernel.branching.copy`.
        """
        point.release()  # an earlier copy, if its process has gone
        kept = await copy(self.kernel.core)
        point.keep(kept)
        self._points.add(point)
        return kept

    async def keep_ahead(self, point: Point) -> None:
        """Keep a copy for the next attempt before it is asked for, if the state stays as it is.

        What stands against it is told to who asks for a branch.
        """
        if not (self.ours and self._branches and self.is_at(point) and point.copy is None):
            return
        with suppress(KernelError, OSError):  # such as a lack of descriptors
            kept = await self.keep(point)
            if any(hazard.verdict == "lost" for hazard in kept.hazards):
                point.release()  # threads, tasks or callbacks go on in the kernel

    async def keep_what_is_left(self, point: Point) -> None:
        """Keep the state that the kernel leaves for another point, if somebody may come back."""
        here = self.here
        if self._branches and here is not point and self.is_at(here) and here.copy is None:
            with suppress(KernelError):  # then it is rebuilt for who comes back
                await self.keep(here)

    def hold_back(self, point: Point, branch: Kernel) -> None:
        """Keep a branch that is at a point until the kernel goes there."""
        point.hold_back(branch)
        self._points.add(point)

    async def branch_of(self, point: Point) -> Kernel:
        """Give a branch that is at a point.

        Raises
        ------
        BranchRefused: there can be none.
        KernelDeadError, KernelStartError: the kernel has ended, or the branch did not come up.
        """
        if not self.kernel.owned and not self.is_at(point):
            raise BranchRefused(NO_WAY_BACK, hint="Go on from its last state")
        if point.copy is None or point.copy.closed:
            known = self.is_at(point) or point.branch is not None
            if not known and (refused := self.no_rebuild(point)):
                raise BranchRefused(f"There is no copy of that state: {refused}")
            await self.go_to(point)
            await self.keep(point)
        assert point.copy is not None
        return Kernel(await point.copy.branch())

    async def go_to(self, point: Point) -> FileChanges | None:
        """Bring the kernel to a point, if it is not there.

        Gives what that changes in the working folder; None where nothing was held back.

        Raises
        ------
        KernelDeadError: the kernel that was handed in has ended.
        KernelError: the way there is not known, or did not lead there.
        """
        if self.is_at(point):
            return None
        await self.keep_what_is_left(point)
        files, intact = None, True
        if (waiting := point.take()) is not None and waiting.alive:
            async with waiting:
                self.leave()  # nor is it known where it is, if this is stopped
                files = await self.kernel.adopt(waiting)
            intact = point.seen is not None  # or its tests have run in it
        elif point.copy is not None and not point.copy.closed and self.kernel.owned:
            async with Kernel(await point.copy.branch()) as branch:
                self.leave()
                await self.kernel.adopt(branch)
        elif self.ours:
            await self._rebuild(point)
        elif self.lives and not self.kernel.owned:
            raise KernelError(NO_WAY_BACK, hint="Go on from its last state")
        elif self.lives:
            raise KernelError("the state of that step is not kept any more")
        else:
            raise KernelDeadError(
                "The kernel that was handed in has ended, and its state with it",
                hint="Start it again and bring it back to where it was",
            )
        self.arrive(point, intact=intact)
        self._epoch = self.kernel.epoch
        return files

    async def _rebuild(self, point: Point) -> None:
        """Run setup and accepted cells again in a fresh kernel."""
        self.leave()
        if self.brought:
            raise KernelError(f"The session cannot be rebuilt: {self.brought}")
        await self.kernel.restart()
        cells = self._cells(point)
        if self._branches and point.files:  # which no attempt has touched since
            await run_without_files(self.kernel, cells, point.seconds, (), point.made)
        else:
            await run_again(self.kernel, cells, point.seconds)

    async def go_on(
        self,
        setup: CellResult | None,
        accepted: Sequence[CellResult],
        keep: Collection[str],
        files: Mapping[str, str],
        after: After | None,
    ) -> GoneOn:
        """Run the setup and the accepted cells of an earlier session again; see `Session.go_on`."""
        sources = tuple(result.source for result in accepted)
        before = accepted if setup is None else (setup, *accepted)
        point = Point(sources, sum(result.timing.seconds for result in before))
        point.files = files
        self.setup = setup
        problems = await run_without_files(
            self.kernel, self._cells(point), point.seconds, keep, point.made, after=after
        )
        self.arrive(point)
        self._epoch = self.kernel.epoch
        return GoneOn(point, problems)

    def _cells(self, point: Point) -> list[tuple[str, str]]:
        """Give what makes a point in a fresh kernel, each cell with its name."""
        setup = [("the setup", self.setup.source)] if self.setup is not None else []
        return [*setup, *numbered(point.accepted)]

    def release(self) -> list[Kernel]:
        """Let go of every copy, and give the branches that were held back."""
        held_back = []
        for point in list(self._points):
            if (waiting := point.take()) is not None:
                held_back.append(waiting)
            point.release()
        if not self.ours and self._points and (idle := self.kernel.core.copy) is not None:
            self.kernel.core.copy = None
            idle.retire()
        return held_back
