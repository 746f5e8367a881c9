"""Public benchmarks: every test is found, solutions pass, known bugs are named."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbrefine.kernel import Kernel
from nbrefine.rewards.tests import parse_tests, run_tests, signal
from nbrefine.values import TestReport

HANGING = {"Python/10", "Python/76", "Python/156", "Python/160"}
"""Bugs that run without end. The data's README counts three, and stops at a task's first failure;
the loop of Python/76 comes after one."""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel.start() as started:
        yield started


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def outcome(
    kernel: Kernel, cells: list[str], tests: str, entry_point: str = "", seconds: float = 30.0
) -> TestReport:
    kernel.run("%reset -f").result()
    for cell in cells:
        result = kernel.run(cell).result()
        assert result.ok, result.text
    return run_tests(kernel, tests, entry_point=entry_point, timeout_per_test=seconds).result()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_164_solutions_of_humaneval_pass_every_assert(
    kernel: Kernel, shared_data: Path
) -> None:
    tasks = rows(shared_data / "humaneval" / "test.jsonl")
    assert len(tasks) == 164
    for task in tasks:
        asserts = sum(isinstance(n, ast.Assert) for n in ast.walk(ast.parse(task["test"])))
        cells = [task["prompt"] + task["canonical_solution"]]
        report = outcome(kernel, cells, task["test"], task["entry_point"])
        assert report.solved, f"{task['task_id']}: {signal(report).feedback}"
        assert report.total == asserts, task["task_id"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_98_bugs_of_humanevalpack_fail_with_a_named_test(
    kernel: Kernel, shared_data: Path
) -> None:
    tasks = rows(shared_data / "humanevalpack" / "python" / "test.jsonl")
    assert len(tasks) == 98
    hanging = set()
    for task in tasks:
        cells = [task["import"] + task["test_setup"] + task["declaration"] + task["buggy_solution"]]
        seconds = 1.0 if task["task_id"] in HANGING else 10.0
        report = outcome(kernel, cells, task["test"], task["entry_point"], seconds)
        failures = [case for case in report.cases if case.status in ("failed", "error", "timeout")]
        assert failures, task["task_id"]
        assert all(case.name.startswith("check[") and case.expression for case in failures)
        if any(case.status == "timeout" for case in report.cases):
            hanging.add(task["task_id"])
    assert hanging == HANGING


def test_a_sample_of_mbpp_passes_assert_by_assert(kernel: Kernel, shared_data: Path) -> None:
    tasks = rows(shared_data / "mbpp" / "full" / "test.jsonl")[::25]
    for task in tasks:
        tests = "\n".join(task["test_list"])
        report = outcome(kernel, [task["code"], task["test_setup_code"]], tests)
        assert report.solved, f"{task['task_id']}: {signal(report).feedback}"
        assert report.total == len(task["test_list"])


def test_every_test_of_mbpp_is_found(shared_data: Path) -> None:
    for task in rows(shared_data / "mbpp" / "full" / "test.jsonl"):
        assert len(parse_tests("\n".join(task["test_list"]))) == len(task["test_list"])
