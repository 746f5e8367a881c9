"""What a file that holds a table says of itself: its columns, and the first row where it is text.

No more than the beginning of a file is read, of Parquet its metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, BinaryIO

TABLE = 300
"""Characters of a line about a table."""

HEAD = 65_536
"""Bytes of a file in which its columns are looked for."""

WHOLE = 1_000_000
"""Bytes of a JSON file that is read as a whole, as one that is a mapping of columns must be."""

COLUMNS = 200
"""Columns that are named, if there is room for them."""


def told(name: str, file: BinaryIO, size: int) -> tuple[str, ...]:
    """Tell of a table in a line or two; () for what is none.

    Parameters
    ----------
    name: by its suffix it is known.
    file: at its beginning.
    size: bytes of it.
    """
    suffix = name.lower().rpartition(".")[2]
    tell = _KINDS.get(suffix)
    return tuple(cut(line) for line in tell(file, size)) if tell is not None else ()


def cut(line: str) -> str:
    """Shorten a line to what is shown of it."""
    return line if len(line) <= TABLE else f"{line[:TABLE]}…"


def _separated(file: BinaryIO, _size: int) -> tuple[str, ...]:
    head, row = _line(file), _line(file)
    if not head:
        return ()
    return (head, f"first row: {row}") if row else (head,)


def _line(file: BinaryIO) -> str:
    piece = file.readline(4 * TABLE + 4)
    if b"\0" in piece:
        return ""
    if not piece.endswith(b"\n"):  # a long one has its end behind what is shown
        file.readline(HEAD)
    return piece.decode("utf-8", "replace").removeprefix("\ufeff").rstrip("\r\n")


def _json_lines(file: BinaryIO, _size: int) -> tuple[str, ...]:
    line = file.readline(HEAD)
    row = _loaded(line)
    if not isinstance(row, dict):
        return ()
    return _columns(row), f"first row: {line.decode('utf-8', 'replace').strip()}"


def _json(file: BinaryIO, size: int) -> tuple[str, ...]:
    head = file.read(HEAD)
    text = head.decode("utf-8", "replace").lstrip()
    if text.startswith("["):
        row, spelt = _first(text[1:].lstrip())
        return (_columns(row), f"first row: {spelt}") if isinstance(row, dict) else ()
    if size > WHOLE:
        return ()
    table = _loaded(head + file.read(WHOLE))
    if (
        isinstance(table, dict)
        and table
        and all(isinstance(c, dict | list) for c in table.values())
    ):
        return (_columns(table),)
    return ()


def _loaded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _first(text: str) -> tuple[Any, str]:
    """Read the first value of a text that may be cut behind it, and spell it in a line."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
        return value, json.dumps(value, ensure_ascii=False)  # which may go deeper than reading
    except (ValueError, RecursionError):
        return None, ""


def _columns(names: Iterable[Any]) -> str:
    return f"columns: {', '.join(map(str, islice(names, COLUMNS)))}"


def _parquet(file: BinaryIO, size: int) -> tuple[str, ...]:
    if find_spec("pyarrow") is None or size < 12:
        return ()
    file.seek(-8, 2)
    length = int.from_bytes(file.read(4), "little")
    if file.read(4) != b"PAR1" or length > WHOLE:
        return ()
    file.seek(0)
    try:
        found = import_module("pyarrow.parquet").ParquetFile(file)
        return (f"{found.metadata.num_rows:,} rows; {_columns(found.schema_arrow.names)}",)
    except Exception:  # noqa: BLE001 - of a damaged file, it raises what it likes
        return ()


_KINDS: dict[str, Callable[[BinaryIO, int], tuple[str, ...]]] = {
    "csv": _separated,
    "tsv": _separated,
    "jsonl": _json_lines,
    "ndjson": _json_lines,
    "json": _json,
    "parquet": _parquet,
    "pq": _parquet,
}
"""Suffix -> what tells of such a file."""
