"""Runs inside a kernel: writes all that its user's names hold into a file, as plain data.

The data has nothing in it that only one process knows. An object that is met again, under
whatever name, is told by the path at which it was met first.
"""

from __future__ import annotations

import copy
import dis
import pickle
import random
import re
import sys
import types
from pathlib import Path
from typing import Any

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
MADE = ("__dict__", "__weakref__", "__module__", "__firstlineno__", "__static_attributes__")
PLAIN = (type(None), bool, int, float, complex, str, bytes)
Form = tuple[Any, ...]


def write(shell: Any, path: str) -> None:
    """Write the forms of all names, the names' order, and what the generators draw next."""
    hidden = shell.user_ns_hidden
    names = [
        name
        for name, value in shell.user_ns.items()
        if not name.startswith("_") and not (name in hidden and hidden[name] is value)
    ]
    told = Teller()
    forms = {name: told.form(shell.user_ns[name], name) for name in sorted(names)}
    Path(path).write_bytes(pickle.dumps({"order": names, "forms": forms, "draws": draws()}))


def draws() -> dict[str, list[float]]:
    """Give what the global generators would draw next; copies draw it."""
    plain = random.Random()
    plain.setstate(random.getstate())
    found = {"random": [plain.random(), plain.gauss(0, 1)]}
    if "numpy.random" in sys.modules:
        np = sys.modules["numpy"]
        other = np.random.RandomState()
        other.set_state(np.random.get_state())
        found["numpy.random"] = [float(other.rand()), float(other.randn())]
    return found


class Teller:
    """Gives the forms of values, and remembers which it has met."""

    def __init__(self) -> None:
        self.met: dict[int, tuple[str, Any]] = {}

    def form(self, value: Any, path: str) -> Form:
        """Give the form of a value: a tag and what it consists of."""
        kind = type(value)
        if kind in PLAIN:
            return (kind.__name__, repr(value))
        if kind in (tuple, frozenset):
            return self.items(value, path)
        if id(value) in self.met:
            return ("same as", self.met[id(value)][0])
        self.met[id(value)] = (path, value)
        return self.mutable(value, path)

    def mutable(self, value: Any, path: str) -> Form:
        """Give the form of a value that can be met again."""
        kind = type(value)
        if kind in (list, set):
            return self.items(value, path)
        if kind is dict:
            pairs = [
                (self.form(key, f"{path} key"), self.form(item, f"{path}[{key!r:.50}]"))
                for key, item in value.items()
            ]
            return ("dict", pairs)
        if isinstance(value, types.ModuleType):
            return ("module", value.__name__)
        if isinstance(value, type):
            return self.class_(value, path)
        if isinstance(value, types.FunctionType):
            return self.function(value, path)
        if isinstance(value, types.MethodType):
            return ("method", self.form(value.__func__, path), self.form(value.__self__, path))
        if isinstance(value, types.GeneratorType):
            return self.generator(value, path)
        return self.instance(value, path)

    def items(self, value: Any, path: str) -> Form:
        """Give the form of a container without keys; a set's items in an order of their own."""
        kind = type(value)
        items = [self.form(item, f"{path}[{place}]") for place, item in enumerate(value)]
        return (kind.__name__, sorted(items) if kind in (set, frozenset) else items)

    def instance(self, value: Any, path: str) -> Form:
        """Give the form of any other object: its state, and what it does where it only does."""
        kind = type(value)
        package = kind.__module__.partition(".")[0]
        if package == "numpy":
            return self.numpy(value, path)
        if package in ("pandas", "polars", "pyarrow"):
            return ("raw", pickle.dumps(value))
        if isinstance(value, random.Random):
            return ("draws", copy.deepcopy(value).random())
        if hasattr(value, "__get__"):
            return self.descriptor(value, path)
        if package == "__main__" or hasattr(value, "__dict__"):
            base = [base for base in (list, dict, set, tuple, int, str) if isinstance(value, base)]
            content = [self.form(one(value), f"{path} as {one.__name__}") for one in base]
            slots = [
                (name, self.form(getattr(value, name), f"{path}.{name}"))
                for line in kind.__mro__
                for name in vars(line).get("__slots__", ())
                if hasattr(value, name)
            ]
            own = self.form(dict(getattr(value, "__dict__", {})), f"{path} attributes")
            return ("instance", self.form(kind, f"{path} class"), content, slots, own)
        try:
            return ("raw", pickle.dumps(value))
        except Exception:  # noqa: BLE001  what cannot be carried is told by its look
            return ("looks", kind.__qualname__, ADDRESS.sub("", repr(value)))

    def descriptor(self, value: Any, path: str) -> Form:
        """Give the form of an attribute of a class that is more than a value."""
        parts = ("fget", "fset", "fdel", "__func__", "__name__")
        found = [(part, getattr(value, part)) for part in parts if hasattr(value, part)]
        return (type(value).__name__, self.form(found, path))

    def numpy(self, value: Any, path: str) -> Form:
        """Give the form of an array, with the memory that it shares, or of a generator."""
        np = sys.modules["numpy"]
        if isinstance(value, np.random.Generator):
            return ("draws", copy.deepcopy(value).random(2).tolist())
        if not isinstance(value, np.ndarray):
            return ("raw", pickle.dumps(value))
        root = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        where, _ = self.met.setdefault(id(root), (path, root))
        start = value.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        place = (where if root is not value else "", start, value.strides)
        if value.dtype.hasobject:
            items = [self.form(item, f"{path}[{n}]") for n, item in enumerate(value.flat)]
            return ("objects", place, value.shape, items)
        return ("array", place, pickle.dumps(value))

    def function(self, value: Any, path: str) -> Form:
        """Give the form of a function: its instructions, defaults and closure."""
        if value.__module__ != "__main__":
            return ("function", value.__module__, value.__qualname__)
        cells = [
            self.form(cell.cell_contents, f"{path} closure {name}")
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        ]
        defaults = self.form([value.__defaults__, value.__kwdefaults__], f"{path} defaults")
        own = self.form(dict(vars(value)), f"{path} attributes")
        return ("own function", self.code(value.__code__, path), defaults, cells, own)

    def code(self, code: types.CodeType, path: str) -> Form:
        """Give the instructions of a function and of those that stand in it."""
        told: list[Form] = []
        for one in dis.get_instructions(code):
            if isinstance(one.argval, types.CodeType):
                told.append((one.opname, self.code(one.argval, path)))
            elif one.opname == "LOAD_CONST" or isinstance(one.argval, frozenset):
                told.append((one.opname, self.form(one.argval, path)))
            else:
                told.append((one.opname, one.argrepr))
        return ("code", code.co_name, code.co_varnames, code.co_argcount, told)

    def class_(self, value: type, path: str) -> Form:
        """Give the form of a class: its bases and attributes."""
        if value.__module__ != "__main__":
            return ("class", value.__module__, value.__qualname__)
        fields = [
            (name, self.form(field, f"{path}.{name}"))
            for name, field in vars(value).items()
            if name not in MADE
        ]
        bases = [self.form(base, f"{path} base") for base in value.__bases__]
        return ("own class", value.__qualname__, bases, fields)

    def generator(self, value: Any, path: str) -> Form:
        """Give the form of a generator: where it stands and what it holds there."""
        if value.gi_frame is None:
            return ("ended generator", value.__qualname__)
        held = self.form(dict(value.gi_frame.f_locals), f"{path} locals")
        return ("generator", value.__qualname__, value.gi_frame.f_lasti, held)
