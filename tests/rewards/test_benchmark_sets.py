"""MBPP on a live kernel: every test is found, and solutions pass them one by one.

HumanEval and its bugs are in tests/test_humaneval.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbrefine.kernel import Kernel
from nbrefine.rewards.tests import parse_tests, run_tests, signal
from nbrefine.values import TestReport


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel.start() as started:
        yield started


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def outcome(kernel: Kernel, cells: list[str], tests: str) -> TestReport:
    kernel.run("%reset -f").result()
    for cell in cells:
        result = kernel.run(cell).result()
        assert result.ok, result.text
    return run_tests(kernel, tests, timeout_per_test=30.0).result()


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
