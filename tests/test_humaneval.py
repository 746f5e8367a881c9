"""Whole benchmarks through the loop: right answers are solved, known bugs are not.

The programs are the data sets' own (HumanEval, HumanEvalPack); the expected verdicts are what
their authors published: every reference solution passes, every buggy solution fails.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbrefine.kernel import Kernel
from nbrefine.loop import refine
from nbrefine.values import Episode, Task

SHARDS = 10
"""Parts that the rows are dealt out to, so that workers share them evenly."""


def rows(path: Path, shard: int) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[shard::SHARDS]]


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel.start(preload=()) as started:
        yield started


def refined(kernel: Kernel, task: Task, code: str, **settings: Any) -> Episode:
    """Give a task's episode on a session that has been emptied."""
    assert kernel.run("%reset -f").result().ok
    return refine(task, model=[fenced(code)], kernel=kernel, **settings)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_reference_solution_of_humaneval_is_solved(
    kernel: Kernel, shared_data: Path, shard: int
) -> None:
    for row in rows(shared_data / "humaneval" / "test.jsonl", shard):
        task = Task(
            row["prompt"], id=row["task_id"], tests=row["test"], entry_point=row["entry_point"]
        )
        episode = refined(kernel, task, row["prompt"] + row["canonical_solution"])
        assert episode.solved, f"{task.id}: {episode.turns[-1].feedback}"
        assert len(episode.turns) == 1
        asserts = sum(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(row["test"])))
        report = episode.turns[0].tests
        assert report is not None
        assert report.total == asserts, task.id


HANGING = {"Python/10", "Python/76", "Python/156", "Python/160"}
"""Bugs that run without end. The data's README counts three, and stops at a task's first failure;
the loop of Python/76 comes after one."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_known_bug_ends_unsolved_with_its_failing_tests_named(
    kernel: Kernel, shared_data: Path, shard: int
) -> None:
    for row in rows(shared_data / "humanevalpack" / "python" / "test.jsonl", shard):
        task = Task(
            row["instruction"],
            id=row["task_id"],
            tests="\n".join((row["import"], row["test_setup"], row["test"])),
            entry_point=row["entry_point"],
        )
        code = row["declaration"] + row["buggy_solution"]
        seconds = 1.0 if task.id in HANGING else 10.0
        episode = refined(kernel, task, code, max_turns=1, test_timeout=seconds)
        turn = episode.turns[0]
        assert not episode.solved, task.id
        assert turn.tests is not None
        cases = turn.tests.cases
        told = [case for case in cases if case.status in ("failed", "error", "timeout")]
        assert told, task.id
        assert all(case.name.startswith("check[") and case.expression for case in told)
        assert any(case.status == "timeout" for case in cases) == (task.id in HANGING), task.id
        failing = [case.name for case in cases if not case.passed]
        missing = [name for name in failing if name not in turn.feedback]
        assert not missing, f"{task.id}: {missing} not named"
