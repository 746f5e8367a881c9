"""Grades of episodes: who gives them, and what they make of an outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nbrefine.env import Environment
from nbrefine.metrics import Outcome, outcome_of
from nbrefine.values import Episode

if TYPE_CHECKING:
    from nbrefine.rewards.grader import Grade, Grader


def grader_of(environment: Environment | None) -> Grader:
    """Give a grader, to be closed: one in the container of an environment that has one."""
    from nbrefine.executors import ContainerCodeExecutor
    from nbrefine.rewards.grader import Grader

    for reward in environment.reward_functions if environment is not None else ():
        executor = getattr(reward, "executor", None)
        if isinstance(executor, ContainerCodeExecutor):
            return Grader(executor=executor)
    return Grader()


def graded_outcome(
    episode: Episode, grade: Grade | None, *, task: str | int | None = None, sample: int = 0
) -> Outcome:
    """Give what statistics need to know of an episode that has, or has not, a grade."""
    graded = grade.solved if grade is not None else None
    outcome = outcome_of(episode, task=task, sample=sample, graded=graded)
    if grade is not None and grade.verdict in ("invalid-task", "infra-error"):
        return replace(outcome, verdict=grade.verdict, graded=None)
    if grade is not None and outcome.verdict == "invalid-task":  # for want of visible tests
        return replace(outcome, verdict=grade.verdict)
    return outcome
