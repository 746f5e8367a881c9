"""Clean replay: the accepted cells of an episode again, in a fresh kernel, and what differs.

Setup and accepted cells alone must give the state that the agent had.  Each step is compared by
the digest of the state that its turn has recorded; what a digest cannot see (`StateDigest`) is
not compared.  Without a seed, what was drawn by chance is other each time: then only the names
must be the recorded ones.  The cells work in the episode's folder and write there as they did;
files that they left then are compared, too.  The checks of steps, where all of them held, run
again, in a copy of the session.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from nbrefine._portal import Run, call_user
from nbrefine.bindings import StateDigest
from nbrefine.errors import KernelError, UsageError
from nbrefine.files import Artifact
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.changes import changes, differences
from nbrefine.kernel.state.digest import digest
from nbrefine.kernel.state.packages import packages
from nbrefine.notebook import load
from nbrefine.notebook.cells import turn_ids
from nbrefine.notebook.chapter import checks_id
from nbrefine.notebook.ending import ANSWER_CHECKS, answer_checks
from nbrefine.notebook.steps import steps_of
from nbrefine.notebook.wording import needed, read_of_before, runnable
from nbrefine.outputs import CellResult
from nbrefine.postconditions import tests_of
from nbrefine.rewards.tests import run_tests
from nbrefine.values import CaseResult, Episode, KernelInfo, Turn

TIMEOUT = 120.0
"""Seconds that an accepted cell may run where the record does not say."""

CHECK_TIMEOUT = 10.0
"""Seconds that a check may run where the record does not say."""

SHOWN = 10
"""Names that one sentence lists."""

SETUP = "ep-setup"
"""Id of the setup cell in an episode notebook."""

Verdict = Literal[
    "same", "same names", "differs", "failed", "no digest", "not run", "holds", "does not hold"
]
"""How a step went: its state is the recorded one; it has the same names and other values, and the
episode had no seed; state or files are others; the cell did not run to its end; it did, and there
is no recorded state; an earlier cell had failed; and of checks, whether all of them hold."""

_UNSEEDED = "the episode had no seed, so values may differ by chance"


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
    """Why it failed, how state and files differ, or which checks do not hold, a sentence each."""
    result: CellResult | None = None
    """None where it was not run, and of checks."""


_RIGHT: tuple[Verdict, ...] = ("same", "same names", "no digest", "holds")


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of a clean replay."""

    kernel: KernelInfo
    packages: tuple[PackageChange, ...]
    """Those that are not as recorded, the ones that the cells name first; () too where the
    record has none."""
    steps: tuple[StepReplay, ...]
    """The setup, where there is one, the accepted cells in order, and the checks of a step after
    its cell."""

    @property
    def ok(self) -> bool:
        """Whether every cell ran to its end, nothing differs from the record, and all checks hold.

        That holds too where nothing was `compared`.
        """
        return self.first is None

    @property
    def compared(self) -> int:
        """How many states were compared with recorded ones."""
        return sum(step.verdict in ("same", "same names", "differs") for step in self.steps)

    @property
    def first(self) -> StepReplay | None:
        """The first step that is not as recorded."""
        wrong = (step for step in self.steps if step.verdict not in _RIGHT)
        return next(wrong, None)


def replay(
    source: Episode | str | Path,
    *,
    kernel: str | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
    on_cell: Callable[[str], object] | None = None,
) -> Replay:
    """Run setup and accepted cells in a fresh kernel and compare the states with the record's.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.
    kernel: kernelspec name; by default the recorded one's.
    cwd: working folder; by default the one that a record names, or else the notebook's, or the
        current one for an episode.
    timeout: seconds that a cell may run, `math.inf` for no limit; by default as long as in the
        episode, where the setup had no limit.
    on_cell: called in a worker thread with each cell's id before it runs.

    Raises
    ------
    RecordError: the path holds no episode.
    UsageError: there is no such kernelspec or folder, or the time is none.
    KernelStartError: the kernel did not come up.
    KernelError: it did not answer when it was asked for its state.
    """
    if timeout is not None and not timeout > 0:
        raise UsageError(f"A cell cannot run {timeout:g} s", hint="Give more than 0 seconds")
    if isinstance(source, Episode):
        episode = source
    else:
        episode = load(source)
        cwd = _folder(episode, Path(source)) if cwd is None else cwd
    return Run(_replay(episode, kernel, cwd, timeout, on_cell)).result()


def _folder(episode: Episode, notebook: Path) -> Path:
    """Give the folder where an episode worked, which may be another than its notebook's."""
    named = episode.settings.get("folder", ".")
    folder = notebook.parent / (named if isinstance(named, str) else ".")
    return folder if folder.is_dir() else notebook.parent


async def _replay(
    episode: Episode,
    name: str | None,
    cwd: str | Path | None,
    given: float | None,
    on_cell: Callable[[str], object] | None,
) -> Replay:
    name = name or episode.kernel.name or "python3"
    async with Kernel.start(name, cwd=cwd, seed=episode.seed) as kernel:
        changed = _compare_packages(episode, await packages(kernel.core))
        again = _Again(episode, kernel, Path(cwd or "."), given)
        steps: list[StepReplay] = []
        failed = False
        lacking = needed(episode)
        for cell in _cells(episode):
            if lacking and not failed:
                steps.append(StepReplay(cell.id, "failed", (_lacks(lacking),)))
                failed = True
                continue
            if failed:
                steps.append(StepReplay(cell.id, "not run"))
                continue
            if on_cell is not None:
                await call_user(on_cell, cell.id)
            steps.append(await again.run(cell))
            failed = steps[-1].verdict == "failed"
        return Replay(kernel.info, changed, tuple(_explained(episode, steps)))


def _lacks(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"nothing was run, as the cells read {', '.join(names[:SHOWN])}{more}, which {_ELSEWHERE}"
    )


@dataclass(frozen=True, slots=True)
class _Cell:
    """What is run again."""

    id: str
    source: str
    turn: Turn | None = None
    """None for the setup, and for checks."""
    checks: bool = False


def _cells(episode: Episode) -> Iterator[_Cell]:
    setup = episode.setup.source if episode.setup is not None else episode.task.setup
    if setup:
        yield _Cell(SETUP, setup)
    checks = {
        step.accepted.number: _Cell(checks_id(step.number), tests_of(step.checks), checks=True)
        for step in steps_of(episode)
        if step.held is not None and step.accepted is not None
    }
    for turn, cell in zip(episode.turns, turn_ids(episode), strict=True):
        if turn.accepted and (source := runnable(turn)) is not None:
            yield _Cell(cell, source, turn)
        if turn.number in checks:
            yield checks[turn.number]
    if episode.solved and (asked := answer_checks(episode)):
        yield _Cell(ANSWER_CHECKS, tests_of(asked), checks=True)


@dataclass(frozen=True, slots=True)
class _Again:
    """Runs the cells of an episode again, and compares what comes of each."""

    episode: Episode
    kernel: Kernel
    folder: Path
    given: float | None
    """Seconds that the caller lets a cell run."""

    async def run(self, cell: _Cell) -> StepReplay:
        if cell.checks:
            return await self._check(cell)
        limit = _limit(self.episode, cell.turn, self.given)
        result = await self.kernel.run(cell.source, timeout=limit)
        if not result.ok:
            why = (_why(result, limit), *_came_with(self.episode, result))
            return StepReplay(cell.id, "failed", why, result)
        seed = self.episode.seed
        step = await _compared(self.kernel, cell.id, result, cell.turn, seed)
        artifacts = cell.turn.artifacts if cell.turn is not None else ()
        return _with_files(step, await asyncio.to_thread(_missed, self.folder, artifacts), seed)

    async def _check(self, cell: _Cell) -> StepReplay:
        """Run checks in a branch, so that they leave nothing, or else in the session."""
        try:
            branch = await self.kernel.branch()
        except KernelError:
            return await self._tested(self.kernel, cell)
        async with branch:
            return await self._tested(branch, cell)

    async def _tested(self, kernel: Kernel, cell: _Cell) -> StepReplay:
        limit = self.episode.settings.get("test_timeout")
        seconds = limit if isinstance(limit, (int, float)) and limit > 0 else CHECK_TIMEOUT
        report = await run_tests(kernel, cell.source, timeout_per_test=seconds)
        if report.solved and not report.problem:
            return StepReplay(cell.id, "holds")
        told = tuple(_unheld(case) for case in report.cases if not case.passed)
        return StepReplay(cell.id, "does not hold", told or (report.problem,))


def _unheld(case: CaseResult) -> str:
    got = f"got {case.got}" if case.got else ""
    said = "; ".join(part for part in (got, case.message) if part) or case.status
    return f"{case.expression or case.name}: {said}"


def _missed(folder: Path, artifacts: Sequence[Artifact]) -> list[tuple[str, bool]]:
    """Tell how files are not what they were, and of each whether it is there."""
    told = []
    for each in artifacts:
        try:
            with (folder / each.path).open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            size = (folder / each.path).stat().st_size
        except OSError:
            told.append((f"{each.path} was not written", False))
            continue
        if found != each.sha256:
            sizes = f" ({size:,} bytes, not {each.size:,})" if size != each.size else ""
            told.append((f"{each.path} has another content{sizes}", True))
    return told


def _with_files(
    step: StepReplay, missed: Sequence[tuple[str, bool]], seed: int | None
) -> StepReplay:
    """Tell also how files differ, which they may by chance without a seed."""
    if not missed:
        return step
    details = (*step.details, *(told for told, _ in missed))
    if seed is None and step.verdict != "differs" and all(there for _, there in missed):
        unseeded = () if _UNSEEDED in details else (_UNSEEDED,)
        return replace(step, verdict="same names", details=(*details, *unseeded))
    return replace(step, verdict="differs", details=details)


def _limit(episode: Episode, turn: Turn | None, given: float | None) -> float | None:
    if given is None:
        given = None if turn is None else episode.settings.get("timeout", TIMEOUT)
    return None if given is None or math.isinf(given) else given


def _why(result: CellResult, limit: float | None) -> str:
    if result.status == "timeout" and limit is not None:
        return f"the cell ran longer than {limit:g} s"
    return str(result.error or result.death or f"the cell ended as {result.status}")


def _came_with(episode: Episode, result: CellResult) -> Iterator[str]:
    """Say of a name that is missing that the episode had it from elsewhere."""
    error = result.error
    found = _NAME.match(error.evalue) if error is not None and error.ename == "NameError" else None
    if found is not None and found[1] in read_of_before(episode):
        yield f"{found[1]} {_ELSEWHERE}"


_NAME = re.compile(r"name '([^']+)' is not defined")
_ELSEWHERE = "came with the session that the episode began in and is not in its record"


async def _compared(
    kernel: Kernel, cell: str, result: CellResult, turn: Turn | None, seed: int | None
) -> StepReplay:
    wanted = turn.digest if turn is not None else None
    if wanted is None or not wanted.hash:
        return StepReplay(cell, "no digest", (), result)
    found: StateDigest = await digest(kernel.core)
    if seed is None:
        found = replace(found, hash=wanted.hash, random=wanted.random)
    details = differences(wanted, found)
    if not details:
        return StepReplay(cell, "same", (), result)
    change = changes(wanted, found)
    if seed is None and not (change.new or change.deleted):
        return StepReplay(cell, "same names", (*details, _UNSEEDED), result)
    return StepReplay(cell, "differs", details, result)


def _explained(episode: Episode, steps: list[StepReplay]) -> Iterator[StepReplay]:
    """Name what the session may have had that a replay has not."""
    began = _begun(episode)
    dirty: list[str] = []
    before: dict[str, str] = {}
    for turn, cell in zip(episode.turns, turn_ids(episode), strict=True):
        before[cell] = ", ".join(dirty)
        if turn.isolation == "none" and turn.result is not None and not turn.accepted:
            dirty.append(cell)
    for step in steps:
        told = began
        if names := before.get(step.cell):
            told = (*told, f"rejected attempts had run in the session itself: {names}")
        if step.verdict in ("differs", "failed"):
            yield replace(step, details=(*step.details, *told))
        else:
            yield step


def _begun(episode: Episode) -> tuple[str, ...]:
    if episode.handed_in is None:
        return ()
    names = ", ".join(episode.handed_in[:SHOWN])
    more = f" and {len(episode.handed_in) - SHOWN} more" if len(episode.handed_in) > SHOWN else ""
    return (
        "the episode began in a kernel that was handed in, and not in a fresh one"
        + (f"; it had {names}{more}" if names else ""),
    )


def _compare_packages(episode: Episode, present: Mapping[str, str]) -> tuple[PackageChange, ...]:
    recorded = episode.kernel.packages
    if not recorded:
        return ()
    sources = "\n".join(cell.source for cell in _cells(episode)).lower()
    changes = [
        PackageChange(name, recorded[name], present.get(name, ""))
        for name in sorted(recorded)  # what was installed since has not been used
        if recorded[name] != present.get(name)
    ]
    return tuple(sorted(changes, key=lambda each: each.name.replace("-", "_") not in sources))
