"""A controller that is killed while it branches leaves no process, no socket and no folder."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CONTROLLER = """
import asyncio, sys
from nbrefine.env import NotebookEnvironment
from nbrefine.state import Action
from nbrefine.values import Task

CELL = (
    "import os, subprocess\\n"
    "_ = [subprocess.Popen(['sleep', '99'], start_new_session=new) for new in (0, 1)]\\n"
    "done = {}"
)

async def main():
    task = Task("t", setup="n = 1", tests="assert done")
    env = NotebookEnvironment(task, max_turns=10_000)
    state = (await env.areset())[0]
    print("up", flush=True)
    while True:
        steps = [env.astep(state, Action.from_code(CELL.format(k == 2))) for k in range(3)]
        for step in steps:
            await step
        print("again", flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(8))
def test_a_kill_at_a_random_moment_leaves_nothing(tmp_path: Path, seed: int) -> None:
    log = tmp_path / "errors.txt"
    base = tmp_path / "t"
    base.mkdir()
    with log.open("w") as errors:
        controller = subprocess.Popen(
            [sys.executable, "-c", CONTROLLER],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "TMPDIR": str(base)},
        )
    with controller:
        try:
            assert controller.stdout is not None
            assert controller.stdout.readline() == "up\n", log.read_text()
            if seed % 2:
                assert controller.stdout.readline() == "again\n", log.read_text()
            time.sleep(random.Random(seed).uniform(0.0, 0.5))  # at any moment of what it does
            beneath = descendants(controller.pid)
            assert beneath
        finally:
            controller.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while left := [*marked(base), *(pid for pid in beneath if is_running(pid)), *base.iterdir()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def descendants(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    beneath = {root}
    while more := {pid for pid, parent in parents.items() if parent in beneath} - beneath:
        beneath |= more
    return beneath - {root}


def marked(base: Path) -> list[int]:
    """Give the processes whose environment names the folder, as what cells start has it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if os.fsencode(base) in environment and is_running(int(entry.name)):
                found.append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
