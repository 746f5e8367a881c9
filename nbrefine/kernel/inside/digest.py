"""A digest of the session's state: for each of the user's names what it is and a hash of it."""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
import time
import types
from collections.abc import Iterable
from typing import Any

from .guard import Overdue, is_from, kind_name, time_limit
from .link import Emit
from .listing import described, dtypes, shape, user_items
from .parts import Look
from .tables import TABLES
from .walk import Walk, dumps

VALUE_SECONDS = 2.0
"""How long one value may take; what walks do is bounded by counts, and this is for the rest."""
TOTAL_SECONDS = 10.0
"""After this, the remaining names are told by their type only."""


def snapshot(emit: Emit) -> dict[str, Any]:
    """Give the digest and the listing of one moment."""
    items = user_items()
    told = _digest(items)
    return {"digest": told, "variables": _described(items, told["names"])}


def _described(items: list[tuple[str, Any]], rows: list[list[Any]]) -> list[dict[str, Any]]:
    """Describe names, but for tables and arrays that are what they were the last time."""
    kept: dict[str, dict[str, Any]] = {}
    for (name, value), row in zip(items, rows):  # noqa: B905  `strict` came after Python 3.9
        was, told = _LAST.get(name, (None, None))
        if told is not None and was == row and is_from(value, *_LARGE):
            kept[name] = told
    fresh = described([item for item in items if item[0] not in kept])
    kept.update((told["name"], told) for told in fresh)
    _LAST.clear()
    _LAST.update(
        (row[0], (row, kept[row[0]]))
        for row in rows
        # What was not seen whole may have changed all the same.
        if not any(row[4:_DTYPES]) and "shape" in kept.get(row[0], ())
    )
    return [kept[name] for name, _ in items if name in kept]


_LAST: dict[str, tuple[list[Any], dict[str, Any]]] = {}
"""By name, what the digest and the listing said at the last snapshot."""

_LARGE = ("pandas", "DataFrame", "Series")
"""What takes longer to describe than to compare."""


def digest(emit: Emit) -> dict[str, Any]:
    """Give the digest: plain JSON values only."""
    return _digest(user_items())


def _digest(items: list[tuple[str, Any]]) -> dict[str, Any]:
    names, held = _seen(items)
    states = _random_states()
    shared = _shared(held)
    facts = sorted([name, kind, hashed] for name, kind, hashed, *_ in names)
    return {
        "hash": _hashed([facts, sorted(group for _, group in shared), states]),
        "names": names,
        "random": states,
        # That objects have one class, or classes one function, goes without saying.
        "shared": sorted(
            {
                tuple(name for name, _ in group)
                for part, group in shared
                if not any(line is code for line in _MRO(type(part)) for code in _CODE)
            }
        ),
    }


_MRO = type.__dict__["__mro__"].__get__
_CODE = (type, types.FunctionType, types.CellType, property, staticmethod, classmethod)

Marks = dict[int, tuple[int, Any]]


def _seen(items: list[tuple[str, Any]]) -> tuple[list[list[Any]], dict[str, Marks]]:
    """Look at every name; give a row for each and the mutable objects that it reaches."""
    ends = time.monotonic() + TOTAL_SECONDS
    rows: list[list[Any]] = []
    held: dict[str, Marks] = {}
    walks: list[tuple[list[Any], Walk]] = []
    known: set[int] = set()
    while len(rows) < len(items):
        look = Look(TABLES)  # a new one, as one that was interrupted may have half a class
        begun = len(rows)
        try:
            # One alarm for many names: setting it takes longer than most names do.
            with time_limit(VALUE_SECONDS):
                for name, value in items[begun:]:
                    walk = Walk(look)
                    if time.monotonic() > ends:
                        rows.append(_unseen(name, value, "no time was left for it"))
                    else:
                        row = _row(name, value, walk)
                        held[name] = walk.marks
                        walks.append((row, walk))
                        rows.append(row)
        except Overdue:
            if len(rows) == begun:  # with all the time for itself
                name, value = items[begun]
                rows.append(_unseen(name, value, f"took over {VALUE_SECONDS:g} s"))
        known |= look.classes
    for row, walk in walks:
        for key, kind in walk.named.items():
            if key not in known:  # no name and no instance shows that class
                walk.leave(kind)
        row[_OPAQUE] = list(walk.opaque)
    return rows, held


def _row(name: str, value: Any, walk: Walk) -> list[Any]:
    """Give the fields of a `NameDigest`, in their order."""
    try:
        found, extents = walk.of(value).hex(), shape(value)
    except Exception as error:  # noqa: BLE001  what a walk does not foresee must not end the digest
        return _unseen(name, value, f"raised {kind_name(error)}")
    columns = ""
    with contextlib.suppress(Exception):  # nothing else depends on it
        columns = dtypes(value) if extents is not None else ""
    return [name, kind_name(value), found, extents, walk.sampled, list(walk.opaque), "", columns]


_OPAQUE, _DTYPES = 5, 7
"""The places in a row of the classes that could not be looked into, and of the dtypes."""


def _unseen(name: str, value: Any, why: str) -> list[Any]:
    return [name, kind_name(value), "", None, False, [], why, ""]


def _random_states() -> list[str]:
    """Give the states of the generators that `random` and `numpy.random` draw from."""
    look = Look(TABLES)
    numpy = sys.modules.get("numpy.random")
    states = [Walk(look).of(random.getstate()).hex()]
    states.append(Walk(look).of(numpy.get_state(legacy=False)).hex() if numpy else "")
    return states


def _shared(held: dict[str, Marks]) -> list[tuple[Any, list[tuple[str, int]]]]:
    """Give the objects that several names reach, each with its place in every one of them."""
    once: set[int] = set()
    twice: set[int] = set()
    for marks in held.values():
        twice.update(once.intersection(marks))
        once.update(marks)
    if not twice:
        return []
    found: dict[int, tuple[Any, list[tuple[str, int]]]] = {}
    for name in sorted(held):
        marks = held[name]
        for key in twice & marks.keys():
            place, part = marks[key]
            found.setdefault(key, (part, []))[1].append((name, place))
    return list(found.values())


def _hashed(facts: Iterable[Any]) -> str:
    return hashlib.blake2b(dumps(facts), digest_size=16).hexdigest()
