"""A file that should be a notebook: read, or told for what it is instead."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

from nbrefine.errors import RecordError

JOURNAL = ".nbrefine.jsonl"
"""What the name of a notebook's journal ends in."""

ANOTHER = "Give a file that nbrefine recorded"
_COPY = "Restore the file from a copy"


class AnotherKind(RecordError):
    """It is a notebook, and not an episode's."""


def real(path: str | Path) -> Path:
    """Give the real file behind the path of a notebook or a journal, which need not exist.

    Raises
    ------
    RecordError: no file can be called so.
    """
    try:
        found = Path(os.path.realpath(path))
        # Here and not in the midst of the work: asking whether such a file exists raises.
        found.with_suffix(JOURNAL).exists()
    except ValueError:  # a zero byte, or no name but that of the root
        raise RecordError(f"{str(path)!r} is no name of a file", hint="Check the path") from None
    except OSError as error:
        raise unreadable(Path(path), error) from None
    return found


def open_file(path: Path) -> BinaryIO:
    """Open a file to read; what may never end, as a pipe does, is no file.

    Raises
    ------
    RecordError: there is none, it is something else, or it cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from None
    if stat.S_ISDIR(mode):
        hint = "Give one of the episodes in it, which `nbrefine show` lists for a folder"
        raise RecordError(f"{path} is a folder", hint=hint)
    kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    raise RecordError(f"{path} is {kind}, not a file", hint=ANOTHER)


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises
    ------
    RecordError: it cannot be read, or is not JSON, and what it is instead.
    """
    with open_file(path) as file:
        try:
            data = file.read()
        except OSError as error:
            raise unreadable(path, error) from None
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        told, hint = _instead(data, error)
        raise RecordError(f"{path} {told}, so it is no notebook", hint=hint) from None


def unreadable(path: Path, error: OSError) -> RecordError:
    """Make the error for a file that cannot be read."""
    return RecordError(f"{path} cannot be read: {error.strerror or error}", hint="Check the path")


def _instead(data: bytes, error: Exception) -> tuple[str, str]:
    """Say what a file is that is not JSON, and what to do about it."""
    if not data.strip(b" \t\r\n\0"):
        return "is empty" if not data.strip() else "holds zero bytes alone", _COPY
    if data.startswith(b"version https://git-lfs.github.com/"):
        return "is a pointer of Git LFS", "Fetch the file itself with `git lfs pull`"
    conflict = _CONFLICT.search(data)
    if conflict and b"\n=======" in data and b"\n>>>>>>>" in data:
        line = data.count(b"\n", 0, conflict.start()) + 1
        told = f"holds both sides of a merge, first in line {line}"
        return told, "Take one of them: git checkout --ours FILE, or --theirs"
    if data.startswith((b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")):
        return "is packed", "Unpack it first"
    if isinstance(error, UnicodeDecodeError):
        return f"is not UTF-8 text from byte {error.start:,} on", "Save it again as UTF-8"
    if not isinstance(error, json.JSONDecodeError):  # a number or a depth beyond Python's limits
        return f"is not JSON that can be read: {error}", _COPY
    if error.doc.lstrip().startswith("{") and _breaks_off(error):
        return f"is not JSON to its end: it breaks off in line {error.lineno:,}", _COPY
    return f"is not JSON: {error.msg}, line {error.lineno:,}", ANOTHER


_CONFLICT = re.compile(rb"^<{7}(?=[ \r\n])", re.MULTILINE)


def _breaks_off(error: json.JSONDecodeError) -> bool:
    return error.msg.startswith("Unterminated") or error.pos >= len(error.doc.rstrip())
