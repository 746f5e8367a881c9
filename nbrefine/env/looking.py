"""What can be seen of a session without a cell: a variable, a file, the folder, pictures.

Paths lead into the working folder or to the task's data files and nowhere else.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nbrefine.files import Artifact, FileChanges
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.namespace import describe, look
from nbrefine.kernel.workspace.folders import scan
from nbrefine.outputs import CellResult, Display
from nbrefine.redaction import Redactor, clean_text
from nbrefine.values import Image

LINES = 60
"""Lines of a file that one reading gives."""

LINE = 300
"""Characters of a line that are given."""

LISTED = 30
"""Files of a folder that are listed."""

PICTURES = 4
"""Pictures of one cell that go with a prompt: the last ones."""

_TABLES = (".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at something gave."""

    title: str
    """What it is, in one line; or why there is nothing to be seen."""
    text: str = ""
    """Its content, which is data and no words of ours."""
    found: bool = True


async def variable(kernel: Kernel, name: str) -> Seen:
    """Look closely at a variable."""
    name = name.strip()
    if not name.isidentifier():
        return Seen(f"{name!r} is no name of a variable; print an expression in a cell", "", False)
    if kernel.info.language != "python":
        told = f"Variables of a {kernel.info.language} kernel cannot be inspected"
        return Seen(f"{told}; print {name} in a cell", "", False)
    found = await look(kernel.core, name)
    if found is None:
        return Seen(f"There is no variable {name}", "", False)
    line, _, rest = describe((found.variable,)).partition("\n")
    return Seen(line, found.text or rest)


class Folder:
    """A working folder, and the data files of a task that may lie elsewhere.

    Parameters
    ----------
    path: None where it is not known.
    data: paths of data files, relative to it or absolute.
    ignore: paths relative to it that are not shown, such as the record.
    """

    def __init__(
        self, path: Path | None, *, data: Sequence[str] = (), ignore: Collection[str] = ()
    ) -> None:
        self._path = path.resolve() if path is not None else None
        self._data = tuple(data)
        self._ignore = ignore

    async def described(self) -> str:
        """Tell what is there in a few lines, the data files first."""
        return await asyncio.to_thread(self._described)

    async def read(self, path: str, start: int = 1) -> Seen:
        """Give some lines of a text file.

        Parameters
        ----------
        start: 1-based number of the first line.
        """
        return await asyncio.to_thread(self._read, path.strip(), max(start, 1))

    async def artifacts(self, changes: FileChanges | None) -> tuple[Artifact, ...]:
        """Give the files that a cell has written or changed, as they are now."""
        if changes is None:
            return ()
        written = [
            each.path
            for each in changes.changes
            if each.kind == "file" and each.action in ("created", "changed")
        ]
        return await self.there(written)

    async def there(self, paths: Collection[str]) -> tuple[Artifact, ...]:
        """Give those of some files that are there, as they are now."""
        return await asyncio.to_thread(self._there, paths)

    def _there(self, paths: Collection[str]) -> tuple[Artifact, ...]:
        if self._path is None:
            return ()
        found = (_artifact(self._path, path) for path in sorted(set(paths)))
        return tuple(artifact for artifact in found if artifact is not None)

    def _described(self) -> str:
        if self._path is None:
            return "\n".join(self._data)
        lines = [self._line(name, self._path / name) for name in self._data]
        found = scan(self._path, ignore=self._ignore)
        if found.problem:
            return "\n".join([*lines, f"The working folder was not listed: {found.problem}"])
        places = ((self._path / name).resolve() for name in self._data)
        given = {str(each.relative_to(self._path)) for each in places if self._holds(each)}
        others = [
            path
            for path, (entry, _) in sorted(found.entries.items())
            if entry.kind == "file" and path not in given
        ]
        lines += [self._line(path, self._path / path) for path in others[:LISTED]]
        if more := len(others) - LISTED:
            lines += [f"… and {more:,} more files"] if more > 0 else []
        return _safe("\n".join(lines))

    def _line(self, name: str, path: Path) -> str:
        try:
            size = path.stat().st_size
        except OSError:
            return f"{name} (not there)"
        told = f"{name} ({_size(size)})"
        head = _first_line(path) if path.suffix.lower() in _TABLES else ""
        return f"{told}: {head}" if head else told

    def _read(self, name: str, start: int) -> Seen:
        path = self._allowed(name)
        if path is None:
            told = "Only the working folder and the data files of the task can be read"
            return Seen(f"{told}, and {name!r} is outside of them", "", False)
        if path.is_dir():
            inside = "\n".join(sorted(each.name for each in islice(path.iterdir(), 200)))
            return Seen(f"{name} is a folder", clean_text(inside))
        if not path.is_file():
            return Seen(f"There is no file {name}", "", False)
        try:
            return _lines(name, path, start)
        except OSError as error:
            return Seen(f"{name} could not be read: {error.strerror or error}", "", False)

    def _allowed(self, name: str) -> Path | None:
        """Give where a path leads, if that is within what may be read."""
        if not name or "\0" in name:
            return None
        folder = self._path or Path.cwd()
        real = (folder / name).resolve()
        data = {(folder / each).resolve() for each in self._data}
        return real if self._holds(real) or real in data else None

    def _holds(self, real: Path) -> bool:
        return self._path is not None and real.is_relative_to(self._path)


def _artifact(folder: Path, path: str) -> Artifact | None:
    file = folder / path
    try:
        if not file.is_file():
            return None
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            return Artifact(path, content.tell(), digest)
    except (OSError, ValueError):  # a name that is spelt out, or a file that cannot be read
        return None


def _lines(name: str, path: Path, start: int) -> Seen:
    size = path.stat().st_size
    with path.open("rb") as file:
        if b"\0" in (head := file.read(4096)):
            return Seen(f"{name} is a binary file of {_size(size)}{_kind(head)}; it has no lines")
    with path.open(encoding="utf-8", errors="replace") as text:
        found = [line.rstrip("\n") for line in islice(text, start - 1, start - 1 + LINES)]
        last = start + len(found) - 1
        total = last + sum(1 for _ in text) if found else None
    if not found:
        told = "is empty" if start == 1 else f"has no line {start}"
        return Seen(f"{name} ({_size(size)}) {told}")
    shown = [line if len(line) <= LINE else f"{line[:LINE]}…" for line in found]
    title = f"{name} ({_size(size)}), lines {start} to {last} of {total}"
    return Seen(title, _safe("\n".join(shown)))


def _safe(text: str) -> str:
    """Give a file's text as a prompt and a record may hold it, without secrets."""
    return Redactor().redact(clean_text(text))[0]


def _first_line(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as text:
            line = text.readline(LINE + 1).rstrip("\n")
    except OSError:
        return ""
    return "" if "\0" in line else line if len(line) <= LINE else f"{line[:LINE]}…"


def _size(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def pictures(result: CellResult | None) -> tuple[Image, ...]:
    """Give the pictures that a cell has shown, the last few."""
    shown = tuple(_pictures(result)) if result is not None else ()
    return shown[-PICTURES:]


def told_pictures(result: CellResult | None) -> str:
    """Tell of the pictures that a cell has shown, a line each; "" where there is none."""
    shown = _pictures(result) if result is not None else ()
    return "\n".join(f"Picture {n}: {_told(image)}" for n, image in enumerate(shown, 1))


def _pictures(result: CellResult) -> Iterator[Image]:
    for output in result.outputs:
        if not isinstance(output, Display):
            continue
        for mime in ("image/png", "image/jpeg", "image/gif", "image/webp"):
            if isinstance(data := output.data.get(mime), str):
                yield Image(mime, "".join(data.split()))
                break


def _told(image: Image) -> str:
    try:
        data = base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError):  # it was cut
        return f"{image.mime}, not complete"
    return f"{image.mime}{_kind(data)}, {_size(len(data))}"


def _kind(head: bytes) -> str:
    """Give the extents of a picture, as " 640x480"; "" where they are not known."""
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        width, height = struct.unpack(">II", head[16:24])
    elif head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        width, height = struct.unpack("<HH", head[6:10])
    else:
        return ""
    return f" {width}x{height}"
