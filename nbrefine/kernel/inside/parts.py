"""What any value consists of, as `walk` wants to know it: a head and further parts.

An instance of a class that is written in Python is what its attributes and slots hold, beside
what it has from a built-in base. What has fields in C that nothing shows, and what stands for
something outside of it, counts by its class alone and is named.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

from .builtin import BARE, OWN, Body, Content, is_held
from .walk import Head, Parts, Walk

OPAQUE = frozenset(
    (
        *("IPython", "comm", "ipykernel", "ipywidgets", "matplotlib", "traitlets", "zmq"),
        *("_asyncio", "asyncio", "concurrent", "contextvars", "multiprocessing", "subprocess"),
        *("_thread", "threading", "_weakref", "weakref", "logging", "tempfile"),
        *("_io", "_socket", "_sqlite3", "_ssl", "selectors", "socket", "sqlite3", "ssl"),
    )
)
"""Packages whose objects stand for something outside of them, or hold addresses and times."""

DEEP = 20
"""How many sets may be nested in each other."""

_MRO = type.__dict__["__mro__"].__get__
_VARS = type.__dict__["__dict__"].__get__
_MODULE = type.__dict__["__module__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__
_NAME = type.__dict__["__name__"].__get__
_BASE = type.__dict__["__base__"].__get__
_BASES = type.__dict__["__bases__"].__get__
_SIZE = type.__dict__["__basicsize__"].__get__
_FLAGS = type.__dict__["__flags__"].__get__


class Look:
    """Knows what values consist of; one for all walks of a digest.

    Parameters
    ----------
    tables: what is known of the classes of other packages, by package and class name.
    """

    def __init__(self, tables: dict[tuple[str, str], Callable[[Walk, Any], Parts]]) -> None:
        self._tables = tables
        self._plans: dict[int, Callable[[Walk, Any], Parts]] = {}
        self._classes: dict[int, tuple[type, Walk, bytes]] = {}
        self._inside = ""
        self._depth = 0

    def __call__(self, walk: Walk, value: Any) -> Parts:
        kind = type(value)
        try:
            own = OWN.get(id(kind))
            if own is not None:
                return own(self, walk, value)
            plan = self._plans.get(id(kind))
            if plan is None:
                plan = self._plans[id(kind)] = self._plan(kind)
            return plan(walk, value)
        except Exception:  # noqa: BLE001  a foreign class may raise anything
            return self.closed(walk, value)

    def closed(self, walk: Walk, value: Any) -> Parts:
        """Count a value by its class alone."""
        kind = type(value)
        walk.leave(_NAME(kind))
        return ("closed", str(_MODULE(kind)), _QUALNAME(kind)), None, True

    def _plan(self, kind: type) -> Callable[[Walk, Any], Parts]:
        """Find out how the instances of a class can be looked into."""
        lines = _MRO(kind)
        for line in lines:
            known = self._tables.get((_root(line), _NAME(line)))
            if known is not None:
                return known
        if any(line is type for line in lines):
            return lambda walk, value: (("class", self.class_of(walk, value)), None, False)
        if any(_root(line) in OPAQUE for line in lines) or _hides(kind):
            return self.closed
        return self._instances(kind, lines)

    def _instances(self, kind: type, lines: tuple[type, ...]) -> Callable[[Walk, Any], Parts]:
        before = list(itertools.takewhile(lambda line: id(line) not in OWN, lines))
        base = lines[len(before)] if len(before) < len(lines) else object
        slots = {
            name: field
            for line in before
            for name, field in _VARS(line).items()
            if type(field) is types.MemberDescriptorType
        }
        held = [_VARS(line).get("__dict__") for line in lines]
        attributes = next((own for own in held if type(own) is types.GetSetDescriptorType), None)

        def look(walk: Walk, value: Any) -> Parts:
            parts: list[Any] = []
            if base is not object:
                bare = BARE[base](value) if base in BARE else value
                parts.append(Content(OWN[id(base)](self, walk, bare)))
            filled = []
            for name, field in slots.items():
                try:
                    parts.append(field.__get__(value))
                    filled.append(name)
                except AttributeError:
                    continue
            own = attributes.__get__(value) if attributes else {}
            parts += own
            parts += own.values()
            return ("instance", self.class_of(walk, kind), *filled, len(own)), parts, True

        return look

    @property
    def classes(self) -> set[int]:
        """Ids of the session's classes that were looked into."""
        return {key for key, (_, _, found) in self._classes.items() if found}

    def class_of(self, walk: Walk, kind: type) -> Head:
        """Tell of a class: its name where a module holds it, else what it is."""
        name = (str(_MODULE(kind)), _QUALNAME(kind))
        if not _FLAGS(kind) & _MADE_AT_RUN_TIME or is_held(kind, *name):
            return name
        # What a class gives must not depend on which class was looked at first, so the others
        # that it speaks of count by name, but for those that stand in it and its bases.
        if self._inside and not name[1].startswith(self._inside + "."):
            walk.named[id(kind)] = _NAME(kind)
            return (*name, "")
        if id(kind) not in self._classes:
            self._open(kind)
        _, inner, found = self._classes[id(kind)]
        if walk.mark(kind):
            walk.take(inner)
        return (*name, found)

    def _open(self, kind: type) -> None:
        inner = Walk(self)
        self._classes[id(kind)] = kind, inner, b""
        outside, self._inside = self._inside, ""
        try:
            body = Body(kind, [self.class_of(inner, base) for base in _BASES(kind)])
            self._inside = _QUALNAME(kind)
            found = inner.of(body)
        finally:
            self._inside = outside
        self._classes[id(kind)] = kind, inner, found

    def unordered(self, walk: Walk, items: Any) -> list[bytes]:
        """Give the hashes of items that have no order of their own, in order."""
        if self._depth >= DEEP:
            walk.leave("deeply nested set")
            return []
        self._depth += 1
        try:
            inner = ((item, Walk(self)) for item in items)
            found = sorted(((one.of(item), one) for item, one in inner), key=lambda pair: pair[0])
        finally:
            self._depth -= 1
        for _, one in found:
            walk.take(one)
        return [hashed for hashed, _ in found]


_MADE_AT_RUN_TIME = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def _root(kind: type) -> str:
    return str(_MODULE(kind)).partition(".")[0]


def _hides(kind: type) -> bool:
    """Tell whether instances have fields in C that no descriptor of their classes shows."""
    while kind is not object and id(kind) not in OWN:
        base = _BASE(kind)
        fields = _VARS(kind)
        shown = sum(type(field) is types.MemberDescriptorType for field in fields.values())
        shown += ("__dict__" in fields) + ("__weakref__" in fields)
        if _SIZE(kind) - _SIZE(base) > 8 * shown:
            return True
        kind = base
    return False
