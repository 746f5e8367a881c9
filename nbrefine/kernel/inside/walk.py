"""A walk over all that a value consists of, which hashes what it sees and says what it did not.

It goes level by level, so that a value with too many parts is seen evenly rather than in its
first corner. What two processes with equal states would give differently has no place in the
hash: addresses, the order of sets, who interned a string, how a table lies in memory. `parts`
and `tables` know what values of a class consist of; no code of the session's classes runs.
"""

from __future__ import annotations

import hashlib
import pickle
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

NODES = 20_000
"""Parts of a value that are looked at one by one: about 10 MB of small objects."""
LEAVES = 250_000
"""Numbers, texts and the like in its containers, as many as 10 MB hold."""
BYTES = 10_000_000
"""Up to so many bytes in arrays and long texts are hashed in full."""
SAMPLE = 1_000_000
"""Bytes that are hashed of more."""
BLOCK = 64
"""Neighbouring items of an array that are sampled together."""
LONG = 1_000
"""Characters from which a text is hashed as an array is."""
CUT = 8
"""How much less than could be is looked at of what must be sampled anyway."""
PROBE = 64
"""Items by which a container that is too long is judged."""

PLAIN = frozenset((int, float, bool, str, bytes, type(None)))
"""Classes whose values pickle writes by their value alone, at the speed of C."""

_PLAIN_IDS = frozenset(map(id, PLAIN))

Head = Any
"""What tells a part from others but for its own parts: plain values and tuples of them."""

Parts = tuple[Head, Any, bool]
"""A part's head, a sized collection of its own parts or None, and whether it can be shared."""


class Lazy:
    """Items of a container that are fetched only as far as they are wanted.

    Parameters
    ----------
    length: how many there are.
    pick: gives so many of them, or some less: all, or the same choice from every equal container.
    """

    __slots__ = ("length", "pick")

    def __init__(self, length: int, pick: Callable[[int], Sequence[Any]]) -> None:
        self.length = length
        self.pick = pick

    def __len__(self) -> int:
        return self.length


class Buffer:
    """A run of items of fixed size that are hashed as bytes.

    Parameters
    ----------
    length: how many items there are.
    size: bytes of all of them.
    fetch: gives the items between two positions as objects with a contiguous buffer, or bytes.
    pick: gives those of a sample, as `blocks` chooses them, where that takes less time than to
        fetch each block.
    """

    __slots__ = ("fetch", "length", "pick", "size")

    def __init__(
        self,
        length: int,
        size: int,
        fetch: Callable[[int, int], Any],
        pick: Callable[[int], Any] | None = None,
    ) -> None:
        self.length = length
        self.size = size
        self.fetch = fetch
        self.pick = pick


class Walk:
    """One value's hash, and what of the value it speaks of.

    Parameters
    ----------
    look: gives the head of a part, its own parts, and whether it has an identity that can be
        shared; calls `buffer` and `leave` for what it has besides.
    """

    def __init__(self, look: Callable[[Walk, Any], Parts]) -> None:
        self.opaque: dict[str, None] = {}
        """Classes of the parts that count by their class alone."""
        self.sampled = False
        self.named: dict[int, str] = {}
        """Classes, by id, that count by their name alone, as a class speaks of them."""
        self._look = look
        self._hash = hashlib.blake2b(digest_size=16)
        self._dump = _dumper(self._hash.update)
        self._met: dict[int, tuple[int, Any]] = {}
        self._marked: dict[int, tuple[int, Any]] = {}
        self._buffers: list[Buffer] = []
        self._nodes = NODES
        self._leaves = LEAVES
        self._text = BYTES

    @property
    def marks(self) -> dict[int, tuple[int, Any]]:
        """Mutable objects by id: their place in the walk, and the object, to keep it alive."""
        return {**self._marked, **self._met} if self._marked else self._met

    def of(self, value: Any) -> bytes:
        """Give the hash of a value; a walk is for one value."""
        level: list[Any] = [value]
        while level:
            found = self._looked(level)
            level = self._children(found) if found else []
        self._drain()
        return self._hash.digest()

    def buffer(
        self,
        length: int,
        size: int,
        fetch: Callable[[int, int], Any],
        pick: Callable[[int], Any] | None = None,
    ) -> None:
        """Note bytes of the part that is being looked at; see `Buffer`."""
        self._buffers.append(Buffer(length, size, fetch, pick))

    def leave(self, kind: str) -> None:
        """Note that a part counts by its class alone."""
        self.opaque[kind] = None

    def mark(self, value: Any) -> bool:
        """Note a mutable object that parts share and that is none itself; tell if it is new."""
        new = id(value) not in self._marked
        if new:
            self._marked[id(value)] = (len(self._marked) + len(self._met), value)
        return new

    def place(self, value: Any) -> int:
        """Give the place at which a marked object was first met."""
        return self._marked[id(value)][0]

    def take(self, inner: Walk) -> None:
        """Note what a walk through a part has met and left out."""
        self.opaque.update(inner.opaque)
        self.named.update(inner.named)
        self.sampled = self.sampled or inner.sampled
        for _, part in inner.marks.values():
            self.mark(part)

    def _looked(self, level: list[Any]) -> list[Any]:
        """Hash the heads of a level's parts and give what consists of parts itself."""
        met, look = self._met, self._look
        heads: list[Head] = []
        found: list[Any] = []
        for value in level:
            known = met.get(id(value))
            if known is not None:
                heads.append(("again", known[0]))
                continue
            head, parts, shareable = look(self, value)
            if shareable:
                met[id(value)] = (len(met) + len(self._marked), value)
            heads.append(head)
            if parts is not None and len(parts):
                found.append(parts)
        self._dump(heads)
        return found

    def _children(self, found: list[Any]) -> list[Any]:
        """Hash the plain items of a level's containers and give the others: the next level."""
        following: list[Any] = []
        self._dump([self._items(items, following) for items in self._fitting(found)])
        if len(following) > self._nodes:  # where a probe has misjudged a container
            self.sampled = True
            following = _spread(following, self._nodes)
        self._nodes -= len(following)
        return following

    def _fitting(self, found: list[Any]) -> Iterator[Sequence[Any]]:
        """Give each container's items, fewer of the longest where all are too many."""
        if sum(map(len, found)) <= min(self._nodes, self._leaves):
            yield from (_spread(parts, len(parts)) for parts in found)
            return
        rooms = {True: self._leaves, False: self._nodes}
        lengths: dict[bool, list[int]] = {True: [], False: []}
        judged = []
        for parts in found:
            plain = PLAIN.issuperset(kinds_of(_spread(parts, PROBE)))
            judged.append((parts, plain))
            lengths[plain].append(len(parts))
        limits = {plain: _limit(lengths[plain], room) for plain, room in rooms.items()}
        for parts, plain in judged:
            if len(parts) > limits[plain]:
                self.sampled = True
            yield _spread(parts, min(len(parts), limits[plain]))

    def _items(self, items: Sequence[Any], following: list[Any]) -> Any:
        """Give the plain items of a container, with their places where there are others too."""
        kinds = kinds_of(items)
        mixed = not PLAIN.issuperset(kinds)
        if str in kinds or bytes in kinds:
            if len(items) > PROBE:
                items = self._affordable(items)
            mixed = mixed or any(map(_is_long, items))
        if not mixed:
            self._leaves = max(self._leaves - len(items), 0)
            return items
        places = bytearray()
        plain: list[Any] = []
        for item in items:
            own = _is_plain(item) and not _is_long(item)
            places.append(own)
            (plain if own else following).append(item)
        self._leaves = max(self._leaves - len(plain), 0)
        return bytes(places), plain

    def _affordable(self, items: Sequence[Any]) -> Sequence[Any]:
        """Give as many items as the room for their texts allows."""
        sizes = [len(item) for item in items if type(item) is str or type(item) is bytes]
        size = sum(length for length in sizes if length <= LONG)
        if size > self._text:
            self.sampled = True
            items = _spread(items, max(len(items) * self._text // size, PROBE))
        self._text = max(self._text - size, 0)
        return items

    def _drain(self) -> None:
        """Hash the bytes that parts have besides, in full or by sample."""
        update = self._hash.update
        total = sum(buffer.size for buffer in self._buffers)
        for buffer in self._buffers:
            length = buffer.length
            wanted = length
            if total > BYTES:
                share = int(SAMPLE * buffer.size / total)
                wanted = max(share * length // max(buffer.size, 1), 4 * BLOCK)
            if wanted >= length:
                update(buffer.fetch(0, length))
                continue
            self.sampled = True
            if buffer.pick is not None:
                update(buffer.pick(wanted))
                continue
            for start, stop in blocks(length, wanted):
                update(buffer.fetch(start, stop))


def _dumper(write: Callable[[bytes], object]) -> Callable[[Any], None]:
    # The memo would tell objects that are one from objects that are equal: for values without
    # identity, such as texts, that is chance.
    pickler = pickle.Pickler(types.SimpleNamespace(write=write), 5)
    pickler.fast = True
    return pickler.dump


def dumps(head: Any) -> bytes:
    """Give plain values, and tuples and lists of them, as bytes that equal ones share."""
    parts: list[bytes] = []
    _dumper(parts.append)(head)
    return b"".join(parts)


def kinds_of(items: Sequence[Any]) -> set[type]:
    """Give the classes of items; `{object}` where one cannot be in a set, by its metaclass."""
    try:
        return set(map(type, items))
    except Exception:  # noqa: BLE001  `__hash__` may raise anything
        return {object}


def _is_plain(item: Any) -> bool:
    return id(type(item)) in _PLAIN_IDS  # a metaclass may define `__hash__`


def _is_long(item: Any) -> bool:
    return (type(item) is str or type(item) is bytes) and len(item) > LONG


def _spread(items: Any, wanted: int) -> Any:
    """Give so many items: the first, the last and evenly spaced ones between."""
    length = len(items)
    if type(items) is Lazy:
        return items.pick(min(wanted, length))
    if wanted >= length:
        return items
    return [items[place] for place in _places(length, wanted)]


def _places(length: int, wanted: int) -> Iterator[int]:
    edge = wanted // 4
    inner = wanted - 2 * edge
    yield from range(edge)
    span = length - 2 * edge
    yield from (edge + span * place // inner for place in range(inner))
    yield from range(length - edge, length)


def blocks(length: int, wanted: int, block: int = BLOCK) -> Iterator[tuple[int, int]]:
    """Give ranges of positions: the head, the tail and evenly spaced blocks between."""
    if wanted >= length:
        yield 0, length
        return
    edge = wanted // 4
    yield 0, edge
    count = max((wanted - 2 * edge) // block, 1)
    span = length - 2 * edge
    for place in range(count):
        start = edge + span * place // count
        yield start, min(start + block, edge + span * (place + 1) // count)
    yield length - edge, length


def _limit(lengths: list[int], room: int) -> int:
    """Give the length to which the longest are cut where all of them do not fit in."""
    if sum(lengths) <= room:
        return max(lengths, default=0)
    room //= CUT
    for place, length in enumerate(sorted(lengths)):
        share = room // (len(lengths) - place)
        if length > share:
            return share
        room -= length
    return room
