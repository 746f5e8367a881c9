"""Which cells of an episode a replay runs, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nbrefine.errors import UsageError
from nbrefine.notebook.cells import turn_ids
from nbrefine.notebook.chapter import checks_id
from nbrefine.notebook.ending import ANSWER_CHECKS, answer_checks
from nbrefine.notebook.steps import steps_of
from nbrefine.notebook.wording import runnable
from nbrefine.outputs import CellResult
from nbrefine.postconditions import tests_of
from nbrefine.values import Episode, Turn

SETUP = "ep-setup"
"""Id of the setup cell in an episode notebook."""

TESTS = "ep-tests"
"""Id of the cell with the task's visible tests."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is run again."""

    id: str
    source: str
    turn: Turn | None = None
    """None for the setup, and for checks."""
    recorded: CellResult | None = None
    """None where no session ran it."""
    checks: bool = False
    entry_point: str = ""
    """Of tests: what they call."""


def clean(episode: Episode) -> Iterator[Cell]:
    """Give the cells of Run All: setup, accepted cells, and what had to hold of them."""
    yield from _setup(episode)
    checks = {
        step.accepted.number: Cell(checks_id(step.number), tests_of(step.checks), checks=True)
        for step in steps_of(episode)
        if step.held is not None and step.accepted is not None
    }
    for turn, cell in zip(episode.turns, turn_ids(episode), strict=True):
        if turn.accepted and (source := runnable(turn)) is not None:
            yield Cell(cell, source, turn, turn.result)
        if turn.number in checks:
            yield checks[turn.number]
    if episode.solved and (asked := answer_checks(episode)):
        yield Cell(ANSWER_CHECKS, tests_of(asked), checks=True)
    yield from _tests(episode)


def faithful(episode: Episode) -> Iterator[Cell]:
    """Give all that ran in the session: setup, accepted cells, and attempts without a branch.

    Raises
    ------
    UsageError: the session was lost on the way, so no one session has run all of it.
    """
    touching = [
        (turn, cell)
        for turn, cell in zip(episode.turns, turn_ids(episode), strict=True)
        if turn.accepted or (turn.isolation == "none" and turn.result is not None)
    ]
    for turn, cell in touching:
        if turn.result is not None and (turn.result.death is not None or turn.result.lost):
            raise UsageError(
                f"The session ended at {cell} and was built anew, so no one session ran all cells",
                hint="Replay it clean",
            )
    yield from _setup(episode)
    for turn, cell in touching:
        if (source := runnable(turn)) is not None:
            yield Cell(cell, source, turn, turn.result)
    yield from _tests(episode)


def apart(episode: Episode) -> int:
    """Count the rejected attempts that did not run in the session itself."""
    return sum(
        not turn.accepted and turn.isolation != "none" and turn.result is not None
        for turn in episode.turns
    )


def _setup(episode: Episode) -> Iterator[Cell]:
    setup = episode.setup.source if episode.setup is not None else episode.task.setup
    if setup:
        yield Cell(SETUP, setup, recorded=episode.setup)


def _tests(episode: Episode) -> Iterator[Cell]:
    """Give the task's tests where they passed and a session ran what they test."""
    last = episode.accepted[-1] if episode.accepted else None
    if not episode.solved or not episode.task.tests or last is None or last.result is None:
        return
    stepwise = bool(episode.plans) or episode.task.answer is not None
    report = last.tests
    if not stepwise and (report is None or not report.solved or report.problem):
        return
    entry_point = episode.task.entry_point or (report.entry_point if report else "")
    yield Cell(TESTS, episode.task.tests, checks=True, entry_point=entry_point)
