"""The whole output of a cell on disk, where its result holds only a part."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import re
import secrets
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BufferedWriter
from pathlib import Path

from nbrefine.redaction import GrowingText

PLAIN = "text/plain"
"""The type under which all text of a cell is filed."""

_BATCH = 64 * 1024  # characters that go to the writer at once
_WAITING = 32_000_000  # characters that may wait for a slow disk
_VALUES = 100  # values that get a file; a folder with thousands of them helps nobody

_SUFFIXES = {
    "jpeg": ".jpg",
    "svg+xml": ".svg",
    "javascript": ".js",
    "latex": ".tex",
    "markdown": ".md",
}


class Spool:
    """Writes a cell's text to one file and values to others, named by their SHA-256.

    A thread of its own writes, redacts and hashes.  Nobody waits for it before the cell has
    ended: what a slow disk does not take in time is left out and told, as is all that comes
    after a disk is full.  A file has its name when it is whole; until then it is a hidden one
    that goes away with the spool.

    Parameters
    ----------
    folder: where to write; it is made when there is something to write.
    limit: characters that are kept, of text and values together; values count as they arrive,
        binary ones as base64.
    redact: applied to the text as a whole, and to each value that is text.
    """

    def __init__(self, folder: Path, limit: int, redact: Callable[[str], str]) -> None:
        self.files: dict[str, tuple[str, ...]] = {}
        """MIME type -> FOLDER/NAME of what was written, once it has finished."""
        self.gaps: dict[str, str] = {}
        """MIME type -> what is in no file and why, once it has finished."""
        self._folder = folder.absolute()
        self._limit = self._room = limit
        self._redact = redact
        self._given: Counter[str] = Counter()  # characters by MIME type
        self._missed: Counter[str] = Counter()  # those of them that are in no file
        self._reasons: dict[str, str] = {}
        self._values = 0
        self._batch: list[str] = []
        self._batched = 0
        self._sent = 0
        self._over = False
        self._writer = ThreadPoolExecutor(1, "nbrefine-spool")
        # From here on the writer's own.
        self._done = 0
        self._trouble = ""
        self._growing = GrowingText(redact)
        self._drafts: dict[_Draft, str] = {}
        self._text: _Draft | None = None

    def text(self, text: str) -> None:
        """Add to the cell's text."""
        self._given[PLAIN] += len(text)
        kept = text[: self._room]
        self._miss(PLAIN, len(text) - len(kept), self._too_much)
        self._room -= len(kept)
        if kept:
            self._batch.append(kept)
            self._batched += len(kept)
        if self._batched >= _BATCH:
            self._send_batch()

    def value(self, mime: str, value: str) -> None:
        """Write a value that the result leaves out."""
        self._given[mime] += len(value)
        if self._values == _VALUES:
            self._miss(mime, len(value), f"a cell has at most {_VALUES} files of values")
        elif len(value) > self._room:
            self._miss(mime, len(value), self._too_much)
        elif not self._keeps_up(len(value)):
            self._miss(mime, len(value), _TOO_SLOW)
        else:
            self._room -= len(value)
            self._values += 1
            self._sent += len(value)
            self._writer.submit(self._guarded, self._write_value, mime, value)

    async def finish(self) -> None:
        """Wait until everything is on the disk, under its name."""
        self._send_batch()
        await asyncio.wrap_future(self._writer.submit(self._guarded, self._name_all))
        self._over = True
        self._writer.shutdown(wait=False)
        self._miss(PLAIN, self._growing.withheld, "the end of a secret was not found")
        if self._trouble:
            for mime, count in self._given.items():
                self._missed[mime], self._reasons[mime] = count, self._trouble
        for mime, count in self._missed.items():
            self.gaps[mime] = f"{count:,} characters are in no file: {self._reasons[mime]}"

    def abandon(self) -> None:
        """Let go of everything that has not finished."""
        if not self._over:
            self._over = True
            self._writer.submit(self._drop_all)
            self._writer.shutdown(wait=False)

    @property
    def _too_much(self) -> str:
        return f"a cell's files hold at most {self._limit:,}"

    def _miss(self, mime: str, count: int, reason: str) -> None:
        if count:
            self._missed[mime] += count
            self._reasons.setdefault(mime, reason)

    def _keeps_up(self, size: int) -> bool:
        # Two counters, since each is changed by one thread only.
        waiting = self._sent - self._done
        return not waiting or waiting + size <= _WAITING

    def _send_batch(self) -> None:
        text, size = "".join(self._batch), self._batched
        self._batch, self._batched = [], 0
        if not size:
            return
        if self._keeps_up(size):
            self._sent += size
            self._writer.submit(self._guarded, self._write_text, text)
        else:
            self._miss(PLAIN, size, _TOO_SLOW)
            self._room = 0  # a file that ends early can be told from one with a hole

    def _guarded(self, write: Callable[..., None], *args: str) -> None:
        """Do the writer's work; its first trouble ends it."""
        try:
            if not (self._trouble or self._over):
                write(*args)
        except Exception as error:  # noqa: BLE001 - the run goes on, and its result tells of it
            why = getattr(error, "strerror", None) or error
            self._trouble = f"{self._folder.name} cannot be written: {why}"
            self._drop_all()
        finally:
            self._done += len(args[-1]) if args else 0

    def _write_text(self, text: str) -> None:
        if self._text is None:
            self._text = self._draft(PLAIN, ".txt")
        self._text.write(_encoded(self._growing.feed(text)))

    def _write_value(self, mime: str, value: str) -> None:
        content = _decoded(value) if is_binary(mime) else None
        draft = self._draft(mime, _suffix(mime))
        draft.write(_encoded(self._redact(value)) if content is None else content)
        draft.close()

    def _draft(self, mime: str, suffix: str) -> _Draft:
        draft = _Draft(self._folder, suffix)
        self._drafts[draft] = mime
        return draft

    def _name_all(self) -> None:
        if self._text is not None:
            self._text.write(_encoded(self._growing.rest()))
            self._text.close()
        names: dict[str, dict[str, None]] = {}
        for draft, mime in self._drafts.items():
            names.setdefault(mime, {})[f"{self._folder.name}/{draft.keep()}"] = None
        if self._drafts:
            _sync(self._folder)
        self.files = {mime: tuple(named) for mime, named in names.items()}

    def _drop_all(self) -> None:
        for draft in self._drafts:
            draft.drop()
        self._drafts.clear()


_TOO_SLOW = "the disk was too slow for them"


class _Draft:
    """A file that gets its name, the hash of what it holds, when it is whole."""

    def __init__(self, folder: Path, suffix: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f".{secrets.token_hex(8)}.tmp"
        self._suffix = suffix
        self._hash = hashlib.sha256()
        self._file = self._path.open("xb")
        # Also at the end of the process, when nobody else gets round to it.
        self.drop = weakref.finalize(self, _drop, self._file, self._path, os.getpid())

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)

    def close(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def keep(self) -> str:
        """Give the file its name, and give the name."""
        name = self._hash.hexdigest() + self._suffix
        self._path.replace(self._path.with_name(name))
        self.drop.detach()
        return name


def _drop(file: BufferedWriter, path: Path, owner: int) -> None:
    if os.getpid() != owner:  # a forked child has its parent's drafts in sight
        return
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a full disk
        file.close()


def _sync(folder: Path) -> None:
    """Make new names survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_binary(mime: str) -> bool:
    """Tell whether a value of the type arrives as base64."""
    kind = mime.partition("/")[0]
    media = kind in ("image", "audio", "video") and not mime.endswith("+xml")
    return media or mime == "application/pdf"


def _decoded(value: str) -> bytes | None:
    try:
        return base64.b64decode(value)
    except binascii.Error:  # then it is kept as it came
        return None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _suffix(mime: str) -> str:
    kind = mime.partition("/")[2]
    if kind.endswith("+json"):
        return ".json"
    known = f".{kind}" if re.fullmatch("[a-z0-9]{1,8}", kind) else ".bin"
    return _SUFFIXES.get(kind, known)
