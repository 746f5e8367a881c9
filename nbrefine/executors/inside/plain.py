"""Values as JSON: exact built-in types and nothing else, so that a value does what Python does.

None, booleans, integers of 64 bits, finite floats and most strings stand for themselves; all else
is a list of a tag and what it takes. Lists, dictionaries and their like are numbered in the order
in which they are met, so that what is held twice, or by itself, is one object again. What is not
plain is the caller's matter: it gives a list with a tag of its own, or refuses.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from .frames import LIMIT
from .kinds import (
    CONTENTS,
    FILLERS,
    NAMED,
    NAMES,
    OPEN,
    PACKERS,
    TAGS,
    UNPACKERS,
    Malformed,
    Unsendable,
    array,
    from_array,
    numpy_packer,
    text,
    whole,
)

DEPTH = 150
"""How many levels a value may have: each takes up to five frames of the 1,000 of a stack."""
PARTS = 2_000_000
"""How many values a value may hold."""

_WIDE = 1 << 63


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
            return value if value.isascii() and len(value) < LIMIT else text(value)
        if kind is int:
            return value if -_WIDE <= value < _WIDE else ["i", hex(value)]
        if value is None or kind is bool:
            return value
        if kind is float:
            return value if value - value == 0 else ["f", repr(value)]
        packer = PACKERS.get(kind)
        return self._object(value) if packer is None else packer(self, value)

    def _object(self, value: Any) -> Any:
        packer = numpy_packer(value)
        if packer is not None:
            return packer(self, value)
        if type(value) in NAMED and id(value) in NAMES:
            return ["g", NAMES[id(value)]]
        return self._foreign(self, value)

    def content(self, value: Any) -> Any:
        """Give what a list or its like holds, also where the other end has an older state of it."""
        packer = CONTENTS.get(type(value))
        return array(value) if packer is None else packer(self, value)

    def items(self, values: Iterable[Any]) -> list[Any]:
        """Pack what a container holds.

        Raises
        ------
        Unsendable: it is too deep, too large, or holds what cannot be sent.
        """
        self._depth += 1
        if self._depth > DEPTH:
            raise Unsendable(f"the value is too deep to be judged (over {DEPTH} levels)")
        pack, packed = self.pack, []
        for value in values:  # no comprehension: it would take a frame of the stack for each level
            packed.append(pack(value))  # noqa: PERF401
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
        if tag == "t":
            number = len(self.held)
            self.held.append(OPEN)
            self.held[number] = whole = tuple(self.items(data[1]))
            return whole
        unpacker = UNPACKERS.get(tag)
        return self._foreign(self, data) if unpacker is None else unpacker(self, data)

    def items(self, data: Any) -> list[Any]:
        """Unpack what a container holds."""
        unpack, found = self.unpack, []
        for item in data:
            found.append(unpack(item) if type(item) is list else _scalar(item))  # noqa: PERF401
        return found

    def refill(self, target: Any, data: Any) -> None:
        """Give a list or its like the content that `Packer.content` told."""
        tag = data[0]
        if TAGS.get(type(target)) == tag:
            target.clear()
            FILLERS[tag](self, target, data)
        elif tag == "N":
            target[...] = from_array(data)
        else:
            raise Malformed(f"a {type(target).__name__} cannot become a {tag!r}")

    def new(self, target: Any, data: Any) -> Any:
        """Number a container that is made, then fill it, as it may hold itself."""
        self.held.append(target)
        FILLERS[data[0]](self, target, data)
        return target

    def reference(self, data: Any) -> Any:
        """Give what was numbered."""
        table = self.held if data[0] == "r" else self._known
        number = whole(data[1])
        if not 0 <= number < len(table) or table[number] is OPEN:
            raise Malformed("a reference to nothing")
        return table[number]


def become(target: Any, content: Any) -> None:
    """Give a list or its like the content of another of its class, and let it stay itself."""
    items = copy.copy(content)
    target.clear()
    (target.extend if hasattr(target, "extend") else target.update)(items)


def is_container(value: Any) -> bool:
    """Tell whether a value is a list, or its like, that tests may change where it is held."""
    return type(value) in CONTENTS


def is_mutable(value: Any) -> bool:
    """Tell whether a numbered value may change in place."""
    kind = type(value)
    return kind is not tuple and kind is not frozenset


def _scalar(value: Any) -> Any:
    if type(value) is dict:
        raise Malformed("a value is no object of JSON")
    return value
