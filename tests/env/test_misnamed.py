"""Where a file is named that is not there, the feedback names those that may have been meant."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nbrefine.env import NotebookEnvironment, looking
from nbrefine.env.looking import Folder
from nbrefine.env.misnamed import misnamed
from nbrefine.outputs import CellResult, Failure
from nbrefine.solving import solve
from nbrefine.state import Action
from nbrefine.values import Task

MISSING = "[Errno 2] No such file or directory: {!r}"


def told(folder: Folder, says: str, kind: str = "FileNotFoundError") -> str:
    result = CellResult("", "error", error=Failure(kind, says))
    return asyncio.run(misnamed(folder, result))


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    for name in ("penguins.csv", "old/penguins.csv", "notes.txt", "node_modules/penguin.csv"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("a\n")
    (tmp_path / "penguin.csv").write_text("outside\n")
    (work / "penguin2.csv").symlink_to(tmp_path / "penguin.csv")
    return work


@pytest.mark.parametrize(
    ("says", "near"),
    [
        (MISSING.format("penguin.csv"), ["penguins.csv", "old/penguins.csv"]),
        (MISSING.format("/data/Penguins.CSV"), ["penguins.csv", "old/penguins.csv"]),
        ("No such file or directory (os error 2): note.txt", ["notes.txt"]),
        ("note.txt not found.", ["notes.txt"]),
        (MISSING.format("weather.parquet"), []),
        ("somewhere", []),
    ],
)
def test_near_names_in_the_folder_are_told(filled: Path, says: str, near: list[str]) -> None:
    said = told(Folder(filled), says)
    there = ", ".join(map(repr, near))
    assert said.partition(". ")[2] == (f"The working folder has {there}." if near else "")


def test_no_other_error_no_record_and_nothing_hidden_is_told(filled: Path) -> None:
    says = MISSING.format("penguin.csv")
    assert told(Folder(filled), says, kind="KeyError") == ""
    assert told(Folder(None), says) == ""
    only = told(Folder(filled, ignore=["old"]), says)
    assert only == "There is no 'penguin.csv'. The working folder has 'penguins.csv'."
    (filled / "penguin.nbrefine.jsonl").write_text("{}\n")
    assert told(Folder(filled, ignore=["old"]), MISSING.format("penguin.nbrefine.json")) == ""


def test_three_are_told_and_a_large_folder_is_not_walked(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (filled / f"part-{number}.csv").write_text("")
    assert told(Folder(filled), MISSING.format("part.csv")).count(".csv'") == 1 + 3
    monkeypatch.setattr(looking, "WALKED", 3)
    for number in range(20):
        (filled / f"{number}.bin").write_text("")
    (filled / "old" / "deep.csv").write_text("")
    assert told(Folder(filled), MISSING.format("deep.csv")) == ""


def test_both_kinds_of_agents_are_told(filled: Path) -> None:
    wrong = "open('penguin.csv')"
    hint = "There is no 'penguin.csv'. The working folder has 'penguins.csv', 'old/penguins.csv'."
    with NotebookEnvironment(Task("Read it."), cwd=filled) as env:
        state = env.step(env.reset()[0], Action.from_code(wrong)).next_state
        assert hint in state.hidden.episode.turns[0].feedback
    replies = [f"```python\n{wrong}\n```", "```python\nprint('ANSWER: 1')\n```"]
    episode = solve("Count the rows.", model=replies, cwd=filled)
    assert hint in episode.turns[0].feedback
