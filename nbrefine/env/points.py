"""Where a session has been, and where attempts run.

A point is a state of the session that attempts begin from; a place is where one of them runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from nbrefine._portal import Run
from nbrefine.errors import KernelError
from nbrefine.files import FileChanges
from nbrefine.kernel import Kernel
from nbrefine.kernel.branching import Copy
from nbrefine.kernel.state.digest import Snapshot
from nbrefine.outputs import CellResult
from nbrefine.values import Isolation

T = TypeVar("T")


class Point:
    """A state of the session: what it is the work of, and the copy that attempts branch from.

    Whoever holds a point can begin an attempt from it; the copy goes with the last one, and so does
    the branch that waits there.

    Parameters
    ----------
    accepted: the accepted cells, in order.
    seconds: how long setup and accepted cells ran.
    """

    def __init__(self, accepted: tuple[str, ...], seconds: float) -> None:
        self.accepted = accepted
        self.seconds = seconds
        self.files: Mapping[str, str] = {}
        """What accepted cells first did to each file of the working folder, as far as is known."""
        self.seen: Snapshot | None = None
        """What the namespace holds there, once somebody has looked."""
        self.copy: Copy | None = None
        self.branch: Kernel | None = None
        """The branch that is there and waits to become the session."""
        self.holds: weakref.WeakSet[Hold] = weakref.WeakSet()
        """What the states that are at this point have of it."""
        self._finalizer: weakref.finalize[..., Point] | None = None

    @property
    def made(self) -> tuple[str, ...]:
        """Name what was not there in the working folder before the accepted cells."""
        return tuple(path for path, action in self.files.items() if action == "created")

    def goes_on_from(self, earlier: Point, files: FileChanges | None) -> None:
        """Take in what the cell after an earlier point has changed."""
        found = {change.path: change.action for change in files.changes} if files else {}
        self.files = {**found, **earlier.files}

    def keep(self, copy: Copy) -> None:
        """Keep a copy of the state, held for this."""
        self.copy = copy
        self._end_with_this(_release_soon, copy)

    def hold_back(self, branch: Kernel) -> None:
        """Keep the branch that is at this state until it is taken."""
        self.branch = branch
        self._end_with_this(_close_soon, branch)

    def take(self) -> Kernel | None:
        """Give the branch that was held back, which is the taker's from now on."""
        branch, self.branch = self.branch, None
        if branch is not None and self._finalizer is not None:
            self._finalizer.detach()
        return branch

    def release(self) -> None:
        """Let copy and branch go; a second call does nothing."""
        self.copy = self.branch = None
        if self._finalizer is not None:
            self._finalizer()

    def _end_with_this(self, end: Callable[[T], object], what: T) -> None:
        self._finalizer = weakref.finalize(self, end, what)
        self._finalizer.atexit = False  # the processes go with this one anyway


class Hold:
    """What one state has of a point: the copy goes with the last of its holds.

    Parameters
    ----------
    point: where the state is.
    """

    def __init__(self, point: Point) -> None:
        self.released = False
        self._point = point
        point.holds.add(self)

    def release(self) -> None:
        """Let go, from any thread; a second call does nothing."""
        if not self.released:
            self.released = True
            Run(self._let_go())

    async def _let_go(self) -> None:
        self._point.holds.discard(self)
        if not self._point.holds:
            self._point.release()


def _release_soon(copy: Copy) -> None:
    async def release() -> None:
        copy.release()

    Run(release())  # a finalizer may run in any thread


def _close_soon(branch: Kernel) -> None:
    Run(closed(branch))


async def closed(branch: Kernel) -> None:
    """Close a branch, which ends with the session in any case."""
    with suppress(KernelError):
        await branch.aclose()


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What came of letting an attempt become the session."""

    point: Point
    files: FileChanges | None = None
    """What that changed in the working folder; None where it was changed already."""
    note: str = ""
    """How the session is not what the attempt was, or ""."""
    failed: CellResult | None = None
    """How the cell went in the session's own kernel, where it failed there; then it is not
    accepted, and what it did before stays."""


@dataclass(frozen=True, slots=True)
class GoneOn:
    """What came of bringing a session to where an earlier one has ended."""

    point: Point
    problems: tuple[str, ...] = ()
    """What could not be kept from the working folder, or put back, a sentence each."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one attempt runs."""

    kernel: Kernel
    isolation: Isolation
    reason: str
    epoch: int
    seen: Snapshot
    """What its namespace held at the beginning."""
    kept: bool = False
    """Whether the session keeps what is done there also if it is rejected."""
    shared: tuple[str, ...] = ()
    """What a branch has in common with the session."""

    @property
    def intact(self) -> bool:
        """Whether what ran there is there still."""
        return self.kernel.alive and self.kernel.epoch == self.epoch
