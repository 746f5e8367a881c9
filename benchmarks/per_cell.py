"""What one cell costs on a live kernel: ours and nbclient's.

For both, a cell has ended when its reply and idle have come and its output is there.  Kernels
differ a little from start to start, so several pairs take part.

    python benchmarks/per_cell.py
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from subprocess import DEVNULL
from typing import Any

from figures import Figures, Row, alternate, ratio, show, spread
from nbclient import NotebookClient
from nbformat import v4

from nbrefine import Kernel

PAIRS = 10
CELLS = 200
WARM_UP = 20
GOAL = 1.05

Taken = tuple[list[float], ...]


def new_client() -> tuple[NotebookClient, Any]:
    cell = v4.new_code_cell("1+1")
    return NotebookClient(v4.new_notebook(cells=[cell]), kernel_name="python3"), cell


def shows_two(cell: Any) -> bool:
    return [output["data"]["text/plain"] for output in cell.outputs] == ["2"]


def blocking() -> Taken:
    """Run cells from plain code."""
    client, cell = new_client()
    with client.setup_kernel(stderr=DEVNULL), Kernel.start("python3") as kernel:

        def ours() -> float:
            began = time.perf_counter()
            result = kernel.run("1+1").result()
            seconds = time.perf_counter() - began
            assert result.text == "2\n"
            return seconds

        def peer() -> float:
            began = time.perf_counter()
            client.execute_cell(cell, 0)
            seconds = time.perf_counter() - began
            assert shows_two(cell)
            return seconds

        alternate(WARM_UP, ours, peer)
        return alternate(CELLS, ours, peer)


def awaited() -> Taken:
    """Run cells from a coroutine, each side in turn on one loop."""
    client, cell = new_client()

    async def ours(kernel: Kernel) -> float:
        began = time.perf_counter()
        result = await kernel.run("1+1")
        seconds = time.perf_counter() - began
        assert result.text == "2\n"
        return seconds

    async def peer() -> float:
        began = time.perf_counter()
        await client.async_execute_cell(cell, 0)
        seconds = time.perf_counter() - began
        assert shows_two(cell)
        return seconds

    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        runner.run(stack.enter_async_context(client.async_setup_kernel(stderr=DEVNULL)))
        kernel = runner.run(stack.enter_async_context(Kernel.start("python3")))
        try:
            sides = (lambda: runner.run(ours(kernel)), lambda: runner.run(peer()))
            alternate(WARM_UP, *sides)
            return alternate(CELLS, *sides)
        finally:
            runner.run(stack.aclose())


def row(what: str, pairs: list[Taken]) -> Row:
    mine = [seconds for ours, _ in pairs for seconds in ours]
    theirs = [seconds for _, peer in pairs for seconds in peer]
    each = [ratio(ours, peer) for ours, peer in pairs]
    found = statistics.median(each)
    return Row(
        what,
        spread(mine, "ms", 1e3),
        f"{spread(theirs, 'ms', 1e3)}, nbclient",
        f"{found:.2f} of nbclient's ({min(each):.2f} to {max(each):.2f} by pair)",
        f"≤ {GOAL}",
        found <= GOAL,
    )


def measure() -> Figures:
    ways: dict[str, Callable[[], Taken]] = {"awaited": awaited, "blocking": blocking}
    taken = {name: [way() for _ in range(PAIRS)] for name, way in ways.items()}
    return Figures(
        "One cell on a live kernel",
        f"`1+1`, {PAIRS} pairs of kernels with {CELLS} cells each, alternating cell by cell; "
        "`await kernel.run(…)` against `await client.async_execute_cell(…)`, and "
        "`kernel.run(…).result()` against `client.execute_cell(…)`. Every kernel with the "
        "settings its side starts it with.",
        tuple(row(f"`1+1`, {name}", pairs) for name, pairs in taken.items()),
        {
            name: [{"nbrefine": mine, "nbclient": theirs} for mine, theirs in pairs]
            for name, pairs in taken.items()
        },
    )


if __name__ == "__main__":
    show(measure)
