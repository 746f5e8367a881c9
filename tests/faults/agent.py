"""A controller to be killed: an agent whose eight steps build on one another.

Run as a program, it forks a child for each line of its input, so that all imports are there
already, and tells how the child ended.  A child begins the episode in a folder, or goes on with
the one that is recorded there.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from nbrefine import cli, kernel, solving  # noqa: F401 - imported for the children
from nbrefine.postconditions import holds
from nbrefine.values import Message, Subtask

STEPS = 8
RECORD = "e.ipynb"

BEGIN = """\
import os, random
numbers, total, drawn, counts = (n * n for n in range(100)), 0, [], []
os.mkdir("made")
with open("first.txt", "w") as file:
    file.write("1")
"""

STEP = """\
total += next(numbers)
drawn.append(random.random())
with open("log.txt", "a") as file:
    file.write(f"{step} {{total}} {{drawn[-1]}}\\n")
with open("log.txt") as file:
    lines = file.read().splitlines()
counts.append(len(lines))
with open("given.txt", "a") as file:
    file.write("{step}")
with open("part{step}.txt", "w") as file:
    file.write(str(lines))
if os.path.exists("part{before}.txt"):
    os.remove("part{before}.txt")
print(total, drawn[-1], len(lines))
"""


def cell(step: int) -> str:
    """Give the cell of a step: it moves a generator, draws, and appends to what is there."""
    return (BEGIN if step == 1 else "") + STEP.format(step=step, before=step - 2)


SUBTASKS = [
    Subtask(
        f"Do part {n}.",
        (n - 1,) if n > 1 else (),
        (holds(f"len(drawn) == {n}"), holds(f"counts == list(range(1, {n + 1}))")),
    )
    for n in range(1, STEPS + 1)
]


def answering(
    at: int, share: float, full: int = 0, ended: int = 0
) -> Callable[[Sequence[Message]], str]:
    """Give a model that does each step at once, and has itself killed in one of them.

    Parameters
    ----------
    at: the step; 0 for never.
    share: how far into it, as a share of how long the step before has taken.
    full: the step from which on the journal cannot grow, as on a disk that is full; 0 for none.
    ended: the step before which all processes of the kernel are killed, as they are two steps
        later; 0 for none.
    """
    began = [time.monotonic()]

    def answer(messages: Sequence[Message]) -> str:
        now = time.monotonic()
        took, began[0] = (min(now - began[0], 1.0), now)
        step = int(re.findall(r"Do step (\d+) now", messages[-1].content)[-1])
        os.write(1, f"{step} ".encode())  # all before it is recorded, by the law of the driver
        if step == at:
            _killed_after(share * took)
        if step == full:
            size = Path(RECORD).with_suffix(".nbrefine.jsonl").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
        if ended and step in (ended, ended + 2):
            beneath = psutil.Process().children(recursive=True)
            for process in beneath:
                process.kill()
            if step == ended:  # or nobody knows yet
                psutil.wait_procs(beneath, timeout=30)
                time.sleep(0.5)
        return f"```python\n{cell(step)}```"

    return answer


def work(folder: Path, *, after: float, written: int, **when: Any) -> None:
    """Begin the episode, or go on with it.

    Parameters
    ----------
    after: seconds from now on after which this process is killed; 0 for never.
    written: the step after whose change of a file this process is killed at once; 0 for none.
    when: see `answering`.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if after:
        _killed_after(after)
    os.chdir(folder)
    if written:
        threading.Thread(
            target=_killed_once, args=(Path("given.txt"), written), daemon=True
        ).start()
    model = answering(**when)
    if Path(RECORD).exists() or Path(RECORD).with_suffix(".nbrefine.jsonl").exists():
        solving.resume(RECORD, model=model)
    else:
        solving.solve("Build it.", subtasks=SUBTASKS, model=model, record=RECORD)


def _killed_after(seconds: float) -> None:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()


def _killed_once(file: Path, written: int) -> None:
    while not file.read_text().endswith(str(written)):
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    for line in sys.stdin:
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(told, 1)
            try:
                work(**{**(given := json.loads(line)), "folder": Path(given["folder"])})
            except BaseException as error:  # noqa: BLE001 - it is told, and this process ends
                os.write(1, f"! {type(error).__name__}: {error}".encode())
            os._exit(0)
        os.close(told)
        said = b""
        while chunk := os.read(heard, 1 << 16):
            said += chunk
        os.close(heard)
        _, status = os.waitpid(child, 0)
        answer = {"killed": os.WIFSIGNALED(status), "said": said.decode()}
        os.write(1, f"{json.dumps(answer)}\n".encode())


if __name__ == "__main__":
    main()
