"""Branch, or adopt, many times within few descriptors, and tell as JSON what is there afterwards.

Run as `python many_branches.py siblings|fresh|chain COUNT` by the tests of branches' resources.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from nbrefine.kernel import Kernel

DESCRIPTORS = 256
BATCH = 8
WORKER = "nbrefine-worker"
STATE = """
import numpy as np
table = np.arange(6_500_000.0)           # 52 MB
words = [str(n) for n in range(300_000)]  # some 18 MB
n = 0
"""


def facts(kernel: Kernel) -> dict[str, Any]:
    """Count what a branch could leave behind."""
    family = descendants(os.getpid())
    pid = kernel.info.pid
    return {
        "processes": dict(Counter(name for name, _ in family.values())),
        "zombies": sum(state == "Z" for _, state in family.values()),
        "descriptors": entries("/proc/self/fd"),
        "threads": threads(),
        "kernel's descriptors": entries(f"/proc/{pid}/fd"),
        "kernel's threads": entries(f"/proc/{pid}/task"),
        "keepers' descriptors": sum(
            entries(f"/proc/{each}/fd") for each, (name, _) in family.items() if name == "nb-keeper"
        ),
        "files": sum(1 for _ in Path(kernel.connection_file).parent.rglob("*")),
    }


async def settled(kernel: Kernel) -> dict[str, Any]:
    """Count when the processes that were replaced last have gone, as they do beside the work."""
    deadline = time.monotonic() + 10
    found: list[dict[str, Any]] = []
    while time.monotonic() < deadline:
        found = [*found[-4:], facts(kernel)]
        if len(found) == 5 and all(each == found[0] for each in found):
            break
        await asyncio.sleep(0.1)
    return found[-1]


def threads() -> dict[str, int]:
    """Count threads by name, but the portal's workers: as many as were ever wanted at a time."""
    names = {each.native_id: each.name for each in threading.enumerate()}
    found: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            comm = (task / "comm").read_text().strip()
            found[names.get(int(task.name), comm)] += 1
    return {name: count for name, count in found.items() if not name.startswith(WORKER)}


def descendants(root: int) -> dict[int, tuple[str, str]]:
    """Give name and state of every process beneath one."""
    found: dict[int, tuple[int, str, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            state, parent = tail.split()[:2]
            found[int(entry.name)] = int(parent), head.partition("(")[2], state
    beneath: set[int] = {root}
    while more := {p for p, (parent, _, _) in found.items() if parent in beneath} - beneath:
        beneath |= more
    return {pid: found[pid][1:] for pid in beneath - {root}}


def entries(folder: str) -> int:
    return len(os.listdir(folder))  # noqa: PTH208 - the listing's own descriptor counts each time


def pss() -> int:
    """Give the bytes that the session's processes have, what they share counted once."""
    total = 0
    for pid in descendants(os.getpid()):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


async def one(kernel: Kernel, number: int) -> None:
    async with kernel.branch() as trial:
        result = await trial.run(f"n += 1; table[{number}] = -1; (n, len(words))")
        assert result.ok, result


async def siblings(kernel: Kernel, count: int) -> None:
    """Branches of one checkpoint, several at a time."""
    for begin in range(0, count, BATCH):
        await asyncio.gather(*(one(kernel, n) for n in range(begin, min(begin + BATCH, count))))


async def fresh(kernel: Kernel, count: int) -> None:
    """Branches of a checkpoint each, as something runs in the kernel in between."""
    for number in range(count):
        await kernel.run(f"m = {number}")
        await one(kernel, number)


async def chain(kernel: Kernel, count: int) -> None:
    """Each branch adopted, and the next one taken of it."""
    before = int((await kernel.run("n")).text)
    for _ in range(count):
        async with kernel.branch() as trial:
            assert (await trial.run("n += 1; words[n % 1000] = 'changed'")).ok
            await kernel.adopt(trial)
    assert int((await kernel.run("n")).text) == before + count


async def main(kind: str, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    work = {"siblings": siblings, "fresh": fresh, "chain": chain}[kind]
    async with Kernel.start() as kernel:
        assert (await kernel.run(STATE)).ok
        await work(kernel, 2 * BATCH)
        before = await settled(kernel)
        began = time.perf_counter()
        await work(kernel, count)
        seconds = time.perf_counter() - began
        after, used = await settled(kernel), pss()
    left = descendants(os.getpid())
    told = {"before": before, "after": after, "pss": used, "left": left, "seconds": seconds}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
