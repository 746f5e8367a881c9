"""What tests see of the code's objects: proxies that ask the code's process, and never compare.

An object is compared by what it held when it last came here, before there was anything to
compare it with: one of a subclass of `list` or its like is what it is a list of, to whatever is
plain; any other is equal to nothing plain, whatever its own `__eq__` says. Two of one class are
equal if that has an `__eq__` and their fields are; only a class that the tests name is asked
itself. Operators go to the code where an answer gives nothing away: an object of a class that the
tests do not name is not asked whether it is near to, greater than or holds a value of the tests,
as it would learn what it should have been.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

from .kinds import CannotSend

NUMBER, LINK, KNOWN = "_nbrefine_number", "_nbrefine_link", "_nbrefine_known"
EQUATES = "_nbrefine_equates"


class Asks(Protocol):
    """What proxies need of the connection."""

    quiet: bool
    """Whether nothing may be asked, as text is being made of values."""

    def request(self, operation: str, /, *arguments: Any, **named: Any) -> Any: ...

    def fields(self, number: int) -> dict[str, Any] | None: ...


class Code:
    """An object of the code."""

    __slots__ = (NUMBER,)

    def __getattr__(self, name: str) -> Any:
        if name in _PREDICATES | _SEARCHES and not known(self) and hasattr(content(self), name):
            return getattr(content(self), name)
        if name in _PREDICATES and not known(self):
            raise _without(self, name)
        value = asked(link(self), self, name)
        if name in _SEARCHES and type(value) is CodeFunction and not known(self):
            return _Search(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        link(self).request("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        link(self).request("del", self, name)

    def __eq__(self, other: object) -> bool:
        return self is other or _equal(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(number(self))

    def __repr__(self) -> str:
        return _shown(self)

    def __copy__(self) -> Any:
        return link(self).request("copy", self)

    def __deepcopy__(self, memo: object) -> Any:
        return link(self).request("deepcopy", self)

    def __dir__(self) -> Any:
        return link(self).request("dir", self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("an object of the code cannot be pickled by the tests")


class CodeClass(type):
    """A class of the code: calling it makes an object there."""

    def __new__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **_: Any
    ) -> CodeClass:
        """Make one that the code has, and none of the tests' own."""
        if LINK not in body:
            base = next(each.__name__ for each in bases if isinstance(each, CodeClass))
            raise CannotSend(f"the tests derive class {name} from the code's class {base}")
        return super().__new__(cls, name, bases, body)

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        return link(cls).request("call", cls, *arguments, **named)

    def __getattr__(cls, name: str) -> Any:
        return asked(link(cls), cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        link(cls).request("set", cls, name, value)

    def __iter__(cls) -> Iterator[Any]:
        return iter(link(cls).request("iter", cls))

    def __len__(cls) -> int:
        return int(link(cls).request("len", cls))

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        return link(cls).request("getitem", cls, key)

    def __contains__(cls, item: Any) -> bool:
        return bool(link(cls).request("contains", cls, item))

    def __repr__(cls) -> str:
        return f"<class {f'{cls.__module__}.{cls.__name__}'!r}>"


class CodeFunction:
    """A function, or anything of its kind, of the code."""

    def __init__(self, asks: Asks, place: int, name: str) -> None:
        self.__dict__.update({LINK: asks, NUMBER: place, "__name__": name, "__qualname__": name})

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.__dict__[LINK].request("call", self, *arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return asked(self.__dict__[LINK], self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[LINK].request("set", self, name, value)

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self.__dict__[LINK].request("get", self, "__doc__")

    def __repr__(self) -> str:
        return f"<function {self.__dict__['__name__']}>"


def asked(asks: Asks, proxy: Any, name: str) -> Any:
    """Ask for an attribute, unless it is one that libraries look for by themselves.

    numpy hands a comparison over to an object with `__array_function__` or `__array_ufunc__`, and
    reads memory at the address that `__array_interface__` gives.
    """
    if name.startswith("__") and name.endswith("__") and name not in _DESCRIPTIONS:
        raise _without(proxy, name)
    return asks.request("get", proxy, name)


def _without(proxy: Any, name: str) -> AttributeError:
    return AttributeError(f"{type(proxy).__name__!r} object has no attribute {name!r}")


class _Search:
    """A method of the code that is called as one of a list or text which searches it.

    It is not told what is searched for, which says what its object should have held.
    """

    def __init__(self, owner: Code, name: str, method: CodeFunction) -> None:
        self._owner, self._name, self._method = owner, name, method

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if arguments and not any(isinstance(each, Code) for each in arguments):
            kind = type(self._owner).__name__
            raise AttributeError(
                f"{kind}.{self._name} is not told what tests look for that do not name {kind}"
            )
        return self._method(*arguments, **named)


def code_class(
    asks: Asks, name: str, module: str, bases: tuple[type, ...], special: set[str], *, known: bool
) -> type:
    """Make a class for the tests with the special methods that the code's class has."""
    body: dict[str, Any] = {
        "__slots__": (),
        "__module__": module,
        LINK: asks,
        KNOWN: known,
        EQUATES: "__eq__" in special,
        **{method: _METHODS[method] for method in special if method in _METHODS},
    }
    if "-hash" in special:
        body["__hash__"] = None
    elif "__hash__" not in special:
        body["__hash__"] = Code.__hash__
    for kind in _CONTAINED:
        if f"={kind.__name__}" in special:
            body["__class__"] = property(_class_of(kind))  # which `isinstance` looks at
    return CodeClass(name, bases or (Code,), body)


def create(kind: type, place: int) -> Any:
    """Make the proxy of an object that exists in the code's process."""
    made: Any = object.__new__(kind)
    object.__setattr__(made, NUMBER, place)
    return made


def number(proxy: Any) -> int:
    """Give the number that the code's process knows an object by."""
    place: int = object.__getattribute__(proxy, NUMBER)
    return place


def link(proxy: Any) -> Asks:
    """Give the connection of a proxy or its class."""
    kind = type(proxy)
    kind = proxy if issubclass(kind, CodeClass) else kind  # `isinstance` may ask it for its class
    asks: Asks = type.__getattribute__(kind, LINK)
    return asks


def known(proxy: Any) -> bool:
    """Tell whether the tests know the class of an object by its name."""
    return bool(type.__getattribute__(type(proxy), KNOWN))


# Equality

_compared: list[tuple[int, int]] = []


def content(proxy: Any) -> Any:
    """Give what an object of a subclass of a built-in class is a list, number or text of; or None.

    It is as the code has told it, so that no operator of its own comes into play.
    """
    fields = link(proxy).fields(number(proxy)) or {}
    found = fields.get("()")
    return found if type(found) in _CONTAINED else None


_CONTAINED = (int, float, str, bytes, list, tuple, dict, set, frozenset)


def _class_of(kind: type) -> Callable[[Any], type]:
    def class_of(self: Any) -> type:
        return type(self) if content(self) is None else kind

    return class_of


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        plain = content(other) if isinstance(type(other), CodeClass) else other
        mine = content(one)
        return mine is not None and (mine == plain) is True
    if not type.__getattribute__(type(one), EQUATES):
        return False
    if known(one) and not link(one).quiet:
        return link(one).request("eq", one, other) is True
    pair = (number(one), number(other))
    if pair in _compared:  # they hold themselves, and so far all was equal
        return True
    mine, yours = link(one).fields(pair[0]), link(one).fields(pair[1])
    if mine is None or yours is None:
        return False
    _compared.append(pair)
    try:
        return mine == yours
    finally:
        _compared.remove(pair)


_shown_now: list[int] = []


def _shown(proxy: Any) -> str:
    """Give a text of an object without asking for it."""
    name, place = type(proxy).__name__, number(proxy)
    fields = None if place in _shown_now else link(proxy).fields(place)
    if not fields:
        return f"<{name} object>"
    _shown_now.append(place)
    try:
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in fields.items())})"
    finally:
        _shown_now.remove(place)


# Special methods: each asks for an operation of that name


def _asking(operation: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return link(self).request(operation, self, *arguments, **named)

    return method


def _checked(operation: str, kind: type) -> Callable[..., Any]:
    def method(self: Any) -> Any:
        value = link(self).request(operation, self)
        if type(value) is not kind:
            raise TypeError(f"{type(self).__name__} gave no {kind.__name__}")
        return value

    return method


def _text(operation: str) -> Callable[..., str]:
    def method(self: Any) -> str:
        if link(self).quiet:
            return _shown(self)
        value = link(self).request(operation, self)
        return value if type(value) is str else _shown(self)

    return method


def _operator(operation: str, *, swapped: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(type(other), CodeClass) and not known(self):
            mine, work = content(self), _WORK.get(operation)
            if mine is None or work is None:
                return NotImplemented
            return work(other, mine) if swapped else work(mine, other)
        return link(self).request(operation, *((other, self) if swapped else (self, other)))

    return method


def _contains(self: Any, item: Any) -> bool:
    if known(self):
        return bool(link(self).request("contains", self, item))
    mine = content(self)
    return any(item is each or item == each for each in self) if mine is None else item in mine


def _next(self: Any) -> Any:
    items, state, extra = link(self).request("next", self, 1)
    if state == "end" and not items:
        raise StopIteration(extra)
    return items[0]


def _leave(self: Any, kind: object, error: object, trace: object) -> Any:
    return link(self).request("exit", self, error)


def _leave_later(self: Any, kind: object, error: object, trace: object) -> Any:
    return link(self).request("aexit", self, error)


_BINARY = {
    **dict.fromkeys(
        [
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "mod",
            "divmod",
            "pow",
            "matmul",
            "lshift",
            "rshift",
            "xor",
        ]
    ),
    "and": "and_",
    "or": "or_",
}
# What is done with the content of an object and a value of the tests; not in place.
_WORK: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in [*(given or name for name, given in _BINARY.items()), "lt", "le", "gt", "ge"]
    if name != "divmod"
}
_WORK["divmod"] = divmod
_METHODS: dict[str, Any] = {
    "__len__": _asking("len"),
    "__iter__": _asking("iter"),
    "__next__": _next,
    "__anext__": _asking("anext"),
    "__aiter__": _asking("aiter"),
    "__aenter__": _asking("aenter"),
    "__aexit__": _leave_later,
    "__bool__": _checked("bool", bool),
    "__str__": _text("str"),
    "__repr__": _text("repr"),
    "__bytes__": _asking("bytes"),
    "__format__": _asking("format"),
    "__hash__": _checked("hash", int),
    "__int__": _checked("int", int),
    "__float__": _checked("float", float),
    "__complex__": _checked("complex", complex),
    "__index__": _checked("index", int),
    "__abs__": _asking("abs"),
    "__round__": _asking("round"),
    "__neg__": _asking("neg"),
    "__pos__": _asking("pos"),
    "__invert__": _asking("invert"),
    "__reversed__": _asking("reversed"),
    "__call__": _asking("call"),
    "__getitem__": _asking("getitem"),
    "__setitem__": _asking("setitem"),
    "__delitem__": _asking("delitem"),
    "__contains__": _contains,
    "__enter__": _asking("enter"),
    "__exit__": _leave,
    **{f"__{name}__": _operator(operation or name) for name, operation in _BINARY.items()},
    **{
        f"__r{name}__": _operator(operation or name, swapped=True)
        for name, operation in _BINARY.items()
    },
    **{f"__i{name}__": _operator(f"i{name}") for name in _BINARY if name not in ("divmod", "pow")},
    **{f"__{name}__": _operator(name) for name in ("lt", "le", "gt", "ge")},
}

# Methods of Python's own classes that say yes or no to what they are given.
_PREDICATES = {
    name
    for kind in (str, bytes, set, frozenset)
    for name in dir(kind)
    if name.startswith(("is", "startswith", "endswith"))
}
# Methods of theirs that tell where something is, or how often; `index` and `count` of a class of
# the code's own may be anything, and are what they are without an argument.
_SEARCHES = {"find", "rfind", "index", "rindex", "count"}
# What objects tell of themselves, and turn into where a library asks; a proxy has the special
# methods that tests use by themselves.
_DESCRIPTIONS = {
    *("__dict__", "__doc__", "__name__", "__qualname__", "__module__", "__annotations__"),
    *("__defaults__", "__kwdefaults__", "__wrapped__", "__self__", "__func__", "__code__"),
    *("__members__", "__dataclass_fields__", "__dataclass_params__", "__match_args__"),
    *("__abstractmethods__", "__args__", "__origin__", "__supertype__", "__signature__"),
    *("__notes__", "__version__", "__array__", "__fspath__"),
}
