"""Clean replay: the accepted cells of an episode again, in a fresh kernel, and what differs.

Setup and accepted cells alone must give the state that the agent had.  Each step is compared by
the digest of the state that its turn has recorded; what a digest cannot see (`StateDigest`) is
not compared.  The cells work in the episode's folder and write there as they did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nbrefine._portal import Run, call_user
from nbrefine.bindings import StateDigest
from nbrefine.kernel import Kernel
from nbrefine.kernel.changes import differences
from nbrefine.kernel.digest import digest
from nbrefine.kernel.packages import packages
from nbrefine.notebook import load
from nbrefine.notebook.cells import turn_ids
from nbrefine.outputs import CellResult
from nbrefine.values import Episode, KernelInfo, Turn

TIMEOUT = 120.0
"""Seconds that one cell may run."""

SETUP = "ep-setup"
"""Id of the setup cell in an episode notebook."""

Verdict = Literal["same", "differs", "failed", "no digest", "not run"]
"""How a step went: its state is the recorded one, or is not; the cell did not run to its end; it
did, and there is no recorded state; or an earlier cell had failed."""


@dataclass(frozen=True, slots=True)
class PackageChange:
    """A package that is not there in the recorded version."""

    name: str
    recorded: str
    """Version in the record, or "" where it was not there."""
    present: str
    """Version in the kernel of the replay, or ""."""

    def __str__(self) -> str:
        return f"{self.name} {self.recorded or '(absent)'} → {self.present or '(absent)'}"


@dataclass(frozen=True, slots=True)
class StepReplay:
    """One cell of a replay."""

    cell: str
    """Its id in the episode notebook."""
    verdict: Verdict
    details: tuple[str, ...] = ()
    """Why it failed, or how the state differs, a sentence each."""
    result: CellResult | None = None
    """None where it was not run."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of a clean replay."""

    kernel: KernelInfo
    packages: tuple[PackageChange, ...]
    """Those that are not as recorded, the ones that the cells name first; () too where the
    record has none."""
    steps: tuple[StepReplay, ...]
    """The setup, where there is one, and the accepted cells in order."""

    @property
    def ok(self) -> bool:
        """Whether every cell ran to its end and no state differs from the recorded one."""
        return self.first is None

    @property
    def first(self) -> StepReplay | None:
        """The first step that is not as recorded."""
        wrong = (step for step in self.steps if step.verdict not in ("same", "no digest"))
        return next(wrong, None)


def replay(
    source: Episode | str | Path,
    *,
    kernel: str | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = TIMEOUT,
    on_cell: Callable[[str], object] | None = None,
) -> Replay:
    """Run setup and accepted cells in a fresh kernel and compare the states with the record's.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.
    kernel: kernelspec name; by default the recorded one's.
    cwd: working folder; by default the notebook's, or the current one for an episode.
    timeout: seconds that a cell may run; None for no limit.
    on_cell: called in a worker thread with each cell's id before it runs.

    Raises
    ------
    RecordError: the path holds no episode.
    UsageError: there is no such kernelspec or folder.
    KernelStartError: the kernel did not come up.
    KernelError: it did not answer when it was asked for its state.
    """
    if isinstance(source, Episode):
        episode = source
    else:
        episode, cwd = load(source), Path(source).parent if cwd is None else cwd
    return Run(_replay(episode, kernel, cwd, timeout, on_cell)).result()


async def _replay(
    episode: Episode,
    name: str | None,
    cwd: str | Path | None,
    limit: float | None,
    on_cell: Callable[[str], object] | None,
) -> Replay:
    name = name or episode.kernel.name or "python3"
    async with Kernel.start(name, cwd=cwd, seed=episode.seed) as kernel:
        changed = _compare_packages(episode, await packages(kernel.core))
        steps: list[StepReplay] = []
        failed = False
        for cell, recorded, turn in _cells(episode):
            if failed:
                steps.append(StepReplay(cell, "not run"))
                continue
            if on_cell is not None:
                await call_user(on_cell, cell)
            result = await kernel.run(recorded.source, timeout=limit)
            steps.append(await _judge(kernel, cell, result, turn, limit))
            failed = not result.ok
        return Replay(kernel.info, changed, tuple(_explained(episode, steps)))


def _cells(episode: Episode) -> Iterator[tuple[str, CellResult, Turn | None]]:
    """Give what is run: id, the recorded run, and the turn, which the setup has not."""
    if episode.setup is not None:
        yield SETUP, episode.setup, None
    for turn, cell in zip(episode.turns, turn_ids(episode), strict=True):
        if turn.accepted and turn.result is not None:
            yield cell, turn.result, turn


async def _judge(
    kernel: Kernel, cell: str, result: CellResult, turn: Turn | None, limit: float | None
) -> StepReplay:
    if not result.ok:
        how = str(result.error or result.death or f"the cell ended as {result.status}")
        if result.status == "timeout":
            how = f"the cell ran longer than {limit:g} s"
        return StepReplay(cell, "failed", (how,), result)
    wanted = turn.digest if turn is not None else None
    if wanted is None or not wanted.hash:
        return StepReplay(cell, "no digest", (), result)
    found: StateDigest = await digest(kernel.core)
    details = differences(wanted, found)
    return StepReplay(cell, "differs" if details else "same", details, result)


def _explained(episode: Episode, steps: list[StepReplay]) -> Iterator[StepReplay]:
    """Name the attempts that may have left in the session what a replay has not."""
    dirty: list[str] = []
    before: dict[str, str] = {}
    for turn, cell in zip(episode.turns, turn_ids(episode), strict=True):
        before[cell] = ", ".join(dirty)
        if turn.isolation == "none" and turn.result is not None and not turn.accepted:
            dirty.append(cell)
    for step in steps:
        if step.verdict in ("differs", "failed") and (names := before.get(step.cell)):
            told = f"rejected attempts had run in the session itself: {names}"
            yield replace(step, details=(*step.details, told))
        else:
            yield step


def _compare_packages(episode: Episode, present: Mapping[str, str]) -> tuple[PackageChange, ...]:
    recorded = episode.kernel.packages
    if not recorded:
        return ()
    sources = "\n".join(run.source for _, run, _ in _cells(episode)).lower()
    changes = [
        PackageChange(name, recorded.get(name, ""), present.get(name, ""))
        for name in sorted({*recorded, *present})
        if recorded.get(name) != present.get(name)
    ]
    return tuple(sorted(changes, key=lambda each: each.name.replace("-", "_") not in sources))
