"""What is left of a cell for a student: its imports, what its functions promise, and its names."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from nbrefine.kernel.names import bind
from nbrefine.leftovers import stale_names
from nbrefine.source import parse

HERE = "# Your code here"

_GAP = "__your_code_here__"


def needed(source: str, later: Sequence[str]) -> tuple[str, ...]:
    """Give the names that a cell binds and later code reads, in the order of their binding."""
    bound: dict[str, None] = {}
    bind(bound, source)
    read = {name for text in later for name in stale_names(text, bound)}
    return tuple(name for name in bound if name in read)


def stub(source: str, names: Collection[str]) -> str:
    """Give a Python cell with its work left out.

    Imports, signatures and docstrings stay; bodies are gaps, and so are the values of `names`.
    Of code that does not parse nothing is left.

    Parameters
    ----------
    names: what later cells need of it; see `needed`.
    """
    tree = parse(source)
    if tree is None:
        return HERE
    imports = [ast.unparse(node) for node in tree.body if isinstance(node, _IMPORTS)]
    made = [node for node in tree.body if isinstance(node, _DEFINITIONS)]
    there: dict[str, None] = {}
    for node in (*imports, *map(ast.unparse, made)):
        bind(there, node)
    missing = [f"{name} = ..." for name in names if name not in there]
    work = ["\n".join([HERE, *missing])] if missing or not made else []
    definitions = [_with_comments(ast.unparse(_emptied(node))) for node in made]
    return "\n\n".join(["\n".join(imports), *definitions, *work]).strip("\n")


_IMPORTS = (ast.Import, ast.ImportFrom)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)


def _emptied(node: ast.stmt) -> ast.stmt:
    """Take the work out of a function or of the methods of a class; the tree is the caller's."""
    if isinstance(node, _FUNCTIONS):
        node.body = [*_docstring(node), _gap()]
    elif isinstance(node, ast.ClassDef):
        node.body = [*_docstring(node), *_members(node)] or [_gap()]
    return node


def _docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.stmt]:
    return node.body[:1] if ast.get_docstring(node, clean=False) is not None else []


def _members(node: ast.ClassDef) -> Iterator[ast.stmt]:
    """Give what a class promises: methods without work, fields, and names without values."""
    for member in node.body:
        if isinstance(member, _DEFINITIONS):
            yield _emptied(member)
        elif isinstance(member, ast.AnnAssign):
            yield member
        elif isinstance(member, ast.Assign):
            member.value = ast.Constant(...)
            yield member


def _gap() -> ast.stmt:
    return ast.Expr(ast.Name(_GAP))


def _with_comments(source: str) -> str:
    """Put a comment and an ellipsis in place of every gap."""
    lines = []
    for line in source.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines += [f"{indent}{HERE}", f"{indent}..."] if line.strip() == _GAP else [line]
    return "\n".join(lines)
