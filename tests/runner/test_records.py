"""What trajectories leave in notebooks and in the log."""

from __future__ import annotations

from pathlib import Path

import pytest

import nbrefine
from nbrefine.errors import (
    ModelTimeoutError,
    RecordError,
    UsageError,
)
from nbrefine.notebook import load
from nbrefine.runner import (
    TrajectoryRunner,
)
from nbrefine.trajectory import Trajectory
from nbrefine.values import (
    Episode,
)
from tests.runner.telling import iterative, knowing


def test_each_trajectory_has_a_notebook_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    runner = TrajectoryRunner(iterative(), knowing, record=folder)
    batch = runner.run_batch([1, 0, 1])
    names = ["task-0001.ipynb", "task-0000.ipynb", "task-0001-sample-01.ipynb"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for name, trajectory in zip(names, batch, strict=True):
        assert nbrefine.load(folder / name) == trajectory.episode
    with pytest.raises(RecordError, match="holds an episode already"):
        runner.run_batch([2, 1])
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    again = TrajectoryRunner(iterative(), knowing, record=folder, overwrite=True)
    assert again.run_batch([1])[0].success


def test_a_notebook_may_be_named_by_what_its_episode_is_about(tmp_path: Path) -> None:
    def named(episode: Episode, task_index: int, sample: int) -> str:
        return f"{episode.task.prompt.split()[0]}-{task_index}-{sample}.ipynb"

    runner = TrajectoryRunner(iterative(), knowing, record=tmp_path, record_as=named)
    batch = runner.run_batch([1, 1])
    names = [f"{batch[0].episode.task.prompt.split()[0]}-1-{n}.ipynb" for n in range(2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [nbrefine.load(tmp_path / name) for name in names] == [t.episode for t in batch]
    assert runner.run_batch([1])[0].episode.verdict == "infra-error"  # there is one already


def test_the_name_of_one_notebook_is_no_folder_of_records(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one for every episode"):
        TrajectoryRunner(iterative(), knowing, record=tmp_path / "runs.ipynb")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_records_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runner = TrajectoryRunner(iterative(), knowing, record=tmp_path / "file" / "runs")
    with pytest.raises(UsageError, match="cannot be a folder of records"):
        runner.run_batch([0])
    with pytest.raises(UsageError, match="cannot be a folder of records"):
        runner.run_trajectory(0)


def test_the_log_gets_a_line_for_every_turn_and_every_end() -> None:
    lines: list[str] = []
    TrajectoryRunner(iterative(), knowing, log=lines.append).run_batch([1, 1], batch_size=1)
    assert lines == [
        "task 1: turn 1 failed",
        "task 1: turn 2 solved",
        "task 1: Solved after 2 turns: the best outcome reward is 1.",
        "task 1, sample 1: turn 1 failed",
        "task 1, sample 1: turn 2 solved",
        "task 1, sample 1: Solved after 2 turns: the best outcome reward is 1.",
    ]


def test_the_log_tells_of_a_trajectory_in_trouble_too() -> None:
    def broken(messages: object) -> str:
        raise ModelTimeoutError("The server is slow")

    lines: list[str] = []
    TrajectoryRunner(iterative(), broken, log=lines.append).run_batch([1])
    assert [line.startswith("task 1: ") and "slow" in line for line in lines] == [True]


def test_trouble_of_the_log_at_the_end_is_the_caller_s_and_no_trajectory_s() -> None:
    def log(line: str) -> None:
        if "Solved" in line:
            raise LookupError("no log")

    runner = TrajectoryRunner(iterative(), knowing, log=log)
    with pytest.raises(LookupError, match="no log"):
        runner.run_batch([0, 1])
    with pytest.raises(LookupError, match="no log"):
        runner.run_trajectory(0)


class Whole:
    """A whole number that is no int, as those of numpy are."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_an_index_of_any_whole_number_is_recorded_as_an_int(tmp_path: Path) -> None:
    runner = TrajectoryRunner(iterative(), knowing, record=tmp_path)
    (told,) = runner.run_batch([Whole(1)])  # type: ignore[list-item]
    assert (told.task_index, type(told.task_index)) == (1, int)
    recorded = Trajectory(load(tmp_path / "task-0001.ipynb"))
    assert (recorded.task_index, recorded.success) == (1, True)
    with pytest.raises(UsageError, match="no whole number"):
        runner.run_batch(["1"])  # type: ignore[list-item]
