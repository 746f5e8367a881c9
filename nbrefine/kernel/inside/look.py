"""One name of the user's looked at closely, and its value as plain JSON.

Whoever asks does so in a copy of the session, or lets a `__repr__` of the user's run in it.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any

from .guard import Overdue, clean, cut, is_from, kind_name, show, time_limit
from .link import Emit
from .listing import described, user_items

SECONDS = 3.0
"""How long a look may take."""
HEAD, TAIL = 8, 3
"""Rows that are shown of the two ends of a table."""
WIDTH = 24
"""Columns of a table that are shown."""
ITEMS = 20
"""Entries of a container that are shown."""
PARTS = 10_000
"""Values that a plain value may consist of."""
BITS = 14_000
"""Bits of a whole number: its digits, in base 10, are fewer than Python refuses to write."""


def look(emit: Emit, name: str, room: int) -> dict[str, Any] | None:
    """Describe what a public name is bound to; None where there is no such name.

    Gives the fields of its `Variable`, and in about `room` characters what they leave out.
    """
    found = _found(name)
    if found is None:
        return None
    text = ""
    try:
        with time_limit(SECONDS):
            text = _text(found[0], room)
    except Overdue:
        text = f"It took over {SECONDS:g} s to look at."
    except Exception as error:  # noqa: BLE001  a foreign class may raise anything
        text = f"It could not be looked at: {kind_name(error)}."
    return {"variable": described([(name, found[0])])[0], "text": cut(clean(text), room)}


def plain(emit: Emit, name: str) -> dict[str, Any] | None:
    """Give what a public name is bound to as JSON and as text; None where there is no such name.

    A `problem` says why there is no JSON of it.
    """
    found = _found(name)
    if found is None:
        return None
    told: dict[str, Any] = {"value": None, "shown": show(found[0], 2000), "problem": ""}
    try:
        with time_limit(SECONDS):
            told["value"] = _Plain().of(found[0])
    except Overdue:
        told["problem"] = f"it took over {SECONDS:g} s to read"
    except _NotPlainError as error:
        told["problem"] = str(error)
    except RecursionError:
        told["problem"] = "it is nested too deeply"
    except Exception as error:  # noqa: BLE001  a foreign class may raise anything
        told["problem"] = f"reading it raised {kind_name(error)}"
    return told


def _found(name: str) -> tuple[Any] | None:
    if name.startswith("_"):
        return None
    return next(((value,) for known, value in user_items() if known == name), None)


def _text(value: Any, room: int) -> str:
    for package, names, tell in _TABLES:
        if is_from(value, package, *names):
            return tell(value)
    if type(value) in (str, bytes):
        return value if type(value) is str else show(value, room)
    if type(value) is dict:
        return _dict(value)
    if type(value) in (list, tuple):
        return _sequence(value)
    if inspect.isroutine(value) or isinstance(value, type):
        return _source(value)
    if type(value) is type(sys):
        version = getattr(value, "__version__", "")
        return f"{value.__name__} {version}".strip() if isinstance(version, str) else ""
    return show(value, room)


def _dict(value: dict[Any, Any]) -> str:
    lines = [f"{show(key, 60)}: {_short(value[key])}" for key in _first(value)]
    return "\n".join([*lines, *_more(len(value) - len(lines))])


def _sequence(value: Any) -> str:
    lines = [f"[{at}] {_short(item)}" for at, item in enumerate(_first(value))]
    return "\n".join([*lines, *_more(len(value) - len(lines))])


def _first(values: Iterable[Any]) -> list[Any]:
    return [value for value, _ in zip(values, range(ITEMS), strict=False)]


def _more(count: int) -> list[str]:
    return [f"… {count:,} more"] if count > 0 else []


def _short(value: Any) -> str:
    if is_from(value, "pandas", "DataFrame", "Series") or is_from(value, "numpy", "ndarray"):
        return f"{kind_name(value)} of shape {value.shape}"
    return " ".join(show(value, 160).split())


def _source(value: Any) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):  # built in, or its cell is not known
        return inspect.getdoc(value) or ""


def _pandas_frame(frame: Any) -> str:
    shown = frame.iloc[:, :WIDTH]
    text = _ends(shown, len(frame))
    wider = frame.shape[1] - shown.shape[1]
    return f"{text}\n… {wider:,} more columns" if wider > 0 else text


def _ends(table: Any, rows: int) -> str:
    options = {"max_colwidth": 40} if hasattr(table, "columns") else {}
    if rows <= HEAD + TAIL:
        return str(table.to_string(**options))
    head = table.head(HEAD).to_string(**options)
    tail = table.tail(TAIL).to_string(**options)
    return f"{head}\n… {rows - HEAD - TAIL:,} more rows …\n{tail}"


def _pandas_series(series: Any) -> str:
    return _ends(series, len(series))


def _array(array: Any) -> str:
    numpy = sys.modules["numpy"]
    text = numpy.array2string(array, threshold=60, edgeitems=4, max_line_width=100)
    if array.dtype.kind not in "iuf" or not array.size or array.size > 50_000_000:
        return str(text)
    low, mean, high = (show(each(array).item(), 40) for each in (numpy.min, numpy.mean, numpy.max))
    return f"{text}\nmin {low}, mean {mean}, max {high}"


def _polars_frame(frame: Any) -> str:
    shown = frame.select(frame.columns[:WIDTH])
    rows = [", ".join(frame.columns[:WIDTH]), *(show(row, 300) for row in shown.head(HEAD).rows())]
    if frame.height > HEAD + TAIL:
        rows.append(f"… {frame.height - HEAD - TAIL:,} more rows …")
    ends = min(max(frame.height - HEAD, 0), TAIL)
    rows += [show(row, 300) for row in (shown.tail(ends).rows() if ends else ())]
    return "\n".join(rows)


_TABLES: list[tuple[str, tuple[str, ...], Callable[[Any], str]]] = [
    ("pandas", ("DataFrame",), _pandas_frame),
    ("pandas", ("Series",), _pandas_series),
    ("numpy", ("ndarray",), _array),
    ("polars", ("DataFrame",), _polars_frame),
]


class _NotPlainError(Exception):
    """A value is nothing that JSON has."""


class _Plain:
    """Makes JSON of a value: what is not a number becomes null, tables become rows."""

    def __init__(self) -> None:
        self._left = PARTS

    def of(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _NotPlainError(f"it has more than {PARTS:,} parts")
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return self._whole(value)
        if kind is str:
            return clean(value)
        if kind is float:
            return value if math.isfinite(value) else None
        if kind is dict:
            return {self._key(key): self.of(each) for key, each in value.items()}
        if kind in (list, tuple):
            return [self.of(each) for each in value]
        if kind in (set, frozenset):
            return [self.of(each) for each in sorted(value, key=repr)]
        return self._foreign(value)

    def _whole(self, value: int) -> int:
        if value.bit_length() > BITS:
            raise _NotPlainError(f"a whole number of more than {BITS:,} bits is too long to write")
        return value

    def _key(self, key: Any) -> str:
        plain = self.of(key)
        return plain if isinstance(plain, str) else show(plain, 200)

    def _foreign(self, value: Any) -> Any:
        for package, names, tell in self._kinds:
            if is_from(value, package, *names):
                return tell(self, value)
        if hasattr(value, "isoformat"):
            return str(value.isoformat())
        for base in (bool, int, float, str):  # an enum's member, a subclass of a number
            if isinstance(value, base):
                return self.of(base(value))
        raise _NotPlainError(f"a value of type {kind_name(value)} is not plain data")

    def _array(self, value: Any) -> Any:
        self._refuse_large(value.size)
        return self.of(value.tolist())

    def _series(self, value: Any) -> Any:
        self._refuse_large(value.size)
        return {self._key(key): self.of(each) for key, each in value.items()}

    def _frame(self, value: Any) -> Any:
        self._refuse_large(value.size)
        return self.of(value.to_dict("records"))

    def _refuse_large(self, size: int) -> None:
        if size > self._left:
            raise _NotPlainError(f"it has more than {PARTS:,} parts")

    _kinds: tuple[tuple[str, tuple[str, ...], Callable[[_Plain, Any], Any]], ...] = (
        ("pandas", ("NaTType", "NAType"), lambda plain, value: None),
        ("pandas", ("Series",), _series),
        ("pandas", ("Index",), _array),
        ("pandas", ("DataFrame",), _frame),
        ("numpy", ("generic",), lambda plain, value: plain.of(value.item())),
        ("numpy", ("ndarray",), _array),
        ("pathlib", ("PurePath",), lambda plain, value: str(value)),
        ("decimal", ("Decimal",), lambda plain, value: str(value)),
    )
