"""`solve` puts environment, model and record together: a goal in, an answer out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nbrefine
from nbrefine.errors import UsageError
from nbrefine.postconditions import frame, holds
from nbrefine.solving import solve, start_solving
from nbrefine.values import Subtask, Task

TABLE = "species,mass\nA,10\nA,20\nB,30\n"

READ = "```python\nimport pandas as pd\ndf = pd.read_csv('birds.csv')\n```"
WRONG = "```python\nmeans = df.groupby('species')['mas'].mean()\n```"
RIGHT = "```python\nmeans = df.groupby('species')['mass'].mean()\nmeans.to_csv('means.csv')\n```"
SAY = "```python\nprint(f\"@A[{means['A']}] @B[{means['B']}]\")\n```"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "birds.csv").write_text(TABLE)
    return tmp_path


def test_a_goal_is_reached_step_by_step_and_answered(folder: Path) -> None:
    episode = solve(
        "Write the mean mass of each species to means.csv, and say them.",
        data=folder / "birds.csv",
        subtasks=[
            {"goal": "Read birds.csv into df.", "check": {"frame": "df", "columns": ["mass"]}},
            {"goal": "Write means.csv.", "needs": 1, "check": {"file": "means.csv"}},
            "Say the means.",
        ],
        answer="fields:A,B",
        model=[READ, WRONG, RIGHT, SAY],
        record=folder / "e.ipynb",
    )
    assert episode.solved
    assert [(turn.step, turn.accepted) for turn in episode.turns] == [
        (1, True),
        (2, False),
        (2, True),
        (3, True),
    ]
    assert episode.answer is not None
    assert episode.answer.value == {"A": "15.0", "B": "30.0"}  # (10 + 20) / 2 and 30 / 1
    assert [file.path for file in episode.artifacts] == ["means.csv"]
    assert (folder / "means.csv").read_text() == "species,mass\nA,15.0\nB,30.0\n"
    assert nbrefine.load(folder / "e.ipynb") == episode


def test_steps_may_be_given_as_values_and_mixed_with_words(folder: Path) -> None:
    episode = solve(
        "Count the birds.",
        subtasks=[Subtask("Read it.", postconditions=(frame("df"),)), "Count."],
        model=[READ, "```python\nn = len(df)\n```"],
        cwd=folder,
    )
    assert episode.solved
    assert episode.plan is not None
    assert [subtask.goal for subtask in episode.plan.subtasks] == ["Read it.", "Count."]


def test_the_tests_of_the_goal_must_hold_at_its_end(folder: Path) -> None:
    episode = solve(
        "Set x to 2.",
        tests="assert x == 2",
        answer="value:x",
        model=["```python\nx = 1\n```", "```python\nx = 2\n```"],
        max_turns=2,
        cwd=folder,
    )
    assert episode.solved
    assert episode.answer is not None
    assert episode.answer.value == 2


def test_each_turn_is_told_on_a_line_when_it_has_ended(folder: Path) -> None:
    told: list[str] = []
    solve(
        "Count the birds.",
        subtasks=["Read it.", {"goal": "Mean.", "check": {"file": "means.csv"}}],
        model=[READ, WRONG, RIGHT],
        progress=told.append,
        cwd=folder,
    )
    words = [[part for part in line.split("  ") if not part.endswith(" s")] for line in told]
    assert words[0] == ["turn 1, step 1", "accepted"]
    assert words[1][:2] == ["turn 2, step 2", "failed"]
    assert "Column not found: mas" in words[1][-1]
    assert words[2] == ["turn 3, step 2", "accepted", "1/1 checks"]


@pytest.mark.parametrize("lend", [("k", ["df"]), (None, "df"), "df", ("k",), 3])
def test_what_cannot_be_lent_is_refused(lend: Any) -> None:
    with pytest.raises(UsageError, match=r"a live Kernel and names.*lend=\(kernel, \[\"df\"\]\)"):
        start_solving("x", model=["x"], lend=lend)


def test_the_name_of_a_file_is_no_goal() -> None:
    with pytest.raises(UsageError, match=r"birds\.csv is the name of a file, and no goal.*data="):
        start_solving(" birds.csv ", model=["x"])


def test_what_is_given_twice_is_refused() -> None:
    task = Task("x", subtasks=(Subtask("y", postconditions=(holds("x"),)),))
    with pytest.raises(UsageError, match="subtasks of its own"):
        start_solving(task, subtasks=["z"], model=["x"])
    with pytest.raises(UsageError, match=r"'max_turn'.*Use one of: planning, style"):
        start_solving("x", model=["x"], max_turn=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="The goal is blank"):
        start_solving(" ", model=["x"])
    with pytest.raises(UsageError, match="The steps are a list, not 'make x'"):
        start_solving("x", subtasks="make x", model=["x"])
