"""A file of the command line does the same in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nbrefine
from nbrefine.errors import UsageError

SOLUTION = "```python\nn = len(open('rows.csv').readlines())\n```"
SAY = "```python\nprint('ANSWER: 2')\n```"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tmp_path / "files"
    for folder in (files, tmp_path / "here"):
        folder.mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (files / "rows.csv").write_text("a\nb\n")
    (files / "replies.json").write_text(json.dumps([SOLUTION, SAY]))
    rest = "data: rows.csv\nmodel: scripted:replies.json\ntests: assert n == 2\nmax_turns: 2\n"
    (files / "task.yaml").write_text(f"task: Count the rows into n.\noutput: task.ipynb\n{rest}")
    (files / "goal.yaml").write_text(f"goal: Count the rows into n.\noutput: goal.ipynb\n{rest}")


def test_a_task_file_is_refined_as_the_command_line_does_it(tmp_path: Path) -> None:
    given = nbrefine.load_task(tmp_path / "files" / "task.yaml", max_turns=3)
    episode = nbrefine.refine(**given)
    assert episode.solved
    assert (episode.task.id, episode.task.files) == ("task", ("rows.csv",))
    assert (episode.settings["max_turns"], episode.seed) == (3, 0)
    assert nbrefine.load(tmp_path / "files" / "task.ipynb") == episode


def test_a_goal_file_is_solved_and_recorded_where_an_option_says(tmp_path: Path) -> None:
    given = nbrefine.load_task(str(tmp_path / "files" / "goal.yaml"), output="own.ipynb")
    # The model finds the file by the path that it is told; here the code names it from its folder.
    assert given["data"] == (str(tmp_path / "files" / "rows.csv"),)
    given = nbrefine.load_task(tmp_path / "files" / "goal.yaml", planning="none")
    assert given["planning"] == "none"
    episode = nbrefine.solve(**given)
    assert episode.settings["kind"] == "solve"
    assert episode.answer is not None
    assert episode.answer.text == "2"
    assert (tmp_path / "files" / "goal.ipynb").exists()


def test_what_is_wrong_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "files" / "task.yaml"
    path.write_text("task: Count.\nmax_turn: 2\n")
    with pytest.raises(UsageError, match=r'line 2: unknown key "max_turn"\. Did you mean "max_tu'):
        nbrefine.load_task(path)
    with pytest.raises(UsageError, match=r"There is no task file gone\.yaml"):
        nbrefine.load_task("gone.yaml")
    path.write_text("model: local\n")
    with pytest.raises(UsageError, match='the key "task" is missing'):
        nbrefine.load_task(path)
