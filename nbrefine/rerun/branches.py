"""Where checks run: in branches of the session, and beside its next cells where they may."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

from nbrefine.errors import KernelError
from nbrefine.kernel import Kernel
from nbrefine.kernel.branching import branch

T = TypeVar("T")

_LOOKS = frozenset(
    {"abs", "bool", "callable", "hasattr", "isinstance", "issubclass", "len", "round", "type"}
)
"""Functions that take nothing from what they are given: unlike `sum`, which empties a generator."""

_STILL = (
    *(ast.Module, ast.Assert, ast.Expr, ast.Name, ast.Constant, ast.Attribute, ast.Subscript),
    *(ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Slice, ast.Tuple, ast.Call),
    *(ast.expr_context, ast.cmpop, ast.boolop, ast.unaryop, ast.operator),
)


def only_looks(source: str) -> bool:
    """Tell whether checks leave a session as it is, for certain: comparing what is there."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    known = all(isinstance(called, ast.Name) and called.id in _LOOKS for called in calls)
    within = (node for node in nodes if isinstance(node, ast.Compare))
    drains = any(isinstance(op, ast.In | ast.NotIn) for node in within for op in node.ops)
    return known and not drains and all(isinstance(node, _STILL) for node in nodes)


class Branches:
    """Runs what leaves nothing, each in a branch of a kernel as it is at that moment.

    Parameters
    ----------
    kernel: what is branched; where it cannot be, it is used itself.
    aside: whether what runs may do so while the kernel goes on.
    """

    def __init__(self, kernel: Kernel, *, aside: bool) -> None:
        self._kernel = kernel
        self._aside = aside
        self._begun: list[asyncio.Future[Any]] = []

    async def begin(
        self, work: Callable[[Kernel], Awaitable[T]], *, pure: bool = False
    ) -> asyncio.Future[T]:
        """Begin some work, and give what will hold its result.

        Parameters
        ----------
        pure: whether it reads nothing that the kernel's next cells could change.
        """
        try:
            place = Kernel(await branch(self._kernel.core, direct=True))
        except KernelError:
            doing = asyncio.ensure_future(work(self._kernel))
            await asyncio.wait({doing})
            return doing
        doing = asyncio.ensure_future(self._branched(work, place))
        self._begun.append(doing)
        if not (self._aside or pure):
            await asyncio.wait({doing})
        return doing

    async def _branched(self, work: Callable[[Kernel], Awaitable[T]], place: Kernel) -> T:
        async with place:
            return await work(place)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._begun:
            each.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)
