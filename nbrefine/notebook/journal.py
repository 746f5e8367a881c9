"""The journal: what an episode did, line by line, on disk before the next model call.

Each line is a JSON object.  `head` is everything about the episode but its turns, written again
whenever it changes; `turn` stands at the position `at`; `messages` and `blobs` are what is new
in the tables (see `codec`).  A writer that is killed leaves at worst a torn last line.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbrefine.errors import RecordError
from nbrefine.notebook import files
from nbrefine.notebook.codec import SCHEMA, Packer, Unpacker, damaged
from nbrefine.notebook.reading import JOURNAL, open_file, unreadable
from nbrefine.values import Episode, Turn


def path_of(notebook: Path) -> Path:
    """Give the place of a notebook's journal."""
    return notebook.with_suffix(JOURNAL)


class Journal:
    """An open journal, locked for as long as its writer lives.

    What the file held before stays there until `clear` or `replace`.

    Raises
    ------
    RecordError: the file cannot be made, or another run is writing it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._packer = Packer()
        self._head: dict[str, Any] | None = None
        self._turns: list[Turn] = []
        self._file = _open(path)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return os.fstat(self._file).st_size

    def clear(self) -> None:
        """Forget what the file held before."""
        os.ftruncate(self._file, 0)

    def replace(self, episode: Episode) -> None:
        """Put a journal of this episode in place of what the file held before, at once.

        Raises
        ------
        RecordError: it cannot be written; the file is as before then.
        """
        new = files.temporary(self._path)
        old, self._file = self._file, _open(new)
        try:
            self.append(episode)
            new.replace(self._path)
        except BaseException as error:
            os.close(self._file)
            self._file = old
            new.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise files.unwritable(self._path, error) from None
            raise
        os.close(old)
        files.sync_folder(self._path)

    def append(self, episode: Episode) -> None:
        """Write what is new in an episode; it is on the disk when this returns.

        Raises
        ------
        RecordError: the disk is full or gone; the journal is as before then.
        """
        head = self._packer.head(episode, hidden=False)
        if head != self._head:
            self._write({"schema": SCHEMA, "head": head})
            self._head = head
        for at, turn in enumerate(episode.turns):
            if at < len(self._turns) and turn is self._turns[at]:
                continue
            self._write({"at": at, "turn": self._packer.turn(turn)})
            self._turns[at : at + 1] = [turn]

    def remove(self) -> None:
        """Take the journal away; the notebook holds all of it."""
        self._path.unlink(missing_ok=True)
        self.close()
        files.sync_folder(self._path)

    def close(self) -> None:
        """Release the file and its lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, line: dict[str, Any]) -> None:
        line["messages"] = self._packer.fresh_messages
        line["blobs"] = self._packer.fresh_blobs
        text = json.dumps(line, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        data = memoryview(f"{text}\n".encode())
        end = self.size
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, end)
            raise files.unwritable(self._path, error) from None
        self._packer.flush()


@dataclass(frozen=True, slots=True)
class Found:
    """What a journal holds."""

    episode: Episode
    running: bool
    """Whether its writer lives."""
    gaps: tuple[str, ...] = ()
    """What is missing, one sentence each."""


def read(path: Path) -> Found:
    """Read a journal as far as it is whole.

    Raises
    ------
    RecordError: there is none, it is something else, or not even its first line is whole.
    """
    try:
        with open_file(path) as lines:
            running = not _lock(lines.fileno(), fcntl.LOCK_SH)
            return _read(path, lines, running=running)
    except OSError as error:
        raise unreadable(path, error) from None


def is_running(path: Path) -> bool:
    """Tell whether the writer of a journal lives.

    Raises
    ------
    RecordError: the journal cannot be read.
    """
    try:
        with open_file(path) as file:
            return not _lock(file.fileno(), fcntl.LOCK_SH)
    except OSError as error:
        raise unreadable(path, error) from None


def _read(path: Path, lines: Iterable[bytes], *, running: bool) -> Found:
    head: dict[str, Any] | None = None
    turns: list[Turn] = []
    gaps: list[str] = []
    unpacker = Unpacker({})
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
        except ValueError:
            gaps.append(f"line {number} of the journal is torn and left out, and all after it")
            break
        try:
            if number == 1 and not (isinstance(data, dict) and {"schema", "blobs"} <= set(data)):
                break
            unpacker.blobs.update(data["blobs"])
            unpacker.add_messages(data["messages"])
            if "turn" in data:
                turns[data["at"] : data["at"] + 1] = [unpacker.turn(data["turn"])]
            else:
                head = _head(path, data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(f"{path}, line {number},", error) from None
    if head is None:
        raise RecordError(
            f"{path} is no journal of an episode", hint="Give the episode's notebook instead"
        )
    episode = unpacker.head(head, turns)
    if unpacker.withheld:
        gaps.append("hidden tests and reference are never in a journal")
    return Found(episode, running, tuple(gaps))


def _head(path: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    if data["schema"] != SCHEMA:
        raise RecordError(
            f"{path} has the schema {data['schema']!r}, and this nbrefine reads {SCHEMA!r}",
            hint="Install a newer nbrefine",
        )
    head: dict[str, Any] = data["head"]
    return head


def _open(path: Path) -> int:
    """Open a journal as its only writer."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        files.sync_folder(path)
    except OSError as error:
        raise files.unwritable(path, error) from None
    if _lock(file, fcntl.LOCK_EX) and _is_at(file, path):
        return file
    os.close(file)
    raise RecordError(
        f"Another run is recording to {path} at this moment", hint="Choose another name"
    )


def _is_at(file: int, path: Path) -> bool:
    """Tell whether an open file is still the one at its path: a journal may be replaced."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
