"""What a reward function is, and how the signals of one step are computed."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from numbers import Real
from typing import Any, Protocol

from nbrefine._portal import Closing, Run, call_user
from nbrefine.errors import UsageError
from nbrefine.state import Action, State
from nbrefine.values import RewardType, Signal, SignalBundle


class RewardFunction(Protocol):
    """Judges one step by one measure.

    One that can only judge answers of some form may say so in a text `instructions`, which a chat
    then begins with.
    """

    @property
    def name(self) -> str:
        """What its signals are called."""
        ...

    @property
    def reward_type(self) -> RewardType:
        """What they speak of, unless they say otherwise."""
        ...

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        """Judge the action that led from one state to the next.

        It is called in a thread of its own.  What the model did wrong is in the signal; what
        is raised is the host's trouble and ends the step.
        """
        ...


class IOReward(Closing):
    """A reward function that waits for processes or servers, so that a stop reaches its work."""

    name: str
    reward_type: RewardType

    @abstractmethod
    async def _compute(self, state: State, action: Action, next_state: State) -> Signal:
        """Judge a step; runs on the portal and may not block it."""

    def acompute(self, state: State, action: Action, next_state: State) -> Run[Signal]:
        """Judge a step; the started form of `compute`."""
        return Run(self._compute(state, action, next_state))

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        """Judge the action that led from one state to the next."""
        return self.acompute(state, action, next_state).result()

    async def _close(self) -> None:
        """Release what it holds: nothing, unless a kind of it says otherwise."""


def refuse_namesakes(functions: Iterable[RewardFunction]) -> tuple[RewardFunction, ...]:
    """Give reward functions whose signals can be told apart.

    Raises
    ------
    UsageError: two have one name.
    """
    given = tuple(functions)
    names = Counter(getattr(function, "name", type(function).__name__) for function in given)
    for name, count in names.items():
        if count > 1:
            raise UsageError(
                f'{count} reward functions are named "{name}", and only the first is found by name',
                hint="Give each a name= of its own",
            )
    return given


async def signals_of(
    functions: Iterable[RewardFunction], state: State, action: Action, next_state: State
) -> SignalBundle:
    """Compute the signals of one step side by side, and give them in the functions' order.

    Raises
    ------
    Exception: what the first of the functions that failed has raised, with a note that names it;
        all others have ended by then.
    UsageError: a function gave something else than a signal, or a reward that is no number.
    """
    works = [_signal(function, state, action, next_state) for function in functions]
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    signals = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        signals.append(outcome)
    return SignalBundle(tuple(signals))


async def _signal(
    function: RewardFunction, state: State, action: Action, next_state: State
) -> Signal:
    name = getattr(function, "name", type(function).__name__)
    try:
        # A kind of IOReward that has a `compute` of its own wants it called.
        if isinstance(function, IOReward) and type(function).compute is IOReward.compute:
            signal = await function._compute(state, action, next_state)  # noqa: SLF001
        else:
            signal = await call_user(function.compute, state, action, next_state)
    except Exception as error:
        error.add_note(f'Raised by the reward function "{name}".')
        raise
    if not isinstance(signal, Signal):
        raise UsageError(
            f'The reward function "{name}" gave {type(signal).__name__} where a Signal is due',
            hint="Let compute() return Signal(name, reward_type, reward)",
        )
    reward: Any = signal.reward
    if reward is None:
        return signal
    if not isinstance(reward, Real):
        raise UsageError(
            f'The reward function "{name}" gave the reward {reward!r}',
            hint="Give a number, or None where there is nothing to judge",
        )
    return replace(signal, reward=float(reward))  # a number of numpy's is no plain one
