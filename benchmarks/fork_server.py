"""Fresh kernels with packages imported already: how soon, how many a second, how large.

The peer is the ordinary way: start a kernel, import the package in its first cell.  The fork
server itself starts with the first kernel that wants it, outside the measured times; what that
costs is told in its own line.

    python benchmarks/fork_server.py
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from figures import Figures, Row, Side, ratio, show, spread, take_turns
from jupyter_client.manager import AsyncKernelManager, start_new_async_kernel
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat import v4

from nbrefine import Kernel
from nbrefine.kernel.pool import KernelPool

if TYPE_CHECKING:
    from jupyter_client.asynchronous.client import AsyncKernelClient

ROUNDS = 12
PRELOAD = ("pandas",)
CELL = "import pandas as pd\nint(pd.Series([1, 2, 3]).sum())"
SHOWN = "6"

BATCH = 20
"""Kernels that are started, used and stopped for one measurement of the rate."""
IN_FLIGHT = (1, 2, 4)
ALIVE = 20

FASTER, FASTER_FROM_POOL = 15, 40
RATE_WITH_PANDAS, RATE_BARE = 40, 60
LARGEST = 15e6
NOTICED = 0.020


async def fresh() -> float:
    began = time.perf_counter()
    kernel = await Kernel.start(preload=PRELOAD)
    result = await kernel.run(CELL)
    seconds = time.perf_counter() - began
    await kernel.shutdown()
    assert result.text.strip() == SHOWN, result
    return seconds


async def pooled(pool: KernelPool) -> float:
    began = time.perf_counter()
    kernel = await pool.take()
    result = await kernel.run(CELL)
    seconds = time.perf_counter() - began
    await kernel.shutdown()
    assert result.text.strip() == SHOWN, result
    await filled(pool)  # or whoever is next would be measured beside its starts
    return seconds


async def filled(pool: KernelPool) -> None:
    while pool.ready < 1:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.001)


async def stock() -> float:
    began = time.perf_counter()
    manager, client = await start_new_async_kernel(kernel_name="python3", stderr=subprocess.DEVNULL)
    await import_pandas(client)
    seconds = time.perf_counter() - began
    client.stop_channels()
    await manager.shutdown_kernel(now=True)
    return seconds


async def import_pandas(client: AsyncKernelClient) -> None:
    shown: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] == "execute_result":
            shown.append(message["content"]["data"]["text/plain"])

    await client.execute_interactive(CELL, output_hook=hear)
    assert shown == [SHOWN], shown


async def restarted(kernel: Kernel) -> float:
    began = time.perf_counter()
    await kernel.restart()
    result = await kernel.run(CELL)
    seconds = time.perf_counter() - began
    assert result.text.strip() == SHOWN, result
    return seconds


async def stock_restarted(manager: AsyncKernelManager, client: AsyncKernelClient) -> float:
    began = time.perf_counter()
    await manager.restart_kernel(now=True)
    await client.wait_for_ready()
    await import_pandas(client)
    return time.perf_counter() - began


async def starts() -> dict[str, list[float]]:
    async with KernelPool(preload=PRELOAD, size=1) as pool:
        await filled(pool)
        sides: dict[str, Side] = {
            "nbrefine": fresh,
            "pool": partial(pooled, pool),
            "jupyter_client": stock,
        }
        await take_turns(1, sides)
        return await take_turns(ROUNDS, sides)


async def restarts() -> dict[str, list[float]]:
    manager, client = await start_new_async_kernel(kernel_name="python3", stderr=subprocess.DEVNULL)
    try:
        async with Kernel.start(preload=PRELOAD) as kernel:
            sides: dict[str, Side] = {
                "nbrefine": partial(restarted, kernel),
                "jupyter_client": partial(stock_restarted, manager, client),
            }
            await take_turns(1, sides)
            return await take_turns(ROUNDS, sides)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def many(preload: tuple[str, ...], in_flight: int) -> float:
    """Start, use and stop a batch of kernels; give how many that makes in a second."""
    free = asyncio.Semaphore(in_flight)

    async def one() -> str:
        async with free:
            kernel = await Kernel.start(preload=preload)
            result = await kernel.run(CELL if preload else "2 * 3")
            await kernel.shutdown()
            return result.text.strip()

    began = time.perf_counter()
    shown = await asyncio.gather(*(one() for _ in range(BATCH)))
    rate = BATCH / (time.perf_counter() - began)
    assert set(shown) == {SHOWN}, shown
    return rate


async def rates(preload: tuple[str, ...]) -> dict[str, list[float]]:
    sides: dict[str, Side] = {str(number): partial(many, preload, number) for number in IN_FLIGHT}
    await take_turns(1, sides)
    return await take_turns(ROUNDS, sides)


async def sizes() -> dict[str, list[float]]:
    """Give the PSS of kernels that live at a time, of all it takes for each, and of a stock one."""
    kernels = [await Kernel.start(preload=PRELOAD) for _ in range(ALIVE)]
    manager, client = await start_new_async_kernel(kernel_name="python3", stderr=subprocess.DEVNULL)
    try:
        answered = [await size_after(kernel, "2 * 3") for kernel in kernels]
        used = [await size_after(kernel, CELL) for kernel in kernels]
        await import_pandas(client)
        stock = pss(manager.provisioner.pid)
        everything = sum(pss(each.pid) for each in psutil.Process().children(recursive=True))
        return {
            "answered": answered,
            "used": used,
            "everything": [(everything - stock) / ALIVE],
            "stock": [stock],
        }
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)
        for kernel in kernels:
            await kernel.shutdown()


async def size_after(kernel: Kernel, source: str) -> float:
    assert (await kernel.run(source)).text.strip() == SHOWN
    return float((await kernel.memory()).pss)


def pss(pid: int) -> float:
    return float(psutil.Process(pid).memory_full_info().pss)


async def deaths() -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        sides: dict[str, Side] = {
            "nbrefine": partial(noticed, Path(folder, "nbrefine")),
            "nbclient": partial(nbclient_noticed, Path(folder, "nbclient")),
        }
        return await take_turns(ROUNDS, sides)


async def noticed(told: Path) -> float:
    """Give the seconds from a cell's last act until its result is there."""
    kernel = await Kernel.start(preload=())
    result = await kernel.run(deadly(told))
    seconds = time.perf_counter() - left(told)
    await kernel.shutdown()
    assert result.death is not None
    assert result.death.exit_code == 3
    return seconds


def left(told: Path) -> float:
    return float(told.read_text())


async def nbclient_noticed(told: Path) -> float:
    cell = v4.new_code_cell(deadly(told))
    client = NotebookClient(v4.new_notebook(cells=[cell]), kernel_name="python3")
    client.log.setLevel(logging.CRITICAL)
    async with client.async_setup_kernel(stderr=subprocess.DEVNULL):
        try:
            await client.async_execute_cell(cell, 0)
        except DeadKernelError:
            return time.perf_counter() - left(told)
    raise AssertionError("nbclient has not noticed the death")


def deadly(told: Path) -> str:
    # On Linux all processes have one clock behind perf_counter.
    return (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(told)!r}).write_text(repr(time.perf_counter())); os._exit(3)"
    )


async def first() -> float:
    """Give the seconds until a first kernel is there, whose fork server had to be started."""
    began = time.perf_counter()
    kernel = await Kernel.start(preload=PRELOAD)
    seconds = time.perf_counter() - began
    await kernel.shutdown()
    return seconds


def faster_row(what: str, mine: list[float], theirs: list[float], goal: float | None) -> Row:
    found = ratio(theirs, mine)
    return Row(
        what,
        spread(mine, "ms", 1e3),
        f"{spread(theirs, 'ms', 1e3)}, jupyter_client",
        f"{found:.1f} times as fast",
        f"≥ {goal:g}" if goal else "",
        found >= goal if goal else None,
    )


def rate_row(what: str, taken: dict[str, list[float]], goal: float) -> Row:
    medians = {number: statistics.median(rate) for number, rate in taken.items()}
    best = max(medians, key=medians.__getitem__)
    others = (f"{rate:.0f} with {number}" for number, rate in medians.items() if number != best)
    return Row(
        f"start, a cell, stop; {what}",
        f"{spread(taken[best], 'a second')} with {best} in flight",
        "",
        ", ".join(others),
        f"≥ {goal:g} a second",
        medians[best] >= goal,
    )


def size_row(found: dict[str, list[float]]) -> Row:
    used, everything, stock = (
        statistics.median(found[name]) / 1e6 for name in ("used", "everything", "stock")
    )
    return Row(
        f"PSS of a kernel that has answered a cell, {ALIVE} alive",
        spread(found["answered"], "MB", 1e-6),
        f"{stock:.0f} MB, a stock kernel that has used pandas",
        f"{used:.1f} MB when it has used pandas, {everything:.1f} MB each with what they are "
        "forked from",
        f"≤ {LARGEST / 1e6:g} MB",
        statistics.median(found["answered"]) <= LARGEST,
    )


def death_row(found: dict[str, list[float]]) -> Row:
    return Row(
        "a death is noticed after",
        spread(found["nbrefine"], "ms", 1e3),
        f"{spread(found['nbclient'], 'ms', 1e3)}, nbclient",
        "",
        f"≤ {NOTICED * 1e3:g} ms",
        statistics.median(found["nbrefine"]) <= NOTICED,
    )


async def work() -> Figures:
    cold = await first()
    start, restart = await starts(), await restarts()
    with_pandas, bare = await rates(PRELOAD), await rates(())
    size, death = await sizes(), await deaths()
    return Figures(
        "Fresh kernels from the fork server",
        "A kernel in which `import pandas` and a small sum have run: "
        '`Kernel.start(preload=("pandas",))`, a kernel taken from a full `KernelPool`, and '
        f"`start_new_async_kernel`, {ROUNDS} times each, in turn; then as often a restart of one "
        "kernel each. The fork server is there already: the first kernel, which waits for it, "
        f"took {cold:.2f} s. Rates: {ROUNDS} times {BATCH} kernels, until all are stopped. "
        f"Memory: {ALIVE} kernels with pandas imported that have answered `2 * 3`, then that cell, "
        "beside a stock kernel. Death: from a cell's last act before `os._exit` until its result "
        "is there.",
        (
            faster_row(
                "a new kernel until its first cell is answered",
                start["nbrefine"],
                start["jupyter_client"],
                FASTER,
            ),
            faster_row(
                "the same from a pool", start["pool"], start["jupyter_client"], FASTER_FROM_POOL
            ),
            faster_row(
                "a restart until the first cell is answered",
                restart["nbrefine"],
                restart["jupyter_client"],
                None,
            ),
            rate_row("pandas imported", with_pandas, RATE_WITH_PANDAS),
            rate_row("nothing imported", bare, RATE_BARE),
            size_row(size),
            death_row(death),
        ),
        {
            "first": cold,
            "start": start,
            "restart": restart,
            "rate": {"pandas": with_pandas, "bare": bare},
            "pss": size,
            "death": death,
        },
    )


def measure() -> Figures:
    return asyncio.run(work())


if __name__ == "__main__":
    show(measure)
