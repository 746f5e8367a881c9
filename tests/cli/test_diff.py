"""`nbrefine diff`: what it prints and writes, and how it exits."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine.cli import call
from nbrefine.notebook import save
from nbrefine.values import Episode, Task, Turn

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def records(tmp_path: Path, repaired: Episode) -> list[str]:
    """Two records: a solved one, and one that lacks its last attempt."""
    paths = [str(tmp_path / name) for name in ("a.ipynb", "b.ipynb")]
    short = replace(repaired, turns=repaired.turns[:1])
    for path, episode in zip(paths, (repaired, short), strict=True):
        save(episode, path)
    return paths


def test_a_difference_exits_with_1_and_none_with_0(records: list[str], capsys: Captured) -> None:
    assert call(["diff", *records]) == 1
    told = capsys.readouterr()
    assert "They part at attempt 2, which only A has." in " ".join(told.out.split())
    assert told.err == ""
    assert call(["diff", records[0], records[0]]) == 0
    assert capsys.readouterr().out.startswith("No differences.\n")


def test_a_program_gets_one_document(records: list[str], capsys: Captured) -> None:
    assert call(["diff", *records, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["equal"], found["first"]) == (False, "Attempt 2")
    assert found["b"]["name"] == records[1]


def test_a_page_is_written(records: list[str], tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "ab.html"
    assert call(["diff", *records, "--html", str(page)]) == 1
    assert capsys.readouterr().out == f"{page}\n"
    assert "They part at attempt 2" in page.read_text(encoding="utf-8")
    assert call(["diff", *records, "--html", str(page)]) == 2
    assert f"{page} is there already" in capsys.readouterr().err
    assert call(["diff", *records, "--html", str(page), "--overwrite"]) == 1
    capsys.readouterr()


def test_wrong_usage_exits_with_2_and_one_line(
    records: list[str], tmp_path: Path, capsys: Captured
) -> None:
    for arguments in (
        records[:1],
        [records[0], str(tmp_path / "none.ipynb")],
        [*records, "--overwrite"],
        [*records, "--html", str(tmp_path / "x.ipynb")],
    ):
        assert call(["diff", *arguments]) == 2
        said = capsys.readouterr()
        assert said.err.startswith("nbrefine: ")
        assert said.err.count("\n") == 1
        assert said.out == ""


def test_the_help_tells_the_exit_codes(capsys: Captured) -> None:
    assert call(["diff", "--help"]) == 0
    assert "1 something does" in " ".join(capsys.readouterr().out.split())


def test_what_is_no_number_is_null_for_a_program(tmp_path: Path, capsys: Captured) -> None:
    odd = Episode(Task("odd"), turns=(Turn(1, seconds=math.nan),))
    save(odd, tmp_path / "odd.ipynb")
    save(Episode(Task("odd")), tmp_path / "even.ipynb")
    assert call(["diff", *(str(tmp_path / f"{a}.ipynb") for a in ("odd", "even")), "--json"]) == 1
    out = capsys.readouterr().out
    assert '"seconds": null' in out
    json.loads(out, parse_constant=pytest.fail)


def test_a_program_gets_a_document_of_a_fault_too(
    records: list[str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr("nbrefine.views.diff.diff", broken)
    assert call(["diff", *records, "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told == {"error": {"kind": "RuntimeError", "message": "lost", "hint": ""}}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_reader_that_goes_or_is_full_is_no_difference(records: list[str]) -> None:
    run = "from nbrefine.cli import main; main()"
    command = [sys.executable, "-c", run, "diff", records[0], records[0]]
    reading, writing = os.pipe()
    os.close(reading)
    for out in (writing, os.open("/dev/full", os.O_WRONLY)):
        ended = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
        os.close(out)
        assert ended.returncode == 3, ended.stderr
        assert "Traceback" not in ended.stderr
        assert "Exception ignored" not in ended.stderr
