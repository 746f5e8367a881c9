"""A controller that is killed loses no finished turn and leaves no kernel."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nbrefine

CONTROLLER = """
import sys
from nbrefine.loop import refine
from nbrefine.stopping import StopRule

asked = 0

def model(messages):
    global asked
    asked += 1
    print(asked, flush=True)  # the turns before this one are finished
    return f"```python\\nimport os\\nn = {asked}\\nprint(os.getpid(), 'x' * 2000)\\n```"

refine("Count.", tests="assert n < 0", model=model, record=sys.argv[1], max_turns=10_000,
       isolation="none", rules=StopRule(max_sightings=10_000))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(20))
def test_a_kill_at_a_random_moment_loses_no_finished_turn(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    record, log = tmp_path / "episode.ipynb", tmp_path / "asked.txt"
    with log.open("w") as out:
        controller = subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, str(record)], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        _wait_for_lines(log, drawn.randint(1, 20), controller)
        time.sleep(drawn.uniform(0.0, 0.2))  # at any moment of a turn
    finally:
        controller.send_signal(signal.SIGKILL)
        controller.wait(60)
    finished = _lines(log) - 1
    episode = nbrefine.load(record)
    assert [turn.number for turn in episode.turns] == list(range(1, len(episode.turns) + 1))
    assert len(episode.turns) >= finished
    assert episode.stop is not None
    assert episode.stop.reason == "killed"
    assert str(len(episode.turns)) in episode.stop.detail
    assert episode.kernel.pid is not None
    _wait_until_gone(episode.kernel.pid)


def _lines(log: Path) -> int:
    text = log.read_text()
    assert "Traceback" not in text, text
    return text.count("\n")


def _wait_for_lines(log: Path, count: int, controller: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while _lines(log) < count:
        assert controller.poll() is None, log.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline, f"kernel {pid} outlived its controller"
        time.sleep(0.05)
