"""The environment interface: `reset` gives the first state, `step` the next for an action."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

from nbrefine._portal import Closing, Run
from nbrefine.errors import UsageError
from nbrefine.rewards.base import RewardFunction, signals_of
from nbrefine.state import Action, EnvironmentSpec, State, StepResult
from nbrefine.values import SignalBundle


class Environment(Closing):
    """A transition: `reset` gives the first state, `step` the next one for an action.

    A subclass writes `_reset` and `_step`, which run on the portal's loop and may not block it;
    all else has a default.
    """

    @property
    def spec(self) -> EnvironmentSpec:
        """What kind of environment it is; one that says nothing promises nothing."""
        return EnvironmentSpec(type(self).__name__, "custom", supports_len=False)

    @property
    def reward_functions(self) -> tuple[RewardFunction, ...]:
        """What judges a step, in the order of its signals."""
        return ()

    @property
    def available_tools(self) -> tuple[Any, ...]:
        return ()

    @property
    def prompts(self) -> dict[str, str]:
        """A copy of the templates its texts are made of, by name."""
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.spec.name!r})"

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} does not know how many tasks it has")

    def __bool__(self) -> bool:
        return True  # whatever len() says

    def areset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Run[tuple[State, dict[str, Any]]]:
        """Begin an episode; the started form of `reset`."""
        return Run(self._reset(seed=seed, options=options))

    def astep(self, state: State, action: Action) -> Run[StepResult]:
        """Take one step; the started form of `step`."""
        if not isinstance(state, State):
            raise UsageError(
                f"A step is taken from a State, not from a {type(state).__name__}",
                hint="reset() gives it first, a step as next_state",
            )
        if not isinstance(action, Action):
            raise UsageError(
                f"A step takes an Action, not a {type(action).__name__}", hint="Give Action(text)"
            )
        return Run(self._step(state, action))

    def acompute_rewards(
        self, state: State, action: Action, next_state: State
    ) -> Run[SignalBundle]:
        """Judge a step that was taken; the started form of `compute_rewards`."""
        return Run(self._compute_rewards(state, action, next_state))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[State, dict[str, Any]]:
        """Begin an episode and give its first state and a dict of facts about it.

        Parameters
        ----------
        seed: what is left to chance in the episode follows from it.
        options: `task_index`, 0-based, and `episode_id`; both may be left out.

        Raises
        ------
        UsageError: there is no task of that index.
        """
        return self.areset(seed=seed, options=options).result()

    def step(self, state: State, action: Action) -> StepResult:
        """Take one step and give what came of it.

        Raises
        ------
        UsageError: the episode had ended, or one of the two is something else.
        """
        return self.astep(state, action).result()

    def compute_rewards(self, state: State, action: Action, next_state: State) -> SignalBundle:
        """Judge a step that was taken, with every reward function."""
        return self.acompute_rewards(state, action, next_state).result()

    def release(self, state: State) -> None:
        """Let go at once of what a state holds, such as a branch of a kernel.

        It goes with the state in any case; a released one is stepped no more.
        """

    @abstractmethod
    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]: ...

    @abstractmethod
    async def _step(self, state: State, action: Action) -> StepResult: ...

    async def _compute_rewards(
        self, state: State, action: Action, next_state: State
    ) -> SignalBundle:
        return await signals_of(self.reward_functions, state, action, next_state)

    async def _close(self) -> None:
        """Release what the reward functions hold."""
        await close_all(self.reward_functions)


def checked_index(index: int, count: int | None) -> int:
    """Give the index of a task as a plain int.

    Parameters
    ----------
    count: how many tasks there are; None where nobody knows.

    Raises
    ------
    UsageError: it is no whole number, or there is no task of that index.
    """
    wanted = whole_index(index)
    if wanted < 0 or (count is not None and wanted >= count):
        there = f", but there are {count} tasks" if count is not None else ""
        raise UsageError(
            f"task_index is {wanted}{there}",
            hint="Tasks are counted from 0 up to one less than that",
        )
    return wanted


def whole_index(index: int) -> int:
    """Give any kind of whole number, such as numpy's, as a plain int, which can be recorded.

    Raises
    ------
    UsageError: it is none.
    """
    try:
        return operator.index(index)
    except TypeError:
        raise UsageError(f"task_index is {index!r}, which is no whole number") from None


async def close_all(things: Iterable[object]) -> None:
    """Close each thing that can be closed, whatever becomes of the others."""
    async with AsyncExitStack() as stack:
        for thing in things:
            if (aclose := getattr(thing, "aclose", None)) is not None:
                stack.push_async_callback(aclose)
