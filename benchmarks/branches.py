"""Branches of a live kernel, against copying its state by pickle.

The peer dumps the state in one live kernel and loads it in another one, which has all imports
done, through a file in memory.  Before each branch a cell has run, so that no copy of the state
is there yet.

    python benchmarks/branches.py
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from figures import Figures, Row, Side, ratio, show, spread, take_turns

from nbrefine import Kernel

ROUNDS = 12
PICKLERS = ("pickle", "cloudpickle")
MEMORY = "/dev/shm"
"""Files here are in memory."""
SIBLINGS = 8
CHAIN = 100
ENDS = 10
"""Steps at either end of the chain that are compared."""

PAUSE = 0.012
ALL_ANSWERED = 1.0
PRIVATE = 15e6
ROLLBACK = 2.0


@dataclass(frozen=True, slots=True)
class Content:
    """What a kernel holds in `state`."""

    what: str
    source: str
    probe: str
    """Tells a true copy from another."""
    megabytes: int
    goal: float = 0.0
    """How many times as fast as the fastest pickle a branch must be."""


FLOATS = Content(
    "200 MB of floats",
    "import numpy as np, pandas as pd\n"
    "state = pd.DataFrame(np.random.default_rng(0).random((1_000_000, 25)))",
    "state.shape, float(state.iloc[500_000, 12]), float(state.iloc[-1, -1])",
    200,
    5,
)
OBJECTS = Content(
    "200 MB of small Python objects",
    "state = [{'id': i, 'name': f'row {i}', 'value': i / 7} for i in range(600_000)]",
    "len(state), state[300_000], state[-1]",
    200,
    8,
)
LARGE = Content(
    "2 GB of floats",
    "import numpy as np, pandas as pd\nstate = pd.DataFrame(np.ones((10_000_000, 25)))",
    "state.shape, float(state.iloc[-1, -1])",
    2000,
)

# From before the first function that a fork calls until after the last one.
WATCH = """
import json, os, time
pauses = []
os.register_at_fork(
    before=lambda: pauses.append(time.perf_counter()),
    after_in_parent=lambda: pauses.append(time.perf_counter() - pauses.pop()),
)
"""
DUMP = "import {0}\nwith open({1!r}, 'wb') as file: {0}.dump(state, file, protocol=5)"
LOAD = "import {0}\nwith open({1!r}, 'rb') as file: state = {0}.load(file)"


@dataclass(frozen=True, slots=True)
class Probe:
    """Tells whether a kernel holds what it is to hold."""

    source: str
    truth: str

    async def check(self, kernel: Kernel) -> None:
        assert await run(kernel, self.source) == self.truth


async def run(kernel: Kernel, source: str) -> str:
    result = await kernel.run(source)
    assert result.ok, result.error or result
    return result.text.strip()


async def holding(stack: AsyncExitStack, content: Content) -> tuple[Kernel, Probe]:
    """Start a kernel that holds the content and notes how long each fork of it takes."""
    kernel = await stack.enter_async_context(Kernel.start(preload=("pandas", *PICKLERS)))
    before = (await kernel.memory()).rss
    await run(kernel, content.source)
    grown = ((await kernel.memory()).rss - before) / 1e6
    assert 0.9 * content.megabytes < grown < 1.25 * content.megabytes, grown
    await run(kernel, WATCH)
    return kernel, Probe(content.probe, await run(kernel, content.probe))


async def pauses(kernel: Kernel) -> list[float]:
    found: list[float] = json.loads(await run(kernel, "print(json.dumps(pauses)); pauses.clear()"))
    return found


async def branched(kernel: Kernel, probe: Probe) -> float:
    """Branch, and run a first cell there."""
    await run(kernel, "None")
    began = time.perf_counter()
    trial = await kernel.branch()
    shown = await run(trial, "1")
    seconds = time.perf_counter() - began
    assert shown == "1"
    await probe.check(trial)
    await trial.aclose()
    return seconds


async def pickled(kernel: Kernel, other: Kernel, pickler: str, path: Path, probe: Probe) -> float:
    """Dump and load, and run a first cell there."""
    await run(other, "state = None")
    began = time.perf_counter()
    await run(kernel, DUMP.format(pickler, str(path)))
    await run(other, LOAD.format(pickler, str(path)))
    shown = await run(other, "1")
    seconds = time.perf_counter() - began
    assert shown == "1"
    await probe.check(other)
    return seconds


async def rolled_back(kernel: Kernel, probe: Probe) -> float:
    """Roll back to a checkpoint, and run a first cell."""
    async with await kernel.checkpoint() as checkpoint:
        await run(kernel, "state = None")
        began = time.perf_counter()
        await kernel.rollback(checkpoint)
        shown = await run(kernel, "1")
        seconds = time.perf_counter() - began
    assert shown == "1"
    await probe.check(kernel)
    return seconds


async def adopted(kernel: Kernel, probe: Probe) -> float:
    """Adopt a branch, and run a first cell."""
    async with kernel.branch() as trial:
        began = time.perf_counter()
        await kernel.adopt(trial)
        shown = await run(kernel, "1")
        seconds = time.perf_counter() - began
    assert shown == "1"
    await probe.check(kernel)
    return seconds


async def rejected(kernel: Kernel) -> float:
    """Close a branch in which a cell has run."""
    trial = await kernel.branch()
    await run(trial, "1")
    began = time.perf_counter()
    await trial.aclose()
    return time.perf_counter() - began


async def compared(content: Content) -> dict[str, list[float]]:
    """Take branches of a state, and copy it by each pickler, in turn."""
    async with AsyncExitStack() as stack:
        kernel, probe = await holding(stack, content)
        other = await stack.enter_async_context(Kernel.start(preload=("pandas", *PICKLERS)))
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY))
        sides: dict[str, Side] = {"branch": partial(branched, kernel, probe)}
        for pickler in PICKLERS:
            path = Path(folder, pickler)
            sides[pickler] = partial(pickled, kernel, other, pickler, path, probe)
        await take_turns(1, sides)
        await pauses(kernel)
        found = await take_turns(ROUNDS, sides)
        found["pause"] = await pauses(kernel)
        assert len(found["pause"]) == ROUNDS
        return found


async def moved(content: Content) -> dict[str, list[float]]:
    """Branch, roll back, adopt and reject in turn."""
    async with AsyncExitStack() as stack:
        kernel, probe = await holding(stack, content)
        sides: dict[str, Side] = {
            "branch": partial(branched, kernel, probe),
            "rollback": partial(rolled_back, kernel, probe),
            "adoption": partial(adopted, kernel, probe),
            "rejection": partial(rejected, kernel),
        }
        await take_turns(1, sides)
        return await take_turns(ROUNDS, sides)


async def chained(content: Content) -> list[float]:
    """Change the state in a branch of the last accepted one, and adopt it, again and again."""
    seconds = []
    async with AsyncExitStack() as stack:
        kernel, _ = await holding(stack, content)
        await run(kernel, "steps = []")
        for number in range(CHAIN):
            began = time.perf_counter()
            async with kernel.branch() as trial:
                await run(trial, f"state.iat[{number}, 0] = -1\nsteps.append({number})")
                await kernel.adopt(trial)
            seconds.append(time.perf_counter() - began)
        shown = await run(kernel, "steps == list(range(len(steps))), int((state[0] == -1).sum())")
        assert shown == f"(True, {CHAIN})", shown
    return seconds


async def siblings() -> tuple[list[float], list[float], list[float]]:
    """Take branches of a large state at once; give times, private memory and pauses."""
    async with AsyncExitStack() as stack:
        kernel, probe = await holding(stack, LARGE)
        seconds: list[float] = []
        private: list[float] = []

        async def one() -> Kernel:
            trial = await kernel.branch()
            await probe.check(trial)
            return trial

        for _ in range(ROUNDS):
            await run(kernel, "None")
            began = time.perf_counter()
            trials = await asyncio.gather(*(one() for _ in range(SIBLINGS)))
            seconds.append(time.perf_counter() - began)
            private += [float((await trial.memory()).uss) for trial in trials]
            await asyncio.gather(*(trial.aclose() for trial in trials))
        return seconds, private, await pauses(kernel)


def against_pickle(content: Content, found: dict[str, list[float]]) -> tuple[Row, Row]:
    times = {name: statistics.median(found[name]) for name in PICKLERS}
    fastest = min(times, key=times.__getitem__)
    others = ", ".join(
        f"{seconds * 1e3:,.0f} ms by {name}" for name, seconds in times.items() if name != fastest
    )
    faster = ratio(found[fastest], found["branch"])
    pause = statistics.median(found["pause"])
    return (
        Row(
            f"{content.what}: copy and branch, until its first cell is answered",
            spread(found["branch"], "ms", 1e3),
            f"{spread(found[fastest], 'ms', 1e3)}, {fastest}; {others}",
            f"{faster:.1f} times as fast",
            f"≥ {content.goal}",
            faster >= content.goal,
        ),
        Row(
            f"{content.what}: how long the kernel stands still",
            spread(found["pause"], "ms", 1e3),
            "",
            "",
            f"≤ {PAUSE * 1e3:.0f} ms",
            pause <= PAUSE,
        ),
    )


def move_rows(found: dict[str, list[float]]) -> tuple[Row, ...]:
    more = ratio(found["rollback"], found["branch"])
    return (
        Row(
            "rollback, until the first cell is answered",
            spread(found["rollback"], "ms", 1e3),
            f"{spread(found['branch'], 'ms', 1e3)}, a branch of ours",
            f"{more:.2f} times a branch",
            f"≤ {ROLLBACK:g}",
            more <= ROLLBACK,
        ),
        Row(
            "adoption, until the first cell is answered",
            spread(found["adoption"], "ms", 1e3),
        ),
        Row("closing a branch that is rejected", spread(found["rejection"], "ms", 1e3)),
    )


def chain_row(seconds: list[float]) -> Row:
    first, last = seconds[:ENDS], seconds[-ENDS:]
    return Row(
        f"branch, cell and adoption, {CHAIN} times on end: the last {ENDS}",
        spread(last, "ms", 1e3),
        f"{spread(first, 'ms', 1e3)}, the first {ENDS}",
        f"{ratio(last, first):.2f} times",
    )


def sibling_rows(seconds: list[float], private: list[float], stood: list[float]) -> tuple[Row, ...]:
    return (
        Row(
            f"{LARGE.what}: {SIBLINGS} branches at once, until all have answered",
            spread(seconds, "s"),
            "",
            f"the kernel stands still for {spread(stood, 'ms', 1e3)}",
            f"≤ {ALL_ANSWERED:g} s",
            statistics.median(seconds) <= ALL_ANSWERED,
        ),
        Row(
            f"{LARGE.what}: private memory of such a branch",
            spread(private, "MB", 1e-6),
            "",
            "",
            f"≤ {PRIVATE / 1e6:.0f} MB",
            statistics.median(private) <= PRIVATE,
        ),
    )


async def work() -> Figures:
    against = [(content, await compared(content)) for content in (FLOATS, OBJECTS)]
    moves = await moved(FLOATS)
    chain = await chained(FLOATS)
    seconds, private, stood = await siblings()
    return Figures(
        "Branches of a live kernel",
        f"{ROUNDS} times each, in turn. A branch: a cell has run, then `await kernel.branch()` "
        'and `await trial.run("1")`, which makes a copy of the kernel and forks the branch '
        "from it. Pickling: `dump` with protocol 5 in the kernel, `load` in another live kernel, "
        "by a file in `/dev/shm`, and a first cell there. The kernel stands still from before "
        "the first handler of its fork until after the last. Rollback: to a checkpoint that is "
        "there, after a cell has dropped the state. "
        f"{SIBLINGS} branches at once: `branch` and a cell that reads the state, each.",
        (
            *(row for each in against for row in against_pickle(*each)),
            *move_rows(moves),
            chain_row(chain),
            *sibling_rows(seconds, private, stood),
        ),
        {
            **{content.what: found for content, found in against},
            "moves": moves,
            "chain": chain,
            "siblings": {"seconds": seconds, "uss": private, "pause": stood},
        },
    )


def measure() -> Figures:
    return asyncio.run(work())


if __name__ == "__main__":
    show(measure)
