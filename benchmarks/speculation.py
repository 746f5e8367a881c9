"""Eight candidate cells from one live state: how soon all of them are judged.

Each candidate runs in a branch of the session and is checked there by an expression; some are
wrong, some raise, one crashes its process, one runs into the time limit.  The peer has no
branches: for each candidate it restarts a stock kernel and builds the state again.

    python benchmarks/speculation.py
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from figures import Figures, Row, Side, ratio, show, spread, take_turns
from jupyter_client.manager import AsyncKernelManager, start_new_async_kernel

from nbrefine import Kernel

if TYPE_CHECKING:
    from jupyter_client.asynchronous.client import AsyncKernelClient

ROUNDS = 10
LIMIT = 0.2
"""Seconds that the candidate which hangs may run."""
PATIENCE = 10.0
"""Seconds that the others may run; they need less by far."""
GOAL = 0.3
"""Seconds in which all must be judged, beyond the limit of the one that hangs."""

STATE = "import numpy as np, pandas as pd\nstate = pd.DataFrame(np.ones((1_000_000, 25)))"
CHECK = "bool((state[0] == 2).all()) and state.shape == (1_000_000, 25)"
CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
HANG = "while True: pass"
CANDIDATES = {
    "state[0] = 2.0": "right",
    "state[0] += 1": "right",
    "state[0] = state[1] + state[2]": "right",
    "state[0] *= 3": "wrong",
    "state = state.drop(columns=0)": "error",  # the check finds no such column
    "state[0] = state['price']": "error",
    CRASH: "died",
    HANG: "timeout",
}


async def speculated(kernel: Kernel, adoptions: list[float]) -> float:
    """Judge all candidates at once, and let the first one that is right become the session."""
    await kernel.run("None")  # no copy of the state is there yet
    trials: dict[str, Kernel] = {}
    began = time.perf_counter()
    verdicts = await asyncio.gather(*(judge(kernel, each, trials) for each in CANDIDATES))
    seconds = time.perf_counter() - began
    assert verdicts == list(CANDIDATES.values()), verdicts
    winner = trials[next(iter(CANDIDATES))]
    began = time.perf_counter()
    await kernel.adopt(winner)
    await asyncio.gather(*(trial.aclose() for trial in trials.values()))
    adoptions.append(time.perf_counter() - began)
    assert (await kernel.run(CHECK)).text.strip() == "True"
    assert (await kernel.run("state[0] = 1.0")).ok
    return seconds


async def judge(kernel: Kernel, candidate: str, trials: dict[str, Kernel]) -> str:
    trial = trials[candidate] = await kernel.branch()
    result = await trial.run(candidate, timeout=LIMIT if candidate == HANG else PATIENCE)
    if result.ok:
        result = await trial.run(CHECK)
    if not result.ok:
        return result.status
    return "right" if result.text.strip() == "True" else "wrong"


async def rebuilt(manager: AsyncKernelManager, client: AsyncKernelClient) -> float:
    """Judge one candidate after the other, each in a state that was built anew."""
    began = time.perf_counter()
    verdicts = [await stock_judge(manager, client, each) for each in CANDIDATES]
    seconds = time.perf_counter() - began
    # jupyter_client waits for the reply of a kernel that has died, so that is a time-out too; it
    # gets no more patience than the endless loop.
    expected = ["timeout" if each == "died" else each for each in CANDIDATES.values()]
    assert verdicts == expected, verdicts
    return seconds


async def stock_judge(manager: AsyncKernelManager, client: AsyncKernelClient, cell: str) -> str:
    await manager.restart_kernel(now=True)
    await client.wait_for_ready()
    assert (await stock_run(client, STATE, None))[0] == "ok"
    limit = LIMIT if cell in (HANG, CRASH) else PATIENCE
    status, shown = await stock_run(client, cell, limit)
    if status == "ok":
        status, shown = await stock_run(client, CHECK, None)
    if status != "ok":
        return status
    return "right" if shown == ["True"] else "wrong"


async def stock_run(
    client: AsyncKernelClient, source: str, limit: float | None
) -> tuple[str, list[str]]:
    shown: list[str] = []

    def hear(message: dict[str, Any]) -> None:
        if message["msg_type"] == "execute_result":
            shown.append(message["content"]["data"]["text/plain"])

    try:
        reply = await client.execute_interactive(source, timeout=limit, output_hook=hear)
    except TimeoutError:
        return "timeout", shown
    return reply["content"]["status"], shown


async def work() -> Figures:
    adoptions: list[float] = []
    manager, client = await start_new_async_kernel(kernel_name="python3", stderr=subprocess.DEVNULL)
    try:
        async with Kernel.start(preload=("pandas",)) as kernel:
            assert (await kernel.run(STATE)).ok
            sides: dict[str, Side] = {
                "nbrefine": partial(speculated, kernel, adoptions),
                "jupyter_client": partial(rebuilt, manager, client),
            }
            await take_turns(1, {"nbrefine": sides["nbrefine"]})
            adoptions.clear()
            found = await take_turns(ROUNDS, sides)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)
    beyond = statistics.median(found["nbrefine"]) - LIMIT
    faster = ratio(found["jupyter_client"], found["nbrefine"])
    return Figures(
        f"{len(CANDIDATES)} candidate cells from one live state",
        f"{ROUNDS} times, in turn. A frame of 200 MB, {len(CANDIDATES)} candidates that change "
        "it: three right, one wrong, one that loses a column, one KeyError, one SIGSEGV, one "
        f"endless loop with a limit of {LIMIT * 1e3:.0f} ms. nbrefine: a branch for each, "
        "all at once, the candidate and a check in it. The peer: one after the other, each "
        "after a restart and building the frame, which takes little here.",
        (
            Row(
                "all judged",
                spread(found["nbrefine"], "ms", 1e3),
                f"{spread(found['jupyter_client'], 's')}, jupyter_client",
                f"{faster:.0f} times as fast; {beyond * 1e3:.0f} ms beyond the limit of the "
                "endless loop",
                f"≤ {GOAL * 1e3:.0f} ms beyond it",
                beyond <= GOAL,
            ),
            Row(
                "one of them adopted, the others closed",
                spread(adoptions, "ms", 1e3),
            ),
        ),
        {**found, "adoption": adoptions},
    )


def measure() -> Figures:
    return asyncio.run(work())


if __name__ == "__main__":
    show(measure)
