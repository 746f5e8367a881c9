"""Find the tests in a source and plan how to run them: one case an assert, function or method.

A plan is a list of units, small programs that run one after the other in one namespace. A unit
holds any number of cases: most hold one assert; a loop holds all asserts in it; what only
prepares the ground holds none. The body of `check(candidate)` is laid out as if it stood at the
top level, so that each of its statements has a time limit of its own.

The controller reads the same plan to name the cases before anything runs.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing import TypeGuard  # came with Python 3.10

FILENAME = "<tests>"

FunctionNode = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*FunctionNode, ast.ClassDef, ast.Lambda)
_RAISES = {"raises", "warns", "assertRaises", "assertRaisesRegex", "assertWarns"}
_RUNNERS = {"unittest.main", "pytest.main"}


class Case(NamedTuple):
    """One test."""

    name: str
    expression: str
    """What is asserted, on one line; "" for a function, which may assert many things."""
    looped: bool = False
    """Whether it stands in a loop, and so is done only when the whole unit is."""
    unsupported: str = ""
    """Why it cannot be run here, or ""."""


class Unit(NamedTuple):
    """Statements that run together, and the cases among them by index."""

    body: list[ast.stmt]
    cases: dict[ast.AST, int]
    """The node of each case -> its index in the plan."""


class Call(NamedTuple):
    """A unit that calls a test function, or a method of a test class."""

    path: tuple[str, ...]
    """Function, or class and method."""
    case: int
    row: int | None
    """Which row of a literal `parametrize` the case is; None for all rows there may be."""
    awaits: bool
    function: Any
    """The node of the function or method."""
    owner: Any
    """The node of the class, None for a function."""


class Plan(NamedTuple):
    """All cases of a source and the units that run them, in order."""

    cases: list[Case]
    units: list[Unit | Call]
    guesses: str = ""
    """The name `check` gives its candidate, where the session has to tell which that is."""
    added: str = ""
    """The call of `check` that the source leaves out."""
    source: str = ""
    """What was planned, and the entry point it was planned for."""
    entry_point: str = ""

    @property
    def looped(self) -> set[int]:
        """The cases in loops, by index."""
        return {index for index, case in enumerate(self.cases) if case.looped}

    def of(self, unit: int) -> list[int]:
        """Give the cases of a unit, by index."""
        found = self.units[unit]
        return [found.case] if isinstance(found, Call) else sorted(found.cases.values())


def plan(source: str, entry_point: str = "") -> Plan:
    """Find the cases of a source.

    Parameters
    ----------
    source: asserts, a `check(candidate)` function, pytest-style functions and classes.
    entry_point: the expression that a `check` nobody calls is given; "" leaves it to the session.

    Raises
    ------
    SyntaxError: the source does not parse or compile.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source, FILENAME)
        compile(source, FILENAME, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        return _Planner(source, tree, entry_point).plan()


class _Planner:
    def __init__(self, source: str, tree: ast.Module, entry_point: str) -> None:
        self.source = source
        self.lines = lines_of(source)
        self.entry_point = entry_point
        self.body = tree.body
        self.cases: list[Case] = []
        self.units: list[Unit | Call] = []
        self.counts: dict[str, int] = {}
        self.names: set[str] = set()
        self.defined = {
            node.name: node for node in self.body if isinstance(node, (*FunctionNode, ast.ClassDef))
        }
        self.called = {
            _last_name(inner.func)
            for node in self.body
            for inner in (node, *own_nodes(node))
            if isinstance(inner, ast.Call) and not isinstance(node, _SCOPES)
        }
        check = self.defined.get("check")
        self.check = check if isinstance(check, FunctionNode) and parameters(check) else None
        self.checkers = {
            name
            for name, node in self.defined.items()
            if isinstance(node, FunctionNode) and node is not self.check and _asserts(node)
        }

    def plan(self) -> Plan:
        called = False
        for node in self._opened():
            if self.check is not None and _calls(node, "check"):
                called = True
                self._check(self.check, node)
            elif not self._is_test_call(node):
                self._statement(node, "test_#")
        guesses = added = ""
        if self.check is not None and not called:
            guesses = "" if self.entry_point else parameters(self.check)[0]
            name = self.entry_point or "@candidate"
            argument = ast.parse(name, mode="eval").body if self.entry_point else _name(name)
            call = ast.Expr(ast.Call(_name("check"), [argument], []))
            self._check(self.check, ast.copy_location(call, self.check))
            wait = "await " if isinstance(self.check, ast.AsyncFunctionDef) else ""
            added = f"{wait}{ast.unparse(call)}"
        for node in self.defined.values():
            if isinstance(node, ast.ClassDef):
                self._class(node)
            elif node.name.startswith("test"):
                self._function((node.name,), node)
        return Plan(self.cases, self.units, guesses, added, self.source, self.entry_point)

    def _opened(self) -> Iterator[ast.stmt]:
        """Give the statements, those of a `__main__` block only if it holds tests itself."""
        for node in self.body:
            if not isinstance(node, ast.If) or not is_main(node):
                yield node
            elif any(_calls(child, "check") or list(self._probes(child)) for child in node.body):
                yield from node.body

    def _statement(self, node: ast.stmt, name: str) -> None:
        found = list(self._probes(node))
        if not found:
            self._prepare(node)
            return
        cases = {
            probe: self._case(name, self._text(probe), looped=looped) for probe, looped in found
        }
        self.units.append(Unit([node], cases))

    def _prepare(self, node: ast.stmt) -> None:
        last = self.units[-1] if self.units else None
        if isinstance(last, Unit) and not last.cases:
            last.body.append(node)
        else:
            self.units.append(Unit([node], {}))

    def _probes(self, node: ast.AST, *, looped: bool = False) -> Iterator[tuple[ast.AST, bool]]:
        """Give the nodes of a statement that are a case each, and whether they are in a loop."""
        if isinstance(node, _SCOPES):
            return
        if isinstance(node, ast.Assert) or self._is_checking_call(node) or _is_raises(node):
            yield node, looped
            return
        looped = looped or isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        inner = [
            pair
            for child in ast.iter_child_nodes(node)
            if isinstance(child, (ast.stmt, ast.excepthandler)) or hasattr(child, "pattern")
            for pair in self._probes(child, looped=looped)
        ]
        if inner and getattr(node, "handlers", None):
            # Taken one by one, its asserts could not reach the handlers that wait for them.
            yield node, looped
        else:
            yield from inner

    def _is_checking_call(self, node: ast.AST) -> bool:
        call = _call(node)
        name = _last_name(call.func) if call else ""
        return name in self.checkers or name.startswith("assert")

    def _is_test_call(self, node: ast.AST) -> bool:
        """Tell whether a statement runs a test function or all of them, as we shall do."""
        call = _call(node)
        called = ast.unparse(call.func) if call else ""
        return is_runner(node) or (called.startswith("test") and called in self.defined)

    def _check(self, check: Any, statement: ast.stmt) -> None:
        call = _call(statement)
        assert call is not None
        body = _straight_body(check)
        if len(parameters(check)) != 1 or len(call.args) != 1:
            body = []
        if any(list(self._probes(node)) for node in body):
            target = ast.Name(parameters(check)[0], ast.Store())
            bound = ast.copy_location(ast.Assign([target], call.args[0]), statement)
            self._prepare(ast.fix_missing_locations(bound))
            for node in self._fresh(check):
                self._statement(node, "check[#]")
        else:
            # What it asserts is out of sight, or it returns in between: one case in all.
            holds = ast.Compare(call, [ast.IsNot()], [ast.Constant(False)])
            asserted = ast.copy_location(ast.Assert(holds, None), statement)
            index = self._case("check", one_line(call, self.lines))
            self.units.append(Unit([ast.fix_missing_locations(asserted)], {asserted: index}))

    def _fresh(self, check: Any) -> list[ast.stmt]:
        """Give the body of `check` in nodes of its own; to parse again is quicker than to copy."""
        again = ast.parse(self.source, FILENAME)
        return _straight_body(again.body[self.body.index(check)])

    def _function(self, path: tuple[str, ...], node: Any, owner: Any = None) -> None:
        rows, covered = _parametrized(node)
        needed = [name for name in parameters(node, required=True) if name not in covered]
        if owner is not None and not decorators(node, "staticmethod"):
            needed = needed[1:]
        if needed and owner is None and path[0] in self.called:
            return  # a function that checks, with arguments of the source's own
        problem = _skipped(node)
        if needed:
            problem = f"pytest fixtures are not supported ({', '.join(needed)})"
        name = ".".join(path)
        awaits = isinstance(node, ast.AsyncFunctionDef) or uses_asyncio_run(node)
        for row in [None] if rows is None else range(rows):
            label = name if row is None else f"{name}[{row + 1}]"
            index = self._case(label, "", unsupported=problem)
            if not problem:
                self.units.append(Call(path, index, row, awaits, node, owner))

    def _class(self, node: ast.ClassDef) -> None:
        if not node.name.startswith("Test") and not is_test_case(node):
            return
        for name, method in self._methods(node).items():
            self._function((node.name, name), method, node)

    def _methods(self, node: ast.ClassDef) -> dict[str, ast.AST]:
        found: dict[str, ast.AST] = {}
        for base in node.bases:
            parent = self.defined.get(_last_name(base))
            if isinstance(parent, ast.ClassDef) and parent is not node:
                found.update(self._methods(parent))
        for item in node.body:
            if isinstance(item, FunctionNode) and item.name.startswith("test"):
                found[item.name] = item
        return found

    def _case(
        self, name: str, expression: str, *, looped: bool = False, unsupported: str = ""
    ) -> int:
        self.counts[name] = self.counts.get(name, 0) + 1
        name = name.replace("#", str(self.counts[name]))
        while name in self.names:
            name += "'"
        self.names.add(name)
        self.cases.append(Case(name, expression, looped, unsupported))
        return len(self.cases) - 1

    def _text(self, node: ast.AST) -> str:
        """Give a case's source on one line, without the word assert."""
        shown = node.test if isinstance(node, ast.Assert) else node
        return one_line(shown, self.lines)


def lines_of(source: str) -> list[str]:
    """Give a source's lines as Python counts them, which `splitlines` does not."""
    return re.split(r"\r\n|\r|\n", source)


def one_line(node: ast.AST, lines: list[str]) -> str:
    """Give a node's source: as written where it stands on one line, else as Python writes it."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    if first and first == last and first <= len(lines):
        line = lines[first - 1].encode()
        return line[node.col_offset : node.end_col_offset].decode()  # type: ignore[attr-defined]
    return " ".join(line.strip() for line in ast.unparse(node).splitlines())


def uses_asyncio_run(node: ast.AST) -> bool:
    """Tell whether a function runs coroutines itself, which a kernel's running loop forbids."""
    return any(is_asyncio_run(inner) for inner in ast.walk(node))


def is_asyncio_run(node: ast.AST) -> TypeGuard[ast.Call]:
    """Tell whether a node is a call of `asyncio.run` with one coroutine."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func) == "asyncio.run"
        and len(node.args) == 1
    )


def is_runner(node: ast.AST) -> bool:
    """Tell whether a statement only runs all tests, as `unittest.main()` does."""
    call = _call(node)
    return call is not None and ast.unparse(call.func) in _RUNNERS


def is_main(node: ast.If) -> bool:
    """Tell whether a statement is `if __name__ == "__main__":`."""
    return ast.unparse(node.test) in ("__name__ == '__main__'", "'__main__' == __name__")


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _call(node: ast.AST) -> ast.Call | None:
    """Give the call that a statement consists of, past `await` and `asyncio.run`."""
    value: ast.AST | None = node.value if isinstance(node, ast.Expr) else None
    if isinstance(value, ast.Await):
        value = value.value
    elif value is not None and is_asyncio_run(value):
        value = value.args[0]
    return value if isinstance(value, ast.Call) else None


def _calls(node: ast.AST, name: str) -> bool:
    call = _call(node)
    return call is not None and isinstance(call.func, ast.Name) and call.func.id == name


def _asserts(node: ast.AST) -> bool:
    """Tell whether a function is there to check: it asserts, or calls what does."""
    return any(
        isinstance(inner, ast.Assert)
        or (isinstance(inner, ast.Call) and _last_name(inner.func).startswith("assert"))
        or (isinstance(inner, ast.Raise) and "AssertionError" in ast.unparse(inner))
        for inner in ast.walk(node)
    )


def _is_raises(node: ast.AST) -> bool:
    """Tell whether a statement is `with pytest.raises(...):` or one of its kin."""
    return isinstance(node, (ast.With, ast.AsyncWith)) and any(
        isinstance(item.context_expr, ast.Call) and _last_name(item.context_expr.func) in _RAISES
        for item in node.items
    )


def parameters(node: Any, *, required: bool = False) -> list[str]:
    """Give the names of a function's positional parameters, all or those without a default."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    names = [argument.arg for argument in arguments]
    return names[: len(names) - len(node.args.defaults)] if required else names


def _straight_body(node: Any) -> list[ast.stmt]:
    """Give a function's statements if they mean the same outside of it, else none."""
    body: list[ast.stmt] = node.body
    if body and isinstance(body[-1], ast.Return):
        body = body[:-1]
    bound = (ast.Return, ast.Yield, ast.YieldFrom, ast.Nonlocal, ast.Global)
    inside = [inner for statement in body for inner in (statement, *own_nodes(statement))]
    return [] if any(isinstance(inner, bound) for inner in inside) else body


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a function without the functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield child
            yield from own_nodes(child)


def is_test_case(node: ast.ClassDef) -> bool:
    """Tell whether a class is one of unittest's."""
    return any(_last_name(base).endswith("TestCase") for base in node.bases)


def decorators(node: Any, name: str) -> list[ast.expr]:
    """Give a function's decorators of that name, called or not, wherever it comes from."""
    return [
        item
        for item in node.decorator_list
        if _last_name(item.func if isinstance(item, ast.Call) else item) == name
    ]


def _skipped(node: Any) -> str:
    return "it is marked to be skipped" if decorators(node, "skip") else ""


def _parametrized(node: Any) -> tuple[int | None, set[str]]:
    """Give the number of rows of one literal `parametrize`, and all names such marks fill."""
    marks = [mark for mark in decorators(node, "parametrize") if isinstance(mark, ast.Call)]
    covered: set[str] = set()
    rows: int | None = None
    for mark in marks:
        if len(mark.args) < 2:
            continue
        covered.update(filled(mark.args[0]))
        if len(marks) == 1 and isinstance(mark.args[1], (ast.List, ast.Tuple)):
            rows = len(mark.args[1].elts)
    return rows, covered


def filled(names: ast.expr) -> list[str]:
    """Give the names in the first argument of `parametrize`; [] where it is no literal."""
    try:
        value = ast.literal_eval(names)
    except ValueError:
        return []
    return re.split(r"[\s,]+", value.strip()) if isinstance(value, str) else list(value)
