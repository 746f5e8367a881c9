"""The cells of an episode again, in a fresh kernel, and what differs.

Each step is compared by what it put out and by the digest of the state that its turn has
recorded; what a digest cannot see (`StateDigest`) is not compared.  Without a seed, what was drawn
by chance is other each time: then only the names must be the recorded ones.  The cells work in the
episode's folder and write there as they did; files that they left then are compared, too.  The
checks of steps, where all of them held, run again, in a copy of the session.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nbrefine._portal import call_user
from nbrefine.bindings import StateDigest
from nbrefine.files import Artifact
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.changes import changes, differences
from nbrefine.kernel.state.digest import digest
from nbrefine.kernel.state.packages import packages
from nbrefine.notebook.cells import turn_ids
from nbrefine.notebook.document import EDITED, OTHERS, RERUN
from nbrefine.notebook.wording import needed, read_of_before
from nbrefine.outputs import CellResult
from nbrefine.rerun.branches import Branches, only_looks
from nbrefine.rerun.cells import TESTS, Cell
from nbrefine.rerun.clock import Ran
from nbrefine.rerun.comparing import Comparison, Ruler
from nbrefine.rerun.results import CellVerdict, How, Replay, StateVerdict, StepReplay
from nbrefine.rerun.versions import compare_packages
from nbrefine.rewards.tests import run_tests
from nbrefine.values import CaseResult, Episode, Turn

TIMEOUT = 120.0
"""Seconds that an accepted cell may run where the record does not say."""

CHECK_TIMEOUT = 10.0
"""Seconds that a check may run where the record does not say."""

SHOWN = 10
"""Names that one sentence lists."""

UNSEEDED = "the episode had no seed, so values may differ by chance"
CHANCE = "chance"
LOST = "lost output"
"""What is excused where a notebook's outputs went that its record had not kept itself."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where and within what limits cells run."""

    kernel: str | None = None
    """Kernelspec name; None for the recorded one."""
    cwd: str | Path | None = None
    timeout: float | None = None
    """Seconds that a cell may run; None for as long as in the episode."""
    on_cell: Callable[[str], object] | None = None
    on_step: Callable[[StepReplay], object] | None = None


async def run_cells(
    episode: Episode, cells: Sequence[Cell], how: How, ruler: Ruler, place: Place
) -> Replay:
    """Run cells of an episode in a fresh kernel, one after the other until one fails."""
    name = place.kernel or episode.kernel.name or "python3"
    async with Kernel.start(name, cwd=place.cwd, seed=episode.seed) as kernel:
        again = _Again(episode, kernel, Path(place.cwd or "."), place.timeout, ruler)
        async with Branches(kernel, aside=_leaves_files_alone(episode)) as branches:
            branching = any(_needs_a_branch(cell) for cell in cells)
            listing = await _listing(episode, branches if branching else None, kernel)
            steps = await _steps(episode, cells, again, branches, place)
            present = await listing
        changed = compare_packages(episode, kernel.info, present, [cell.source for cell in cells])
        explained = tuple(_explained(episode, steps) if how == "clean" else steps)
        return Replay(kernel.info, changed, explained, how, ruler.level)


def _needs_a_branch(cell: Cell) -> bool:
    """Tell whether checks may leave something for the cells that come."""
    return cell.checks and cell.id != TESTS and not only_looks(cell.source)


def _leaves_files_alone(episode: Episode) -> bool:
    """Tell whether no accepted cell has written files, as far as is known.

    Then checks may run beside the next cells: a branch has variables of its own, and no files.
    """
    return all(t.files is not None and not t.files.total for t in episode.accepted)


async def _listing(
    episode: Episode, branches: Branches | None, kernel: Kernel
) -> asyncio.Future[dict[str, str]]:
    """Begin to list the kernel's packages, beside its cells where that is for the taking."""
    if not episode.kernel.packages:
        return asyncio.ensure_future(_nothing())
    if branches is not None:
        return await branches.begin(lambda branch: packages(branch.core), pure=True)
    listing = asyncio.ensure_future(packages(kernel.core))
    await asyncio.wait({listing})
    return listing


async def _nothing() -> dict[str, str]:
    return {}


async def _steps(
    episode: Episode,
    cells: Sequence[Cell],
    again: _Again,
    branches: Branches,
    place: Place,
) -> list[StepReplay]:
    steps: list[StepReplay | asyncio.Future[StepReplay]] = []
    failed = False
    lacking = needed(episode)
    for cell in cells:
        if lacking and not failed:
            why = (_lacks(lacking),)
            steps.append(StepReplay(cell.id, "error differs", details=why, checks=cell.checks))
            failed = True
            continue
        if failed:
            steps.append(StepReplay(cell.id, "not run", checks=cell.checks))
            continue
        if place.on_cell is not None:
            await call_user(place.on_cell, cell.id)
        if _needs_a_branch(cell):
            steps.append(await branches.begin(partial(again.check, cell)))
            continue
        step = await (again.check(cell, again.kernel) if cell.checks else again.run(cell))
        steps.append(step)
        if place.on_step is not None:
            await call_user(place.on_step, step)
        result = step.result
        failed = result is not None and not result.ok and not _had_failed(cell, result)
    return [step if isinstance(step, StepReplay) else await step for step in steps]


def _lacks(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"nothing was run, as the cells read {', '.join(names[:SHOWN])}{more}, which {_ELSEWHERE}"
    )


def _had_failed(cell: Cell, result: CellResult) -> bool:
    """Tell whether a cell failed as recorded, after which the rest had run, too."""
    return cell.recorded is not None and cell.recorded.status == result.status


class Stated(NamedTuple):
    """How the session's state compares."""

    state: StateVerdict = ""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Again:
    """Runs the cells of an episode again, and compares what comes of each."""

    episode: Episode
    kernel: Kernel
    folder: Path
    given: float | None
    """Seconds that the caller lets a cell run."""
    ruler: Ruler

    async def run(self, cell: Cell) -> StepReplay:
        limit = _limit(self.episode, cell.turn, self.given)
        result = await self.kernel.run(cell.source, timeout=limit)
        ended = compare_ends(self.ruler, cell.recorded, result, limit, self.ran(cell, result))
        if not ended.same:
            why = (*ended.details, *_came_with(self.episode, result))
            return StepReplay(cell.id, "error differs", details=why, diff=ended.diff, result=result)
        put_out = self._outputs(cell, result)
        if self.ruler.level == "lax":
            return combined(cell.id, result, (ended, put_out), recorded=cell.recorded is not None)
        stated = await _compared(self.kernel, cell.turn, self.episode.seed)
        artifacts = cell.turn.artifacts if cell.turn is not None else ()
        missed = await asyncio.to_thread(_missed, self.folder, artifacts)
        known = cell.recorded is not None or stated.state != ""
        step = combined(cell.id, result, (ended, put_out), stated, recorded=known)
        step = _with_files(step, missed, self.episode.seed)
        chance = self.episode.seed is None and not put_out.same and UNSEEDED not in step.details
        return replace(step, details=(*step.details, UNSEEDED)) if chance else step

    def ran(self, cell: Cell, result: CellResult) -> tuple[Ran, Ran]:
        turn, was = cell.turn, cell.recorded
        began = (turn.started if turn is not None else "") or self.episode.created
        then = Ran() if was is None else ran(was, began)
        return then, ran(result, datetime.now(UTC).isoformat())

    def _outputs(self, cell: Cell, result: CellResult) -> Comparison:
        was = cell.recorded
        if was is None:
            return Comparison(True)
        notes = tuple(note for note in was.notes if note in (EDITED, OTHERS, RERUN))
        if RERUN in notes:
            return Comparison(True, (LOST,), notes)
        found = self.ruler.outputs(was, result, self.ran(cell, result))
        return replace(found, details=(*found.details, *notes))

    async def check(self, cell: Cell, kernel: Kernel) -> StepReplay:
        """Run checks where they leave nothing for the cells that come."""
        limit = self.episode.settings.get("test_timeout")
        seconds = limit if isinstance(limit, (int, float)) and limit > 0 else CHECK_TIMEOUT
        report = await run_tests(
            kernel, cell.source, entry_point=cell.entry_point, timeout_per_test=seconds
        )
        if report.solved and not report.problem:
            return StepReplay(cell.id, "same", checks=True)
        told = tuple(_unheld(case) for case in report.cases if not case.passed)
        return StepReplay(cell.id, "differs", details=told or (report.problem,), checks=True)


def ran(result: CellResult, began: str) -> Ran:
    """Tell when a result came about; `began` is for where it does not say."""
    timing = result.timing
    return Ran.of(timing.reply or timing.busy or began, timing.seconds)


def compare_ends(
    ruler: Ruler,
    was: CellResult | None,
    now: CellResult,
    limit: float | None,
    moments: tuple[Ran, Ran],
) -> Comparison:
    """Compare how two runs of a cell ended; without a record, it must run to its end."""
    expected = was.status if was is not None else "ok"
    if now.status != expected:
        told = "it ran to its end" if now.ok else _why(now, limit)
        then = f"{told}, which it had not: {_why(was, limit)}" if was and not was.ok else told
        return Comparison(False, (), (then,))
    if now.status != "error":
        return Comparison(True)
    return ruler.errors(was.error if was is not None else None, now.error, moments)


def combined(
    cell: str,
    result: CellResult | None,
    compared: Sequence[Comparison],
    stated: Stated | None = None,
    *,
    recorded: bool,
) -> StepReplay:
    """Give the one verdict for all that was compared of a cell.

    Parameters
    ----------
    recorded: whether there was anything to compare it with.
    """
    stated = stated or Stated()
    after = dict.fromkeys(name for each in compared for name in each.after)
    if stated.state == "same names":
        after[CHANCE] = None
    verdict: CellVerdict = "same after" if after else "same" if recorded else "ran"
    if not all(each.same for each in compared) or stated.state == "differs":
        verdict, after = "differs", {}
    return StepReplay(
        cell,
        verdict,
        tuple(after),
        (*(detail for each in compared for detail in each.details), *stated.details),
        "\n".join(each.diff for each in compared if each.diff),
        stated.state,
        result=result,
    )


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
        unseeded = () if UNSEEDED in details else (UNSEEDED,)
        after = tuple(dict.fromkeys((*step.after, CHANCE)))
        return replace(step, verdict="same after", after=after, details=(*details, *unseeded))
    return replace(step, verdict="differs", after=(), details=details)


def _limit(episode: Episode, turn: Turn | None, given: float | None) -> float | None:
    if given is None and turn is not None:
        given = episode.settings.get("timeout", TIMEOUT)
        if given is not None and not (isinstance(given, (int, float)) and given > 0):
            given = TIMEOUT  # whatever a record says
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


async def _compared(kernel: Kernel, turn: Turn | None, seed: int | None) -> Stated:
    """Compare the session's state with the one that a turn has recorded."""
    wanted = turn.digest if turn is not None else None
    if wanted is None or not wanted.hash:
        return Stated()
    found: StateDigest = await digest(kernel.core)
    if seed is None:
        found = replace(found, hash=wanted.hash, random=wanted.random)
    details = differences(wanted, found)
    if not details:
        return Stated("same")
    change = changes(wanted, found)
    if seed is None and not (change.new or change.deleted):
        return Stated("same names", (*details, UNSEEDED))
    return Stated("differs", details)


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
        if step.verdict in ("differs", "error differs"):
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
