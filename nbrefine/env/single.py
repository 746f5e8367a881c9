"""One question, one answer: the environment that every set of tasks with rewards is.

`IterativeEnvironment` wraps it, or anything like it, into a loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import uuid4

from nbrefine._portal import call_user
from nbrefine._version import __version__
from nbrefine.env.base import Environment, checked_index, whole_index
from nbrefine.env.preparation import recordable
from nbrefine.env.turns import (
    begun,
    ended,
    feedback_texts,
    judged,
    opening_of,
    refuse_ended,
    response,
    solved_stop,
)
from nbrefine.errors import UsageError
from nbrefine.rewards.base import RewardFunction, refuse_namesakes, signals_of
from nbrefine.state import Action, EnvironmentSpec, Observation, State, StateMetadata, StepResult
from nbrefine.values import Episode, Extraction, Stop, Task, utc_now


@dataclass(frozen=True, slots=True)
class Problem:
    """A task, and what its answer is judged by."""

    task: Task
    entry: dict[str, Any] = field(default_factory=dict)
    """The row of the data set that it was made of."""
    expected_answer: str = ""


class Problems(Protocol):
    """A sequence of problems; one that is lazy may make each when it is asked for.

    What has no `__len__` is taken to go on until it raises IndexError.
    """

    def __getitem__(self, index: int, /) -> Problem: ...


@dataclass(frozen=True, slots=True)
class SingleTurnHidden:
    """What a state of a `SingleTurnEnvironment` knows and the model does not see."""

    task: Task
    entry: dict[str, Any]
    expected_answer: str
    task_index: int
    episode: Episode


class SingleTurnEnvironment(Environment):
    """Tasks that take one answer, which reward functions judge.

    It keeps nothing between calls: a state may be stepped any number of times, and any number
    of episodes may run at once.

    Parameters
    ----------
    problems: the tasks, chosen by `options={"task_index": i}` on reset; see `Problems`.
    rewards: what judges an answer; closed with the environment where they can be.
    name, adapter: how `spec` calls it.
    system_prompt: begins every chat, if it is not empty.

    Raises
    ------
    UsageError: two rewards have one name.
    """

    def __init__(
        self,
        problems: Problems,
        *,
        rewards: Iterable[RewardFunction] = (),
        name: str = "single_turn",
        adapter: str = "single_turn",
        system_prompt: str = "",
    ) -> None:
        self.problems = problems
        self._rewards = refuse_namesakes(rewards)
        self._name = name
        self._adapter = adapter
        self._system_prompt = system_prompt

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec(
            self._name,
            self._adapter,
            max_steps=1,
            supports_len=isinstance(self.problems, Sized),
            pure_step=True,
        )

    @property
    def reward_functions(self) -> tuple[RewardFunction, ...]:
        return self._rewards

    def __len__(self) -> int:
        return len(self.problems) if isinstance(self.problems, Sized) else super().__len__()

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        options = options or {}
        index = whole_index(options.get("task_index", 0))
        problem = await call_user(problem_at, self.problems, index)
        task = recordable(problem.task)
        episode = Episode(
            task=task,
            id=options.get("episode_id") or uuid4().hex,
            created=utc_now(),
            seed=seed,
            version=__version__,
        )
        hidden = SingleTurnHidden(task, problem.entry, problem.expected_answer, index, episode)
        opening = opening_of(self._system_prompt, task.prompt)
        observation = Observation(task.prompt, opening, task=task.prompt)
        facts = {"task_index": index}
        return State(observation, hidden, StateMetadata(0, episode.id, info=dict(facts))), facts

    async def _step(self, state: State, action: Action) -> StepResult:
        hidden: SingleTurnHidden = state.hidden
        refuse_ended(hidden.episode.stop)
        started, clock = utc_now(), time.monotonic()
        submission = response(action)
        turn = begun(state, action, _whole(action, submission), number=1)
        next_state = _after(state, replace(hidden.episode, turns=(turn,)))
        signals = await signals_of(self._rewards, state, action, next_state)
        turn = judged(turn, signals, threshold=1.0)
        waited = action.reply.seconds if action.reply else 0.0
        turn = replace(turn, started=started, seconds=waited + time.monotonic() - clock)
        stop = solved_stop(turn) if turn.accepted else Stop("submitted", "one answer is all")
        return StepResult(
            _after(state, replace(hidden.episode, turns=(turn,), stop=stop)),
            signals,
            terminated=True,
            extracted_action=submission,
            info={
                "turn": 1,
                "submission": submission,
                "feedback": feedback_texts(signals),
                "solved": turn.accepted,
            },
        )


def problem_at(problems: Problems, index: int) -> Problem:
    """Give the problem of an index.

    Raises
    ------
    UsageError: there is none.
    """
    count = len(problems) if isinstance(problems, Sized) else None
    try:
        return problems[checked_index(index, count)]
    except IndexError:
        raise UsageError(
            f"task_index is {index}, beyond the last task", hint="Tasks are counted from 0"
        ) from None


def _whole(action: Action, submission: str) -> Extraction:
    if action.code is not None:
        return Extraction("given", submission, reason="the caller supplied the answer")
    return Extraction("found", submission, reason="The whole response.")


def _after(state: State, episode: Episode) -> State:
    metadata = replace(state.metadata, step=1, is_terminal=True)
    return State(ended(state.observation.task), replace(state.hidden, episode=episode), metadata)
