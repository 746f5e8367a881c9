"""What rejected attempts left in the session, and which of it an attempt reads.

Where attempts run in the session itself (isolation `none`), a failed one leaves what it had bound
before it failed. Code that reads such a name may work now and fail when the accepted cells alone
are run again.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from nbrefine.source import parse
from nbrefine.values import Turn


def stains(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """Give the rejected attempts of which the session holds what they did after these turns."""
    return tuple(turn for turn in _since_clean(turns) if not turn.accepted)


def leftovers(turns: Iterable[Turn]) -> dict[str, int]:
    """Give the names that rejected attempts bound or changed and no accepted one has bound since.

    Each comes with the number of the last turn that left it so, in the order of their binding.
    """
    left: dict[str, int] = {}
    for turn in _since_clean(turns):
        if turn.change is None:
            continue
        new, changed, deleted = turn.change.new, turn.change.changed, turn.change.deleted
        bound = _bound_anew(turn.code) if turn.accepted else {*changed}
        for name in (*new, *deleted, *bound):
            left.pop(name, None)
        if not turn.accepted:
            left.update(dict.fromkeys((*new, *changed), turn.number))
    return left


def _since_clean(turns: Iterable[Turn]) -> list[Turn]:
    """Give the attempts in the session since it last was what accepted cells alone make of it."""
    since: list[Turn] = []
    for turn in turns:
        if turn.result is None or (turn.isolation == "fork" and not turn.accepted):
            continue
        if turn.isolation != "none":  # rebuilt before it, or replaced by a branch of a clean state
            since.clear()
        if turn.result.death is not None or turn.result.lost:
            since.clear()
        else:
            since.append(turn)
    return since


def _bound_anew(source: str) -> set[str]:
    """Give the names that a cell binds without having read what they were."""
    tree = parse(source)
    if tree is None:
        return set()
    reader = _Reader()
    reader.run(tree)
    return reader.bound - reader.read.keys()


def stale_names(source: str, names: Collection[str]) -> tuple[str, ...]:
    """Give those names that a cell reads without having bound them before, in its order.

    A name that the cell binds on one of two ways counts as bound, and one that a function reads
    as read only if the cell binds it nowhere. What magics, `exec` and format strings of shell
    lines read is not seen; nor is anything of a cell that is not Python.
    """
    tree = parse(source)
    if tree is None:
        return ()
    reader = _Reader()
    reader.run(tree)
    return tuple(name for name in reader.read if name in names)


def read_in_any_case(source: str, names: Collection[str]) -> tuple[str, ...]:
    """Give those of `stale_names` without which a cell cannot run to its end.

    What it reads only where a function is called, a branch is taken or a loop begins is none of
    them, nor what it reads where an error may be caught.
    """
    tree = parse(source)
    read = set(_in_any_case(tree)) if tree is not None else set()
    return tuple(name for name in stale_names(source, names) if name in read)


def _in_any_case(node: ast.AST) -> Iterator[str]:
    """Give the names that are read wherever a statement or an expression is run."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    for part in _parts_in_any_case(node):
        yield from _in_any_case(part)


def _parts_in_any_case(node: ast.AST) -> Iterable[ast.AST]:
    parts = _IN_ANY_CASE.get(type(node), ast.iter_child_nodes)
    return [part for part in parts(node) if part is not None]


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]


_IN_ANY_CASE: dict[type, Callable[[Any], Iterable[ast.AST | None]]] = {
    **dict.fromkeys((ast.Try, ast.TryStar), lambda _: ()),
    **dict.fromkeys((ast.With, ast.AsyncWith), lambda node: [node.items[0].context_expr]),
    **dict.fromkeys((ast.If, ast.While, ast.IfExp, ast.Assert), lambda node: [node.test]),
    **dict.fromkeys((ast.For, ast.AsyncFor), lambda node: [node.iter]),
    ast.Match: lambda node: [node.subject],
    ast.BoolOp: lambda node: node.values[:1],
    ast.Compare: lambda node: [node.left, node.comparators[0]],
    **dict.fromkeys(
        (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
        lambda node: [node.generators[0].iter],
    ),
    **dict.fromkeys(
        (ast.FunctionDef, ast.AsyncFunctionDef),
        lambda node: [*node.decorator_list, *_defaults(node.args)],
    ),
    ast.Lambda: lambda node: _defaults(node.args),
    ast.ClassDef: lambda node: [*node.decorator_list, *node.bases, *node.keywords],
    ast.AnnAssign: lambda node: [node.value],
}
"""What of a statement or an expression is run wherever it is; of others, all is.

What a `with` may hold back comes after the first that it enters.
"""


def stale_notice(source: str, left: Mapping[str, int]) -> str:
    """Say which leftovers a cell reads; "" where it reads none.

    Parameters
    ----------
    left: what `leftovers` gave.
    """
    found = stale_names(source, left)
    if not found:
        return ""
    numbers = sorted({left[name] for name in found})
    turns = f"turn{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    return (
        f"The code reads {_listed(found)} as rejected attempts left "
        f"{'it' if len(found) == 1 else 'them'} ({turns}). "
        "The accepted cells alone do not give that; bind it in the code itself."
    )


def _listed(names: tuple[str, ...]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


class _Reader(ast.NodeVisitor):
    """Walks a cell in the order in which it runs, and notes what it reads before it binds it.

    `read` are the names that the cell reads of its session, in order; a dict serves as an
    ordered set.  `bound` are those that it binds or deletes.
    """

    def __init__(self) -> None:
        self.read: dict[str, None] = {}
        self.bound: set[str] = set()
        self._later: dict[str, None] = {}
        """What functions read of the session, whenever they are called."""

    def run(self, tree: ast.Module) -> None:
        """Walk a whole cell."""
        for statement in tree.body:
            self.visit(statement)
        for name in self._later:
            if name not in self.bound:
                self.read.setdefault(name)

    def _load(self, name: str) -> None:
        if name not in self.bound:
            self.read.setdefault(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
            return
        self._load(node.id)
        if isinstance(node.ctx, ast.Del):
            self.bound.add(node.id)  # whoever reads it now reads nothing of the session

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)
        elif not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._load(node.target.id)
        self.visit(node.value)
        self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:
        self.visit_For(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        self.visit(node.context_expr)
        if node.optional_vars is not None:
            self.visit(node.optional_vars)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.type is not None:
            self.visit(node.type)
        if node.name is not None:
            self.bound.add(node.name)
        for statement in node.body:
            self.visit(statement)

    def visit_Import(self, node: ast.Import) -> None:
        self.bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.bound |= {alias.asname or alias.name for alias in node.names}

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.generic_visit(node)
        self.bound |= {node.name} - {None}  # type: ignore[arg-type]

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self.bound |= {node.name} - {None}  # type: ignore[arg-type]

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.generic_visit(node)
        self.bound |= {node.rest} - {None}  # type: ignore[arg-type]

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, *_outside(node.args)):
            self.visit(part)
        if node.returns is not None:
            self.visit(node.returns)
        self.bound.add(node.name)
        self._function(node.args, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for part in _outside(node.args):
            self.visit(part)
        self._function(node.args, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        inside = _Reader()
        for statement in node.body:
            inside.visit(statement)
        for name in inside.read:
            self._load(name)
        self._later.update(inside._later)
        self.bound.add(node.name)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node.generators, [node.elt])

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node.generators, [node.elt])

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node.generators, [node.elt])

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node.generators, [node.key, node.value])

    def _comprehension(self, loops: list[ast.comprehension], made: list[ast.expr]) -> None:
        inside = _Reader()
        for loop in loops:
            for part in (loop.iter, loop.target, *loop.ifs):
                inside.visit(part)
        for part in made:
            inside.visit(part)
        for name in inside.read:
            self._load(name)
        for name in inside._later:
            if name not in inside.bound:
                self._later.setdefault(name)
        loop_names = {
            name.id
            for loop in loops
            for name in ast.walk(loop.target)
            if isinstance(name, ast.Name)
        }
        self.bound |= inside.bound - loop_names

    def _function(self, arguments: ast.arguments, body: list[ast.stmt] | list[ast.expr]) -> None:
        inside = _Reader()
        inside.bound |= _parameters(arguments)
        for part in body:
            inside.visit(part)
        shared = {
            name
            for part in body
            for node in ast.walk(part)
            if isinstance(node, ast.Global)
            for name in node.names
        }
        # What a function binds anywhere is its own everywhere in it.
        own = inside.bound - shared
        for name in (*inside.read, *inside._later):
            if name not in own:
                self._later.setdefault(name)


def _outside(arguments: ast.arguments) -> list[ast.expr]:
    """Give what of a function is computed where it is defined."""
    parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    extra = (arguments.vararg, arguments.kwarg)
    notes = [one.annotation for one in (*parameters, *extra) if one and one.annotation]
    return [*_defaults(arguments), *notes]


def _parameters(arguments: ast.arguments) -> set[str]:
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    extra = (arguments.vararg, arguments.kwarg)
    return {one.arg for one in (*every, *extra) if one}
