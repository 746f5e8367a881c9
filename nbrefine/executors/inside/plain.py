"""Values as JSON: exact built-in types and nothing else, so that a value does what Python does.

None, booleans, integers of 64 bits, finite floats and most strings stand for themselves; all else
is a list of a tag and what it takes. Lists, dictionaries and their like are numbered in the order
in which they are met, so that what is held twice, or by itself, is one object again. What is not
plain is the caller's matter: it gives a list with a tag of its own, or refuses.
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
from typing import Any

DEPTH = 200
"""How many levels a value may have: JSON has two for each, and Python's stack 1,000."""
PARTS = 2_000_000
"""How many values a value may hold."""

_WIDE = 1 << 63
_OPEN = object()  # in the place of a tuple that is not there yet


class Unsendable(Exception):
    """A value that cannot be sent to the other process, with the reason."""


class Malformed(Exception):
    """What came is not what `Packer` makes."""


class Packer:
    """Turns the values of one message into JSON.

    Parameters
    ----------
    foreign: gives the list for a value that is not plain, or raises `Unsendable`.
    known: what the other end holds already, by `id`: the numbers it goes by there.
    """

    def __init__(
        self,
        foreign: Callable[[Packer, Any], list[Any]],
        known: dict[int, int] | None = None,
    ) -> None:
        self.held: list[Any] = []
        """What was numbered, in order."""
        self._foreign = foreign
        self._known = known or {}
        self._numbers: dict[int, int] = {}
        self._unfinished: set[int] = set()
        self._depth = 0
        self._parts = 0

    def pack(self, value: Any) -> Any:
        """Give a value as JSON.

        Raises
        ------
        Unsendable: it is too deep, too large, or holds what cannot be sent.
        """
        kind = type(value)
        if kind is str:
            return value if value.isascii() else _text(value)
        if kind is int:
            return value if -_WIDE <= value < _WIDE else ["i", hex(value)]
        if value is None or kind is bool:
            return value
        if kind is float:
            return value if value - value == 0 else ["f", repr(value)]
        return self._object(value)

    def _object(self, value: Any) -> Any:
        packer = _PACKERS.get(type(value)) or _numpy_packer(value)
        if packer is not None:
            return packer(self, value)
        if type(value) in _CLASSES and id(value) in _NAMES:
            return ["g", _NAMES[id(value)]]
        return self._foreign(self, value)

    def content(self, value: Any) -> Any:
        """Give what a list or its like holds, also where the other end has an older state of it."""
        packer = _CONTENTS.get(type(value))
        return _array(value) if packer is None else packer(self, value)

    def items(self, values: Iterable[Any]) -> list[Any]:
        """Pack what a container holds.

        Raises
        ------
        Unsendable: it is too deep, too large, or holds what cannot be sent.
        """
        self._depth += 1
        if self._depth > DEPTH:
            raise Unsendable(f"the value is too deep to be judged (over {DEPTH} levels)")
        pack = self.pack
        packed = [pack(value) for value in values]
        self._depth -= 1
        self._parts += len(packed)
        if self._parts > PARTS:
            raise Unsendable(f"the value is too large to be judged (over {PARTS:,} parts)")
        return packed

    def numbered(self, value: Any) -> list[Any] | None:
        """Number a container that may change; give a reference where it has a number."""
        return self._numbered(value)

    def _numbered(self, value: Any) -> list[Any] | None:
        place = id(value)
        if place in self._known:
            return ["a", self._known[place]]
        number = self._numbers.get(place)
        if number is None:
            self._numbers[place] = len(self.held)
            self.held.append(value)
            return None
        if place in self._unfinished:
            raise Unsendable("a tuple that holds itself cannot be judged")
        return ["r", number]

    def fixed(self, value: Any, tag: str) -> list[Any]:
        """Pack a tuple or frozenset, which is whole only when all it holds is there."""
        reference = self._numbered(value)
        if reference is not None:
            return reference
        self._unfinished.add(id(value))
        packed = self.items(value)
        self._unfinished.discard(id(value))
        return [tag, packed]


class Unpacker:
    """Turns the JSON of one message into values.

    Parameters
    ----------
    foreign: gives the value for a list whose tag is not known here, or raises `Malformed`.
    known: what this end holds already, by the numbers that the other end knows it by.
    """

    def __init__(
        self,
        foreign: Callable[[Unpacker, list[Any]], Any],
        known: list[Any] | None = None,
    ) -> None:
        self.held: list[Any] = []
        """What was numbered, in order."""
        self._foreign = foreign
        self._known = known or []

    def unpack(self, data: Any) -> Any:
        """Give the value that JSON stands for.

        Raises
        ------
        Malformed: it stands for none; other errors of the types it names may come too.
        """
        if type(data) is not list:
            if type(data) is dict:
                raise Malformed("a value is no object of JSON")
            return data
        tag = data[0]
        if tag == "l":
            new: list[Any] = []
            self.held.append(new)
            new.extend(self.items(data[1]))
            return new
        unpacker = _UNPACKERS.get(tag)
        return self._foreign(self, data) if unpacker is None else unpacker(self, data)

    def items(self, data: Any) -> list[Any]:
        """Unpack what a container holds."""
        unpack = self.unpack
        return [unpack(item) if type(item) is list else _scalar(item) for item in data]

    def refill(self, target: Any, data: Any) -> None:
        """Give a list or its like the content that `Packer.content` told."""
        tag = data[0]
        if _TAGS.get(type(target)) == tag:
            target.clear()
            _FILLERS[tag](self, target, data)
        elif tag == "N":
            target[...] = _from_array(data)
        else:
            raise Malformed(f"a {type(target).__name__} cannot become a {tag!r}")

    def new(self, target: Any, data: Any) -> Any:
        """Number a container that is made, then fill it, as it may hold itself."""
        self.held.append(target)
        _FILLERS[data[0]](self, target, data)
        return target

    def fixed(self, kind: Callable[[list[Any]], Any], data: Any) -> Any:
        """Make a tuple or frozenset."""
        number = len(self.held)
        self.held.append(_OPEN)
        self.held[number] = made = kind(self.items(data[1]))
        return made

    def reference(self, data: Any) -> Any:
        """Give what was numbered."""
        table = self.held if data[0] == "r" else self._known
        number = whole(data[1])
        if not 0 <= number < len(table) or table[number] is _OPEN:
            raise Malformed("a reference to nothing")
        return table[number]


def is_mutable(value: Any) -> bool:
    """Tell whether a numbered value may change in place."""
    kind = type(value)
    return kind is not tuple and kind is not frozenset


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


def _scalar(value: Any) -> Any:
    if type(value) is dict:
        raise Malformed("a value is no object of JSON")
    return value


# Text and numbers


def _text(value: str) -> Any:
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


# Containers


def _pairs(mapping: dict[Any, Any]) -> Iterable[Any]:
    for key, value in dict.items(mapping):
        yield key
        yield value


def _fill(unpacker: Unpacker, target: Any, data: Any) -> None:
    """Fill a list, a deque or a set."""
    add = target.add if type(target) is set else target.append
    for item in unpacker.items(data[1]):
        add(item)


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
    return ["D", packer.items(_pairs(value)), _NAMES.get(id(factory))]


def _deque(packer: Packer, value: Any) -> list[Any]:
    return ["q", packer.items(value), value.maxlen]


def _bytearray(packer: Packer, value: bytearray) -> list[Any]:
    return ["B", _base64(value)]


_CONTENTS: dict[type, Callable[[Packer, Any], list[Any]]] = {
    list: _list,
    set: _set,
    dict: _dict,
    collections.OrderedDict: _ordered,
    collections.Counter: _counter,
    collections.defaultdict: _default,
    collections.deque: _deque,
    bytearray: _bytearray,
}
_FILLERS: dict[str, Callable[[Unpacker, Any, Any], None]] = {
    "l": _fill,
    "S": _fill,
    "q": _fill,
    "d": _fill_pairs,
    "O": _fill_pairs,
    "C": _fill_pairs,
    "D": _fill_pairs,
    "B": _fill_bytes,
}
_TAGS: dict[type, str] = {
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
        reference = packer.numbered(value)
        return content(packer, value) if reference is None else reference

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


# Moments


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


# numpy


def _numpy_packer(value: Any) -> Callable[[Packer, Any], Any] | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if _is_array(numpy, value):
        return _numbering(lambda packer, array: _array(array))
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


def _array(value: Any) -> list[Any]:
    return ["N", value.dtype.str, list(value.shape), _base64(value.tobytes())]


def _dtype(text: Any) -> str:
    if not re.fullmatch(r"[<>|=][biufcSUMm][0-9]+(\[[0-9]*[a-zA-Z]+\])?", string(text)):
        raise Malformed("no type of numbers")
    return string(text)


def _from_array(data: Any) -> Any:
    import numpy as np

    shape = tuple(whole(size) for size in data[2])
    flat = np.frombuffer(binascii.a2b_base64(data[3]), dtype=_dtype(data[1]))
    return flat.reshape(shape).copy()


def _from_scalar(data: Any) -> Any:
    import numpy as np

    return np.frombuffer(binascii.a2b_base64(data[2]), dtype=_dtype(data[1]))[0]


def _numbered_array(unpacker: Unpacker, data: Any) -> Any:
    unpacker.held.append(_from_array(data))
    return unpacker.held[-1]


# Classes and functions of Python's own go by their names; those that run code, import it or open
# files are left out.

_CLASSES = (type, types.BuiltinFunctionType)
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
_NAMES = {id(value): name for name, value in _VALUES.items()}

_PACKERS: dict[type, Callable[[Packer, Any], Any]] = {
    **{kind: _numbering(content) for kind, content in _CONTENTS.items()},
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
_UNPACKERS: dict[Any, Callable[[Unpacker, Any], Any]] = {
    "r": Unpacker.reference,
    "a": Unpacker.reference,
    "i": lambda unpacker, data: whole(data),
    "f": lambda unpacker, data: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[data[1]],
    "s": lambda unpacker, data: _from_text(data),
    "b": lambda unpacker, data: binascii.a2b_base64(data[1]),
    "c": _from_complex,
    "t": lambda unpacker, data: unpacker.fixed(tuple, data),
    "F": lambda unpacker, data: unpacker.fixed(frozenset, data),
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
