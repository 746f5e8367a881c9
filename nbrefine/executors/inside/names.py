"""Which of the names that tests use are the code's, and which are the tests' own.

The tests judge, so what they judge with is theirs: built-in functions, modules, and what the
task's setup defines apart from classes, whose objects live with the code. The code's are: the
entry point, and any other name that the tests use and do not have. A built-in name such as `sum`
is the code's only if it is the entry point; or, where there is no entry point, if the tests use
no other name that they do not have themselves, and the code defines exactly one of the built-in
names they use. So a code that defines `len` beside the function under test cannot reach a test
that calls `len`.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

_STANDARD = set(getattr(sys, "stdlib_module_names", sys.builtin_module_names))
_OTHERS = {"numpy", "pandas", "scipy", "sympy", "networkx", "sortedcontainers", "pytest"}
_NEVER = {
    "antigravity",
    "this",
    "idlelib",
    "turtledemo",
    "test",
    "lib2to3",
}  # do things, or are long
_SHORT = {"np": "numpy", "pd": "pandas"}


class Told(NamedTuple):
    """What the code's process says that a name of the code is."""

    what: str
    """module, import, function, class or value."""
    module: str
    name: str


class Names:
    """The names of one task.

    Parameters
    ----------
    tests, setup: sources.
    entry_point: what is under test, "" where that is not known.
    """

    def __init__(self, tests: str, setup: str, entry_point: str) -> None:
        tree = ast.parse(tests)
        self.used = _loaded(tree) | _parsed_names(entry_point)
        """Names that the tests speak of."""
        self.bound = _bound(tree)
        """Names that they give a meaning themselves."""
        defined = _definitions(setup)
        self.setup = set(defined)
        """Names that setup defines."""
        self.helpers = {
            name for name, is_class in defined.items() if not is_class and name in self.used
        }
        """Those of them that the tests use and that are no classes."""
        self.classes = {name for name, is_class in defined.items() if is_class}
        self._entry = _parsed_names(entry_point)
        self.helpers -= self._entry
        # Told here, for all that are forked: to look at every built-in name would copy its page.
        self._unbound = sorted(self.used - self.bound - self._entry)
        self._others = self.used - self.bound - vars(builtins).keys()
        self._missed = (self.used | self.classes) - vars(builtins).keys()

    @functools.cached_property
    def known_classes(self) -> set[str]:
        """Names of the classes that the tests are about, as far as their text tells.

        The name must be written as that of a class: else code could put a class in the place of
        the function under test.
        """
        foreign = self.bound | self.classes | vars(builtins).keys()
        return {name for name in self.used - foreign if name.lstrip("_")[:1].isupper()}

    def modules(self, told: dict[str, Told]) -> dict[str, Any]:
        """Import what the code has imported and the tests use without doing so."""
        found = {}
        for name in self._unbound:
            meant = told.get(name)
            if meant is None or meant.what not in ("module", "import") or name in vars(builtins):
                continue
            value = _imported(name, meant)
            if value is not None:
                found[name] = value
        return found

    def of_code(self, told: dict[str, Told], own: Iterable[str]) -> list[str]:
        """Give the names that are the code's, `own` being names the tests have already."""
        missed = self._missed - set(own)
        found = [name for name in told if name in self._entry or name in missed]
        if self._entry:
            return found
        others = self._others - set(own)
        shadowing = [
            name
            for name, meant in told.items()
            if name in self.used
            and name not in self.bound
            and name in vars(builtins)
            and meant.what in ("function", "class")
        ]
        return [*found, *shadowing] if not others and len(shadowing) == 1 else found


def _imported(name: str, meant: Told) -> Any:
    """Give a module, or what a module holds; None where it is not ours to have."""
    if meant.what == "module":
        wanted = name if _is_allowed(name) else meant.module
        wanted = _SHORT.get(name, wanted)
        return _module(wanted)
    module = _module(meant.module)
    return getattr(module, name, None) if name == meant.name else None


def _is_allowed(module: str) -> bool:
    root, *inner = module.split(".")
    public = not any(part.startswith("_") for part in (root, *inner))
    return public and root in _STANDARD | _OTHERS and root not in _NEVER


def _module(name: str) -> Any:
    if not _is_allowed(name) and (name not in sys.modules or name.startswith("_")):
        return None
    try:
        return importlib.import_module(name)
    except Exception:  # noqa: BLE001  it is the code that says which module
        return None


def _loaded(tree: ast.AST) -> set[str]:
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _parsed_names(expression: str) -> set[str]:
    return _loaded(ast.parse(expression)) if expression else set()


def _bound(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return found


def _definitions(setup: str) -> dict[str, bool]:
    """Give the names that setup defines itself, and whether each is a class."""
    try:
        body = ast.parse(setup).body
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, bool] = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[node.name] = isinstance(node, ast.ClassDef)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.For, ast.With)):
            found.update(dict.fromkeys(_stored(node), False))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (alias.asname or alias.name.partition(".")[0] for alias in node.names)
            found.update(dict.fromkeys(names, False))
    return found


def _stored(node: ast.AST) -> set[str]:
    return {
        inner.id
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
    }
