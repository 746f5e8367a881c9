"""Faithful replay: all that ran in the session itself, in the order in which it did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nbrefine.env import NotebookEnvironment
from nbrefine.errors import UsageError
from nbrefine.outputs import Death
from nbrefine.rerun import replay
from nbrefine.rerun.telling import told
from nbrefine.state import Action
from nbrefine.values import Episode, Task

CELLS = (
    "leak = 1\nprint(object())\nnowhere",
    "leak += 1\ndone = False",
    "done = leak == 2\nprint(leak)",
)


@pytest.fixture(scope="module")
def recorded() -> Episode:
    with NotebookEnvironment(Task("t", tests="assert done"), isolation="none") as env:
        state = env.reset(seed=5)[0]
        for cell in CELLS:
            state = env.step(state, Action.from_code(cell)).next_state
    episode: Episode = state.hidden.episode
    assert [turn.accepted for turn in episode.turns] == [False, False, True]
    return episode


def edited(episode: Episode, place: int, **fields: Any) -> Episode:
    """Let a turn's result be another one than what it was."""
    turns = list(episode.turns)
    result = turns[place].result
    assert result is not None
    turns[place] = replace(turns[place], result=replace(result, **fields))
    return replace(episode, turns=tuple(turns))


def test_rejected_attempts_of_the_session_give_what_a_clean_replay_lacks(recorded: Episode) -> None:
    assert replay(recorded).steps[1].verdict == "error differs"
    replayed = replay(recorded, how="faithful")
    assert [(step.cell, step.told) for step in replayed.steps] == [
        ("ep-setup", "same"),
        ("s01-a01", "same after address"),  # it fails as it did, and the rest runs on
        ("s01-a02", "same"),
        ("s01-a03", "same"),
        ("ep-tests", "same"),
    ]
    assert (replayed.ok, replayed.notes, replayed.compared) == (True, (), 1)
    assert list(told(replayed))[-1] == (
        "The cells that ran in the session give the recorded outputs and state (1 compared), "
        "and all checks hold, but for address."
    )


def test_an_error_that_is_another_one_or_gone_differs(recorded: Episode) -> None:
    source = CELLS[0].replace("nowhere", "elsewhere")
    other = replay(edited(recorded, 0, source=source), how="faithful")
    assert [step.verdict for step in other.steps[:3]] == ["same", "error differs", "same"]
    assert "+NameError: name 'elsewhere' is not defined" in other.steps[1].diff.splitlines()
    gone = replay(edited(recorded, 0, source="leak = 1"), how="faithful")
    assert [step.verdict for step in gone.steps[1:]] == ["error differs", "same", "same", "same"]
    assert gone.steps[1].details == (
        "it ran to its end, which it had not: NameError: name 'nowhere' is not defined",
    )


def test_what_ran_in_branches_is_left_out_and_told(recorded: Episode) -> None:
    apart = [replace(turn, isolation="fork") for turn in recorded.turns[:2]]
    last = replace(recorded.turns[2], digest=None)
    episode = edited(
        replace(recorded, turns=(*apart, last)), 2, source="leak = 2\ndone = True\nprint(leak)"
    )
    replayed = replay(episode, how="faithful")
    assert [step.cell for step in replayed.steps] == ["ep-setup", "s01-a03", "ep-tests"]
    assert replayed.ok
    assert replayed.notes == (
        "2 rejected attempts ran beside the session and did not touch it",
        "no rejected attempt ran in the session, so this is what a clean replay runs",
    )


def test_a_session_that_was_built_anew_on_the_way_is_refused(recorded: Episode) -> None:
    with pytest.raises(UsageError, match="The session ended at s01-a02 and was built anew"):
        replay(edited(recorded, 1, death=Death(9)), how="faithful")
