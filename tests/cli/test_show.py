"""`nbrefine show --html` and `--handout`: what they write, where, and what does not go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbrefine.cli import call
from nbrefine.notebook import Recorder, save
from nbrefine.values import Episode


@pytest.fixture
def record(tmp_path: Path, repaired: Episode) -> Path:
    path = tmp_path / "my run.v2.ipynb"
    save(repaired, path)
    return path


def test_a_page_is_written_beside_the_episode(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = record.with_name("my run.v2.html")
    assert call(["show", str(record), "--html"]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert "mean-price" in page.read_text(encoding="utf-8")
    assert call(["show", str(record), "--html"]) == 2
    assert f"{page} is there already" in capsys.readouterr().err
    assert call(["show", str(record), "--html", "--overwrite"]) == 0
    elsewhere = record.with_name("other.html")
    assert call(["show", str(record), "--html", "-o", str(elsewhere)]) == 0
    assert elsewhere.read_bytes() == page.read_bytes()


def test_a_handout_is_written_beside_the_episode(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record.with_name("my run.v2-handout.ipynb")
    assert call(["show", str(record), "--handout"]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    ids = [cell["id"] for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    assert ids == ["task", "setup", "step-1-work-1", "tests"]
    more = ["--handout", "--with-attempts", "--overwrite"]
    assert call(["show", str(record), *more]) == 0
    assert "step-1-failed-1" in path.read_text(encoding="utf-8")


def test_a_running_episode_can_be_written_from_its_journal(
    tmp_path: Path, repaired: Episode, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = Recorder(tmp_path / "e.ipynb")
    recorder.begin(repaired)
    try:
        assert call(["show", str(tmp_path / "e.nbrefine.jsonl"), "--html"]) == 0
    finally:
        recorder.close()
    assert capsys.readouterr().out == f"{tmp_path / 'e.html'}\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--html", "--handout"], "exclude each other"),
        (["--html", "--step"], "exclude each other"),
        (["-o", "x.html"], "Give --html or --handout as well"),
        (["--overwrite"], "Give --html or --handout as well"),
        (["--html", "--with-attempts"], "Give --handout as well"),
        (["--html", "-o", "x.ipynb"], "is a notebook's name"),
        (["--handout", "-o", "x.html"], "is not a notebook's name"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    record: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["show", str(record), *options]) == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_folder_is_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["show", str(tmp_path), "--html"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
