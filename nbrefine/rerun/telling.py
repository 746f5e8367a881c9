"""A replay in words, for a terminal, a notebook and a failed test alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nbrefine.notebook.markdown import one_line
from nbrefine.rerun.cells import SETUP
from nbrefine.rerun.results import Divergence, Replay, StepReplay

SHOWN_PACKAGES = 8

SCHEMA = "nbrefine.replay/1"
"""What the facts of replays are called as JSON; a change that takes a key away changes it."""


def told(replayed: Replay) -> Iterator[str]:
    """Give a replay line by line: packages, notes, a verdict for each cell, and the last word."""
    yield from _packages(replayed)
    yield from (f"Note: {note}" for note in replayed.notes)
    width = max((len(step.cell) for step in replayed.steps), default=0)
    for step in replayed.steps:
        yield from cell(step, width)
    if (found := replayed.divergence) is not None and found.part == "stop":
        yield from diverged(found)
    yield verdict(replayed)


def _packages(replayed: Replay) -> Iterator[str]:
    """Tell of packages, and only count those that are absent and that no cell asks for."""
    told = [change for change in replayed.packages if change.needed or change.present]
    yield from map(str, told[:SHOWN_PACKAGES])
    if more := len(told[SHOWN_PACKAGES:]):
        yield f"{more} more packages have other versions than recorded"
    if absent := len(replayed.packages) - len(told):
        yield f"{absent} recorded packages that no cell imports are not there"


def cell(step: StepReplay, width: int = 0) -> Iterator[str]:
    """Tell of one cell: its verdict, then why, then a diff."""
    ran = "ran; nothing is recorded to compare it with"
    yield f"{step.cell:<{width}}  {ran if step.verdict == 'ran' else step.told}"
    for detail in step.details:
        yield f"{'':<{width}}    {one_line(detail)}"
    for line in step.diff.splitlines():
        yield f"{'':<{width}}    {line}"


def diverged(divergence: Divergence) -> Iterator[str]:
    """Tell where a loop first did something else."""
    yield f"First divergence: {one_line(str(divergence), 400)}"


def verdict(replayed: Replay) -> str:
    """Say in one sentence how a replay went."""
    if (found := replayed.divergence) is not None:
        where = f"first at turn {found.turn}, {found.part}: {one_line(found.told, 200)}"
        return f"The loop does not do what is recorded, {where}."
    if (first := replayed.first) is not None:
        return f"The replay is not as recorded, first at {first.cell}."
    if replayed.how == "model":
        return f"The loop gives the recorded prompts, verdicts and stop{_excused(replayed)}."
    if replayed.compare == "lax":
        tested = any(step.checks for step in replayed.steps)
        held = ", and all checks hold" if tested else ""
        return f"The cells end as recorded{held}; outputs and states were not compared."
    return _compared(replayed)


def _compared(replayed: Replay) -> str:
    held = ", and all checks hold" if any(step.checks for step in replayed.steps) else ""
    cells = [step for step in replayed.steps if not step.checks]
    if not [step for step in cells if step.cell != SETUP]:
        none = "was accepted" if replayed.how == "clean" else "ran in the session itself"
        ran = "the setup went as recorded" if cells else "there was nothing to run"
        return f"No attempt {none}; {ran}{held}{_excused(replayed)}."
    if all(step.verdict == "ran" for step in cells):
        return f"Every cell ran to its end{held}, but nothing is recorded to compare them with."
    which = "accepted cells" if replayed.how == "clean" else "cells that ran in the session"
    count = replayed.compared
    names = any(step.state == "same names" for step in replayed.steps)
    state = "names" if names else "state"
    said = f"outputs and {state} ({count} compared)" if count else "outputs"
    less = "" if count else "; no state is recorded"
    return f"The {which} give the recorded {said}{held}{_excused(replayed)}{less}."


def _excused(replayed: Replay) -> str:
    names = dict.fromkeys(name for step in replayed.steps for name in step.after)
    return f", but for {', '.join(names)}" if names else ""


def facts(replayed: Replay) -> dict[str, Any]:
    """Give a replay as plain JSON; what it looks like is told in `nbrefine.cli.replay`."""
    found = replayed.divergence
    return {
        "ok": replayed.ok,
        "told": verdict(replayed),
        "how": replayed.how,
        "compare": replayed.compare,
        "kernel": replayed.kernel.name,
        "states_compared": replayed.compared,
        "packages": [
            {"name": each.name, "recorded": each.recorded, "present": each.present}
            for each in replayed.packages
        ],
        "notes": list(replayed.notes),
        "divergence": None
        if found is None
        else {"turn": found.turn, "part": found.part, "told": found.told, "diff": found.diff},
        "cells": [cell_facts(step) for step in replayed.steps],
    }


def cell_facts(step: StepReplay) -> dict[str, Any]:
    """Give one cell of a replay as plain JSON."""
    return {
        "cell": step.cell,
        "verdict": step.verdict,
        "after": list(step.after),
        "state": step.state,
        "checks": step.checks,
        "details": list(step.details),
        "diff": step.diff,
        "seconds": step.result.timing.seconds if step.result else None,
    }
