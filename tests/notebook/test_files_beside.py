"""Which files beside a notebook are the record's, and which it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine import notebook
from nbrefine.outputs import CellResult, Cut
from nbrefine.values import Episode

OLD, NEW, SETUP = (f"{letter * 64}.txt" for letter in "abc")


def cut(name: str) -> CellResult:
    return CellResult("x", "ok", cut=(Cut("stdout", 1, 2, (f"episode.files/{name}",)),))


@pytest.fixture
def episode(repaired: Episode) -> Episode:
    """An episode whose setup and second attempt were cut."""
    first, second = repaired.turns
    return replace(repaired, setup=cut(SETUP), turns=(first, replace(second, result=cut(NEW))))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "episode.files"
    made.mkdir()
    for name in (OLD, "notes.txt"):
        (made / name).touch()
    return made


def record(episode: Episode, folder: Path, *, overwrite: bool = False) -> set[str]:
    """Record an episode while a kernel writes files, and name those that are left."""
    recorder = notebook.Recorder(folder.with_suffix(".ipynb"), overwrite=overwrite)
    assert recorder.folder == folder
    folder.mkdir(exist_ok=True)
    (folder / SETUP).touch()
    recorder.begin(replace(episode, turns=(), stop=None))
    for name in (NEW, f"{'d' * 64}.png", f".{'e' * 16}.tmp"):
        (folder / name).touch()
    recorder.end(episode)
    return {file.name for file in folder.iterdir()} if folder.exists() else set()


def test_a_record_ends_with_the_files_it_names_and_no_others_of_its_making(
    tmp_path: Path, episode: Episode
) -> None:
    assert record(episode, tmp_path / "episode.files") == {SETUP, NEW}


def test_an_episode_that_names_no_file_leaves_no_folder(tmp_path: Path, repaired: Episode) -> None:
    assert record(repaired, tmp_path / "episode.files") == set()
    assert not (tmp_path / "episode.files").exists()


def test_an_episode_that_is_overwritten_goes_with_its_files(folder: Path, episode: Episode) -> None:
    notebook.save(episode, folder.with_suffix(".ipynb"))
    assert record(episode, folder, overwrite=True) == {SETUP, NEW, "notes.txt"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_an_episode_that_was_moved_away_stay(
    folder: Path, episode: Episode, *, overwrite: bool
) -> None:
    """Under its new name it still names them."""
    assert record(episode, folder, overwrite=overwrite) == {SETUP, NEW, OLD, "notes.txt"}


def test_a_copy_names_the_folder_where_the_files_are(tmp_path: Path, episode: Episode) -> None:
    other = tmp_path / "other.ipynb"
    notebook.save(episode, other)
    assert notebook.load(other) == episode
    assert [file.name for file in tmp_path.iterdir()] == ["other.ipynb"]
    cells = {cell["id"]: cell["source"] for cell in notebook.to_notebook(episode)["cells"]}
    told = "Left out: 2 of stdout, 1 kept; all of it in episode.files"
    assert f"Setup: {told}/{SETUP}" in cells["ep-summary"]
    assert f"Attempt 2: {told}/{NEW}" in cells["s01-plan"]
