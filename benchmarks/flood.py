"""100,000 flushed prints: who gives all of them back.

Every line is known, so what came is compared character by character.  A client's own log is
turned off here; nbclient writes a warning to it where it gives up waiting for output.

    python benchmarks/flood.py
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from subprocess import DEVNULL
from typing import Any

from figures import Figures, Row, show, spread
from jupyter_client.manager import start_new_async_kernel
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError
from nbformat import v4

from nbrefine import Kernel

LINES = 100_000
SOURCE = f"for i in range({LINES}): print(i, flush=True)"
EXPECTED = "".join(f"{i}\n" for i in range(LINES))
LIMIT = 120
ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Flood:
    """What one client gave back of the flood."""

    ending: str
    characters: int
    exact: bool
    seconds: float


async def ours() -> Flood:
    async with Kernel.start("python3") as kernel:
        began = time.perf_counter()
        result = await kernel.run(SOURCE, timeout=LIMIT)
        return told(result.status, result.text, began)


async def interactive() -> Flood:
    texts: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            texts.append(message["content"]["text"])

    manager, client = await start_new_async_kernel(kernel_name="python3", stderr=DEVNULL)
    began = time.perf_counter()
    try:
        reply = await client.execute_interactive(SOURCE, timeout=LIMIT, output_hook=hear)
        return told(reply["content"]["status"], "".join(texts), began)
    except TimeoutError:
        return told("timeout", "".join(texts), began)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def nbclient() -> Flood:
    cell = v4.new_code_cell(SOURCE)
    client = NotebookClient(v4.new_notebook(cells=[cell]), kernel_name="python3", timeout=LIMIT)
    client.log.setLevel(logging.CRITICAL)
    async with client.async_setup_kernel(stderr=DEVNULL):
        began = time.perf_counter()
        try:
            await client.async_execute_cell(cell, 0)
            ending = "ok"
        except CellTimeoutError:
            ending = "timeout"
        return told(ending, "".join(output["text"] for output in cell.outputs), began)


def told(ending: str, text: str, began: float) -> Flood:
    return Flood(ending, len(text), text == EXPECTED, time.perf_counter() - began)


CLIENTS: dict[str, Callable[[], Coroutine[Any, Any, Flood]]] = {
    "nbrefine": ours,
    "execute_interactive": interactive,
    "nbclient": nbclient,
}


def summary(floods: list[Flood]) -> str:
    complete = sum(flood.exact for flood in floods)
    endings = sorted({flood.ending for flood in floods})
    characters = sorted({flood.characters for flood in floods})
    came = " to ".join(f"{each:,}" for each in dict.fromkeys((characters[0], characters[-1])))
    seconds = spread([flood.seconds for flood in floods], "s")
    return (
        f"{complete} of {len(floods)} complete: {came} characters, ends with "
        f"{' or '.join(endings)}, {seconds}"
    )


def lost(floods: list[Flood]) -> str:
    share = statistics.median(1 - flood.characters / len(EXPECTED) for flood in floods)
    return f"{share:.1%} lost by the peer"


def measure() -> Figures:
    with asyncio.Runner() as runner:
        rounds = [
            {name: runner.run(client()) for name, client in CLIENTS.items()} for _ in range(ROUNDS)
        ]
    floods = {name: [each[name] for each in rounds] for name in CLIENTS}
    mine = floods["nbrefine"]
    complete = all(flood.exact for flood in mine)
    return Figures(
        f"{LINES:,} flushed prints",
        f"`for i in range({LINES}): print(i, flush=True)`, which makes {len(EXPECTED):,} "
        f"characters, {ROUNDS} times each in fresh kernels, in turn, at most {LIMIT} s; what "
        "came is compared with what was printed.",
        tuple(
            Row(
                f"against {peer}",
                summary(mine),
                summary(floods[peer]),
                lost(floods[peer]),
                "all, every time",
                complete,
            )
            for peer in ("execute_interactive", "nbclient")
        ),
        {name: [asdict(flood) for flood in each] for name, each in floods.items()},
    )


if __name__ == "__main__":
    show(measure)
