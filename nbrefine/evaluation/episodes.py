"""The episodes of one environment: which there are, how each is run, and what is kept of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbrefine.driver import stop_for
from nbrefine.errors import InvalidTaskError, ModelAuthError, NbrefineError, UsageError
from nbrefine.evaluation.records import Records
from nbrefine.evaluation.results import ResultsFile, Row, plain
from nbrefine.findings import Finding, findings, suspect_reference, suspect_tiers
from nbrefine.redaction import clean_text
from nbrefine.rewards.code import program_of
from nbrefine.rewards.grader import Grade, Preflight
from nbrefine.runner import TrajectoryRunner, TurnInfoConfig
from nbrefine.runner.grading import graded_outcome, with_grade
from nbrefine.trajectory import Trajectory
from nbrefine.values import Episode, Sampling, Task

if TYPE_CHECKING:
    from nbrefine.rewards.grader import Grader

TOO_MANY = 10
"""Troubles of the host one after the other from which on an evaluation gives up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How every environment of an evaluation is run; see `arun_evaluation`."""

    samples: int
    limit: int | None
    batch_size: int
    sampling: Sampling
    seed: int | None
    system_prompt: str | None
    turn_info: TurnInfoConfig | bool | None
    grade: bool
    output_dir: Path | None
    detailed: bool

    def __post_init__(self) -> None:
        for name in ("samples", "limit", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}, but 1 is the least")

    def to_dict(self) -> dict[str, Any]:
        """Give what results depend on, as plain JSON: neither how many there are nor where."""
        told: dict[str, Any] = plain(
            {
                "sampling": asdict(self.sampling),
                "seed": self.seed,
                "system_prompt": self.system_prompt,
                "turn_info": asdict(self.turn_info)
                if isinstance(self.turn_info, TurnInfoConfig)
                else self.turn_info,
                "grade": self.grade,
            }
        )
        return told


class Episodes:
    """Runs the episodes of one environment, a batch at a time.

    Parameters
    ----------
    plan: how many there are of each task.
    tasks: how many tasks there are.
    runner: runs one of them.
    at_once: how many run at once.
    name: what the environment is called; names tasks that have no id, by their index.
    grader: judges a submission that its feedback calls solved, or that has no tests for feedback,
        where the task has hidden tests.
    kept: what has ended before, and where rows are written.
    records: names the notebooks that the runner keeps; None where it keeps none.
    """

    def __init__(
        self,
        plan: Plan,
        tasks: int,
        runner: TrajectoryRunner,
        *,
        at_once: int,
        name: str,
        grader: Grader | None,
        kept: ResultsFile | None,
        records: Records | None,
    ) -> None:
        # All tasks once before any twice: what is stopped half-way has seen every task.
        wanted = [(task, n) for n in range(plan.samples) for task in range(tasks)]
        before = kept.rows if kept is not None else {}
        good = {at: row for at in wanted if (row := before.get(at)) and not row.errored}
        self.rows: list[Row] = list(good.values())
        """Those that have ended, in earlier evaluations or in this one."""
        self.trajectories: list[Trajectory] = []
        """Those that have ended in this one."""
        self._waiting = [at for at in wanted if at not in good]
        self._at_once = at_once
        self._runner = runner
        self._name = name
        self._grader = grader
        self._kept = kept
        self._records = records
        self._troubles = 0

    async def run(self, tell: Callable[[int], Awaitable[None]]) -> None:
        """Run what has not ended well before.

        Parameters
        ----------
        tell: told of every number of episodes that have ended.

        Raises
        ------
        UsageError: a mistake of the caller's, which every other episode would meet too.
        NbrefineError: `TOO_MANY` episodes in a row ended in the host's trouble.
        """
        await tell(len(self.rows))
        waiting = iter(self._waiting)
        try:
            async with asyncio.TaskGroup() as batch:
                for _ in range(self._at_once):
                    batch.create_task(self._some(waiting, tell))
        except BaseExceptionGroup as raised:
            raise raised.exceptions[0] from None

    async def _some(
        self, waiting: Iterator[tuple[int, int]], tell: Callable[[int], Awaitable[None]]
    ) -> None:
        for task_index, sample in waiting:
            episode, grade = await self._episode(task_index, sample)
            row = _row(episode, grade, task_index, sample, f"{self._name}/{task_index}")
            if self._records is not None:
                row = replace(row, notebook=self._records.path(task_index, sample))
                if episode.grade is not None:
                    await asyncio.to_thread(self._records.write, episode, task_index, sample)
            if self._kept is not None:
                await asyncio.to_thread(self._kept.append, row)
            self.rows.append(row)
            self.trajectories.append(Trajectory.from_episode(episode))
            await tell(1)
            self._heed(row)

    async def _episode(self, task_index: int, sample: int) -> tuple[Episode, Grade | None]:
        """Give an episode and its grade; what the host's trouble has cut short is one, too."""
        episode: Episode | None = None
        try:
            trajectory = await self._runner.arun_trajectory(task_index, sample=sample)
            episode = trajectory.episode
            grade = await self._graded(episode)
            return with_grade(episode, grade), grade
        except Exception as trouble:
            of_the_caller = isinstance(trouble, UsageError | ModelAuthError)
            if of_the_caller and not isinstance(trouble, InvalidTaskError):
                raise
            so_far = episode or getattr(trouble, "episode", None) or Episode(Task(""))
            grade = None
            if isinstance(trouble, InvalidTaskError):
                grade = Grade("invalid-task", detail=trouble.message)
            return replace(so_far, stop=stop_for(trouble)), grade

    async def _graded(self, episode: Episode) -> Grade | None:
        """Give the grade, where there are hidden tests and the submission may have solved it."""
        task, verdict = episode.task, episode.verdict
        if self._grader is None or verdict == "infra-error":
            return None
        # Without visible tests nothing but a grade can tell.
        untold = bool(episode.turns) and not task.tests.strip()
        if task.hidden_tests and (episode.solved or untold):
            return await self._grader.grade(task, program_of(episode))
        return None

    def _heed(self, row: Row) -> None:
        self._troubles = self._troubles + 1 if row.errored else 0
        if self._troubles >= TOO_MANY:
            raise NbrefineError(
                f"{self._troubles} episodes in a row ended in trouble; the last: {row.detail}",
                hint="Mend that and start again: what is good is kept in output_dir",
            )


def _row(episode: Episode, grade: Grade | None, task_index: int, sample: int, name: str) -> Row:
    assert episode.stop is not None
    outcome = graded_outcome(episode, grade, task=task_index, sample=sample)
    tests = episode.turns[-1].tests if episode.turns else None
    told = grade.detail if grade is not None and not grade.solved else ""
    return Row(
        task_index,
        sample,
        outcome,
        task=clean_text(episode.task.id) or name,
        seed=episode.seed,
        stop=episode.stop.reason,
        detail=clean_text(told or episode.stop.detail),
        tests=(tests.passed, tests.total) if tests else None,
        findings=_suspected(episode, grade),
    )


def _suspected(episode: Episode, grade: Grade | None) -> tuple[Finding, ...]:
    """Find tests that seem to be wrong, by one episode and its grade."""
    found = findings(episode)
    if grade is None:
        return found
    if grade.verdict == "invalid-task":
        reference = suspect_reference(episode.task, Preflight(grade.detail))
        return (*found, reference) if reference is not None else found
    return (*found, *suspect_tiers(episode.task, grade))
