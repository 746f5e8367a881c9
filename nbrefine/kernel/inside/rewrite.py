"""Turn a unit of tests into a program whose asserts tell what they got and what they wanted.

`assert f(x) == y, message` becomes, with `@tests` for the recorder, a name no test can touch::

    @tests.open(k)
    if not (@tests.got(k, f(x)) == @tests.want(k, y)):
        raise @tests.failed(k, message)

so that each side is evaluated once, in its own frame, and Python's own operator compares. Where
the assert is a case by itself, `with @tests.case(i):` around it records the failure and lets the
unit go on.
"""

from __future__ import annotations

import ast
import types
from typing import Any, NamedTuple

from .cases import (
    FILENAME,
    FunctionNode,
    Unit,
    is_asyncio_run,
    one_line,
    own_nodes,
    uses_asyncio_run,
)

RECORDER = "@tests"

_SIGNS = {
    ast.Eq: "",
    ast.NotEq: "!= ",
    ast.Lt: "< ",
    ast.LtE: "<= ",
    ast.Gt: "> ",
    ast.GtE: ">= ",
    ast.Is: "is ",
    ast.IsNot: "is not ",
    ast.In: "in ",
    ast.NotIn: "not in ",
}
_MIRRORED = {ast.Eq: "", ast.NotEq: "!= ", ast.Lt: "> ", ast.LtE: ">= ", ast.Gt: "< "}
_MIRRORED.update({ast.GtE: "<= ", ast.Is: "is ", ast.IsNot: "is not "})
_PAIRS = {"isclose", "allclose", "array_equal", "array_equiv", "equals"}
_PLAIN_CALLS = {"isinstance", "abs", "len", "sorted", "list", "set", "dict", "tuple", "sum"}


class Detail(NamedTuple):
    """What is known of an assert, or of one part of it, before it runs."""

    expression: str
    prefix: str = ""
    """What stands before the wanted value, for example "!= "."""
    suffix: str = ""
    expected: str = ""
    """What was wanted where no value was evaluated for it, as source or in words."""
    typed: bool = False
    """Whether the class of the value that was there is worth telling."""


def needs_await(unit: Unit) -> bool:
    """Tell whether a unit can only run as a coroutine, by what is written in it."""
    return any(
        isinstance(inner, (ast.Await, ast.AsyncFor, ast.AsyncWith)) or is_asyncio_run(inner)
        for statement in unit.body
        if not isinstance(statement, (*FunctionNode, ast.ClassDef))
        for inner in (statement, *own_nodes(statement))
    )


def program(unit: Unit, lines: list[str], details: list[Detail], *, awaits: bool) -> types.CodeType:
    """Compile a unit; what is known of its asserts is appended to `details`.

    Parameters
    ----------
    unit: used up: its nodes are changed.
    lines: the source the unit is a part of.
    awaits: whether the code is a coroutine's, and calls that give a coroutine are awaited.
    """
    rewriter = _Rewriter(unit.cases, lines, details, awaits=awaits)
    body: list[Any] = []
    for statement in unit.body:
        new = rewriter.visit(statement)
        body.extend(new if isinstance(new, list) else [new])
    tree = ast.Module(body, [])
    _locate(tree, dict.fromkeys(_PLACE, 1))
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if awaits else 0
    if any("from __future__ import annotations" in line for line in lines):
        flags |= annotations.compiler_flag
    return compile(tree, FILENAME, "exec", flags, dont_inherit=True)  # type: ignore[no-any-return]


_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")


def _locate(node: ast.AST, place: dict[str, Any]) -> None:
    """Give the nodes that we made the place of what they stand in.

    As `ast.fix_missing_locations` does, which takes a third of all the time that goes into a check.
    """
    own = node.__dict__
    if "lineno" in own:
        place = own
    elif "lineno" in node._attributes:  # noqa: SLF001 - as `ast` documents it
        for name in _PLACE:
            own[name] = place[name]
    for name in node._fields:
        value = own.get(name)
        if isinstance(value, list):
            for item in value:
                if isinstance(item, ast.AST):
                    _locate(item, place)
        elif isinstance(value, ast.AST) and value._fields:
            _locate(value, place)


class _Rewriter(ast.NodeTransformer):
    def __init__(
        self,
        cases: dict[ast.AST, int],
        lines: list[str],
        details: list[Detail],
        *,
        awaits: bool,
    ) -> None:
        self.cases = cases
        self.lines = lines
        self.details = details
        self.awaits = awaits
        """Whether `await` may stand where the visitor is."""
        self.settles = awaits
        """Whether a call there that gives a coroutine is awaited."""

    def visit(self, node: ast.AST) -> Any:
        new = super().visit(node)
        case = self.cases.get(node)
        if case is None:
            return new
        body = new if isinstance(new, list) else [new]
        held = ast.With([ast.withitem(_call("case", ast.Constant(case)))], body)
        live = ast.If(_call("live", ast.Constant(case)), [held], [])
        return ast.copy_location(live, node)

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        expression = one_line(node.test, self.lines)
        index = self._detail(Detail(expression))
        test = self.visit(self._watched(node.test, expression))
        arguments = [ast.Constant(index)]
        if node.msg is not None:
            arguments.append(self.visit(node.msg))
        new: list[ast.stmt] = [
            ast.Expr(_call("open", ast.Constant(index))),
            ast.If(
                ast.UnaryOp(ast.Not(), test),
                [ast.Raise(_call("failed", *arguments), None)],
                [ast.Expr(_call("done"))],
            ),
        ]
        return [ast.copy_location(item, node) for item in new]

    def _detail(self, detail: Detail) -> int:
        self.details.append(detail)
        return len(self.details) - 1

    def _watched(self, node: ast.expr, expression: str) -> ast.expr:
        """Give the asserted expression with its telling parts handed through the recorder."""
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            node.values = [self._watched(value, expression) for value in node.values]
            return node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._watched_not(node, expression)
        if isinstance(node, ast.Compare):
            return self._watched_compare(node, expression)
        if isinstance(node, ast.Call):
            return self._watched_call(node, expression)
        if isinstance(node, ast.Constant):
            return node
        return self._got(node, Detail(expression, expected="a true value"))

    def _watched_not(self, node: ast.UnaryOp, expression: str) -> ast.expr:
        if isinstance(node.operand, ast.Compare):
            inner = node.operand
            sign = "== " if isinstance(inner.ops[0], ast.Eq) else ""
            node.operand = self._watched_compare(inner, expression, prefix=f"not {sign}")
        else:
            node.operand = self._got(node.operand, Detail(expression, expected="a false value"))
        return node

    def _watched_compare(self, node: ast.Compare, expression: str, *, prefix: str = "") -> ast.expr:
        operator = type(node.ops[0])
        right = node.comparators[0]
        if len(node.ops) > 1:
            operands = [node.left, *node.comparators]
            place = next((i for i, item in enumerate(operands) if not _is_literal(item)), 0)
            told = Detail(expression, expected=f"{prefix}{expression}")
            operands[place] = self._got(operands[place], told)
            node.left, node.comparators = operands[0], operands[1:]
            return node
        distance = _distance(node)
        if distance is not None:
            bound = f" ({_SIGNS[operator]}{one_line(right, self.lines)} away)"
            told = Detail(expression, prefix, bound)
            distance.left, distance.right = self._both(distance.left, distance.right, told)
        elif _is_literal(node.left) and not _is_literal(right) and operator in _MIRRORED:
            told = Detail(expression, prefix + _MIRRORED[operator])
            node.left, node.comparators[0] = self._both(right, node.left, told)[::-1]
        else:
            told = Detail(expression, prefix + _SIGNS[operator])
            node.left, node.comparators[0] = self._both(node.left, right, told)
        return node

    def _watched_call(self, node: ast.Call, expression: str) -> ast.expr:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if name == "isinstance" and len(node.args) == 2:
            wanted = f"an instance of {one_line(node.args[1], self.lines)}"
            told = Detail(expression, expected=wanted, typed=True)
            node.args[0] = self._got(node.args[0], told)
        elif name in _PAIRS and len(node.args) >= 2:
            told = Detail(expression, "close to " if "close" in name else "")
            node.args[:2] = self._both(node.args[0], node.args[1], told)
        elif isinstance(node.func, ast.Attribute) and name == "equals" and len(node.args) == 1:
            told = Detail(expression)
            node.func.value, node.args[0] = self._both(node.func.value, node.args[0], told)
        elif (
            isinstance(node.func, ast.Attribute)
            and name == "all"
            and isinstance(node.func.value, ast.Compare)
        ):
            node.func.value = self._watched_compare(node.func.value, expression)
        else:
            return self._got(node, Detail(expression, expected="a true value"))
        return node

    def _got(self, node: ast.expr, detail: Detail) -> ast.expr:
        return _call("got", ast.Constant(self._detail(detail)), node)

    def _both(self, got: ast.expr, want: ast.expr, detail: Detail) -> tuple[ast.expr, ast.expr]:
        source = f"{detail.prefix}{one_line(want, self.lines)}{detail.suffix}"
        index = self._detail(detail._replace(expected=source))
        return _call("got", ast.Constant(index), got), _call("want", ast.Constant(index), want)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name.startswith("test") and uses_asyncio_run(node):
            # `asyncio.run` fails inside a kernel's running loop: there, `await` does its work.
            fields = {name: getattr(node, name) for name in node._fields}
            return self._within(
                ast.copy_location(ast.AsyncFunctionDef(**fields), node), awaits=True
            )
        return self._within(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._within(node, awaits=True)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._within(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._within(node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        return self._within(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.AST:
        return self._within(node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.AST:
        return self._within(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        return self._within(node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return self._within(node, awaits=self.awaits)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if self.awaits and is_asyncio_run(node):
            self._within(node, awaits=True)
            return ast.copy_location(ast.Await(_call("settle", node.args[0])), node)
        name = ast.unparse(node.func) if self.settles else ""
        if not self.settles or name.startswith("asyncio."):
            return self._within(node, awaits=self.awaits)
        self.generic_visit(node)
        if name in _PLAIN_CALLS or name.startswith(RECORDER):
            return node
        return ast.copy_location(ast.Await(_call("settle", node)), node)

    def _within(self, node: ast.AST, *, awaits: bool = False) -> ast.AST:
        """Visit what is in a node in which calls are not awaited by themselves."""
        before = self.awaits, self.settles
        self.awaits, self.settles = awaits, False
        self.generic_visit(node)
        self.awaits, self.settles = before
        return node


def _call(method: str, *arguments: ast.expr) -> ast.Call:
    recorder = ast.Name(RECORDER, ast.Load())
    return ast.Call(ast.Attribute(recorder, method, ast.Load()), list(arguments), [])


def _is_literal(node: ast.expr) -> bool:
    return all(
        isinstance(
            inner,
            (
                ast.Constant,
                ast.UnaryOp,
                ast.unaryop,
                ast.List,
                ast.Tuple,
                ast.Set,
                ast.Dict,
                ast.expr_context,
            ),
        )
        for inner in ast.walk(node)
    )


def _distance(node: ast.Compare) -> ast.BinOp | None:
    """Give `a - b` of `abs(a - b) < eps`."""
    call = node.left
    if (
        isinstance(node.ops[0], (ast.Lt, ast.LtE))
        and isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("abs", "math.fabs", "np.abs", "numpy.abs")
        and len(call.args) == 1
        and isinstance(call.args[0], ast.BinOp)
        and isinstance(call.args[0].op, ast.Sub)
    ):
        return call.args[0]
    return None
