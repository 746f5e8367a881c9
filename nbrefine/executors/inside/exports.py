"""What the other process is told of objects that stay with the code: numbers, classes, fields."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

from .kinds import Unsendable
from .plain import Packer

OBJECTS = 2_000
"""How many objects one answer tells the fields of."""

_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    type(functools.lru_cache(len)),
    functools.partial,
)
_COROUTINE_FUNCTION = 0x80  # of inspect.CO_COROUTINE

# What a subclass of a built-in class holds beside its fields.
_CONTENTS: dict[type, Callable[[Any], Any]] = {
    int: lambda value: int.__add__(value, 0),
    float: lambda value: float.__add__(value, 0.0),
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    list: list.copy,
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
    dict: dict.copy,
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}


class Exports:
    """Numbers for objects the other process may speak of, and what it has not been told of them.

    Parameters
    ----------
    module: the code's own.
    """

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        self._objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._forms: dict[int, list[Any]] = {}
        self._undescribed: list[type] = []
        self._touched: list[dict[int, Any]] = [{}]

    def begin(self) -> None:
        """Begin an exchange, maybe inside another: its objects are told with their fields."""
        self._touched.append({})

    def end(self) -> None:
        """End it."""
        self._touched.pop()

    def object(self, number: int) -> Any:
        """Give the object of a number."""
        value = self._objects[number]
        self._touch(number, value)
        return value

    def lend(self, value: Any, form: list[Any]) -> None:
        """Note that something stands here for an object of the other process, told like this."""
        self._forms[id(value)] = form
        self._objects.append(value)  # kept, so that its `id` stays its own

    def same(self, packer: Packer, value: Any) -> list[Any]:
        """Give the list for an object as the other process would."""
        if id(value) in self._forms:
            return self._forms[id(value)]
        kind = type(value)
        if tuple in kind.__mro__ and id(kind) in self._numbers:
            return ["named", self._numbers[id(kind)], packer.items(value)]
        if id(value) in self._numbers:
            return ["object", self._numbers[id(value)]]
        raise Unsendable("it was not there before")

    def export(self, packer: Packer, value: Any) -> list[Any]:
        """Give the list for an object that is not plain."""
        if id(value) in self._forms:
            return self._forms[id(value)]
        kind = type(value)
        mro = kind.__mro__
        if type in mro:
            return ["class", self._class(value)]
        if BaseException in mro:
            return self.raised(packer, value)
        if tuple in mro and _is_named_tuple(kind):
            return ["named", self._class(kind), packer.items(value)]
        if kind in _FUNCTIONS:
            name = getattr(value, "__name__", None)
            function = getattr(value, "__func__", value)
            code = getattr(function, "__code__", None)
            awaits = code is not None and bool(code.co_flags & _COROUTINE_FUNCTION)
            return ["function", self._number(value), str(name or "function"), awaits]
        if kind.__module__ == "builtins" and hasattr(kind, "__await__"):
            return ["coroutine", self._number(value)]
        if kind is types.GeneratorType or (
            kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")
        ):
            return ["iterator", self._number(value), kind is types.GeneratorType, kind.__name__]
        number = self._number(value)
        self._touch(number, value)
        return ["object", number, self._class(kind)]

    def lent(self, packer: Packer, value: Any) -> list[Any]:
        """Give the list for a container that an object of the code goes on holding."""
        return ["held", self._number(value), packer.pack(value)]

    def raised(self, packer: Packer, error: BaseException) -> list[Any]:
        """Give the list for an exception."""
        if id(error) in self._forms:
            return self._forms[id(error)]
        kind = type(error)
        number = self._class(kind) if self._is_own(kind) else None
        arguments = []
        for item in error.args:
            try:
                arguments.append(packer.pack(item))
            except Unsendable:
                arguments.append(_text(item))
        fields: list[Any] = []
        for name, value in vars(error).items() if number is not None else ():
            with contextlib.suppress(Unsendable):
                fields.append([name, packer.pack(value)])
        base = _built_in(kind)
        return [
            *("error", str(kind.__module__), str(kind.__qualname__), base.__name__),
            *(number, arguments, fields, _text(error), None),
        ]

    def described(self) -> list[Any]:
        """Give the classes that the other process has not been told of."""
        told = []
        while self._undescribed:
            kind = self._undescribed.pop(0)
            bases = [self._class(base) for base in kind.__bases__ if self._is_own(base)]
            special = {
                name
                for each in kind.__mro__
                if each is not object
                for name in vars(each)
                if name.startswith("__") and name.endswith("__")
            }
            if getattr(kind, "__hash__", None) is None:
                special.discard("__hash__")
                special.add("-hash")
            special |= {f"={base.__name__}" for base in kind.__mro__ if base in _CONTENTS}
            built_in = _built_in(kind).__name__ if BaseException in kind.__mro__ else None
            fields = _named_fields(kind) if _is_named_tuple(kind) else None
            told.append(
                [
                    *(self._numbers[id(kind)], str(kind.__name__), str(kind.__module__)),
                    *(bases, sorted(special), built_in, fields),
                ]
            )
        return told

    def fields(self) -> list[Any]:
        """Give what the objects of this exchange hold, and those that they hold, and so on."""
        told: list[Any] = []
        done: set[int] = set()
        touched = self._touched[-1]
        while len(done) < len(touched) and len(done) < OBJECTS:
            for number, value in list(touched.items()):
                if number in done:
                    continue
                done.add(number)
                if self._is_own(type(value)):
                    told.append([number, self._fields(value)])
                if len(done) >= OBJECTS:
                    break
        return told

    def names(self) -> list[list[str]]:
        """Give the code's names: each with what it is, and where that comes from."""
        return [
            [name, *_origin(value, self._module.__name__)]
            for name, value in list(vars(self._module).items())
            if type(name) is str and not (name.startswith("__") and name.endswith("__"))
        ]

    def _fields(self, value: Any) -> Any:
        """Give an object's fields and content, None if they cannot be told."""
        found: dict[str, Any] = {}
        for kind in type(value).__mro__:
            slots = vars(kind).get("__slots__", ())
            for name in (slots,) if type(slots) is str else slots:
                if name not in ("__dict__", "__weakref__"):
                    mangled = f"_{kind.__name__.lstrip('_')}{name}" if _is_private(name) else name
                    with contextlib.suppress(Exception):  # a slot may be empty
                        found[name] = getattr(value, mangled)
            if kind in _CONTENTS:
                found["()"] = _CONTENTS[kind](value)
        try:
            found.update(getattr(value, "__dict__", {}))
            return Packer(self.export).pack(found)
        except Exception:  # noqa: BLE001  what cannot be told is equal to nothing but itself
            return None

    def _number(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return number

    def _touch(self, number: int, value: Any) -> None:
        self._touched[-1].setdefault(number, value)

    def _class(self, kind: type) -> int:
        known = id(kind) in self._numbers
        number = self._number(kind)
        if not known:
            self._undescribed.append(kind)
        return number

    def _is_own(self, kind: type) -> bool:
        return kind.__module__ == self._module.__name__


def _is_named_tuple(kind: type) -> bool:
    fields = getattr(kind, "_fields", None)
    return tuple in kind.__mro__ and type(fields) is tuple


def _named_fields(kind: Any) -> list[Any]:
    """Give the fields of a named tuple and the defaults of its last ones, if they are plain."""
    try:
        defaults = Packer(_refuse).items(kind._field_defaults.values())
    except (Unsendable, AttributeError):
        defaults = []
    return [list(kind._fields), defaults]


def _is_private(name: str) -> bool:
    return name.startswith("__") and not name.endswith("__")


def _built_in(kind: type) -> type:
    """Give the nearest exception class that any Python has."""
    return next(each for each in kind.__mro__ if each.__module__ == "builtins")


def _origin(value: Any, module: str) -> list[str]:
    kind = type(value)
    if kind is types.ModuleType:
        return ["module", str(value.__name__), ""]
    home, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if type(home) is not str or type(name) is not str:
        return ["value", "", ""]
    if kind in _FUNCTIONS or type in kind.__mro__:
        what = "function" if kind is types.FunctionType else "class"
        return [what if home == module else "import", home, name]
    return ["value", "", ""]


def _refuse(packer: Packer, value: Any) -> list[Any]:
    raise Unsendable("it is not plain")


def _text(value: Any) -> str:
    try:
        return "".join([str(value)])
    except Exception as error:  # noqa: BLE001  __str__ may raise anything
        return f"(its text could not be had: {type(error).__name__})"
