"""What an iterative environment wraps: an environment of a user's own, or tasks alone."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from nbrefine._portal import call_user
from nbrefine.env.base import Environment
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.errors import UsageError
from nbrefine.rewards.base import RewardFunction
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.state import EnvironmentSpec
from nbrefine.values import RewardType, Task


class UnsolvableWarning(UserWarning):
    """A task has nothing that could ever tell that it is solved."""


@dataclass(frozen=True, slots=True)
class IterativeTask:
    """A task that stands alone, without an environment around it."""

    prompt: str
    ground_truth: str = ""
    """The expected answer, for rewards that compare or judge; never shown."""
    test_code: str = ""
    """Tests that judge a submission; with them a `CodeExecutionReward` comes along, unless the
    extra rewards have one that runs them."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Facts of the task; its `entry_point` names what a `check(candidate)` is given."""


def wrapped(
    inner: Environment | None,
    tasks: Iterable[IterativeTask | Task] | IterativeTask | Task | None,
    extra: Sequence[RewardFunction],
) -> Environment:
    """Give the environment to wrap.

    Raises
    ------
    UsageError: there is none, or it cannot be wrapped.
    """
    if inner is None and tasks is None:
        raise UsageError("Must provide either 'inner' or 'tasks'", hint="Give one of them")
    if inner is None:
        assert tasks is not None
        # One of these is iterable, but is meant as one task.
        one = isinstance(tasks, str | Mapping) or not isinstance(tasks, Iterable)
        given = (tasks,) if one else tuple(cast("Iterable[Any]", tasks))
        if strange := [task for task in given if not isinstance(task, IterativeTask | Task)]:
            told = reprlib.repr(strange[0])
            raise UsageError(f"{told} is no task", hint="Give IterativeTask or Task values")
        return _of_tasks([_problem(task) for task in given], extra)
    if tasks is not None:
        raise UsageError("Both 'inner' and 'tasks' are given", hint="Give one of them")
    spec = getattr(inner, "spec", None)
    if not isinstance(spec, EnvironmentSpec):
        raise UsageError(
            f"{type(inner).__name__} has no spec", hint="Give an Environment, or tasks as tasks="
        )
    if spec.is_multi_turn:
        raise UsageError(
            f"{spec.name} takes several turns by itself, and only one that takes a single answer "
            "can be wrapped",
            hint="Drive it as it is, with TrajectoryRunner",
        )
    if not spec.pure_step:
        raise UsageError(
            f"{spec.name} has no pure_step: judged twice from one state, a submission might fare "
            "differently",
            hint="Wrap an environment whose step changes nothing but its result",
        )
    return inner


def _problem(task: IterativeTask | Task) -> Problem:
    if isinstance(task, Task):
        return Problem(task, expected_answer=task.reference)
    told = Task(
        task.prompt,
        tests=task.test_code,
        entry_point=str(task.metadata.get("entry_point") or ""),
        metadata=task.metadata,
    )
    return Problem(told, expected_answer=task.ground_truth)


def _of_tasks(problems: list[Problem], extra: Sequence[RewardFunction]) -> Environment:
    if not problems:
        raise UsageError("An environment needs at least one task", hint="Give an IterativeTask")
    untested = [at for at, problem in enumerate(problems) if not problem.task.tests.strip()]
    if untested and not any(map(_decides, extra)):
        many = f"{len(untested)} of {len(problems)} tasks have"
        many = many if len(problems) > 1 else "The task has"
        warnings.warn(
            f"{many} no test_code, and no reward speaks of the outcome (task_index "
            f"{untested[0]}): nothing can ever tell that it is solved",
            UnsolvableWarning,
            stacklevel=4,
        )
    rewards: tuple[RewardFunction, ...] = ()
    if len(untested) < len(problems) and not any(map(_runs_tests, extra)):
        from nbrefine.executors import SubprocessCodeExecutor

        rewards = (CodeExecutionReward(SubprocessCodeExecutor(), close_executor=True),)
    return SingleTurnEnvironment(problems, rewards=rewards, name="iterative", adapter="iterative")


def _decides(reward: RewardFunction) -> bool:
    return getattr(reward, "reward_type", RewardType.OUTCOME) is RewardType.OUTCOME


def _runs_tests(reward: RewardFunction) -> bool:
    """Tell whether a reward runs the tests of tasks already, so that ours would run them again."""
    return isinstance(reward, CodeExecutionReward) and reward.test_extractor is None


async def call(env: Environment, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a method of an environment, which may know nothing of asyncio."""
    if (started := getattr(env, f"a{name}", None)) is not None:
        return await started(*args, **kwargs)
    return await call_user(getattr(env, name), *args, **kwargs)
