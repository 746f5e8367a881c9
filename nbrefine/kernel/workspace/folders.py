"""What a folder holds at one moment, and what has changed in it since."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from nbrefine.files import FileChange, FileChanges

ENTRIES = 20_000
"""How many files and folders a scan takes in; a folder with more is not compared."""

SECONDS = 2.0
"""How long a scan may take."""

LISTED = 1_000
"""How many changes are listed."""

SKIPPED = frozenset(
    {
        ".git",
        ".hg",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
    }
)
"""Names of folders that tools fill: one that is there is known, but not looked into."""


class Entry(NamedTuple):
    """A file, folder, link or something else, as its directory entry shows it."""

    kind: Literal["file", "folder", "link", "other"]
    mode: int
    size: int
    changed: int
    """Time of the last change of content, in nanoseconds; 0 for a folder."""

    @classmethod
    def of(cls, facts: os.stat_result) -> Entry:
        mode = stat.S_IMODE(facts.st_mode)
        if stat.S_ISDIR(facts.st_mode):
            return cls("folder", mode, 0, 0)
        if stat.S_ISREG(facts.st_mode):
            return cls("file", mode, facts.st_size, facts.st_mtime_ns)
        kind: Literal["link", "other"] = "link" if stat.S_ISLNK(facts.st_mode) else "other"
        return cls(kind, mode, facts.st_size, facts.st_mtime_ns)


Pairs = dict[str, tuple[Entry | None, Entry | None]]
"""Path -> what was there, and what is there now."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folder's content at one moment."""

    entries: Mapping[str, tuple[Entry, int]] = field(default_factory=dict)
    """Path, relative to the folder -> entry and inode."""
    skipped: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Path -> why it could not be read."""
    problem: str = ""
    """Why the content is not known, or ""."""


def scan(folder: Path, *, ignore: Collection[str] = ()) -> Snapshot:
    """Take in what a folder holds; links are not followed.

    It may take seconds, so it belongs into a worker thread.  What comes or goes meanwhile may or
    may not be there.

    Parameters
    ----------
    ignore: paths relative to the folder that are left out with all below them.
    """
    entries: dict[str, tuple[Entry, int]] = {}
    skipped: list[str] = []
    unreadable: dict[str, str] = {}
    deadline = time.monotonic() + SECONDS
    waiting = [""]
    while waiting:
        path = waiting.pop()
        try:
            found = _listed(folder, path)
        except (FileNotFoundError, NotADirectoryError):
            if not path:
                return Snapshot(problem="the folder is not there")
            continue
        except OSError as error:
            unreadable[path] = error.strerror or str(error)
            continue
        for name, facts in found:
            inner = f"{path}/{name}" if path else name
            if inner in ignore:
                continue
            entries[inner] = Entry.of(facts), facts.st_ino
            if stat.S_ISDIR(facts.st_mode):
                (skipped if name in SKIPPED else waiting).append(inner)
        if len(entries) > ENTRIES:
            return Snapshot(problem=f"the folder holds more than {ENTRIES:,} files")
        if time.monotonic() > deadline:
            return Snapshot(problem=f"reading the folder took more than {SECONDS:g} s")
    return Snapshot(entries, tuple(sorted(skipped)), unreadable)


def compare(before: Snapshot, after: Snapshot) -> FileChanges:
    """Tell what has changed between two snapshots of one folder."""
    if problem := before.problem or after.problem:
        return FileChanges(problems=(f"files were not compared: {problem}",))
    unread = {**before.unreadable, **after.unreadable}
    pairs: Pairs = {}
    for path in before.entries.keys() | after.entries.keys():
        if not any(above in unread for above in _above(path)):
            old, new = before.entries.get(path), after.entries.get(path)
            # An inode that is another one is a file that was put in its place.
            if old != new and not (old and new and old[0] == new[0] and old[0].kind == "folder"):
                pairs[path] = old[0] if old else None, new[0] if new else None
    skipped = {*before.skipped, *after.skipped}
    problems = [
        f"{printable(path or '.')} was not compared: {why}" for path, why in sorted(unread.items())
    ]
    return listed(pairs, skipped=skipped, problems=problems)


def listed(
    pairs: Pairs,
    *,
    isolated: bool = False,
    skipped: Collection[str] = (),
    problems: Collection[str] = (),
) -> FileChanges:
    """Make the value of what differs; a skipped folder that came up is no change."""
    changes = []
    for path, (old, new) in sorted(pairs.items()):
        known = new or old
        if known is None or (old is None and _is_skipped(path, known)):
            continue
        action: Literal["created", "changed", "deleted"] = (
            "created" if old is None else "deleted" if new is None else "changed"
        )
        changes.append(FileChange(printable(path), action, known.kind, known.size))
    return FileChanges(
        tuple(changes[:LISTED]),
        omitted=len(changes[LISTED:]),
        isolated=isolated,
        skipped=tuple(map(printable, sorted(skipped))),
        problems=tuple(problems),
    )


def printable(path: str) -> str:
    """Spell a path so that any text file can hold it."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _listed(folder: Path, path: str) -> list[tuple[str, os.stat_result]]:
    found = []
    with os.scandir(folder / path) as entries:
        for entry in entries:
            try:
                found.append((entry.name, entry.stat(follow_symlinks=False)))
            except FileNotFoundError:
                continue
    return found


def _is_skipped(path: str, entry: Entry) -> bool:
    return entry.kind == "folder" and path.rpartition("/")[2] in SKIPPED


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts))]
