"""Trajectories on executors and on live kernels."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

import nbrefine
from nbrefine.env import NotebookEnvironment
from nbrefine.env.iterative import IterativeEnvironment, IterativeTask
from nbrefine.models.scripted import ScriptedModel
from nbrefine.runner import (
    TrajectoryRunner,
)
from nbrefine.values import (
    Message,
    Task,
)


def test_trajectories_share_the_executor_of_their_environment_and_keep_their_tests_apart() -> None:
    def answer(messages: Sequence[Message]) -> str:
        asked = next(message for message in messages if message.role == "user")
        number = asked.content.split()[3]
        right = "tests passed" in messages[-1].content
        return f"```python\nx = {number if right else 'None'}\n```"

    tasks = [IterativeTask(f"Set x to {n}", test_code=f"assert x == {n}") for n in range(8)]
    before = set(psutil.Process().children(recursive=True))
    with IterativeEnvironment(tasks=tasks) as env:
        batch = TrajectoryRunner(env, answer).run_batch(range(8), batch_size=4)
        assert set(psutil.Process().children(recursive=True)) - before
    assert [t.success for t in batch] == [True] * 8
    assert [t.length for t in batch] == [2] * 8
    for n, trajectory in enumerate(batch):
        tests = trajectory.episode.turns[-1].tests
        assert tests is not None
        assert [case.expression for case in tests.cases] == [f"x == {n}"]
    assert set(psutil.Process().children(recursive=True)) - before == set()


TASKS = [
    Task("Write add(a, b).", "add", tests="assert add(1, 2) == 3"),
    Task("Write neg(a).", "neg", tests="assert neg(2) == -2"),
]


SOLUTIONS = {
    "add": ["```python\nadd = 1\n```", "```python\ndef add(a, b):\n    return a + b\n```"],
    "neg": ["```python\nneg = 1\n```", "```python\ndef neg(a):\n    return -a\n```"],
}


def coder(messages: Sequence[Message]) -> str:
    task = "add" if "Write add" in str(messages) else "neg"
    return SOLUTIONS[task]["tests passed" in messages[-1].content]


def test_notebook_environments_of_a_factory_run_side_by_side_on_kernels_of_their_own(
    tmp_path: Path,
) -> None:
    runner = TrajectoryRunner(
        backend=coder, env_factory=lambda: NotebookEnvironment(TASKS), record=tmp_path / "runs"
    )
    batch = runner.run_batch([0, 1], batch_size=2)
    assert [t.success for t in batch] == [True, True]
    assert [t.length for t in batch] == [2, 2]
    assert len({t.episode.kernel.pid for t in batch}) == 2
    assert [t.episode.task.id for t in batch] == ["add", "neg"]
    assert nbrefine.load(tmp_path / "runs" / "task-0001.ipynb") == batch[1].episode


def test_one_notebook_environment_runs_its_trajectories_one_after_the_other() -> None:
    with NotebookEnvironment(TASKS) as env:
        model = ScriptedModel(coder)
        runner = TrajectoryRunner(env, model, system_prompt="MINE", turn_info=True)
        batch = runner.run_batch([0, 1], batch_size=2)
    assert [t.success for t in batch] == [True, True]
    assert all(chat[0] == Message("system", "MINE") for chat in model.requests)
    assert all("[Turn " in chat[-1].content for chat in model.requests)


def test_a_notebook_environment_can_be_used_on_after_a_stop_within_a_cell(tmp_path: Path) -> None:
    started = tmp_path / "started"
    hang = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(3600)"
    with NotebookEnvironment(TASKS, timeout=None) as env:
        stuck = TrajectoryRunner(env, [f"```python\n{hang}\n```"]).arun_trajectory(0)
        _wait_until(started.exists)
        stuck.stop()
        (turn,) = stuck.result(60).episode.turns  # its reply was paid for
        assert (turn.verdict, turn.code) == ("infra-error", "")
        assert TrajectoryRunner(env, coder).run_trajectory(1).success


HANGING = '''
import sys
from nbrefine.env import NotebookEnvironment
from nbrefine.runner import TrajectoryRunner
from nbrefine.values import Task

home, pids, runs = sys.argv[1:]
cell = f"""
import os, pathlib, time
(pathlib.Path({pids!r}) / str(os.getpid())).touch()
time.sleep(3600)
"""

def make():
    return NotebookEnvironment(Task("t"), timeout=None, cwd=home)

runner = TrajectoryRunner(backend=lambda messages: f"```python{cell}```", env_factory=make,
                          record=runs)
runner.run_batch([0, 0], batch_size=2)
'''


def test_ctrl_c_ends_every_kernel_of_a_batch_and_closes_every_record(tmp_path: Path) -> None:
    home, pids, runs = (tmp_path / name for name in ("home", "pids", "runs"))
    home.mkdir()
    pids.mkdir()
    script = [sys.executable, "-c", HANGING, *map(str, (home, pids, runs))]
    process = subprocess.Popen(script, stderr=subprocess.PIPE, text=True)
    try:
        _wait_until(lambda: len(list(pids.iterdir())) == 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(60)
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    _wait_until(lambda: not any(psutil.pid_exists(int(path.name)) for path in pids.iterdir()))
    names = ["task-0000-sample-01.ipynb", "task-0000.ipynb"]
    assert sorted(path.name for path in runs.iterdir()) == names  # no journal is left
    for name in names:
        stop = nbrefine.load(runs / name).stop
        assert stop is not None
        assert stop.reason == "stopped"


def _wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
