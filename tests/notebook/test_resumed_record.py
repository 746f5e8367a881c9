"""A record that is gone on with: what was there stays, and what is not its own is refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbrefine import notebook
from nbrefine.errors import RecordError, UsageError
from nbrefine.notebook.journal import Journal, path_of
from nbrefine.outputs import CellResult, Cut
from nbrefine.values import Episode, Stop, Turn


def _third(episode: Episode) -> Turn:
    return replace(episode.turns[0], number=3, attempt=3)


def _killed(path: Path, episode: Episode) -> None:
    recorder = notebook.Recorder(path)
    recorder.begin(replace(episode, turns=(), stop=None))
    recorder.turn(replace(episode, stop=None))
    recorder.close()


def _go_on(path: Path) -> Episode:
    """Add a turn to what is recorded, as whoever resumes does, and end."""
    recorder = notebook.Recorder(path, resume=True)
    episode = replace(notebook.load(path), stop=None)
    recorder.begin(episode)
    episode = replace(episode, turns=(*episode.turns, _third(episode)))
    recorder.turn(episode)
    ended = replace(episode, stop=Stop("max-turns"))
    recorder.end(ended)
    return ended


@pytest.mark.parametrize("killed", [False, True])
def test_a_resumed_record_is_one_whole_notebook_with_the_old_turns_and_the_new(
    tmp_path: Path, repaired: Episode, killed: bool
) -> None:
    path = tmp_path / "episode.ipynb"
    if killed:
        _killed(path, repaired)
    else:
        notebook.save(repaired, path)
    ended = _go_on(path)
    assert ended.turns[:2] == repaired.turns
    assert notebook.load(path) == ended
    assert [file.name for file in tmp_path.iterdir()] == ["episode.ipynb"]
    ids = {cell["id"] for cell in notebook.to_notebook(ended)["cells"]}
    before = {cell["id"] for cell in notebook.to_notebook(repaired)["cells"]}
    assert ids == before | {"s01-a03"}


def test_the_turns_of_before_are_written_once_and_not_with_every_new_one(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    _killed(path, repaired)
    recorder = notebook.Recorder(path, resume=True)
    episode = replace(notebook.load(path), stop=None)
    recorder.begin(episode)
    recorder.turn(replace(episode, turns=(*episode.turns, _third(episode))))
    recorder.close()
    lines = path_of(path).read_text().splitlines()
    assert ['"turn":' in line for line in lines] == [False, True, True, True]
    found = notebook.load(path)
    assert found.stop is not None
    assert found.stop.reason == "killed"
    assert len(found.turns) == 3


def test_hidden_tests_stay_hidden_while_it_goes_on_and_are_there_at_its_end(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(repaired, path)
    recorder = notebook.Recorder(path, resume=True)
    episode = replace(notebook.load(path), stop=None)
    assert episode.task.hidden_tests
    recorder.begin(episode)
    assert notebook.load(path).task.hidden_tests == ""
    recorder.end(repaired)
    assert notebook.load(path) == repaired


def test_another_episode_or_one_that_lacks_recorded_turns_is_refused_and_nothing_changes(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    others = [
        replace(repaired, id="other"),
        replace(repaired, turns=repaired.turns[:1]),
        replace(repaired, turns=repaired.turns[::-1]),
    ]
    for make in (notebook.save, lambda episode, path: _killed(path, episode)):
        make(repaired, path)
        before = {file: file.read_bytes() for file in tmp_path.iterdir()}
        for other in others:
            with pytest.raises(RecordError, match="does not hold the beginning of this episode"):
                notebook.Recorder(path, resume=True).begin(replace(other, stop=None))
            assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
        path.unlink()


def test_where_nothing_is_recorded_there_is_nothing_to_go_on_with(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    with pytest.raises(RecordError, match=r"episode\.ipynb cannot be read"):
        notebook.Recorder(path, resume=True)
    path.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    with pytest.raises(RecordError, match="a plain notebook of 0 cells"):
        notebook.Recorder(path, resume=True)
    notebook.save(repaired, tmp_path / "real.ipynb")
    with pytest.raises(UsageError, match="not both"):
        notebook.Recorder(tmp_path / "real.ipynb", resume=True, overwrite=True)


def test_two_runs_do_not_go_on_with_one_record(tmp_path: Path, repaired: Episode) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(repaired, path)
    begun = replace(repaired, stop=None)
    one, two = notebook.Recorder(path, resume=True), notebook.Recorder(path, resume=True)
    one.begin(begun)
    with pytest.raises(RecordError, match="Another run is recording"):
        two.begin(begun)
    with pytest.raises(RecordError, match="Another run is recording"):
        notebook.Recorder(path, resume=True)
    one.end(repaired)
    assert notebook.load(path) == repaired


def test_whoever_opens_a_journal_that_is_being_replaced_has_not_the_new_one(
    tmp_path: Path, repaired: Episode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking, another run puts its own file there and lets the old one go."""
    path = tmp_path / "e.nbrefine.jsonl"
    first = Journal(path)
    opened = os.open

    def slow(*arguments: Any) -> int:
        file = opened(*arguments)
        monkeypatch.undo()
        first.replace(repaired)
        return file

    monkeypatch.setattr(os, "open", slow)
    with pytest.raises(RecordError, match="Another run is recording"):
        Journal(path)
    first.remove()
    Journal(path).remove()


def test_whole_outputs_of_before_stay_beside_the_notebook(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    name = f"{'a' * 64}.txt"
    folder = tmp_path / "episode.files"
    folder.mkdir()
    (folder / name).write_text("all of it")
    cut = CellResult("x", "ok", cut=(Cut("stdout", 1, 2, (f"episode.files/{name}",)),))
    turns = (replace(repaired.turns[0], result=cut), repaired.turns[1])
    notebook.save(replace(repaired, turns=turns), path)
    _go_on(path)
    assert (folder / name).read_text() == "all of it"


def test_a_beginning_that_cannot_be_written_leaves_the_old_record_whole(
    tmp_path: Path, repaired: Episode
) -> None:
    import resource

    path = tmp_path / "episode.ipynb"
    _killed(path, repaired)
    path.unlink()  # the journal is all there is
    recorder = notebook.Recorder(path, resume=True)
    episode = replace(notebook.load(path), stop=None)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (1_000, path_of(path).stat().st_size + 1_000):  # not even the journal, then only it
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            with pytest.raises(RecordError, match="cannot be written"):
                recorder.begin(episode)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert notebook.load(path).turns == repaired.turns
        assert [file.name for file in tmp_path.iterdir()] == ["episode.nbrefine.jsonl"]
    recorder.begin(episode)
    recorder.end(repaired)
    assert notebook.load(path) == repaired
