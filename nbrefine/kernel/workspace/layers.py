"""The upper layer of an overlay, read from outside of it.

What a branch did to its working folder lies in its upper layer: files and folders as they are
now, a character device 0:0 (a whiteout) for what it deleted, and a mark on a folder that hides
what the layers below have there (an opaque one).
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from nbrefine.kernel.workspace.folders import ENTRIES, SKIPPED, Entry, Pairs, printable

FAMILIES = ("trusted.overlay.", "user.overlay.")
"""How the names of an overlay's own attributes begin, as root and in a user namespace."""


@dataclass(slots=True)
class Difference:
    """What an upper layer changes."""

    pairs: Pairs = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def difference(
    upper: Path, lowers: Sequence[Path], *, since: int = 0, ignore: Collection[str] = ()
) -> Difference:
    """Compare an upper layer with what its branch saw at the beginning.

    Parameters
    ----------
    lowers: the folders below it, newest first.
    since: files that have not changed since then, in nanoseconds, are as they were below.
    ignore: paths relative to the folder that are left out with all below them.
    """
    comparison = _Comparison(since, ignore)
    try:
        comparison.folder(upper, lowers, "")
    except _TooManyError:
        told = f"more than {ENTRIES:,} files changed; not all were counted"
        comparison.found.problems.append(told)
    return comparison.found


class _TooManyError(Exception):
    """The comparison has found all that it may hold."""


class _Below(NamedTuple):
    """What layers show under a name."""

    entry: Entry | None
    path: Path | None
    """Where that lies."""
    folders: list[Path]
    """The folders that it is made of, if it is one."""


class _Comparison:
    """Walks through an upper layer and, in step with it, through the layers below."""

    def __init__(self, since: int, ignore: Collection[str]) -> None:
        self.found = Difference()
        self._since = since
        self._ignore = ignore

    def folder(self, upper: Path, lowers: Sequence[Path], path: str) -> None:
        try:
            names = {inner.name for inner in upper.iterdir()}
            hidden = _names(lowers) - names if is_opaque(upper) else set()
        except OSError as error:
            told = f"{printable(path or '.')} was not compared: {error.strerror}"
            self.found.problems.append(told)
            return
        for name in names | hidden:
            inner = f"{path}/{name}" if path else name
            if inner in self._ignore:
                continue
            below = _below(lowers, name)
            if name in hidden:
                self._gone(below, inner)
            else:
                with contextlib.suppress(FileNotFoundError):
                    self._entry(upper / name, below, inner)

    def _entry(self, inside: Path, below: _Below, path: str) -> None:
        facts = inside.lstat()
        if is_whiteout(facts):
            self._gone(below, path)
            return
        old, new = below.entry, Entry.of(facts)
        if new.kind == "folder":
            self._note(path, old, new)
            if inside.name in SKIPPED:
                self.found.skipped.append(path)
            else:
                self.folder(inside, below.folders, path)
            return
        if below.folders:
            self._gone(below, path)
        if facts.st_ctime_ns > self._since:
            if old == new and below.path and not same_content(inside, below.path):
                new = new._replace(changed=facts.st_ctime_ns)  # its time was set back
            self._note(path, old, new)

    def _gone(self, below: _Below, path: str) -> None:
        self._note(path, below.entry, None)
        if path.rpartition("/")[2] not in SKIPPED:
            for name in _names(below.folders):
                self._gone(_below(below.folders, name), f"{path}/{name}")

    def _note(self, path: str, old: Entry | None, new: Entry | None) -> None:
        if old != new:
            self.found.pairs[path] = old, new
            if len(self.found.pairs) >= ENTRIES:
                raise _TooManyError


def _below(lowers: Sequence[Path], name: str) -> _Below:
    entry: Entry | None = None
    shown: Path | None = None
    folders: list[Path] = []
    for lower in lowers:
        inside = lower / name
        try:
            facts = inside.lstat()
        except OSError:
            continue
        if is_whiteout(facts):
            break
        if entry is None:
            entry, shown = Entry.of(facts), inside
        if not stat.S_ISDIR(facts.st_mode):
            break
        folders.append(inside)
        if is_opaque(inside):
            break
    return _Below(entry, shown, folders)


def _names(folders: Sequence[Path]) -> set[str]:
    names: set[str] = set()
    for folder in folders:
        with contextlib.suppress(OSError):
            names.update(path.name for path in folder.iterdir())
    return {name for name in names if _below(folders, name).entry}


def same_content(first: Path, second: Path) -> bool:
    """Tell whether two files or links have the same content."""
    try:
        if first.is_symlink() or second.is_symlink():
            return first.readlink() == second.readlink()
        return filecmp.cmp(first, second, shallow=False)
    except OSError:  # one of them is something else, or cannot be read
        return False


def is_whiteout(facts: os.stat_result) -> bool:
    """Tell whether an entry of a layer says that there is nothing."""
    return stat.S_ISCHR(facts.st_mode) and facts.st_rdev == 0


def is_opaque(folder: Path) -> bool:
    """Tell whether a folder of a layer hides what the layers below have there."""
    for family in FAMILIES:
        with contextlib.suppress(OSError):
            if os.getxattr(folder, f"{family}opaque", follow_symlinks=False) == b"y":
                return True
    return False
