"""Whether a task can be judged here at all: found out before a model is asked."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from nbrefine.errors import InvalidTaskError
from nbrefine.executors import SubprocessCodeExecutor
from nbrefine.rewards.base import RewardFunction
from nbrefine.rewards.code import CodeExecutionReward, tests_of
from nbrefine.source import parse
from nbrefine.state import State
from nbrefine.values import Episode, RewardType, Task

if TYPE_CHECKING:
    from nbrefine.rewards.grader import Grader


class Judgeable:
    """Refuses a task that lacks tests where nothing else judges, or whose reference fails here.

    Parameters
    ----------
    rewards: those of the environment.
    grader: runs references; None where none is to be run.
    """

    def __init__(self, rewards: Iterable[RewardFunction], grader: Grader | None) -> None:
        rewards = tuple(rewards)
        executors = [getattr(reward, "executor", None) for reward in rewards]
        # Elsewhere a reference may find data and packages that it does not find with the grader.
        self._as_graded = any(isinstance(each, SubprocessCodeExecutor) for each in executors)
        outcomes = [reward for reward in rewards if reward.reward_type is RewardType.OUTCOME]
        self._needs_tests = bool(outcomes) and all(map(_takes_tests_of_tasks, outcomes))
        self._grader = grader

    async def __call__(self, state: State, episode: Episode) -> None:
        """Look at the first state of an episode.

        Raises
        ------
        InvalidTaskError: its task cannot be judged here, and why.
        """
        task, tests = episode.task, tests_of(state)
        # Without a grader hidden tests are nobody's to run.
        hidden = bool(task.hidden_tests.strip()) and self._grader is not None
        if self._needs_tests and not hidden and (tests is None or not tests.source.strip()):
            raise InvalidTaskError(
                "The task has no tests, and nothing else judges it",
                hint="Give it some, or leave it out",
            )
        # What is left out must not depend on whether it was solved.
        if self._grader is not None and (hidden or self._has_solution(task)):
            preflight = await self._grader.preflight(task)
            if preflight.problem:
                raise InvalidTaskError(preflight.problem)

    def _has_solution(self, task: Task) -> bool:
        return has_solution(task) and (bool(task.entry_point) or self._as_graded)


def _takes_tests_of_tasks(reward: RewardFunction) -> bool:
    return isinstance(reward, CodeExecutionReward) and reward.test_extractor is None


def has_solution(task: Task) -> bool:
    """Tell whether a task's reference is a program that its tests can judge, and no mere answer."""
    if not task.tests.strip():
        return False
    bound = set(_bound(task.reference))
    if task.entry_point:
        return task.entry_point in bound
    named = set(re.findall(r"\w+", task.tests))
    # `check(candidate)` takes the only function there is.
    return bool(bound & named) or ("candidate" in named and len(bound) == 1)


def _bound(code: str) -> Iterator[str]:
    """Give the names that a program binds at its top level."""
    tree = parse(code, magics=False)
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
