"""Files that an accepted cell changes, kept as they were until its turn is recorded.

What an accepted cell did to files reaches the working folder before its turn can reach the
record.  A run that is killed between the two leaves files that no record tells of, and a cell
that appends would append twice once the work goes on.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from nbrefine.errors import RecordError
from nbrefine.files import FileChange, FileChanges
from nbrefine.kernel import Kernel
from nbrefine.values import Episode

_INDEX = "index.json"

_HALF_COPIED = re.compile(r"\.nbrefine-[0-9a-f]{8}")
"""What a commit of files that is killed leaves of the one that it was copying."""


class Undo:
    """Takes back what an accepted cell did to files, where its turn is not in the record.

    It holds one change at a time, and survives a kill at any moment.  The methods block; call
    them from a worker thread, one after the other.

    Parameters
    ----------
    folder: the working folder, which the paths of changes are relative to.
    place: the folder in which files are kept; it is made for that and removed afterwards.
    """

    def __init__(self, folder: Path, place: Path) -> None:
        self._folder = folder
        self.place = place

    @property
    def holds(self) -> bool:
        """Whether there is a change that is not settled."""
        return self.place.exists()

    def keep(self, coming: FileChanges, accepted: int) -> None:
        """Keep the files that are about to change.

        Parameters
        ----------
        coming: what a branch holds back; of very many changes, those that are listed.
        accepted: how many cells were accepted before this one.

        Raises
        ------
        RecordError: they cannot be kept; the folder is as before.
        """
        if not coming.changes:
            return
        index = self._index() or {"accepted": accepted, "files": {}}
        try:
            self.place.mkdir(exist_ok=True)
            for change in coming.changes:
                if change.path not in index["files"]:
                    index["files"][change.path] = self._kept(change)
            fresh = self.place / f"{_INDEX}.new"
            fresh.write_text(json.dumps(index), encoding="utf-8")
            fresh.replace(self.place / _INDEX)
        except OSError as error:
            raise RecordError(
                f"{self.place} cannot keep files as they were: {error.strerror or error}",
                hint="Free some space, or record without a notebook",
            ) from None

    def settle(self, recorded: Episode) -> tuple[str, ...]:
        """Forget what is recorded, and take back what is not.

        Parameters
        ----------
        recorded: the episode as its record has it.

        Gives what could not be taken back, a sentence each; it is tried again the next time.
        """
        index = self._index()
        told: tuple[str, ...] = ()
        if index is not None and len(recorded.accepted) <= index["accepted"]:
            told = self._take_back(index["files"])
        if not told:
            self.drop()
        return told

    def drop(self) -> None:
        """Forget what is kept, whatever it is."""
        (self.place / _INDEX).unlink(missing_ok=True)  # a kill from here on has nothing to settle
        shutil.rmtree(self.place, ignore_errors=True)

    def _index(self) -> dict[str, Any] | None:
        try:
            index: dict[str, Any] = json.loads((self.place / _INDEX).read_bytes())
        except (OSError, ValueError):
            return None
        return index

    def _kept(self, change: FileChange) -> dict[str, Any]:
        """Keep what is there under a name, and tell what it is."""
        path = self._folder / change.path
        if path.is_symlink():
            return {"kind": "link", "to": str(path.readlink())}
        if path.is_dir():
            return {"kind": "folder", "mode": stat.S_IMODE(path.stat().st_mode)}
        if not path.is_file():
            return {"kind": "none" if not path.exists() else "other"}
        name = secrets.token_hex(8)
        shutil.copy2(path, self.place / name)
        return {"kind": "file", "as": name}

    def _take_back(self, files: dict[str, dict[str, Any]]) -> tuple[str, ...]:
        told = []
        # What is in a folder goes before it, and comes after it.
        for path in sorted(files, reverse=True):
            told += self._attempt(path, files[path], ("none", "link"))
        for path in sorted(files):
            told += self._attempt(path, files[path], ("folder", "file", "link"))
        return tuple(told)

    def _attempt(self, path: str, kept: dict[str, Any], kinds: tuple[str, ...]) -> list[str]:
        if kept["kind"] not in kinds:
            return []
        target = self._folder / path
        try:
            _sweep(target.parent)
            if "none" in kinds:
                _remove(target)
            elif kept["kind"] == "folder":
                if not target.is_dir() or target.is_symlink():
                    target.unlink(missing_ok=True)
                    target.mkdir()
                target.chmod(kept["mode"])
            elif kept["kind"] == "link":
                target.symlink_to(kept["to"])
            else:
                if target.is_dir() and not target.is_symlink():
                    target.rmdir()
                fresh = target.with_name(f".nbrefine-{secrets.token_hex(4)}")
                shutil.copy2(self.place / kept["as"], fresh)
                fresh.replace(target)
        except OSError as error:
            return [f"{path} was not taken back: {error.strerror or error}"]
        return []


async def keep_before(undo: Undo | None, branch: Kernel, accepted: int) -> None:
    """Have files kept before what a branch holds back reaches them; see `Undo.keep`."""
    if undo is not None and (coming := await branch.files()) is not None:
        await asyncio.to_thread(undo.keep, coming, accepted)


def _remove(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        with suppress(OSError):  # it holds what is somebody else's
            target.rmdir()
    else:
        target.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if _HALF_COPIED.fullmatch(path.name):
                path.unlink(missing_ok=True)
