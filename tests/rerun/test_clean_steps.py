"""Clean replay of several steps: their checks run again, and the files they left are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbrefine import notebook
from nbrefine.env.multistep import MultiStepEnvironment
from nbrefine.postconditions import file_written, holds
from nbrefine.rerun import Replay, StepReplay, replay
from nbrefine.rerun.telling import verdict
from nbrefine.state import Action
from nbrefine.values import Episode, KernelInfo, Subtask, Task
from tests.steps import answered

TASK = Task(
    "Number the rows and write them down.",
    setup="import random",
    subtasks=(
        # What the check takes away is there for the next step all the same.
        Subtask("Number the rows", (), (holds("rows.pop() == 3"),)),
        Subtask("Write them down", (1,), (file_written("rows.txt"),)),
    ),
)
ROWS = "rows = [1, 2, 3]"
WRITING = "with open('rows.txt', 'w') as file:\n    _ = file.write(str(rows))"


def _played(*cells: str, cwd: Path, seed: int | None = 5) -> Episode:
    with MultiStepEnvironment(TASK, cwd=cwd) as env:
        state = env.reset(seed=seed)[0]
        for cell in cells:
            state = env.step(state, Action.from_code(cell)).next_state
    episode: Episode = state.hidden.episode
    return episode


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Episode:
    episode = _played(ROWS, WRITING, cwd=tmp_path_factory.mktemp("recorded"))
    assert episode.solved, episode.turns[-1].feedback
    return episode


def _edited(episode: Episode, **cells: str) -> Episode:
    """Let accepted cells say something else than what was run; `first`, `second`."""
    first, second = episode.turns

    def other(turn: Any, source: str | None) -> Any:
        return turn if source is None else replace(turn, result=replace(turn.result, source=source))

    turns = (other(first, cells.get("first")), other(second, cells.get("second")))
    return replace(episode, turns=turns)


def _told(replayed: Replay) -> list[tuple[str, str]]:
    return [(step.cell, step.verdict) for step in replayed.steps]


def test_checks_run_after_their_step_and_leave_nothing(recorded: Episode, tmp_path: Path) -> None:
    ran: list[str] = []
    replayed = replay(recorded, cwd=tmp_path, on_cell=ran.append)
    assert _told(replayed) == [
        ("ep-setup", "same"),
        ("s01-a01", "same"),
        ("s01-checks", "same"),
        ("s02-a01", "same"),
        ("s02-checks", "same"),
    ]
    assert ran == [step.cell for step in replayed.steps]
    assert replayed.ok
    assert (tmp_path / "rows.txt").read_text() == "[1, 2, 3]"
    assert verdict(replayed) == (
        "The accepted cells give the recorded outputs and state (2 compared), and all checks hold."
    )


def test_a_check_that_does_not_hold_is_told_and_the_rest_runs_on(
    recorded: Episode, tmp_path: Path
) -> None:
    replayed = replay(_edited(recorded, first="rows = [1, 2]"), cwd=tmp_path)
    assert _told(replayed)[1:4] == [
        ("s01-a01", "differs"),
        ("s01-checks", "differs"),
        ("s02-a01", "differs"),
    ]
    assert replayed.steps[2].details[0].startswith("rows.pop() == 3: got 2")
    assert not replayed.ok
    assert replayed.steps[3].details[-1] == "rows.txt has another content (6 bytes, not 9)"
    without = replace(recorded, turns=tuple(replace(turn, digest=None) for turn in recorded.turns))
    replayed = replay(_edited(without, first="rows = [1, 2, 4]"), cwd=tmp_path)
    assert replayed.first is replayed.steps[2]
    assert replayed.steps[3].verdict == "differs"
    assert replayed.steps[3].details == ("rows.txt has another content",)


def test_a_file_that_is_not_written_again_is_told(recorded: Episode, tmp_path: Path) -> None:
    replayed = replay(_edited(recorded, second="file = None"), cwd=tmp_path)
    step, checks = replayed.steps[3:]
    assert step.verdict == "differs"
    assert "rows.txt was not written" in step.details
    assert checks.verdict == "differs"
    assert "FileNotFoundError" in checks.details[0]


def test_checks_after_a_cell_that_failed_are_not_run(recorded: Episode, tmp_path: Path) -> None:
    replayed = replay(_edited(recorded, first="1 / 0"), cwd=tmp_path)
    assert _told(replayed)[1:] == [
        ("s01-a01", "error differs"),
        ("s01-checks", "not run"),
        ("s02-a01", "not run"),
        ("s02-checks", "not run"),
    ]


def test_files_may_differ_by_chance_where_there_was_no_seed(tmp_path: Path) -> None:
    drawing = WRITING.replace("str(rows)", "str(random.random())")
    episode = _played(ROWS, drawing, cwd=tmp_path, seed=None)
    assert episode.solved
    step = replay(episode, cwd=tmp_path).steps[3]
    assert step.verdict == "same after"
    assert step.details[0].startswith("rows.txt has another content")
    assert step.details[-1] == "the episode had no seed, so values may differ by chance"


def test_cells_work_in_the_folder_that_the_record_names(recorded: Episode, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    path = tmp_path / "episode.ipynb"
    notebook.save(replace(recorded, settings={"folder": "data"}), path)
    assert replay(path).ok
    assert (tmp_path / "data" / "rows.txt").exists()


def test_what_has_to_hold_of_an_answer_is_checked_at_the_end(tmp_path: Path) -> None:
    replayed = replay(answered(), cwd=tmp_path)
    assert [step.cell for step in replayed.steps] == [
        *("ep-setup", "s01-a03", "s01-checks", "s02-a01", "s02-checks"),
        *("s03-a02", "s03-checks", "ep-checks", "ep-tests"),
    ]
    assert replayed.ok
    assert verdict(replayed) == (
        "The accepted cells give the recorded outputs, and all checks hold; no state is recorded."
    )
    assert verdict(Replay(KernelInfo(), (), ())) == (
        "No attempt was accepted; there was nothing to run."
    )
    assert verdict(Replay(KernelInfo(), (), (StepReplay("s01-a01", "ran"),))) == (
        "Every cell ran to its end, but nothing is recorded to compare them with."
    )
