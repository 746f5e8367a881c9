"""What tables and arrays of numpy, pandas, polars and pyarrow consist of.

Nothing is imported here: where a value of such a package is, the package is loaded. Values are
told column by column, so that it does not matter how a table has arranged them in memory, and
nothing is read, of large ones, but what a sample takes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .builtin import Content, ranged
from .guard import dtype_name
from .walk import Parts, Walk, blocks


def _array(walk: Walk, value: Any) -> Parts:
    numpy = sys.modules["numpy"]
    owner = value
    while type(owner.base).__name__ in ("ndarray", "memmap") and owner.base is not None:
        owner = owner.base
    plain = numpy.ndarray.view(value, numpy.ndarray)
    parts: list[Any] = [Content(_items(walk, plain))]
    if _is_masked(value):
        parts += [value._mask, value._fill_value]
        parts += ["hard"] if value._hardmask else []
    elif type(value) is not numpy.ndarray:
        own = object.__getattribute__(value, "__dict__")
        parts += [*own, *own.values()]
    # Two views of one array see each other's changes, as two names of one list do, where they
    # have items in common.
    shared: int | None = None
    seen: tuple[Any, ...] = ()
    if owner is not value:
        walk.mark(owner)
        shared = walk.place(owner)
        begins = _address(plain) - _address(owner)
        # What is usual is left out, and so hashes as it does in records that say no more.
        seen = () if begins == 0 and plain.flags.c_contiguous else (begins, value.strides)
    frozen = () if value.flags.writeable else ("frozen",)
    return ("array", type(value).__name__, shared, value.shape, *seen, *frozen), parts, True


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _is_masked(value: Any) -> bool:
    ma = sys.modules.get("numpy.ma")
    return ma is not None and ma.MaskedArray in type(value).__mro__


def _items(walk: Walk, array: Any) -> Parts:
    """Tell the items of an array as bytes, or as parts where they are objects."""
    dtype = array.dtype
    head = ("items", dtype_name(dtype), array.size)
    if dtype.names is not None:  # what lies between the fields is undefined
        return head, [Content(_items(walk, array[name])) for name in dtype.names], False
    at = _flat(array)
    if dtype.hasobject or dtype.kind == "T":
        return head, ranged(array.size, lambda start, stop: at(start, stop).tolist()), False
    if dtype.char in "gG":  # a long double has bytes that are undefined
        return head, ranged(array.size, lambda start, stop: list(map(repr, at(start, stop)))), False
    flat = _line(array)
    pick = None if flat is None else lambda wanted: _bytes(flat[_chosen(flat.size, wanted)])
    walk.buffer(array.size, array.nbytes, lambda start, stop: _bytes(at(start, stop)), pick)
    return head, None, False


def _flat(array: Any) -> Callable[[int, int], Any]:
    """Give a function for ranges of the items in the order of the indices, whatever the layout."""
    flat, whole = _line(array), array.size
    if flat is not None:
        return lambda start, stop: flat[start:stop]
    return lambda start, stop: (
        array.reshape(-1) if stop - start == whole else array.flat[start:stop]
    )


def _line(array: Any) -> Any:
    """Give a view of the items in the order of the indices; None where that would be a copy."""
    if array.ndim == 1:
        return array
    return array.reshape(-1) if array.flags.c_contiguous else None


@functools.lru_cache(maxsize=2)  # the columns of a table follow each other
def _chosen(length: int, wanted: int) -> Any:
    """Give the positions of a sample."""
    numpy = sys.modules["numpy"]
    return numpy.concatenate([numpy.arange(*ends) for ends in blocks(length, wanted)])


def _bytes(array: Any) -> Any:
    numpy = sys.modules["numpy"]
    if not array.size:
        return b""
    return numpy.ascontiguousarray(array).view(numpy.uint8).data


def _scalar(walk: Walk, value: Any) -> Parts:
    numpy = sys.modules["numpy"]
    return ("scalar",), [Content(_items(walk, numpy.asarray(value).reshape(1)))], False


def _dtype(walk: Walk, value: Any) -> Parts:
    return ("dtype", repr(value)), None, False


def _ufunc(walk: Walk, value: Any) -> Parts:
    return ("ufunc", value.__name__), None, False


def _generator(walk: Walk, value: Any) -> Parts:
    return ("Generator",), [value.bit_generator], True


def _bit_generator(walk: Walk, value: Any) -> Parts:
    return ("BitGenerator",), [value.state], True


def _random_state(walk: Walk, value: Any) -> Parts:
    return ("RandomState",), [value.get_state(legacy=False)], True


def _frame(walk: Walk, value: Any) -> Parts:
    columns = [Content(_column(walk, column)) for column in value._iter_column_arrays()]
    own = [value.columns, value.index, value.attrs, value.flags.allows_duplicate_labels]
    return ("DataFrame", *value.shape), [*own, *_subclass(value, "DataFrame"), *columns], True


def _series(walk: Walk, value: Any) -> Parts:
    column = Content(_column(walk, value._values))
    own = [value.index, value.name, value.attrs, value.flags.allows_duplicate_labels]
    return ("Series", len(value)), [column, *own, *_subclass(value, "Series")], True


def _subclass(value: Any, plain: str) -> list[Any]:
    """Give what a class of the session's adds to a table."""
    if type(value).__name__ == plain:
        return []
    fields = object.__getattribute__(value, "__dict__").items()
    own = {name: part for name, part in fields if name not in ("_mgr", "_attrs", "_flags")}
    return [type(value), *own, *own.values()]


def _index(walk: Walk, value: Any) -> Parts:
    kind = type(value).__name__
    if kind == "RangeIndex":
        return (kind, value.start, value.stop, value.step), [value.name], False
    if kind == "MultiIndex":
        codes = [Content(_items(walk, part)) for part in value._codes]
        return (kind, len(value)), [*value._levels, *codes, *value._names], False
    freq = getattr(value, "_freq", None)  # which its data had before pandas 3.1
    own = [value._name] if freq is None else [value._name, freq.freqstr]
    return (kind, len(value)), [Content(_column(walk, value._data)), *own], False


def _column(walk: Walk, array: Any) -> Parts:
    """Tell the values of a column: an array of numpy's or one of pandas' own classes."""
    if type(array).__name__ == "ndarray":
        return _items(walk, array)
    kind = type(array).__name__
    head = (kind, dtype_name(array.dtype), len(array))
    if hasattr(array, "_pa_array"):
        return head, [Content(_chunked(walk, array._pa_array))], False
    if kind == "Categorical":
        parts = [array.dtype.categories, array.dtype.ordered, Content(_items(walk, array._codes))]
        return head, parts, False
    if hasattr(array, "_ndarray"):
        freq = getattr(array, "_freq", None)
        freq = None if freq is None else freq.freqstr
        return head, [Content(_items(walk, array._ndarray)), freq], False
    if hasattr(array, "_mask"):
        return head, [Content(_masked(walk, array._data, array._mask))], False
    if hasattr(array, "_left"):
        sides = (array._left, array._right)
        return head, [Content(_column(walk, getattr(s, "_data", s))) for s in sides], False
    if hasattr(array, "_sparse_values"):
        places = array._sparse_index.to_int_index().indices
        return head, [array.fill_value, array._sparse_values, places], False
    walk.leave(kind)
    return head, None, False


def _masked(walk: Walk, data: Any, mask: Any) -> Parts:
    """Tell values and which are missing; what lies below a mask is nobody's."""

    def fetch(start: int, stop: int) -> Any:
        values = data[start:stop].copy()
        values[mask[start:stop]] = 0
        return _bytes(values)

    walk.buffer(len(data), data.nbytes, fetch)
    walk.buffer(len(mask), mask.nbytes, lambda start, stop: _bytes(mask[start:stop]))
    return ("masked", str(data.dtype), len(data)), None, False


def _time(walk: Walk, value: Any) -> Parts:
    if type(value).__name__ == "NaTType":
        return ("NaT",), None, False
    return (type(value).__name__, value._value, value.unit), [getattr(value, "tz", None)], False


def _period(walk: Walk, value: Any) -> Parts:
    return ("Period", value.ordinal, value.freqstr), None, False


def _interval(walk: Walk, value: Any) -> Parts:
    return ("Interval", value.closed), [value.left, value.right], False


def _named(walk: Walk, value: Any) -> Parts:
    return (type(value).__name__, str(value)), None, False


def _polars_frame(walk: Walk, value: Any) -> Parts:
    columns = value.get_columns()
    head = ("polars", *value.shape, *(column.name for column in columns))
    return head, [Content(_polars_column(walk, column)) for column in columns], True


def _polars_series(walk: Walk, value: Any) -> Parts:
    return ("series", value.name), [Content(_polars_column(walk, value))], True


def _polars_column(walk: Walk, series: Any) -> Parts:
    length = len(series)
    head = ("column", str(series.dtype), length)
    numeric = series.dtype.is_integer() or series.dtype.is_float()
    numeric = numeric and not str(series.dtype).endswith("128")  # numpy has none of that size
    if numeric and not series.null_count():
        size = series.estimated_size()
        walk.buffer(length, size, lambda start, stop: _bytes(series[start:stop].to_numpy()))
        return head, None, False
    return head, ranged(length, lambda start, stop: series[start:stop].to_list()), False


def _arrow_table(walk: Walk, value: Any) -> Parts:
    columns: list[Any] = [Content(_chunked(walk, column)) for column in value.columns]
    columns += [value.schema.metadata] if value.schema.metadata else []
    return ("arrow", value.num_rows, *value.schema.names), columns, False


def _chunked(walk: Walk, array: Any) -> Parts:
    """Tell a column of Arrow's, whose chunks, offsets and padding are nobody's business."""
    types = sys.modules["pyarrow"].types
    kind = array.type
    head = ("chunked", str(kind), len(array))
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if any(is_text(kind) for is_text in texts):
        width = 8 if types.is_large_string(kind) or types.is_large_binary(kind) else 4
        size = sum(_ends(chunk, width)[-1] - _ends(chunk, width)[0] for chunk in _chunks(array))
        size = int(size) + 8 * len(array)
        walk.buffer(len(array), size, lambda start, stop: _texts(array, start, stop, width))
        return head, None, False
    if types.is_integer(kind) or types.is_float64(kind) or types.is_float32(kind):
        size = len(array) * kind.bit_width // 8
        walk.buffer(len(array), size, lambda start, stop: _numbers(array, start, stop))
        return head, None, False
    return head, ranged(len(array), lambda start, stop: array[start:stop].to_pylist()), False


def _texts(array: Any, start: int, stop: int, width: int) -> bytes:
    """Give which texts are there, how long each is, and all of them."""
    numpy = sys.modules["numpy"]
    found: list[list[bytes]] = [[], [], []]
    for chunk in _chunks(array[start:stop]):
        found[0].append(_valid(chunk))
        # A missing text may have a length, and then has bytes.
        empty = "" if "string" in str(chunk.type) else b""
        filled = chunk.fill_null(empty) if chunk.null_count else chunk
        ends, data = _ends(filled, width), filled.buffers()[2]
        found[1].append(numpy.diff(ends).astype(numpy.int64).tobytes())
        found[2].append(memoryview(data)[ends[0] : ends[-1]].tobytes() if data else b"")
    return b"".join(part for parts in found for part in parts)


def _ends(chunk: Any, width: int) -> Any:
    """Give where each text of a chunk ends in its data, and before that where the first begins."""
    numpy = sys.modules["numpy"]
    kind = numpy.int64 if width == 8 else numpy.int32
    return numpy.frombuffer(chunk.buffers()[1], kind)[chunk.offset :][: len(chunk) + 1]


def _numbers(array: Any, start: int, stop: int) -> bytes:
    numpy = sys.modules["numpy"]
    found: list[list[bytes]] = [[], []]
    for chunk in _chunks(array[start:stop]):
        found[0].append(_valid(chunk))
        filled = chunk.fill_null(0) if chunk.null_count else chunk
        found[1].append(numpy.ascontiguousarray(filled.to_numpy()).tobytes())
    return b"".join(part for parts in found for part in parts)


def _chunks(array: Any) -> list[Any]:
    chunks = array.chunks if hasattr(array, "chunks") else [array]
    return [chunk for chunk in chunks if len(chunk)]


def _valid(chunk: Any) -> bytes:
    """Give a byte for each value: whether it is there."""
    if not chunk.null_count:
        return b"\x01" * len(chunk)
    return bytes(chunk.is_valid().to_numpy(zero_copy_only=False).tobytes())


TABLES: dict[tuple[str, str], Callable[[Walk, Any], Parts]] = {
    ("numpy", "ndarray"): _array,
    ("numpy", "generic"): _scalar,
    ("numpy", "dtype"): _dtype,
    ("numpy", "ufunc"): _ufunc,
    ("numpy", "Generator"): _generator,
    ("numpy", "BitGenerator"): _bit_generator,
    ("numpy", "RandomState"): _random_state,
    ("pandas", "DataFrame"): _frame,
    ("pandas", "Series"): _series,
    ("pandas", "Index"): _index,
    ("pandas", "ExtensionArray"): lambda walk, value: (
        ("extension",),
        [Content(_column(walk, value))],
        True,
    ),
    ("pandas", "ExtensionDtype"): _named,
    ("pandas", "_Timestamp"): _time,
    ("pandas", "_Timedelta"): _time,
    ("pandas", "_NaT"): _time,
    ("pandas", "_Period"): _period,
    ("pandas", "Interval"): _interval,
    ("pandas", "NAType"): _named,
    ("pandas", "BaseOffset"): _named,
    ("polars", "DataFrame"): _polars_frame,
    ("polars", "Series"): _polars_series,
    ("polars", "DataType"): _named,
    ("pyarrow", "Table"): _arrow_table,
    ("pyarrow", "RecordBatch"): _arrow_table,
    ("pyarrow", "ChunkedArray"): lambda walk, value: (
        ("arrow",),
        [Content(_chunked(walk, value))],
        False,
    ),
    ("pyarrow", "Array"): lambda walk, value: (
        ("arrow",),
        [Content(_chunked(walk, value))],
        False,
    ),
    ("pyarrow", "DataType"): _named,
    ("pyarrow", "Schema"): _named,
    ("zoneinfo", "ZoneInfo"): _named,
    ("typing", "_SpecialForm"): _named,
    ("typing", "TypeVar"): lambda walk, value: (("TypeVar", value.__name__), None, False),
}
"""How to look into values of other packages, by package and name of a class they derive from."""
