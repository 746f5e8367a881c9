"""What stands in the code's process for objects of the tests: functions, iterators, instances.

They can be called, asked for their next item or for a public attribute, and no more: what they
stand for is in another process, and so is all that can be reached from it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

from .kinds import Malformed
from .plain import Unpacker

CallBack = Callable[[str, "tuple[Any, ...]", "dict[str, Any]"], Any]
"""Asks the tests' process for an operation on an object of its own."""


class StandIns:
    """Makes and keeps them: one for each object."""

    def __init__(self, call_back: CallBack, lend: Callable[[Any, list[Any]], None]) -> None:
        self._call_back = call_back
        self._lend = lend
        self._made: dict[int, Any] = {}
        self._classes: dict[int, type] = {}

    def make(self, unpacker: Unpacker, data: list[Any]) -> Any:
        """Give what stands for an object that the tests' process speaks of."""
        tag = data[0]
        if tag == "error":
            return self._error(unpacker, data)
        number = data[1]
        if number not in self._made:
            if tag == "callable" and len(data) > 4:
                return self._exception_class(*data)
            if tag == "callable":
                made: Any = _function(self._call_back, number, data[2], awaits=data[3])
            elif tag == "items":
                made = _iterator(self._call_back, number)
            elif tag == "instance":
                made = self._class(*data[2:5])(number)
            else:
                raise Malformed(f"there is no {tag!r}")
            self._made[number] = made
            self._lend(made, data)
        return self._made[number]

    def _class(self, number: int, name: str, special: list[str]) -> Callable[[int], Any]:
        if number not in self._classes:
            self._classes[number] = _class(self._call_back, name, special)
        return self._classes[number]

    def _exception_class(self, *form: Any) -> type:
        _, number, name, _, base = form
        if number not in self._made:
            made = _exception_class(self._call_back, number, name, getattr(builtins, base))
            self._made[number] = made
            self._lend(made, list(form))
        return self._made[number]  # type: ignore[no-any-return]

    def _error(self, unpacker: Unpacker, data: list[Any]) -> BaseException:
        base = getattr(builtins, data[3])
        kind = base
        if data[4] is not None:
            kind = self._exception_class("callable", data[4], data[2], False, data[3])
        try:
            arguments = unpacker.items(data[5])
            error: BaseException = base.__new__(kind, *arguments)
            base.__init__(error, *arguments)
        except Exception:  # noqa: BLE001  some want other arguments
            error = base.__new__(kind)
            error.args = (data[7],)
        self._lend(error, data)
        return error


def _exception_class(call_back: CallBack, number: int, name: str, base: Any) -> type:
    """Make a class to catch the tests' exceptions with; its objects are made by the tests."""

    def create(kind: Any, *arguments: Any, **named: Any) -> Any:
        return call_back("call", (number, *arguments), named)

    def keep(self: Any, *arguments: Any, **named: Any) -> None:
        """Leave it as it was made."""

    return type(name, (base,), {"__new__": create, "__init__": keep, "__module__": "__main__"})


def _function(call_back: CallBack, number: int, name: str, *, awaits: bool) -> Callable[..., Any]:
    function: Callable[..., Any]
    if awaits:

        async def function(*arguments: Any, **named: Any) -> Any:
            return call_back("await", (number, *arguments), named)

    else:

        def function(*arguments: Any, **named: Any) -> Any:
            return call_back("call", (number, *arguments), named)

    function.__name__ = function.__qualname__ = name
    return function


def _iterator(call_back: CallBack, number: int) -> Iterator[Any]:
    while True:
        more, item = call_back("next", (number,), {})
        if not more:
            return
        yield item


def _class(call_back: CallBack, name: str, special: list[str]) -> type:
    """Make a class for objects of one class of the tests, with the operators that one has."""

    def get(self: Any, attribute: str) -> Any:
        return call_back("get", (numbers[id(self)], attribute), {})

    def put(self: Any, attribute: str, value: Any) -> None:
        call_back("set", (numbers[id(self)], attribute, value), {})

    def create(kind: Any, number: int) -> Any:
        made = object.__new__(kind)
        numbers[id(made)] = number
        return made

    def forwarded(method: str) -> Callable[..., Any]:
        def forward(self: Any, *arguments: Any) -> Any:
            return call_back("special", (numbers[id(self)], method, *arguments), {})

        return forward

    numbers: dict[int, int] = {}
    methods = {method: forwarded(method) for method in special}
    body = {"__new__": create, "__getattr__": get, "__setattr__": put, **methods}
    if "__eq__" in methods and "__hash__" not in methods:
        body["__hash__"] = None  # type: ignore[assignment]
    return type(name, (), {"__slots__": (), **body})
