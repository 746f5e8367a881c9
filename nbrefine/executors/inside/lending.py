"""What tests pass to the code and keep: numbers for it, and what may be done with it from there.

A function can be called, an iterator asked for its next item, an instance of a class of the tests
for its public attributes and the operators that its class defines. Nothing else can be reached.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from .kinds import Malformed, Unsendable, string, whole
from .plain import Packer

TESTS = "__main__"
"""The module that the tests are."""

_FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)


class Lent:
    """Objects of the tests that the code may speak of."""

    def __init__(self) -> None:
        self._lent: list[tuple[str, Any, list[Any]]] = []
        self._forms: dict[int, list[Any]] = {}

    def form(self, value: Any) -> list[Any]:
        """Give the list for an object, and lend it if that is the first time.

        Raises
        ------
        Unsendable: it is none that can be lent.
        """
        return self._forms.get(id(value)) or self._lend(value, type(value))

    def object(self, tag: str, number: Any) -> Any:
        """Give what was lent as such and under that number.

        Raises
        ------
        Malformed: nothing was.
        """
        kept, value, _ = self._lent[whole(number)]
        if kept != tag:
            raise Malformed("what was not lent")
        return value

    def _lend(self, value: Any, kind: type) -> list[Any]:
        if isinstance(value, BaseException):
            return self._keep("error", value, self._exception(value))
        if isinstance(value, type) and issubclass(value, BaseException):
            return self._keep("callable", value, [value.__name__, False, _base(value).__name__])
        if kind in _FUNCTIONS or isinstance(value, type):
            name = str(getattr(value, "__name__", "function"))
            return self._keep("callable", value, [name, inspect.iscoroutinefunction(value)])
        if kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__"):
            return self._keep("items", value, [])
        if kind is object:  # a sentinel, which is nothing but itself
            return self._keep("instance", value, [-1, "object", []])
        if kind.__module__ == TESTS and not issubclass(kind, tuple):
            form = self._forms.get(id(kind)) or self._keep("callable", kind, [kind.__name__, False])
            return self._keep("instance", value, [form[1], kind.__name__, _special(kind)])
        if callable(value):
            return self._keep("callable", value, [kind.__name__, False])
        raise Unsendable(
            f"the tests pass an object of class {kind.__name__}, "
            "which cannot be sent to the code's process"
        )

    def _exception(self, error: BaseException) -> list[Any]:
        kind, base = type(error), _base(type(error))
        try:
            arguments = Packer(refuse).items(error.args)
        except Unsendable:
            arguments = [str(error)]
        number = None if kind is base else self.form(kind)[1]
        name = base.__name__ if kind is base else kind.__name__
        return ["error", "builtins", name, base.__name__, number, arguments, [], str(error)]

    def _keep(self, tag: str, value: Any, rest: list[Any]) -> list[Any]:
        number = len(self._lent)
        form = [*rest, number] if tag == "error" else [tag, number, *rest]
        self._lent.append((tag, value, form))
        self._forms[id(value)] = form
        return form

    def work(
        self, operation: str, arguments: list[Any], named: dict[str, Any]
    ) -> Callable[[], Any]:
        """Give what an operation on an object of the tests does, if it is one they lent for it."""
        tag, target, form = self._lent[whole(arguments[0])]
        rest = arguments[1:]
        if operation in ("call", "await") and tag == "callable":
            if operation == "await":
                return lambda: _driven(target(*rest, **named))
            return lambda: target(*rest, **named)
        if operation == "next" and tag == "items":
            return lambda: _next(target)
        if tag == "instance" and operation == "special" and rest[0] in form[4]:
            return lambda: getattr(type(target), rest[0])(target, *rest[1:])
        if tag == "instance" and operation in ("get", "set"):
            if string(rest[0]).startswith("_"):
                return lambda: _no_attribute(rest[0])
            reach: Callable[..., Any] = getattr if operation == "get" else setattr
            return lambda: reach(target, *rest)
        raise Malformed(f"{operation!r} of what was not lent for it")


def refuse(packer: Packer, value: Any) -> Any:
    """Refuse what is not plain."""
    raise Unsendable("it is not plain")


def _base(kind: type) -> type:
    """Give the nearest class that any Python has."""
    return next(each for each in kind.__mro__ if each.__module__ == "builtins")


def _special(kind: type) -> list[str]:
    """Give the operators that a class of the tests defines, all of which the code may use."""
    left_out = {
        *("__init__", "__new__", "__class__", "__init_subclass__", "__reduce__"),
        *("__getattribute__", "__getattr__", "__setattr__", "__delattr__"),
    }
    found = {
        name
        for each in kind.__mro__
        if each.__module__ == TESTS
        for name, value in vars(each).items()
        if name.startswith("__") and name.endswith("__") and isinstance(value, types.FunctionType)
    }
    return sorted(found - left_out)


def _next(iterator: Any) -> tuple[bool, Any]:
    for item in iterator:
        return True, item
    return False, None


def _no_attribute(name: Any) -> None:
    raise AttributeError(f"{name!r} is the tests' own and cannot be reached from the code")


def _driven(awaitable: Any) -> Any:
    """Run a coroutine of the tests that the code awaits, without a loop of its own."""
    steps = awaitable.__await__()
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value
