"""Files are as before an accepted cell, or as it has left them, by what the record tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine.env.undo import Undo
from nbrefine.errors import RecordError
from nbrefine.files import FileChange, FileChanges
from nbrefine.values import Episode

COMING = FileChanges(
    (
        FileChange("changed.txt", "changed"),
        FileChange("deleted.txt", "deleted"),
        FileChange("link", "changed", "link"),
        FileChange("new.txt", "created"),
        FileChange("new", "created", "folder"),
        FileChange("new/deep", "created", "folder"),
        FileChange("new/deep/file.txt", "created"),
        FileChange("old", "deleted", "folder"),
        FileChange("old/file.txt", "deleted"),
        FileChange("turned", "changed"),
    )
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "old").mkdir(parents=True)
    for name in ("changed.txt", "deleted.txt", "old/file.txt", "other.txt"):
        (folder / name).write_text(f"{name} of before")
    (folder / "changed.txt").chmod(0o640)
    (folder / "old").chmod(0o750)
    (folder / "link").symlink_to("changed.txt")
    (folder / "turned").mkdir()
    return folder


@pytest.fixture
def undo(folder: Path) -> Undo:
    return Undo(folder, folder.parent / "e.nbrefine.undo")


def change(folder: Path) -> None:
    """Do what the changes tell."""
    (folder / "changed.txt").unlink()
    (folder / "changed.txt").write_text("other")
    (folder / "deleted.txt").unlink()
    (folder / "link").unlink()
    (folder / "link").symlink_to("new.txt")
    (folder / "new" / "deep").mkdir(parents=True)
    for name in ("new.txt", "new/deep/file.txt"):
        (folder / name).write_text("new")
    (folder / "old" / "file.txt").unlink()
    (folder / "old").rmdir()
    (folder / "turned").rmdir()
    (folder / "turned").write_text("a file now")


def content(folder: Path) -> dict[str, str]:
    told = {}
    for path in folder.rglob("*"):
        facts = path.lstat()
        inside = str(path.readlink()) if path.is_symlink() else ""
        inside = path.read_text() if path.is_file() and not inside else inside
        told[str(path.relative_to(folder))] = f"{facts.st_mode:o} {inside}"
    return told


def accepted(episode: Episode, count: int) -> Episode:
    return replace(episode, turns=episode.accepted * count)


def test_what_is_in_no_record_is_taken_back(folder: Path, undo: Undo, repaired: Episode) -> None:
    before = content(folder)
    undo.keep(COMING, 1)
    assert content(folder) == before
    change(folder)
    (folder / ".nbrefine-0123abcd").write_text("what a killed copy leaves")
    assert undo.settle(accepted(repaired, 1)) == ()
    assert content(folder) == before
    assert not undo.holds
    change(folder)
    assert undo.settle(accepted(repaired, 1)) == ()  # there is nothing to settle any more
    assert content(folder) != before


def test_what_is_recorded_stays(folder: Path, undo: Undo, repaired: Episode) -> None:
    undo.keep(COMING, 1)
    change(folder)
    after = content(folder)
    assert undo.settle(accepted(repaired, 2)) == ()
    assert content(folder) == after
    assert not undo.holds


def test_it_is_taken_back_once_more_where_that_was_cut_short(
    folder: Path, undo: Undo, repaired: Episode
) -> None:
    before = content(folder)
    undo.keep(COMING, 1)
    (folder / "deleted.txt").unlink()  # the commit was killed here
    (folder / "new").mkdir()
    assert Undo(folder, undo.place).settle(accepted(repaired, 1)) == ()
    assert content(folder) == before


def test_the_older_content_of_two_changes_is_the_one_that_comes_back(
    folder: Path, undo: Undo, repaired: Episode
) -> None:
    before = content(folder)
    undo.keep(FileChanges((FileChange("changed.txt", "changed"),)), 1)
    (folder / "changed.txt").write_text("second")
    undo.keep(COMING, 2)
    change(folder)
    undo.settle(accepted(repaired, 1))
    assert content(folder) == before


def test_what_was_put_into_a_new_folder_by_somebody_else_stays(
    folder: Path, undo: Undo, repaired: Episode
) -> None:
    undo.keep(COMING, 0)
    change(folder)
    (folder / "new" / "theirs.txt").write_text("theirs")
    undo.settle(accepted(repaired, 0))
    assert sorted(path.name for path in (folder / "new").iterdir()) == ["theirs.txt"]


def test_where_nothing_can_be_kept_nothing_changes(
    folder: Path, undo: Undo, repaired: Episode
) -> None:
    undo.place.write_text("a file of somebody's")
    before = content(folder)
    with pytest.raises(RecordError, match="cannot keep files as they were"):
        undo.keep(COMING, 0)
    assert content(folder) == before
