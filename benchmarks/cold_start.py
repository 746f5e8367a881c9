"""From nothing to the first cell's result: our kernel and jupyter_client's.

Both start the same kernelspec from the same event loop; the process that controls them is warm,
its imports done.  Shutting down is not part of the time.

    python benchmarks/cold_start.py
"""

from __future__ import annotations

import asyncio
import subprocess
import time

from figures import Figures, Row, alternate, ratio, show, spread
from jupyter_client.manager import start_new_async_kernel

from nbrefine import Kernel

ROUNDS = 20
GOAL = 1.3


async def ours() -> float:
    began = time.perf_counter()
    kernel = await Kernel.start("python3")
    result = await kernel.run("1+1")
    seconds = time.perf_counter() - began
    await kernel.shutdown()
    assert result.text == "2\n"
    return seconds


async def peer() -> float:
    heard: list[str] = []
    began = time.perf_counter()
    manager, client = await start_new_async_kernel(  # waits until the kernel is ready
        kernel_name="python3", stderr=subprocess.DEVNULL
    )
    await client.execute_interactive(
        "1+1", output_hook=lambda message: heard.append(message["msg_type"])
    )
    seconds = time.perf_counter() - began
    client.stop_channels()
    await manager.shutdown_kernel(now=True)
    assert "execute_result" in heard
    return seconds


def measure() -> Figures:
    with asyncio.Runner() as runner:
        sides = (lambda: runner.run(ours()), lambda: runner.run(peer()))
        alternate(1, *sides)  # the first start of each reads files that the others find in memory
        mine, theirs = alternate(ROUNDS, *sides)
    faster = ratio(theirs, mine)
    return Figures(
        "Cold start to the first cell's result",
        f"{ROUNDS} starts each, alternating: `Kernel.start` and `run`, against "
        "`start_new_async_kernel`, which ends in `wait_for_ready`, and `execute_interactive`.",
        (
            Row(
                "`1+1` in a new kernel",
                spread(mine, "s"),
                f"{spread(theirs, 's')}, jupyter_client",
                f"{faster:.2f} times as fast",
                f"≥ {GOAL}",
                faster >= GOAL,
            ),
        ),
        {"nbrefine": mine, "jupyter_client": theirs},
    )


if __name__ == "__main__":
    show(measure)
