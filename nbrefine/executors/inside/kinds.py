"""The kinds of values that are plain: for each how it is packed, how it is made again.

A kind is told by its exact class. What may change in place is made empty and filled afterwards,
also when it exists already and has a new content.
"""

from __future__ import annotations

import binascii
import builtins
import collections
import datetime as dt
import decimal
import fractions
import math
import pathlib
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .frames import LIMIT

if TYPE_CHECKING:
    from .plain import Packer, Unpacker
OPEN = object()
"""Stands for a tuple or frozenset that is not there yet."""


class Unsendable(Exception):
    """A value that cannot be sent to the other process, with the reason."""


class CannotSend(BaseException):
    """The tests do what they cannot with code that is in another process, with the reason.

    Not an `Exception`, or a test that waits for one of the code's would take this for it.
    """


class Malformed(Exception):
    """What came is not what `Packer` makes."""


def whole(value: Any) -> int:
    """Give an integer, and refuse all else."""
    if type(value) is list and value[:1] == ["i"]:
        value = int(value[1], 16)
    if type(value) is not int:
        raise Malformed("no integer where one must be")
    return value


def string(value: Any) -> str:
    """Give a string, and refuse all else."""
    if type(value) is list and value[:1] == ["s"]:
        value = _from_text(value)
    if type(value) is not str:
        raise Malformed("no string where one must be")
    return value


def text(value: str) -> Any:
    """Pack a string that is not all ASCII, or long."""
    if len(value) >= LIMIT:
        raise Unsendable(f"the value is too large to be judged (over {LIMIT:,} characters)")
    try:
        value.encode()
    except UnicodeEncodeError:  # two lone surrogates in a row would come out of JSON as one
        return ["s", _base64(value.encode("utf-32-le", "surrogatepass"))]
    return value


def _from_text(data: Any) -> str:
    return binascii.a2b_base64(data[1]).decode("utf-32-le", "surrogatepass")


def _base64(data: Any) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _from_complex(unpacker: Unpacker, data: Any) -> complex:
    real, imaginary = unpacker.items(data[1])
    if type(real) is not float or type(imaginary) is not float:
        raise Malformed("no floats in a complex number")
    return complex(real, imaginary)


def _from_decimal(data: Any) -> decimal.Decimal:
    return decimal.Decimal(string(data[1]))


def _pairs(mapping: dict[Any, Any]) -> Iterable[Any]:
    for key, value in dict.items(mapping):
        yield key
        yield value


def _from_frozen(unpacker: Unpacker, data: Any) -> frozenset[Any]:
    number = len(unpacker.held)
    unpacker.held.append(OPEN)
    unpacker.held[number] = made = frozenset(unpacker.items(data[1]))
    return made


def _fill(unpacker: Unpacker, target: Any, data: Any) -> None:
    """Fill a list, a deque or a set."""
    items = unpacker.items(data[1])
    if type(target) is set:
        target.update(set(items))  # at once, as a literal is made: its order depends on that
    else:
        target.extend(items)


def _fill_pairs(unpacker: Unpacker, target: Any, data: Any) -> None:
    items = unpacker.items(data[1])
    if len(items) % 2:
        raise Malformed("a key without a value")
    put = (
        dict.__setitem__
        if type(target) is not collections.OrderedDict
        else type(target).__setitem__
    )
    for place in range(0, len(items), 2):
        put(target, items[place], items[place + 1])


def _fill_bytes(unpacker: Unpacker, target: bytearray, data: Any) -> None:
    target.extend(binascii.a2b_base64(data[1]))


def _list(packer: Packer, value: list[Any]) -> list[Any]:
    return ["l", packer.items(value)]


def _set(packer: Packer, value: set[Any]) -> list[Any]:
    return ["S", packer.items(value)]


def _dict(packer: Packer, value: dict[Any, Any]) -> list[Any]:
    return ["d", packer.items(_pairs(value))]


def _ordered(packer: Packer, value: Any) -> list[Any]:
    return ["O", packer.items(_pairs(value))]


def _counter(packer: Packer, value: Any) -> list[Any]:
    return ["C", packer.items(_pairs(value))]


def _default(packer: Packer, value: Any) -> list[Any]:
    factory = value.default_factory
    return ["D", packer.items(_pairs(value)), NAMES.get(id(factory))]


def _deque(packer: Packer, value: Any) -> list[Any]:
    return ["q", packer.items(value), value.maxlen]


def _bytearray(packer: Packer, value: bytearray) -> list[Any]:
    return ["B", _base64(value)]


CONTENTS: dict[type, Callable[[Packer, Any], list[Any]]] = {
    list: _list,
    set: _set,
    dict: _dict,
    collections.OrderedDict: _ordered,
    collections.Counter: _counter,
    collections.defaultdict: _default,
    collections.deque: _deque,
    bytearray: _bytearray,
}
FILLERS: dict[str, Callable[[Unpacker, Any, Any], None]] = {
    "l": _fill,
    "S": _fill,
    "q": _fill,
    "d": _fill_pairs,
    "O": _fill_pairs,
    "C": _fill_pairs,
    "D": _fill_pairs,
    "B": _fill_bytes,
}
TAGS: dict[type, str] = {
    list: "l",
    set: "S",
    dict: "d",
    collections.OrderedDict: "O",
    collections.Counter: "C",
    collections.defaultdict: "D",
    collections.deque: "q",
    bytearray: "B",
}


def _numbering(content: Callable[[Packer, Any], list[Any]]) -> Callable[[Packer, Any], list[Any]]:
    def pack(packer: Packer, value: Any) -> list[Any]:
        return packer.numbered(value) or content(packer, value)

    return pack


def _empty_default(data: Any) -> Any:
    factory = None if data[2] is None else _VALUES[data[2]]
    return collections.defaultdict(factory)


def _empty_deque(data: Any) -> Any:
    return collections.deque(maxlen=None if data[2] is None else whole(data[2]))


# Views of dictionaries: a test may iterate them, ask for their length, and compare those of keys


def _from_view(unpacker: Unpacker, data: Any) -> Any:
    items = unpacker.items(data[2])
    if data[1] == "keys":
        return dict.fromkeys(items).keys()
    if data[1] == "values":
        return dict(enumerate(items)).values()
    return dict(items).items()


def _fixed_zone(value: Any) -> bool:
    return value.tzinfo is None or type(value.tzinfo) is dt.timezone


def _moment(tag: str) -> Callable[[Packer, Any], list[Any]]:
    def pack(packer: Packer, value: Any) -> list[Any]:
        if not _fixed_zone(value):
            return packer._foreign(packer, value)  # noqa: SLF001  these functions are its methods
        return [tag, value.isoformat(), value.fold]

    return pack


def _from_moment(kind: Any) -> Callable[[Unpacker, Any], Any]:
    def unpack(unpacker: Unpacker, data: Any) -> Any:
        return kind.fromisoformat(string(data[1])).replace(fold=1 if data[2] == 1 else 0)

    return unpack


def numpy_packer(value: Any) -> Callable[[Packer, Any], Any] | None:
    """Give what packs an array or scalar of numpy, None for anything else."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if _is_array(numpy, value):
        return _numbering(lambda packer, item: array(item))
    return _pack_scalar if _is_scalar(numpy, value) else None


def _pack_scalar(packer: Packer, value: Any) -> list[Any]:
    return ["n", value.dtype.str, _base64(value.tobytes())]


def _is_array(numpy: Any, value: Any) -> bool:
    kind = type(value)
    return kind is getattr(numpy, "ndarray", None) and value.dtype.kind in "biufcSUMm"


def _is_scalar(numpy: Any, value: Any) -> bool:
    generic = getattr(numpy, "generic", None)
    kind = type(value)
    return (
        generic is not None
        and kind.__module__ == "numpy"
        and generic in kind.__mro__
        and value.dtype.kind in "biufcSUMm"
    )


def array(value: Any) -> list[Any]:
    """Pack an array."""
    return ["N", value.dtype.str, list(value.shape), _base64(value.tobytes())]


def _dtype(text: Any) -> str:
    if not re.fullmatch(r"[<>|=][biufcSUMm][0-9]+(\[[0-9]*[a-zA-Z]+\])?", string(text)):
        raise Malformed("no type of numbers")
    return string(text)


def from_array(data: Any) -> Any:
    """Make an array."""
    import numpy as np

    shape = tuple(whole(size) for size in data[2])
    flat = np.frombuffer(binascii.a2b_base64(data[3]), dtype=_dtype(data[1]))
    return flat.reshape(shape).copy()


def _from_scalar(data: Any) -> Any:
    import numpy as np

    return np.frombuffer(binascii.a2b_base64(data[2]), dtype=_dtype(data[1]))[0]


def _numbered_array(unpacker: Unpacker, data: Any) -> Any:
    unpacker.held.append(from_array(data))
    return unpacker.held[-1]


# Classes and functions of Python's own go by their names; those that run code, import it or open
# files are left out.

NAMED = (type, types.BuiltinFunctionType)
_VALUES: dict[str, Any] = {
    name: value
    for name, value in vars(builtins).items()
    if (isinstance(value, type) and not name.startswith("_"))
    or name
    in [
        "abs",
        "all",
        "any",
        "ascii",
        "bin",
        "callable",
        "chr",
        "divmod",
        "format",
        "hash",
        "hex",
        "id",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "max",
        "min",
        "next",
        "oct",
        "ord",
        "pow",
        "repr",
        "round",
        "sorted",
        "sum",
    ]
}
NAMES = {id(value): name for name, value in _VALUES.items()}

PACKERS: dict[type, Callable[[Packer, Any], Any]] = {
    **{kind: _numbering(content) for kind, content in CONTENTS.items()},
    tuple: lambda packer, value: packer.fixed(value, "t"),
    frozenset: lambda packer, value: packer.fixed(value, "F"),
    bytes: lambda packer, value: ["b", _base64(value)],
    complex: lambda packer, value: ["c", packer.items((value.real, value.imag))],
    range: lambda packer, value: ["R", packer.items((value.start, value.stop, value.step))],
    slice: lambda packer, value: ["z", packer.items((value.start, value.stop, value.step))],
    type(...): lambda packer, value: ["."],
    type(NotImplemented): lambda packer, value: ["!"],
    type({}.keys()): lambda packer, value: ["v", "keys", packer.items(value)],
    type({}.values()): lambda packer, value: ["v", "values", packer.items(value)],
    type({}.items()): lambda packer, value: ["v", "items", packer.items(value)],
    fractions.Fraction: lambda packer, value: [
        "Q",
        packer.items((value.numerator, value.denominator)),
    ],
    decimal.Decimal: lambda packer, value: ["$", str(value)],
    dt.datetime: _moment("T"),
    dt.time: _moment("m"),
    dt.date: lambda packer, value: ["y", value.isoformat()],
    dt.timedelta: lambda packer, value: [
        "p",
        [value.days, value.seconds, value.microseconds],
    ],
    uuid.UUID: lambda packer, value: ["u", value.hex],
    pathlib.PurePosixPath: lambda packer, value: ["/", packer.pack(str(value)), False],
    pathlib.PosixPath: lambda packer, value: ["/", packer.pack(str(value)), True],
}
UNPACKERS: dict[Any, Callable[[Unpacker, Any], Any]] = {
    "r": lambda unpacker, data: unpacker.reference(data),
    "a": lambda unpacker, data: unpacker.reference(data),
    "i": lambda unpacker, data: whole(data),
    "f": lambda unpacker, data: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[data[1]],
    "s": lambda unpacker, data: _from_text(data),
    "b": lambda unpacker, data: binascii.a2b_base64(data[1]),
    "c": _from_complex,
    "F": _from_frozen,
    "S": lambda unpacker, data: unpacker.new(set(), data),
    "d": lambda unpacker, data: unpacker.new({}, data),
    "O": lambda unpacker, data: unpacker.new(collections.OrderedDict(), data),
    "C": lambda unpacker, data: unpacker.new(collections.Counter(), data),
    "D": lambda unpacker, data: unpacker.new(_empty_default(data), data),
    "q": lambda unpacker, data: unpacker.new(_empty_deque(data), data),
    "B": lambda unpacker, data: unpacker.new(bytearray(), data),
    "N": _numbered_array,
    "n": lambda unpacker, data: _from_scalar(data),
    "R": lambda unpacker, data: range(*map(whole, data[1])),
    "z": lambda unpacker, data: slice(*unpacker.items(data[1])),
    ".": lambda unpacker, data: ...,
    "!": lambda unpacker, data: NotImplemented,
    "v": _from_view,
    "g": lambda unpacker, data: _VALUES[data[1]],
    "Q": lambda unpacker, data: fractions.Fraction(*map(whole, data[1])),
    "$": lambda unpacker, data: _from_decimal(data),
    "T": _from_moment(dt.datetime),
    "m": _from_moment(dt.time),
    "y": lambda unpacker, data: dt.date.fromisoformat(string(data[1])),
    "p": lambda unpacker, data: dt.timedelta(*map(whole, data[1])),
    "u": lambda unpacker, data: uuid.UUID(hex=string(data[1])),
    "/": lambda unpacker, data: (pathlib.PosixPath if data[2] else pathlib.PurePosixPath)(
        string(data[1])
    ),
}
