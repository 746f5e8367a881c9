"""What can be seen of a session without a cell: a variable, a file, the folder, pictures.

Paths lead into the working folder or to the task's data files and nowhere else.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import difflib
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path

from nbrefine.env import tables
from nbrefine.env.own import is_own
from nbrefine.errors import KernelError
from nbrefine.files import Artifact, FileChanges
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.namespace import describe, look
from nbrefine.kernel.workspace.folders import SKIPPED, scan
from nbrefine.outputs import CellResult, Display, extents
from nbrefine.redaction import Redactor, clean_text
from nbrefine.values import Image

LINES = 60
"""Lines of a file that one reading gives."""

LINE = 300
"""Characters of a line that are given."""

READ = 50_000_000
"""Bytes of a file in which lines are looked for."""

LISTED = 30
"""Files of a folder, and as many data files, that are listed."""

COLUMNS, ROWS = 1, 2
"""Lines about a table that tell its columns, and its first row besides."""

LOOKED_AT = 200
"""Files of a folder of which it is asked whether they are about the work, and no data of it."""

WALKED = 3_000
"""Entries of a folder among which a file is looked for by a name that comes near."""

NEAR = 3
"""Files of such names that are told."""

PICTURES = 4
"""Pictures of one cell that go with a prompt: the last ones."""


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
        shown = _in_a_line(name)
        return Seen(f"{shown} is no name of a variable; print an expression in a cell", "", False)
    if kernel.info.language != "python":
        told = f"Variables of a {kernel.info.language} kernel cannot be inspected"
        return Seen(f"{told}; print {name} in a cell", "", False)
    try:
        found = await look(kernel.core, name)
    except KernelError:
        # It answered before, so what the variable does when it is looked at is to blame.
        if not kernel.owned:
            raise
        told = f"Looking at {name} took too long or ended the kernel"
        return Seen(f"{told}; print a part of it in a cell", "", False)
    if found is None:
        return Seen(f"There is no variable {_in_a_line(name)}", "", False)
    line, _, rest = describe((found.variable,)).partition("\n")
    return Seen(line, found.text or rest)


@dataclass(frozen=True, slots=True)
class Listing:
    """What files there are, a line or more for each."""

    folder: str = ""
    """Those of the working folder, the data files first."""
    elsewhere: str = ""
    """The data files that lie outside of it, or where it is not known."""


class Folder:
    """A working folder, and the data files of a task that may lie elsewhere.

    Parameters
    ----------
    path: None where it is not known.
    data: paths of data files, relative to it or absolute.
    ignore: paths relative to it that are neither shown nor read, such as the record.
    goal: what is asked for; a file that gives it is not shown, nor are records of episodes, which
        hold hidden tests, unless they are data of the task.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        data: Sequence[str] = (),
        ignore: Collection[str] = (),
        goal: str = "",
    ) -> None:
        self._path = path.resolve() if path is not None else None
        self._data = tuple(data)
        self._ignore = ignore
        self._goal = goal

    async def described(self, written: Collection[str] = ()) -> Listing:
        """Tell what is there in a few lines.

        The first row is shown of the task's data files and of those that cells have written.  Of
        other tables it tells the columns where the task names no data, and else none of that.

        Parameters
        ----------
        written: paths relative to the folder, of the files that accepted cells wrote.
        """
        return await asyncio.to_thread(self._described, frozenset(written))

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

    async def touched(self, paths: Collection[str], since: float) -> tuple[Artifact, ...]:
        """Give those of some files that were written at a moment or after it, as they are now.

        Parameters
        ----------
        since: seconds since the epoch.
        """
        return await asyncio.to_thread(self._touched, paths, since)

    async def near(self, name: str) -> tuple[str, ...]:
        """Give the paths of files in the folder whose names come near to one, the nearest first."""
        return await asyncio.to_thread(self._near, name)

    async def reals(self, paths: Collection[str]) -> set[str]:
        """Give where some paths of the folder lead."""
        if self._path is None:
            return set()
        folder = self._path
        return await asyncio.to_thread(lambda: {str(_real(folder / path)) for path in paths})

    def holds(self, real: str) -> bool:
        """Tell whether a path that leads through no link is one of the folder."""
        return self._holds(Path(real))

    def _near(self, name: str) -> tuple[str, ...]:
        if self._path is None:
            return ()
        folder, homes = self._path, dict[str, list[str]]()
        for path in _walked(folder):
            homes.setdefault(path.name.casefold(), []).append(str(path.relative_to(folder)))
        wanted = Path(name).name.casefold()
        found = (
            path
            for each in difflib.get_close_matches(wanted, homes, n=2 * NEAR)
            for path in sorted(homes[each], key=lambda path: (path.count(os.sep), path))
            if self._shows(folder / path)
        )
        return tuple(islice(found, NEAR))

    def _touched(self, paths: Collection[str], since: float) -> tuple[Artifact, ...]:
        if self._path is None:
            return ()
        folder = self._path
        return tuple(each for each in self._there(paths) if _changed(folder / each.path) >= since)

    def _there(self, paths: Collection[str]) -> tuple[Artifact, ...]:
        if self._path is None:
            return ()
        found = (_artifact(self._path, path) for path in sorted(set(paths)))
        return tuple(artifact for artifact in found if artifact is not None)

    def _described(self, written: Collection[str]) -> Listing:
        if self._path is None:
            return Listing(elsewhere="\n".join(self._data))
        within = [name for name in self._data if self._lies_within(name)]
        others = [name for name in self._data if name not in within]
        listed = [*self._data_lines(within), *self._other_lines(self._path, written)]
        return Listing(_safe("\n".join(listed)), _safe("\n".join(self._data_lines(others))))

    def _lies_within(self, name: str) -> bool:
        assert self._path is not None
        place = self._path / name
        return self._holds(Path(os.path.normpath(place))) or self._holds(_real(place))

    def _data_lines(self, names: Sequence[str]) -> list[str]:
        assert self._path is not None
        lines = [self._line(name, self._path / name, ROWS) for name in names[:LISTED]]
        more = len(names) - LISTED
        return [*lines, f"… and {more:,} more data files"] if more > 0 else lines

    def _other_lines(self, folder: Path, written: Collection[str]) -> list[str]:
        found = scan(folder, ignore=self._ignore)
        if found.problem:
            return [f"The working folder was not listed: {found.problem}"]
        places = (_real(folder / name) for name in self._data)
        given = {str(each.relative_to(folder)) for each in places if self._holds(each)}
        others = [
            path
            for path, (entry, _) in sorted(found.entries.items())
            if entry.kind == "file" and path not in given
        ]
        own = {path for path in others[:LOOKED_AT] if is_own(folder / path, self._goal)}
        others = [path for path in others if path not in own]
        told = 0 if self._data else COLUMNS
        lines = [
            self._line(path, folder / path, ROWS if path in written else told)
            for path in others[:LISTED]
        ]
        more = len(others) - LISTED
        return [*lines, f"… and {more:,} more files"] if more > 0 else lines

    def _line(self, name: str, path: Path, lines: int) -> str:
        try:
            size = path.stat().st_size
        except OSError:
            return f"{_in_a_line(name)} (not there)"
        told = f"{_in_a_line(name)} ({_size(size)})"
        table = [_shown(line) for line in _table(path)[:lines]] if lines else []
        return "\n  ".join([f"{told}: {table[0]}", *table[1:]]) if table else told

    def _read(self, name: str, start: int) -> Seen:
        path, name = self._allowed(name), _in_a_line(name)
        if path is None:
            told = "Only data in the working folder and the data files of the task can be read"
            return Seen(f"{told}, and {name} is outside of that", "", False)
        try:
            if path.is_dir():
                shown = (each.name for each in path.iterdir() if self._shows(_real(each)))
                inside = sorted(_in_a_line(name) for name in islice(shown, 200))
                return Seen(f"{name} is a folder", "\n".join(inside))
            if not path.is_file():
                return Seen(f"There is no file {name}", "", False)
            return _lines(name, path, start)
        except OSError as error:
            return Seen(f"{name} could not be read: {error.strerror or error}", "", False)

    def _allowed(self, name: str) -> Path | None:
        """Give where a path leads, if that is within what may be read."""
        if not name or "\0" in name:
            return None
        folder = self._path or Path.cwd()
        real = _real(folder / name)
        return real if self._shows(real) and (self._holds(real) or self._given(real)) else None

    def _shows(self, real: Path) -> bool:
        """Tell whether a path is neither hidden nor about the work, if it is no data."""
        return not self._hides(real) and (self._given(real) or not is_own(real, self._goal))

    def _given(self, real: Path) -> bool:
        return any(real == _real((self._path or Path.cwd()) / each) for each in self._data)

    def _hides(self, real: Path) -> bool:
        """Tell whether a path is ignored or lies below one that is."""
        hidden = (_real((self._path or Path.cwd()) / each) for each in self._ignore)
        return any(real.is_relative_to(each) for each in hidden)

    def _holds(self, real: Path) -> bool:
        return self._path is not None and real.is_relative_to(self._path)


def _walked(folder: Path) -> Iterator[Path]:
    """Give the plain files of a folder, those near its top first, as far as few entries go."""
    level, left = [folder], WALKED
    while level:
        below: list[Path] = []
        for each in level:
            try:
                with os.scandir(each) as listed:
                    entries = list(islice(listed, left))
            except OSError:  # it may not be read, or has gone
                continue
            left -= len(entries)
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)
                elif entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
                    below.append(Path(entry.path))
        level = below if left > 0 else []


def _real(path: Path) -> Path:
    """Give where a path leads, also one that leads nowhere, as a link to itself does."""
    return Path(os.path.realpath(path))


def _artifact(folder: Path, path: str) -> Artifact | None:
    file = folder / path
    try:
        if not _real(file).is_relative_to(folder):
            return None
        with _opened(file) as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            return Artifact(path, content.tell(), digest)
    except (OSError, ValueError):  # a name that is spelt out, or a file that cannot be read
        return None


def _changed(file: Path) -> float:
    """Give when a file was put there, by the time that no program can set as it likes."""
    try:
        return file.stat().st_ctime
    except OSError:  # it has gone meanwhile
        return 0.0


def _lines(name: str, path: Path, start: int) -> Seen:
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if b"\0" in (head := file.read(4096)):
            return Seen(f"{name} is a binary file of {_size(size)}{extents(head)}; it has no lines")
        file.seek(0)
        found, total = _found(file, start)
        whole = file.tell() >= size
    if not found:
        told = "is empty" if not size else f"has no line {start}"
        where = "" if whole else f" in its first {_size(READ)}"
        return Seen(f"{name} ({_size(size)}) {told}{where}")
    count = total if whole else f"more than {total}"
    title = f"{name} ({_size(size)}), lines {start} to {start + len(found) - 1} of {count}"
    return Seen(title, _safe("\n".join(found)))


def _found(file: BufferedReader, start: int) -> tuple[list[str], int]:
    """Give some lines of a file, long ones cut, and how many there are as far as it is read."""
    found: list[str] = []
    number, begins = 0, True
    # A piece is a line, or a part of one that is so long that it is not held as a whole.
    while len(found) < LINES and file.tell() < READ and (piece := file.readline(4 * LINE + 4)):
        number += begins
        if begins and start <= number < start + LINES:
            line = piece.decode("utf-8", "replace").rstrip("\r\n")
            found.append(line if len(line) <= LINE else f"{line[:LINE]}…")
        begins = piece.endswith(b"\n")
    while file.tell() < READ and (piece := file.read(1_000_000)):
        number += begins + piece.count(b"\n") - piece.endswith(b"\n")
        begins = piece.endswith(b"\n")
    return found, number


def _opened(path: Path) -> BufferedReader:
    """Open a file for reading; a pipe or a device, which might never end, is none."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("it is no regular file")
    return file


def _in_a_line(name: str) -> str:
    """Give a name as a line of text can hold it, whatever signs it is made of."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in clean_text(name))
    return shown if len(shown) <= LINE else f"{shown[:LINE]}…"


def _safe(text: str) -> str:
    """Give a file's text as a prompt and a record may hold it, without secrets."""
    return Redactor().redact(clean_text(text))[0]


def _table(path: Path) -> tuple[str, ...]:
    try:
        with _opened(path) as file:
            return tables.told(path.name, file, os.fstat(file.fileno()).st_size)
    except OSError:
        return ()


def _shown(line: str) -> str:
    """Give a line of a file without signs that might end it, a tab aside."""
    return "".join(c if c.isprintable() or c == "\t" else " " for c in clean_text(line))


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
    return f"{image.mime}{extents(data)}, {_size(len(data))}"
