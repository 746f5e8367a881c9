"""Notebooks of other people: each is refused in one line that says what it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbrefine import notebook
from nbrefine.cli import call
from nbrefine.errors import RecordError
from nbrefine.values import Episode
from nbrefine.views import handout, page
from tests.notebook.awkward import COMMANDS, ask, looked_at, refusal


def test_whatever_takes_a_record_refuses_the_notebooks_of_others(
    others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = looked_at(others)
    found = sorted(others.glob("*.ipynb"))
    assert len(found) == 105
    formats = set()
    for path in found:
        made = json.loads(path.read_bytes())
        old = made["nbformat"] < 4
        kind = "a notebook of the old format 3" if old else "a plain notebook of "
        for told in ask(path):
            assert f"{path} is {kind}" in told
            assert told.endswith("not an episode. Give a file that nbrefine recorded")
        if (form := (made["nbformat"], made.get("nbformat_minor"))) in formats:
            continue
        formats.add(form)  # the commands do the same and take their time
        for words in COMMANDS:
            told = refusal(words, path, tmp_path / "elsewhere", capsys)
            assert f"{path} is {kind}" in told
    assert len(formats) == 7
    assert call(["show", str(others)]) == 2
    assert capsys.readouterr().err.startswith("nbrefine: There is no episode notebook in")
    assert looked_at(others) == before


def test_no_episode_is_saved_over_a_notebook_of_others(others: Path, repaired: Episode) -> None:
    before = looked_at(others)
    for path in sorted(others.glob("*.ipynb")):
        with pytest.raises(RecordError, match="not an episode"):
            notebook.save(repaired, path)
        with pytest.raises(RecordError, match="not an episode"):
            notebook.Recorder(path, overwrite=True)
        with pytest.raises(RecordError, match="is there already"):
            handout.write(repaired, path)
        with pytest.raises(RecordError, match="is a notebook's name"):
            page.write(repaired, path, overwrite=True)
    assert looked_at(others) == before


def test_a_folder_is_listed_with_what_cannot_be_read_in_it(
    others: Path, repaired: Episode, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook.save(repaired, others / "episode.ipynb")
    torn = others / "torn.ipynb"
    torn.write_bytes((others / "episode.ipynb").read_bytes()[:500])
    assert call(["show", str(others)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{others / 'episode.ipynb'}  Solved after 2 turns: 2/2 tests passed."
    assert second.startswith(f"{torn} is not JSON to its end: it breaks off in line ")
