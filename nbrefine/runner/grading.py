"""Grades of episodes: who gives them, and what they make of an outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nbrefine.env import Environment
from nbrefine.metrics import Outcome, outcome_of
from nbrefine.values import Episode, GradeNote

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
    return outcome_of(with_grade(episode, grade), task=task, sample=sample)


def with_grade(episode: Episode, grade: Grade | None) -> Episode:
    """Give an episode that knows its grade, and of the hidden tests no more than their number."""
    if grade is None:
        return episode
    return replace(episode, grade=GradeNote(grade.verdict, grade.passed, grade.total))
