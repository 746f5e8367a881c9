"""`nbrefine show --example`: from an installation to an episode, without a file of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbrefine.cli import call
from nbrefine.cli.show import NAMES
from nbrefine.examples import EXAMPLES, path_of


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_example_is_read_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["show", "--example", "cycle", "--step"]) == 0
    assert "the same attempt with the same outcome was made 3" in capsys.readouterr().out


def test_all_are_told_with_what_each_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["show", "--example", "list"]) == 0
    told = capsys.readouterr()
    assert [line.split("  ", 1)[0] for line in told.out.splitlines()] == list(EXAMPLES)
    assert all(sentence in told.out for sentence in EXAMPLES.values())
    assert str(path_of("cycle").parent) in told.err
    assert all(name in NAMES for name in EXAMPLES)


def test_what_is_written_of_one_stands_in_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in path_of("cycle").parent.iterdir())
    assert call(["show", "--example", "multi-step", "--html"]) == 0
    assert call(["show", "--example", "multi-step", "--handout"]) == 0
    assert capsys.readouterr().out.split() == [
        "multi-step.html",
        "multi-step-handout.ipynb",
        "harvest.csv",
    ]
    assert json.loads((tmp_path / "multi-step-handout.ipynb").read_bytes())["nbformat"] == 4
    assert (tmp_path / "harvest.csv").read_bytes() == path_of("multi-step").with_name(
        "harvest.csv"
    ).read_bytes()
    assert call(["show", "--example", "multi-step", "--html"]) == 2
    assert before == sorted(path.name for path in path_of("cycle").parent.iterdir())


def test_data_of_ones_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "harvest.csv").write_text("mine")
    assert call(["show", "--example", "multi-step", "--handout"]) == 0
    assert (tmp_path / "harvest.csv").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--example", "regresion"], "Did you mean 'regression'?"),
        (["--example", "none"], "There are cycle, regression, saturation"),
        (["--example", "list", "--html"], "Give one of cycle, regression"),
        (["--example", "cycle", "episode.ipynb"], "exclude each other"),
        (["--example", "list", "episode.ipynb"], "exclude each other"),
        ([], "`--example list`"),
    ],
)
def test_anything_else_is_refused_in_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["show", *arguments]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert (said.err.count("\n"), said.out) == (1, "")
