"""Whether two tables, columns or indexes of pandas are the same, from their sketches.

The rules are those of `pandas.testing` with its defaults, which DSEval compares by, but for one:
texts are the same as "str" and as "object", which older releases of pandas knew alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbrefine.taskdata.dseval.sketches import (
    SAME,
    Match,
    Rules,
    Sketch,
    equal,
    is_close,
    is_missing,
    is_number,
    key,
    kind,
    rank,
    short,
)

_ATOL, _RTOL = 1e-8, 1e-5
_TEXTS = frozenset(("object", "str"))


@dataclass(frozen=True, slots=True)
class _Index:
    data: list[Sketch]
    dtype: str = "int64"
    names: tuple[Sketch, ...] = (None,)
    type: str = "Index"
    freq: str = "None"

    @classmethod
    def of(cls, sketch: dict[str, Any]) -> _Index:
        return cls(
            sketch["data"], sketch["dtype"], tuple(sketch["names"]), sketch["class"], sketch["freq"]
        )


@dataclass(frozen=True, slots=True)
class _Column:
    name: Sketch
    dtype: str
    data: list[Sketch]


@dataclass(frozen=True, slots=True)
class _Table:
    """A frame, or a series as a frame of one column."""

    index: _Index
    columns: list[_Column]
    labels: _Index
    """Of the columns; its data is theirs."""
    series: bool = False

    @classmethod
    def of(cls, sketch: dict[str, Any]) -> _Table:
        index = _Index.of(sketch["index"])
        if sketch["k"] == "series":
            column = _Column(sketch["name"], sketch["dtype"], sketch["data"])
            return cls(index, [column], _Index([], "object"), series=True)
        labels = _Index.of(sketch["columns"])
        parts = zip(labels.data, sketch["dtypes"], sketch["data"], strict=True)
        return cls(index, [_Column(*part) for part in parts], labels)

    @property
    def names(self) -> list[Sketch]:
        return [column.name for column in self.columns]


def same_tables(wanted: Sketch, found: Sketch, rules: Rules) -> Match:
    """Compare two sketches of pandas' objects."""
    if wanted["k"] != found["k"]:
        return Match(False, f"Mismatched type: {kind(wanted)}, {kind(found)}", "type")
    if wanted["k"] == "index":
        return _same_index(_Index.of(wanted), _Index.of(found), "Index")
    return _compared(_Table.of(wanted), _Table.of(found), rules)


def part_of(wanted: Sketch, found: Sketch, rules: Rules) -> Match | None:
    """Find the expected table or list in a part of the other table; None where it is in none."""
    if not (isinstance(found, dict) and found["k"] in ("frame", "series")):
        return None
    if not (isinstance(wanted, dict) and wanted["k"] in ("frame", "series", "list")):
        return None
    table = _Table.of(found)
    index = _Column(None, table.index.dtype, table.index.data)
    if wanted["k"] == "frame":
        return _frame_in(_Table.of(wanted), table, rules)
    column = _as_series(wanted["items"]) if wanted["k"] == "list" else _Table.of(wanted)
    parts = [(f"column {short(each.name)}", each, table.index) for each in table.columns]
    if table.series:
        parts = [("values", table.columns[0], _counted(len(index.data)))]
    parts.append(("index", index, _counted(len(index.data))))
    for told, part, rows in parts:
        if _compared(column, _Table(rows, [part], column.labels, series=True), rules).ok:
            return Match(True, f"Partial match on {told}")
    return None


def _frame_in(wanted: _Table, found: _Table, rules: Rules) -> Match | None:
    if found.series:
        labels = _Index(found.names, "object")
        if _compared(wanted, replace(found, labels=labels, series=False), rules).ok:
            return Match(True, "Partial match on the series as a table")
        return None
    wide = _with_index(found)
    chosen = _chosen(wanted.names, wide)
    if chosen is None or [key(name) for name in wide.names] == [key(name) for name in wanted.names]:
        return None
    if _compared(wanted, chosen, rules).ok:
        return Match(True, f"Partial match on columns {', '.join(map(short, wanted.names))}")
    return None


def _with_index(table: _Table) -> _Table:
    """Make the index a column, or one for each of its levels."""
    index, levels = table.index, len(table.index.names)
    parts = [index.data]
    if levels > 1:
        parts = [[label["items"][at] for label in index.data] for at in range(levels)]
    unnamed = ["index"] if levels == 1 else [f"level_{at}" for at in range(levels)]
    names = [
        name if name is not None else other
        for name, other in zip(index.names, unnamed, strict=True)
    ]
    added = [
        _Column(name, index.dtype if levels == 1 else "object", part)
        for name, part in zip(names, parts, strict=True)
    ]
    labels = replace(table.labels, data=[*names, *table.labels.data])
    return _Table(_counted(len(index.data)), [*added, *table.columns], labels)


def _as_series(items: list[Sketch]) -> _Table:
    dtype = "object"
    if items and all(isinstance(item, bool) for item in items):
        dtype = "bool"
    elif items and all(is_number(item) for item in items):
        dtype = "int64" if all(isinstance(item, int) for item in items) else "float64"
    elif items and all(isinstance(item, str) for item in items):
        dtype = "str"
    return _Table(
        _counted(len(items)), [_Column(None, dtype, items)], _Index([], "object"), series=True
    )


def _counted(length: int) -> _Index:
    return _Index(list(range(length)))


def _compared(wanted: _Table, found: _Table, rules: Rules) -> Match:
    if rules.ignore_names:
        found = _renamed(wanted, found)
    if rules.ignore_order or rules.ignore_index:
        if not wanted.series:
            chosen = _chosen(wanted.names, found)
            if chosen is None or len(found.columns) != len(wanted.columns):
                names = [", ".join(map(short, table.names)) for table in (wanted, found)]
                return Match(False, f"Columns mismatch: {names[0]} and {names[1]}", "columns")
            found = chosen
        wanted, found = _renumbered(wanted, rules), _renumbered(found, rules)
    if rules.ignore_dtypes:
        found = _cast(wanted, found)
    return _same(wanted, found)


def _renamed(wanted: _Table, found: _Table) -> _Table:
    """Name columns and index as they are expected to be named."""
    if len(found.index.data) == len(wanted.index.data) and len(found.index.names) == len(
        wanted.index.names
    ):
        found = replace(found, index=replace(found.index, names=wanted.index.names))
    chosen = _chosen(wanted.names, found)
    if chosen is not None and len(chosen.columns) == len(found.columns):
        return chosen
    if len(found.columns) != len(wanted.columns):
        return found
    columns = [
        replace(column, name=name) for column, name in zip(found.columns, wanted.names, strict=True)
    ]
    labels = replace(found.labels, data=wanted.labels.data, dtype=wanted.labels.dtype)
    return replace(found, columns=columns, labels=labels)


def _chosen(names: Sequence[Sketch], table: _Table) -> _Table | None:
    """Take columns by name, in that order; None where one is not there."""
    left = list(table.columns)
    taken = []
    for name in names:
        found = next((each for each in left if key(each.name) == key(name)), None)
        if found is None:
            return None
        left.remove(found)
        taken.append(found)
    labels = replace(table.labels, data=[column.name for column in taken])
    return replace(table, columns=taken, labels=table.labels if table.series else labels)


def _renumbered(table: _Table, rules: Rules) -> _Table:
    """Number the rows from 0 on, sorted by all columns where their order does not matter."""
    columns = table.columns
    if rules.ignore_order:
        order = sorted(
            range(len(table.index.data)),
            key=lambda at: [rank(column.data[at]) for column in columns],
        )
        columns = [replace(column, data=[column.data[at] for at in order]) for column in columns]
    return replace(table, index=_counted(len(table.index.data)), columns=columns)


def _cast(wanted: _Table, found: _Table) -> _Table:
    """Convert columns to the expected dtypes; all stay as they are where one cannot be."""
    if len(wanted.columns) != len(found.columns):
        return found
    try:
        columns = [
            replace(
                other, dtype=column.dtype, data=[_as(cell, column.dtype) for cell in other.data]
            )
            for column, other in zip(wanted.columns, found.columns, strict=True)
        ]
    except (TypeError, ValueError, OverflowError):
        return found
    return replace(found, columns=columns)


def _as(cell: Sketch, dtype: str) -> Sketch:
    if dtype.startswith(("int", "uint")):
        return int(cell)
    if dtype.startswith("float"):
        return float("nan") if is_missing(cell) else float(cell)
    if dtype == "bool":
        return bool(cell)
    if dtype == "str" and not isinstance(cell, dict | str) and not is_missing(cell):
        return str(cell)
    return cell


def _same(wanted: _Table, found: _Table) -> Match:
    what = "Series" if wanted.series else "DataFrame"
    sizes = [(len(table.index.data), len(table.columns)) for table in (wanted, found)]
    if sizes[0] != sizes[1]:
        return Match(False, f"{what} shape mismatch: {sizes[0]} and {sizes[1]}", "shape")
    told = _same_index(wanted.index, found.index, f"{what}.index", freq=True)
    if told.ok and not wanted.series:
        told = _same_index(wanted.labels, found.labels, f"{what}.columns")
        told = told if told.ok else replace(told, difference="columns")
    if not told.ok:
        return told
    for column, other in zip(wanted.columns, found.columns, strict=True):
        name = f"{what} column {short(column.name)}" if not wanted.series else what
        if not _same_dtype(column.dtype, other.dtype):
            return Match(False, f"{name}: dtypes {column.dtype}, {other.dtype}", "dtype")
        wrong = [
            (first, second)
            for first, second in zip(column.data, other.data, strict=True)
            if not _same_cell(first, second)
        ]
        if wrong:
            shown = f"{short(wrong[0][0])} and {short(wrong[0][1])}"
            return Match(False, f"{name}: {len(wrong)} values are different, {shown}", "value")
        if wanted.series and key(column.name) != key(other.name):
            return Match(False, f"Series names: {short(column.name)}, {short(other.name)}", "index")
    return SAME


def _same_index(wanted: _Index, found: _Index, what: str, *, freq: bool = False) -> Match:
    if len(wanted.data) != len(found.data):
        return Match(False, f"{what} length: {len(wanted.data)}, {len(found.data)}", "value")
    if wanted.type != found.type or not _same_dtype(wanted.dtype, found.dtype):
        types = [f"{index.type} of {index.dtype}" for index in (wanted, found)]
        return Match(False, f"{what} classes: {types[0]}, {types[1]}", "type")
    for first, second in zip(wanted.data, found.data, strict=True):
        if not _same_cell(first, second):
            return Match(False, f"{what} values: {short(first)}, {short(second)}", "value")
    if [key(name) for name in wanted.names] != [key(name) for name in found.names]:
        return Match(False, f"{what} names: {wanted.names}, {found.names}", "index")
    if freq and wanted.freq != found.freq:
        return Match(False, f"{what} frequencies: {wanted.freq}, {found.freq}", "index")
    return SAME


def _same_dtype(wanted: str, found: str) -> bool:
    return wanted == found or {wanted, found} == _TEXTS


def _same_cell(wanted: Sketch, found: Sketch) -> bool:
    if is_missing(wanted) or is_missing(found):
        return is_missing(wanted) and is_missing(found)
    if is_number(wanted) and is_number(found):
        if isinstance(wanted, int) and isinstance(found, int):
            return wanted == found
        return is_close(wanted, found, atol=_ATOL, rtol=_RTOL)
    if isinstance(wanted, dict) and isinstance(found, dict) and "items" in wanted:
        first, second = wanted["items"], found.get("items", ())
        return len(first) == len(second) and all(map(_same_cell, first, second))
    return equal(wanted, found)
