"""Files that are about the work are not shown as its data, and all others are."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from nbrefine.env.looking import Folder
from nbrefine.env.own import JOURNAL, is_own
from nbrefine.notebook import Recorder, paths_of, save
from nbrefine.values import Episode, Task

GOAL = "Sum up the orders.\nBy region."


def listed(folder: Path, goal: str = GOAL) -> list[str]:
    told = asyncio.run(Folder(folder, goal=goal).described()).folder
    return [line.partition(" ")[0] for line in told.splitlines() if not line.startswith(" ")]


def test_records_of_episodes_are_not_listed_wherever_they_lie(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    save(Episode(Task("Sum up")), tmp_path / "old" / "first.ipynb")
    running = tmp_path / "second.ipynb"
    recorder = Recorder(running)
    recorder.begin(Episode(Task("Sum up")))
    notebook, journal, folder = paths_of(running)
    assert journal.is_file()
    assert journal.name.endswith(JOURNAL)
    folder.mkdir()
    (folder / "s01-output.txt").write_text("long")
    (tmp_path / "orders.csv").write_text("a\n1\n")
    assert notebook.is_file()
    assert listed(tmp_path) == ["orders.csv"]
    recorder.close()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.ipynb", '{"cells": [], "metadata": {"nbrefine": {}}, "nbformat": 4}'),
        (
            "shows.ipynb",  # a notebook that prints a record
            json.dumps({"cells": [{"source": ['{"schema": "nbrefine.episode/1"}']}]}),
        ),
        (
            "draws.ipynb",  # one that shows a record as a tree
            json.dumps({"outputs": {"application/json": {"schema": "nbrefine.episode/1"}}}),
        ),
        ("half.ipynb", '{"metadata": {"nbrefine": {"schema": "nbrefine.episode/1"}'),
        ("broken.ipynb", "no JSON"),
        ("orders.jsonl", '{"a": 1}\n'),
        ("other.yaml", "goal: Count the birds\n"),
        ("plain.yaml", "goal:\n  - 3\n"),
        ("broken.yaml", "goal: [\n"),
        ("empty.yml", "goal: ''\n"),
        ("truth.yaml", "goal: x\nmore: !!bool perhaps\n"),
        ("number.yaml", "goal: x\nmore: !!int ''\n"),
        ("time.yaml", "goal: x\nmore: !!timestamp soon\n"),
    ],
)
def test_a_file_of_somebody_else_s_is_listed(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "x.files").mkdir()
    (tmp_path / "x.files" / "data.csv").write_text("a\n")
    assert listed(tmp_path) == [name, "x.files/data.csv"]


def test_the_file_that_gives_the_goal_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "goal.yaml").write_text(
        "goal: |\n  Sum up the orders.\n  By region.\ndata: x.csv\n"
    )
    assert listed(tmp_path) == []
    assert listed(tmp_path, goal="Another") == ["goal.yaml"]


def test_a_file_whose_goal_is_a_part_of_what_is_asked_for_is_listed(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("goal: orders\n")
    assert listed(tmp_path) == ["config.yaml"]


def test_what_is_about_the_work_is_not_read_by_any_name_of_it(tmp_path: Path) -> None:
    task = Task("Sum up", hidden_tests="assert total == 4711")
    recorder = Recorder(tmp_path / "old.ipynb")
    recorder.begin(Episode(task))
    (tmp_path / "old.files").mkdir()
    (tmp_path / "old.files" / "s01-output.txt").write_text("long")
    (tmp_path / "goal.yaml").write_text(f"goal: {json.dumps(GOAL)}\ntests: assert total == 4711\n")
    (tmp_path / "way.txt").symlink_to("old.ipynb")
    folder = Folder(tmp_path, goal=GOAL)
    journal = paths_of(tmp_path / "old.ipynb")[1].name
    for name in ("old.ipynb", "way.txt", journal, "old.files/s01-output.txt", "goal.yaml"):
        seen = asyncio.run(folder.read(name))
        assert (seen.found, seen.text) == (False, ""), name
    assert asyncio.run(folder.read(".")).text == "old.files"
    as_data = Folder(tmp_path, data=["old.ipynb"], goal=GOAL)
    assert "nbrefine.episode/1" in asyncio.run(as_data.read("old.ipynb", 61)).text
    recorder.close()


def test_a_file_that_has_gone_is_nobody_s(tmp_path: Path) -> None:
    for name in ("gone.ipynb", "gone.yaml", "gone.files/x.txt"):
        assert not is_own(tmp_path / name, "goal")
