"""What happened to the files of a working folder, as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

SHOWN = 6
"""How many paths of one kind of change a description names."""

_VERBS = {"created": "wrote", "changed": "changed", "deleted": "deleted"}


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file, folder or link that is not what it was."""

    path: str
    """Relative to the working folder, with `/`; a byte that is no UTF-8 stands as `\\xNN`."""
    action: Literal["created", "changed", "deleted"]
    kind: Literal["file", "folder", "link", "other"] = "file"
    """What it is now; for a deletion, what it was."""
    size: int = 0
    """Bytes of a file, as it is now; for a deletion, as it was."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that an accepted cell left in the working folder, as it was then."""

    path: str
    """Relative to the working folder, with `/`."""
    size: int
    """Bytes."""
    sha256: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """All that happened to a working folder between two moments."""

    changes: tuple[FileChange, ...] = ()
    """By path; the first ones of very many."""
    omitted: int = 0
    """How many changes are not listed."""
    isolated: bool = False
    """Whether they were made in an overlay, so that the folder itself never had them."""
    skipped: tuple[str, ...] = ()
    """Folders that were not looked into because of their name, such as `.git`."""
    problems: tuple[str, ...] = ()
    """What was not compared, not committed, or kept for somebody else; one sentence each."""

    @property
    def total(self) -> int:
        return len(self.changes) + self.omitted

    @property
    def untouched(self) -> bool:
        """Whether the folder itself is known to be what it was: all was seen, or held back."""
        return self.isolated or not (self.total or self.skipped or self.problems)

    def describe(self) -> str:
        """Say it in plain words: "wrote out.csv (2.1 kB), deleted tmp.txt"; "" for nothing."""
        parts = [text for action in _VERBS if (text := self._describe(action))]
        if self.omitted:
            parts.append(f"{self.omitted:,} more changes")
        told = [", ".join(parts)] if parts else []
        return "; ".join((*told, *self.problems))

    def _describe(self, action: str) -> str:
        texts = list(_outermost([each for each in self.changes if each.action == action]))
        if not texts:
            return ""
        rest = f" and {len(texts) - SHOWN:,} more" if len(texts) > SHOWN else ""
        return f"{_VERBS[action]} {', '.join(texts[:SHOWN])}{rest}"


def _outermost(changes: Sequence[FileChange]) -> Iterator[str]:
    """Name each change, but not those within a folder that came or went as a whole."""
    folders = {f"{each.path}/" for each in changes if each.kind == "folder"}
    for each in changes:
        if any(f"{above}/" in folders for above in _above(each.path)):
            continue
        if each.kind == "file":
            yield f"{each.path} ({_bytes(each.size)})"
        elif each.kind == "folder":
            yield f"{each.path}/{_content(each.path, changes)}"
        else:
            yield each.path


def _above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _content(folder: str, changes: Sequence[FileChange]) -> str:
    sizes = [e.size for e in changes if e.kind == "file" and e.path.startswith(f"{folder}/")]
    if not sizes:
        return ""
    return f" ({len(sizes):,} file{'s' if len(sizes) > 1 else ''}, {_bytes(sum(sizes))})"


def _bytes(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    amount = float(size)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"
