"""Which names the cells of a session have bound, read from their sources.

A kernel that hangs or is dead cannot be asked what was lost with it.  What `exec`, a star
import or a magic binds is not seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


def bind(known: dict[str, None], source: str) -> None:
    """Bring the names that are bound at top level up to date with one more cell.

    Parameters
    ----------
    known: names in the order they were first bound; changed in place.
    source: a cell; one that is not plain Python counts without its magic lines.
    """
    for node in ast.walk(_Cell(source).tree):
        for name in _bound(node):
            if not name.startswith("_"):
                known.setdefault(name)
        if isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    known.pop(target.id, None)


class _Cell(ast.NodeTransformer):
    """The tree of a cell without what has a scope of its own."""

    def __init__(self, source: str) -> None:
        plain = "\n".join(
            "pass" if line.startswith(("%", "!")) else line for line in source.splitlines()
        )
        try:
            self.tree: ast.AST = self.visit(ast.parse(plain))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self.tree = ast.Module([], [])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return ast.FunctionDef(node.name, node.args, [], [])

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return ast.FunctionDef(node.name, node.args, [], [])

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return ast.ClassDef(node.name, [], [], [], [])

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return ast.Constant(None)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        return ast.comprehension(ast.Constant(None), ast.Constant(None), [], 0)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
