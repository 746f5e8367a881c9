"""A digest of the session's state: for each of the user's names what it is and a hash of it."""

from __future__ import annotations

import hashlib
import random
import sys
import time
import types
from collections.abc import Iterable
from typing import Any

from .guard import Overdue, kind_name, time_limit
from .link import Emit
from .listing import described, shape, user_items
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
    return {"digest": _digest(items), "variables": described(items)}


def digest(emit: Emit) -> dict[str, Any]:
    """Give the digest: plain JSON values only."""
    return _digest(user_items())


def _digest(items: list[tuple[str, Any]]) -> dict[str, Any]:
    look = Look(TABLES)
    ends = time.monotonic() + TOTAL_SECONDS
    names: list[dict[str, Any]] = []
    held: dict[str, dict[int, tuple[int, Any]]] = {}
    for name, value in items:
        walk = Walk(look)
        names.append(_name(name, value, walk, ends))
        held[name] = {} if names[-1]["unseen"] else walk.marks
    states = _random_states(look)
    shared = _shared(held)
    facts = sorted((told["name"], told["type"], told["hash"]) for told in names)
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


def _name(name: str, value: Any, walk: Walk, ends: float) -> dict[str, Any]:
    told: dict[str, Any] = {"name": name, "type": kind_name(value), "shape": None, "unseen": ""}
    found = b""
    try:
        if time.monotonic() > ends:
            told["unseen"] = "no time was left for it"
        else:
            with time_limit(VALUE_SECONDS):
                told["shape"] = shape(value)
                found = walk.of(value)
    except Overdue:
        told["unseen"] = f"took over {VALUE_SECONDS:g} s"
    except Exception as error:  # noqa: BLE001  what a walk does not foresee must not end the digest
        told["unseen"] = f"raised {kind_name(error)}"
    told.update(hash=found.hex(), sampled=walk.sampled, opaque=list(walk.opaque))
    return told


def _random_states(look: Look) -> list[str]:
    """Give the states of the generators that `random` and `numpy.random` draw from."""
    numpy = sys.modules.get("numpy.random")
    states = [Walk(look).of(random.getstate()).hex()]
    states.append(Walk(look).of(numpy.get_state(legacy=False)).hex() if numpy else "")
    return states


def _shared(
    held: dict[str, dict[int, tuple[int, Any]]],
) -> list[tuple[Any, list[tuple[str, int]]]]:
    """Give the objects that several names reach, each with its place in every one of them."""
    once: set[int] = set()
    twice: set[int] = set()
    for marks in held.values():
        twice |= once & marks.keys()
        once |= marks.keys()
    found: dict[int, tuple[Any, list[tuple[str, int]]]] = {}
    for name in sorted(held):
        marks = held[name]
        for key in twice & marks.keys():
            place, part = marks[key]
            found.setdefault(key, (part, []))[1].append((name, place))
    return list(found.values())


def _hashed(facts: Iterable[Any]) -> str:
    return hashlib.blake2b(dumps(facts), digest_size=16).hexdigest()
