"""What Python's own values consist of, as `walk` wants to know it: a head and further parts.

What a module holds under its own name is a reference to it. A class or function of the notebook
is what it does: its code, defaults, closure and attributes, wherever it was defined. The globals
that a function reads are names of the session themselves.
"""

from __future__ import annotations

import array
import collections
import datetime as dt
import decimal
import functools
import io
import itertools
import pathlib
import random
import re
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from .walk import LONG, PLAIN, Head, Lazy, Parts, Walk, blocks, dumps, kinds_of

MANY = 1_000
"""Entries of a dict or set from which they are not simply copied into a list."""
SORTABLE = 50_000
"""Elements up to which a set is put in order; of a longer one the length counts."""
_MRO = type.__dict__["__mro__"].__get__
_VARS = type.__dict__["__dict__"].__get__


class Look(Protocol):
    """What the values here need of `parts.Look`."""

    def class_of(self, walk: Walk, kind: type) -> Head:
        """Tell of a class."""

    def unordered(self, walk: Walk, items: Iterable[Any]) -> list[bytes]:
        """Give the hashes of items that have no order of their own, in order."""


class Content:
    """What an instance has from a built-in base, as a part of its own."""

    __slots__ = ("parts",)

    def __init__(self, parts: Parts) -> None:
        self.parts = parts


class Body:
    """The inside of a class, which as a part is no more than its name."""

    __slots__ = ("bases", "kind")

    def __init__(self, kind: type, bases: list[Head]) -> None:
        self.kind = kind
        self.bases = bases


def is_held(value: Any, module: str, qualname: str) -> bool:
    """Tell whether an imported module holds this very object under its qualified name."""
    if module == "__main__":
        return False
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        if isinstance(found, types.ModuleType):
            found = object.__getattribute__(found, "__dict__").get(name)
        elif any(line is type for line in _MRO(type(found))):
            found = _VARS(found).get(name)
        else:
            return False
    return found is value


def _content(look: Look, walk: Walk, value: Content) -> Parts:
    head, parts, _ = value.parts
    return head, parts, False


_PASSING = frozenset(
    (
        *("__dict__", "__weakref__", "__module__", "__firstlineno__", "__static_attributes__"),
        *("__annotate__", "__annotate_func__", "__annotations_cache__", "__signature__"),
        "_abc_impl",
    )
)
"""Attributes of a class that are its own no more than its address is."""


def _body(look: Look, walk: Walk, value: Body) -> Parts:
    fields = {
        name: field
        for name, field in _VARS(value.kind).items()
        # pydantic writes addresses into the schemas that it keeps under such names
        if name not in _PASSING and not name.startswith("__pydantic")
    }
    head = ("body", *fields, *value.bases, look.class_of(walk, type(value.kind)))
    return head, list(fields.values()), False


def _text(look: Look, walk: Walk, value: Any) -> Parts:
    def fetch(start: int, stop: int) -> bytes:
        part = value[start:stop]
        return part if type(part) is bytes else part.encode("utf-8", "surrogatepass")

    if len(value) <= LONG:
        return value, None, False
    walk.buffer(len(value), len(value), fetch)
    return ("long", type(value).__name__, len(value)), None, False


def _plain(look: Look, walk: Walk, value: Any) -> Parts:
    return value, None, False


def _list(look: Look, walk: Walk, value: Any) -> Parts:
    length = list.__len__(value)
    parts = value
    if type(value) is not list:
        parts = ranged(length, lambda start, stop: list.__getitem__(value, slice(start, stop)))
    return ("list", length), parts, True


def _tuple(look: Look, walk: Walk, value: Any) -> Parts:
    return ("tuple", len(value)), value, False


def ranged(length: int, fetch: Callable[[int, int], Any]) -> Lazy:
    """Make a lazy container of one that gives ranges of its items."""
    return Lazy(
        length,
        lambda wanted: [
            item for start, stop in blocks(length, wanted, 8) for item in fetch(start, stop)
        ],
    )


def _dict(look: Look, walk: Walk, value: Any) -> Parts:
    if type(value) is dict and len(value) <= MANY:
        return ("dict", len(value)), [*value, *value.values()], True
    return ("dict", dict.__len__(value)), _entries(dict, value), True


def _entries(kind: Any, value: Any) -> Any:
    """Give keys and values; of many, some from both ends, as a dict has no way to its middle."""
    length = dict.__len__(value)

    def pick(wanted: int) -> list[Any]:
        if wanted >= 2 * length:
            return [*kind.keys(value), *kind.values(value)]
        entries = kind.items(value)
        some = [*itertools.islice(entries, wanted // 4)]
        some += itertools.islice(reversed(entries), wanted // 4)
        return [part for entry in some for part in entry]

    return pick(2 * length) if length <= MANY else Lazy(2 * length, pick)


def _ordered_dict(look: Look, walk: Walk, value: Any) -> Parts:
    kind = collections.OrderedDict
    return ("OrderedDict", dict.__len__(value)), _entries(kind, value), True


def _default_dict(look: Look, walk: Walk, value: Any) -> Parts:
    factory = vars(collections.defaultdict)["default_factory"].__get__(value)
    return ("defaultdict",), [factory, Content(_dict(look, walk, value))], True


def _set(look: Look, walk: Walk, value: Any) -> Parts:
    kind: Any = frozenset if any(line is frozenset for line in _MRO(type(value))) else set
    length = kind.__len__(value)
    shareable = kind is set
    if length > SORTABLE:
        walk.sampled = True
        return (kind.__name__, length), None, shareable
    items = list(kind.__iter__(value))
    kinds = kinds_of(items)
    if kinds <= PLAIN:
        alike = len(kinds) == 1 and kinds & {str, int, bytes}
        items.sort(key=None if alike else dumps)
        return (kind.__name__, length), items, shareable
    if length > MANY:
        walk.sampled = True
        return (kind.__name__, length), None, shareable
    return (kind.__name__, *look.unordered(walk, items)), None, shareable


def _deque(look: Look, walk: Walk, value: Any) -> Parts:
    kind: Any = collections.deque
    length = kind.__len__(value)

    def pick(wanted: int) -> list[Any]:
        if wanted >= length:
            return list(kind.__iter__(value))
        half = wanted // 2
        head = itertools.islice(kind.__iter__(value), half)
        return [*head, *itertools.islice(kind.__reversed__(value), half)]

    return ("deque", length, kind.maxlen.__get__(value)), Lazy(length, pick), True


def _bytes_like(look: Look, walk: Walk, value: Any) -> Parts:
    view = memoryview(value)
    head = (type(value).__name__, view.format, *(view.shape or ()))
    flat = view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
    walk.buffer(flat.nbytes, flat.nbytes, lambda start, stop: flat[start:stop])
    return head, None, True


def _memory(look: Look, walk: Walk, value: Any) -> Parts:
    head = (type(value).__name__, value.tell())
    return head, [value.getvalue()], True


def _function(look: Look, walk: Walk, value: Any) -> Parts:
    name = (str(value.__module__), value.__qualname__)
    if is_held(value, *name):
        return ("function", *name), None, False
    cells = value.__closure__ or ()
    # From 3.14 on, they are code that computes them.
    notes = value.__annotations__ if sys.version_info < (3, 14) else {}
    # These dicts are the function's own; to tell that it shares them would say nothing.
    own = (value.__kwdefaults__ or {}, value.__dict__, notes)
    inside = [Content(_dict(look, walk, part)) for part in own]
    parts = [value.__code__, value.__defaults__, *inside, *cells]
    return ("own function", value.__name__, len(cells)), parts, True


def _cached(look: Look, walk: Walk, value: Any) -> Parts:
    """Tell of a function with `lru_cache`, whose results are no state of their own."""
    name = (str(value.__module__), value.__qualname__)
    if is_held(value, *name):
        return ("function", *name), None, False
    return ("cached",), [value.__wrapped__, value.cache_parameters()], True


def _cell(look: Look, walk: Walk, value: Any) -> Parts:
    try:
        return ("cell",), [value.cell_contents], True
    except ValueError:
        return ("empty cell",), None, True


def _code(look: Look, walk: Walk, value: Any) -> Parts:
    """Tell what code does; where it stood and which lines it has do not matter."""
    head = (
        "code",
        value.co_name,
        value.co_argcount,
        value.co_posonlyargcount,
        value.co_kwonlyargcount,
        value.co_flags,
        value.co_code,
        getattr(value, "co_exceptiontable", b""),
        value.co_names,
        value.co_varnames,
        value.co_freevars,
        value.co_cellvars,
    )
    return head, value.co_consts, False


def _method(look: Look, walk: Walk, value: Any) -> Parts:
    return ("method",), [value.__func__, value.__self__], False


def _builtin(look: Look, walk: Walk, value: Any) -> Parts:
    owner = value.__self__
    bound = [] if owner is None or isinstance(owner, types.ModuleType) else [owner]
    return ("builtin", str(value.__module__), value.__qualname__), bound, False


def _descriptor(look: Look, walk: Walk, value: Any) -> Parts:
    return (type(value).__name__, value.__name__), None, False


def _wrapped(look: Look, walk: Walk, value: Any) -> Parts:
    return (type(value).__name__,), [value.__func__], True


def _property(look: Look, walk: Walk, value: Any) -> Parts:
    return ("property",), [value.fget, value.fset, value.fdel, value.__doc__], True


def _partial(look: Look, walk: Walk, value: Any) -> Parts:
    return ("partial",), [value.func, value.args, value.keywords, value.__dict__], True


def _module(look: Look, walk: Walk, value: Any) -> Parts:
    fields = object.__getattribute__(value, "__dict__")
    name, version = fields.get("__name__"), fields.get("__version__")
    head = ("module", str(name), version if type(version) is str else "")
    if type(name) is str and sys.modules.get(name) is value:
        return head, None, False
    own = {name: part for name, part in fields.items() if not name.startswith("__")}
    return head, [*own, *own.values()], True


def _union(look: Look, walk: Walk, value: Any) -> Parts:
    return ("union",), value.__args__, False


def _reduced(look: Look, walk: Walk, value: Any) -> Parts:
    """Tell of a value of a class written in C by what it would be made anew from."""
    made = value.__reduce_ex__(4)  # below that, a time loses its fold
    return (type(value).__name__,), list(made[1:]), False


def _iterator(look: Look, walk: Walk, value: Any) -> Parts:
    head, parts, _ = _reduced(look, walk, value)
    return head, parts, True


def _exception(look: Look, walk: Walk, value: Any) -> Parts:
    return ("exception",), [BaseException.args.__get__(value)], True  # type: ignore[attr-defined]


def _random(look: Look, walk: Walk, value: Any) -> Parts:
    return ("Random",), [random.Random.getstate(value)], True


class _Named(NamedTuple):
    field: None


_Own = Callable[[Look, Walk, Any], Parts]

_LOOKS: dict[type, _Own] = {
    **dict.fromkeys((int, float, bool, type(None)), _plain),
    **dict.fromkeys((str, bytes), _text),
    complex: lambda look, walk, value: (("complex", value.real, value.imag), None, False),
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _set,
    collections.OrderedDict: _ordered_dict,
    collections.defaultdict: _default_dict,
    collections.deque: _deque,
    **dict.fromkeys((bytearray, memoryview, array.array), _bytes_like),
    **dict.fromkeys((io.StringIO, io.BytesIO), _memory),
    range: _reduced,
    slice: _reduced,
    **dict.fromkeys(
        (dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone),
        _reduced,
    ),
    decimal.Decimal: lambda look, walk, value: (
        ("Decimal", decimal.Decimal.__str__(value)),
        None,
        False,
    ),
    pathlib.PurePath: lambda look, walk, value: (
        ("path", pathlib.PurePath.__str__(value)),
        None,
        False,
    ),
    re.Pattern: lambda look, walk, value: (("pattern", value.pattern, value.flags), None, False),
    **dict.fromkeys(
        map(type, (iter([]), iter(()), iter(range(0)), reversed([]), iter(""))), _iterator
    ),
    **dict.fromkeys((enumerate, zip, map, filter), _iterator),
    types.FunctionType: _function,
    types.CodeType: _code,
    types.CellType: _cell,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin,
    types.ModuleType: _module,
    **dict.fromkeys(
        (
            types.GetSetDescriptorType,
            types.MemberDescriptorType,
            types.WrapperDescriptorType,
            types.MethodDescriptorType,
            types.ClassMethodDescriptorType,
        ),
        _descriptor,
    ),
    types.MappingProxyType: lambda look, walk, value: (("proxy",), [dict(value)], False),
    types.GenericAlias: lambda look, walk, value: (
        ("alias",),
        [value.__origin__, value.__args__],
        False,
    ),
    **({types.UnionType: _union} if sys.version_info >= (3, 10) else {}),
    type(vars(_Named)["field"]): _reduced,
    staticmethod: _wrapped,
    classmethod: _wrapped,
    property: _property,
    functools.partial: _partial,
    # Up to Python 3.11 it has a lock as well.
    functools.cached_property: lambda look, walk, value: (("cached property",), [value.func], True),
    type(functools.lru_cache(len)): _cached,
    BaseException: _exception,
    random.Random: _random,
    Content: _content,
    Body: _body,
}

OWN = {id(kind): look for kind, look in _LOOKS.items()}
"""How to look into values by the id of their class, as a metaclass may define `__hash__`."""

BARE: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
}
"""How an instance of a subclass gives what the base has, past methods of its own."""
