"""Real repair trajectories, run again: recorded programs in order, as episodes of our own loop.

They are LDB's published logs (Apache-2.0; Zhong et al. 2024, arXiv 2402.16906): each program that a
model gave, the visible tests it was shown, and whether the last one passed the hidden tests.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbrefine._portal import Run
from nbrefine.env import IterativeEnvironment, Problem, SingleTurnEnvironment
from nbrefine.executors import CodeExecutionResult, SubprocessCodeExecutor
from nbrefine.extractors import CodeBlockExtractor
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.grader import Grade, Grader
from nbrefine.runner import TrajectoryRunner
from nbrefine.source import fenced
from nbrefine.taskdata import humaneval_task, mbpp_task
from nbrefine.values import Episode, Task

Row = dict[str, Any]

TIMEOUT, FLOOR, FACTOR = 4.0, 2.0, 3.0
"""Seconds for a program and its visible tests, and what the grader gives one test at least, and of
its reference's time.  A dozen recorded programs run without end, on which most of the time went;
but for one task of HumanEval no other test takes more than a second."""

AT_A_TIME = 4


@dataclass(frozen=True, slots=True)
class Rerun:
    """A recorded trajectory and what came of it here."""

    row: Row
    episode: Episode
    grade: Grade

    @property
    def name(self) -> str:
        return f"{self.row['run']} {self.row['task_id']}"


def trajectories(shared_data: Path) -> list[Row]:
    path = shared_data / "recorded" / "ldb_trajectories.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def tasks_of(rows: Sequence[Row], shared_data: Path) -> list[Task]:
    """Give each row's task: the tests that the model saw are visible, the set's own hidden."""
    sets: dict[str, Task] = {}
    for row in _lines(shared_data / "humaneval" / "test.jsonl"):
        sets[row["task_id"]] = humaneval_task(row)
    for split in ("train", "test", "prompt"):
        for row in _lines(shared_data / "mbpp" / "full" / f"{split}.jsonl"):
            sets[f"MBPP/{row['task_id']}"] = mbpp_task(row)
    return [
        replace(
            (task := sets[row["task_id"]]),
            id=row["task_id"],
            tests="\n".join(row["given_tests"]),
            hidden_tests=task.tests,
        )
        for row in rows
    ]


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def rerun(rows: Sequence[Row], shared_data: Path) -> list[Rerun]:
    """Run recorded trajectories as whole episodes, with a model that gives what was recorded."""

    async def work() -> list[Rerun]:
        problems = [Problem(task) for task in tasks_of(rows, shared_data)]
        executor = Remembering(workers=2)
        reward = CodeExecutionReward(executor, timeout=TIMEOUT)
        inner = SingleTurnEnvironment(problems, rewards=(reward,), name="ldb", adapter="recorded")
        gate = asyncio.Semaphore(AT_A_TIME)

        async def one(index: int, grader: Grader) -> Rerun:
            async with gate:
                codes = rows[index]["implementations"]
                env = IterativeEnvironment(
                    inner,
                    submission_extractor=CodeBlockExtractor("python"),
                    max_turns=len(codes),
                )
                runner = TrajectoryRunner(env, [fenced(code, "python") for code in codes])
                episode = (await runner.arun_trajectory(index)).episode
                grade = await grader.grade(episode.task, episode.turns[-1].code)
                return Rerun(rows[index], episode, grade)

        grading = Grader(executor=executor, floor=FLOOR, factor=FACTOR)
        async with inner, grading as grader:
            return list(await asyncio.gather(*(one(n, grader) for n in range(len(rows)))))

    return Run(work()).result()


class Remembering(SubprocessCodeExecutor):
    """Runs one program with one set of tests once: models repeat themselves a great deal."""

    def __init__(self, *, workers: int) -> None:
        super().__init__(workers=workers)
        self._known: dict[tuple[str, ...], Run[CodeExecutionResult]] = {}

    def aexecute(self, code: str, test_code: str, **settings: Any) -> Run[CodeExecutionResult]:
        key = (code, test_code, repr(sorted(settings.items())))
        if key not in self._known:
            self._known[key] = super().aexecute(code, test_code, **settings)
        return self._known[key]
