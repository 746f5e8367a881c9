"""The user's names in the session and what a reader needs to know of each."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import sys
import time
from collections.abc import Callable, Container, Iterable
from typing import Any

from IPython.core.getipython import get_ipython

from .guard import Overdue, cut, dtype_name, is_from, kind_name, show, time_limit
from .link import Emit

VALUE_SECONDS = 0.3
"""How long one variable may take to be described."""
TOTAL_SECONDS = 3.0
"""After this, the remaining variables get their name and type only."""
COLUMNS = 40
"""Columns of a table that are told one by one."""
KEYS, KEY_LENGTH = 200, 100
"""How many keys of a table or dict are given by name, and how long one may be."""
DIGITS = 10
"""Characters up to which a number of a table is shown as it is."""
COUNTABLE = 5_000_000
"""Cells of a table up to which missing values are counted."""
LOOKED_AT = 10_000
"""Evenly spaced values of each column by which the missing ones of a larger table are judged."""

_NOT_THE_USERS = re.compile(r"_{1,3}|_\d+|_i{1,3}|_i\d+|_[iod]h|_exit_code|__.*__")
"""Names of IPython's history and last results, and Python's own."""


def names(emit: Emit) -> list[str]:
    """Give the user's names, in the order they were first bound, without private ones."""
    return [name for name, _ in _public(user_items())]


def variables(emit: Emit) -> list[dict[str, Any]]:
    """Describe every name of the user's but private ones: plain JSON values only."""
    return described(user_items())


def described(items: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Describe names and their values, without the names that begin with an underscore.

    Each gives the fields of a `Variable` that it has.
    """
    ends = time.monotonic() + TOTAL_SECONDS
    return [_describe(name, value, ends) for name, value in _public(items)]


def user_items() -> list[tuple[str, Any]]:
    """Give the user's names, private ones too, and their values, in the order of binding."""
    shell = get_ipython()
    if shell is None:
        return []
    hidden = shell.user_ns_hidden
    return [
        (name, value)
        for name, value in list(shell.user_ns.items())
        if isinstance(name, str)
        and name.isidentifier()
        and not _NOT_THE_USERS.fullmatch(name)
        and not (name in hidden and hidden[name] is value)
    ]


def _public(items: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in items if not name.startswith("_")]


def _describe(name: str, value: Any, ends: float) -> dict[str, Any]:
    told: dict[str, Any] = {"name": name, "type": kind_name(value)}
    if time.monotonic() > ends:
        return told
    try:
        if id(type(value)) in _PLAIN or id(type(value)) in _SIZED:  # no code of the session's runs
            told.update(_look(value))
        else:
            with time_limit(VALUE_SECONDS):
                told.update(_look(value))
    except Overdue:
        told["detail"] = f"took over {VALUE_SECONDS:g} s to look at"
    except Exception as error:  # noqa: BLE001  a foreign class may raise anything
        told["detail"] = f"could not be looked at: {kind_name(error)}"
    return told


def shape(value: Any) -> list[int] | None:
    """Give the extents of a table or array, or the length of a built-in container."""
    kind = type(value)
    if id(kind) in _SIZED:
        return [len(value)]
    if id(kind) in _PLAIN:
        return None
    if any(is_from(value, package, *names) for package, names in _SHAPED):
        return list(value.shape)
    return None


def dtypes(value: Any) -> str:
    """Give the dtype of an array, or of a table's first columns, a line for each behind its name.

    "" for anything else.
    """
    if id(type(value)) in _SIZED:
        return ""
    if is_from(value, "numpy", "ndarray") or is_from(value, "polars", "Series"):
        return dtype_name(value.dtype)
    if is_from(value, "pandas", "Series", "Index"):
        return dtype_name(getattr(value, "_values", value).dtype)
    if is_from(value, "pandas", "DataFrame"):
        columns = zip(value.columns[:COLUMNS].tolist(), _kinds(value))  # noqa: B905
    elif is_from(value, "polars", "DataFrame"):
        columns = zip(value.columns[:COLUMNS], map(str, value.dtypes))  # noqa: B905
    else:
        return ""
    return "\n".join([f"{_label(name)}\t{dtype}" for name, dtype in columns])


def _kinds(frame: Any) -> Iterable[str]:
    """Give the names of the dtypes of a table's columns, of those that lie together at once."""
    try:
        blocks, places = frame._mgr.blocks, frame._mgr.blknos  # noqa: SLF001  pandas' own is slow
    except AttributeError:  # another version may lack it
        return [dtype_name(dtype) for dtype in frame.dtypes]
    names = [dtype_name(block.dtype) for block in blocks]
    return [names[place] for place in places[:COLUMNS].tolist()]


def _look(value: Any) -> dict[str, Any]:
    kind = type(value)
    if id(kind) in _SIZED:
        return _builtin(value)
    if id(kind) in _PLAIN:
        return {"preview": show(value, 120)}
    if kind is type(sys):
        return {"kind": "module", "preview": str(value.__name__)}
    for package, names, look in _TABLES:
        if is_from(value, package, *names):
            return look(value)
    if inspect.isroutine(value):
        return {"kind": "function", "preview": _signature(value)}
    if isinstance(value, type):
        return {"kind": "class", "preview": _signature(value)}
    lines = show(value, 120).splitlines()
    return {"preview": " ".join(line.strip() for line in lines)}


def _signature(value: Any) -> str:
    try:
        return cut(str(inspect.signature(value)), 120)
    except (TypeError, ValueError):
        return "(…)"


def _builtin(value: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "shape": shape(value),
        "size": sys.getsizeof(value),
        "preview": show(value, 120),
    }
    if isinstance(value, (list, tuple, set, frozenset)):
        # By the id, as a metaclass may define `__hash__`.
        first = {id(type(item)): item for item in itertools.islice(value, 100)}
        kinds = dict.fromkeys(map(kind_name, first.values()))
        told["detail"] = "of " + ", ".join(kinds) if kinds else ""
    elif isinstance(value, dict):
        keys = [show(key, 40) for key in itertools.islice(value, 20)]
        told["detail"] = "keys " + ", ".join(keys) + _more(len(value) - len(keys), "keys")
        told["detail"] = told["detail"] if keys else ""
        told["keys"] = _keys(value)
    return told


def _keys(names: Iterable[Any]) -> list[str]:
    """Give those of the first names that are text and short, as a name is."""
    first = itertools.islice(names, KEYS)
    return [name for name in first if type(name) is str and len(name) <= KEY_LENGTH]


def _more(count: int, what: str) -> str:
    return f", … {count:,} more {what}" if count > 0 else ""


def _pandas_frame(frame: Any) -> dict[str, Any]:
    rows, columns = frame.shape
    counted = rows * columns <= COUNTABLE
    names = frame.columns[:KEYS].tolist()
    arrays = _columns(frame, min(columns, COLUMNS))
    complete = _complete(frame) if counted else ()
    parts = []
    for place, (name, array) in enumerate(zip(names, arrays)):  # noqa: B905  `strict` is younger
        told = "" if place in complete else _lacking(array, counted=counted)
        parts.append(f"{_label(name)} ({dtype_name(array.dtype)}{told})")
    detail = ", ".join(parts) + _more(columns - len(parts), "columns")
    if not is_from(frame.index, "pandas", "RangeIndex"):
        detail += f"; index {_label(frame.index.name) if frame.index.name else ''}".rstrip()
        detail += f" ({dtype_name(frame.index.dtype)})"
    firsts = [_first(array, 2) for array in arrays]
    heads = [_row(first[row] for first in firsts) for row in range(min(rows, 2))]
    return {
        "shape": [rows, columns],
        "size": _size(frame, arrays if len(arrays) == columns else None),
        "detail": detail,
        "keys": _keys(names),
        "preview": ", ".join(heads),
    }


def _columns(frame: Any, count: int) -> list[Any]:
    """Give the arrays of the first columns, past the tables that pandas would make of each."""
    try:
        every = frame._iter_column_arrays()  # noqa: SLF001  what pandas has instead is slow
    except AttributeError:  # another version may lack it
        return [frame.iloc[:, place] for place in range(count)]
    return list(itertools.islice(every, count))


def _complete(frame: Any) -> Container[int]:
    """Give the places of columns in which nothing is missing, as far as pandas has them together.

    To look at many columns at once takes a tenth of the time, as they lie side by side in memory.
    """
    found: set[int] = set()
    numpy = sys.modules["numpy"]
    with contextlib.suppress(AttributeError), numpy.errstate(invalid="ignore"):
        for block in frame._mgr.blocks:  # noqa: SLF001  another version may lack it
            values = block.values
            if type(values).__name__ == "ndarray" and values.dtype.kind == "f" and values.size:
                least = values.min()  # of values that lack one it is NaN
                if least == least:  # noqa: PLR0124
                    found.update(block.mgr_locs)
    return found


def _lacking(array: Any, *, counted: bool) -> str:
    """Say how many values of a column are missing: counted, or judged by some of them."""
    if counted:
        missing = _missing(array)
        return f", {missing:,} missing" if missing else ""
    some = array[:: max(len(array) // LOOKED_AT, 1)]
    missing = _missing(some)
    return f", about {max(100 * missing / len(some), 0.1):.1f} % missing" if missing else ""


def _missing(array: Any) -> int:
    """Count the missing values of a column."""
    if type(array).__name__ != "ndarray":
        return int(array.isna().sum())
    if array.dtype.kind in "iub":
        return 0
    if array.dtype.kind == "f":
        numpy = sys.modules["numpy"]
        return int(numpy.count_nonzero(numpy.isnan(array)))
    return int(sys.modules["pandas"].isna(array).sum())


def _first(array: Any, count: int) -> list[Any]:
    part = array[:count]
    return part.tolist() if type(array).__name__ == "ndarray" else list(part)


def _size(table: Any, arrays: list[Any] | None) -> int:
    """Give the bytes of a table whose columns are known, or ask it, which takes longer."""
    if arrays is None:
        return int(table.memory_usage(deep=False).sum())
    return sum(int(array.nbytes) for array in arrays) + int(table.index.memory_usage(deep=False))


def _label(name: Any) -> str:
    return cut(name, 60) if type(name) is str and name.isprintable() else show(name, 60)


def _row(values: Iterable[Any]) -> str:
    return "(" + ", ".join(_cell(value) for value in values) + ")"


def _cell(value: Any) -> str:
    kind = type(value)
    if kind is float:  # more digits tell a reader nothing
        return text if len(text := repr(value)) <= DIGITS else f"{value:.6g}"
    if kind is int or kind is str or kind is bool:
        return show(value, 40)
    if is_from(value, "numpy", "generic"):  # np.float64(39.1), as it shows itself, is 39.1
        plain = value.item()
        return show(value, 40) if type(plain) is kind else _cell(plain)
    return cut(str(value), 40) if is_from(value, "pandas", "Timestamp") else show(value, 40)


def _pandas_index(index: Any) -> dict[str, Any]:
    return _values(index, index, int(index.memory_usage(deep=False)))


def _pandas_series(series: Any) -> dict[str, Any]:
    array = getattr(series, "_values", series)
    return _values(series, array, _size(series, [array]))


def _values(told: Any, array: Any, size: int) -> dict[str, Any]:
    lacking = _lacking(array, counted=len(array) <= COUNTABLE)
    name = f", name {_label(told.name)}" if told.name is not None else ""
    return {
        "shape": [len(array)],
        "size": size,
        "detail": f"{dtype_name(array.dtype)}{lacking}{name}",
        "preview": _row(_first(array, 5)) + _more(len(array) - 5, "values"),
    }


def _array(array: Any) -> dict[str, Any]:
    return {
        "shape": shape(array),
        "size": int(array.nbytes),
        "detail": dtype_name(array.dtype),
        "preview": _row(array.flat[:5].tolist()) + _more(array.size - 5, "values"),
    }


def _polars_frame(frame: Any) -> dict[str, Any]:
    schema = [f"{_label(name)} ({kind})" for name, kind in list(frame.schema.items())[:COLUMNS]]
    return {
        "shape": shape(frame),
        "size": int(frame.estimated_size()),
        "detail": ", ".join(schema) + _more(frame.width - len(schema), "columns"),
        "keys": _keys(frame.columns),
        "preview": ", ".join(_row(row) for row in frame.head(2).rows()),
    }


# By the id of a class, as a metaclass may define `__hash__`.
_PLAIN = {id(kind) for kind in (int, float, bool, complex, type(None))}
_SIZED = set(map(id, (str, bytes, bytearray, list, tuple, set, frozenset, dict, range)))
_SHAPED = (
    ("pandas", ("DataFrame", "Series", "Index")),
    ("numpy", ("ndarray",)),
    ("polars", ("DataFrame", "Series")),
)
_TABLES: list[tuple[str, tuple[str, ...], Callable[[Any], dict[str, Any]]]] = [
    ("pandas", ("DataFrame",), _pandas_frame),
    ("pandas", ("Series",), _pandas_series),
    ("pandas", ("Index",), _pandas_index),
    ("numpy", ("ndarray",), _array),
    ("polars", ("DataFrame",), _polars_frame),
    ("polars", ("LazyFrame",), lambda frame: {"detail": "lazy, not computed"}),
]
