"""Which names the cells of a session have bound, read from their sources.

A kernel that hangs or is dead cannot be asked what was lost with it.  What `exec`, a star
import or a magic binds is not seen.
"""

from __future__ import annotations

import ast


def bind(known: dict[str, None], source: str) -> None:
    """Bring the names that are bound at top level up to date with one more cell.

    Parameters
    ----------
    known: names in the order they were first bound; changed in place.
    source: a cell; its magics and shell lines count for nothing, and a cell that is not
        Python binds nothing.
    """
    plain = "\n".join(
        "pass" if line.startswith(("%", "!")) else line for line in source.splitlines()
    )
    try:
        _Binder(known).visit(ast.parse(plain))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return


class _Binder(ast.NodeVisitor):
    """Walks a cell in the order of its text and stays out of what has a scope of its own."""

    def __init__(self, known: dict[str, None]) -> None:
        self._known = known

    def _bind(self, name: str | None) -> None:
        if name and not name.startswith("_"):
            self._known.setdefault(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._bind(node.id)
        elif isinstance(node.ctx, ast.Del):
            self._known.pop(node.id, None)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._bind(node.name)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._bind(node.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(None if alias.name == "*" else alias.asname or alias.name)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self.generic_visit(node)
        self._bind(node.name)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._bind(node.name)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        pass

    def visit_comprehension(self, node: ast.comprehension) -> None:
        pass
