"""`nbrefine replay`: what it prints, and how it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine.cli import call
from nbrefine.env import NotebookEnvironment
from nbrefine.notebook import save
from nbrefine.state import Action
from nbrefine.values import Episode, Task


@pytest.fixture(scope="module")
def recorded() -> Episode:
    task = Task("t", setup="items = [1, 2]", tests="assert len(items) == 3")
    with NotebookEnvironment(task) as env:
        state = env.reset(seed=5)[0]
        for cell in ("items.clear()", "items.append(3)"):
            state = env.step(state, Action.from_code(cell)).next_state
    episode: Episode = state.hidden.episode
    return episode


@pytest.fixture
def saved(recorded: Episode, tmp_path: Path) -> Path:
    path = tmp_path / "episode.ipynb"
    save(recorded, path)
    return path


def other(episode: Episode, path: Path) -> Path:
    """Save the episode as if its accepted cell had been another one."""
    last = episode.turns[-1]
    assert last.result is not None
    last = replace(last, result=replace(last.result, source="items.extend([3, 4])"))
    save(replace(episode, turns=(*episode.turns[:-1], last)), path)
    return path


def test_the_same_state_ends_with_0(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["replay", str(saved)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "ep-setup  ran; no state is recorded",
        "s01-a02   same",
        "The accepted cells give the recorded state (1 compared).",
    ]


def test_another_state_ends_with_1_and_is_told_by_name(
    recorded: Episode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = other(recorded, tmp_path / "other.ipynb")
    assert call(["replay", str(path)]) == 1
    out = capsys.readouterr().out
    assert "s01-a02   differs\n" in out
    assert "items" in out
    assert out.endswith("The replay is not as recorded, first at s01-a02.\n")
    assert call(["replay", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["compared"]) == (False, 1)
    assert [(step["cell"], step["verdict"]) for step in told["steps"]] == [
        ("ep-setup", "no digest"),
        ("s01-a02", "differs"),
    ]
    assert "items" in told["steps"][1]["details"][0]


def test_that_nothing_was_compared_is_said(
    recorded: Episode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bare.ipynb"
    turns = tuple(replace(turn, digest=None) for turn in recorded.turns)
    save(replace(recorded, turns=turns), path)
    assert call(["replay", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Every cell ran to its end, but nothing was compared: the record has no state."
    )
    assert call(["replay", str(path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["ok"], summary["compared"]) == (True, 0)
    assert call(["replay", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "0 the cells give the recorded state, or ran to their end where none is" in told


def test_changed_packages_are_told_before_the_cells(
    recorded: Episode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    had = {**recorded.kernel.packages, **{f"absent-{n}": "1" for n in range(10)}}
    kernel = replace(recorded.kernel, packages=had)
    path = tmp_path / "elsewhere.ipynb"
    save(replace(recorded, kernel=kernel), path)
    assert call(["replay", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "absent-0 1 → (absent)"
    assert out[8] == "2 more packages are not as recorded"
    assert out[9].startswith("ep-setup")


def test_wrong_input_ends_with_2_and_a_kernel_that_does_not_start_with_3(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["replay", str(tmp_path / "gone.ipynb")]) == 2
    assert call(["replay", str(saved), "--kernel", "no-such-kernel"]) == 2
    assert call(["replay", str(saved), "--timeout", "0"]) == 2
    monkeypatch.setenv("PYTHONHOME", "/nowhere")  # no interpreter that is started now comes up
    assert call(["replay", str(saved)]) == 3
    assert capsys.readouterr().err.count("\n") == 4
