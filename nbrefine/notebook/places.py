"""Where in an episode a cell of its notebook stands, as a person says it."""

from __future__ import annotations

import re

from nbrefine.notebook import wording
from nbrefine.notebook.cells import turn_ids
from nbrefine.notebook.ending import ANSWER_CHECKS
from nbrefine.values import Episode

_OTHERS = {
    "ep-summary": "summary",
    "ep-params": "parameters",
    "ep-setup": "setup",
    ANSWER_CHECKS: "checks of the answer",
    "ep-tests": "tests",
    "ep-final": "result",
}
_OF_A_STEP = re.compile(r"s(\d{2,9})-(plan|checks|diff)")
_NAMED = {"plan": "head", "checks": "checks", "diff": "changes"}


def place(episode: Episode, cell_id: str) -> str:
    """Name a cell, such as "Step 2, attempt 1" for "s02-a01"; an unknown id stays as it is."""
    return places(episode).get(cell_id) or _other(episode, cell_id)


def places(episode: Episode) -> dict[str, str]:
    """Give the place of each turn's cell by its id."""
    ids = dict(zip((turn.number for turn in episode.turns), turn_ids(episode), strict=True))
    several = len({turn.step for turn in episode.turns}) > 1
    found = {}
    for turn in wording.in_order(episode):
        step = f"{wording.step_name(episode, turn.step)}, " if several else ""
        what = "attempt" if wording.is_attempt(episode, turn) else "turn"
        number = turn.attempt if what == "attempt" else turn.number
        found[ids[turn.number]] = f"{step}{what} {number}".capitalize()
    return found


def _other(episode: Episode, cell_id: str) -> str:
    if cell_id in _OTHERS:
        return _OTHERS[cell_id].capitalize()
    known = _OF_A_STEP.fullmatch(cell_id)
    if known is None:
        return cell_id
    step = wording.step_name(episode, int(known[1]))
    return f"{step}, {_NAMED[known[2]]}".capitalize()
