"""The signals of one step, from several reward functions."""

from __future__ import annotations

import asyncio
import threading
from fractions import Fraction
from typing import Any

import pytest

from nbrefine.errors import UsageError
from nbrefine.rewards.base import signals_of
from nbrefine.rewards.code import (
    CodeExecutionReward,
)
from nbrefine.state import Action, State
from nbrefine.values import (
    RewardType,
    Signal,
    SignalBundle,
)
from tests.rewards.judging import (
    ADD,
    TESTS,
    OwnExecutor,
    having,
    state,
)

# The signals of one step


class Fixed:
    """A reward function that says the same of everything, once it may."""

    reward_type = RewardType.PROCESS

    def __init__(self, name: str, gives: Any = None, *, after: threading.Event | None = None):
        self.name = name
        self.gives = gives
        self.after = after
        self.seen: list[Any] = []

    def compute(self, state: State, action: Action, next_state: State) -> Any:
        if self.after is not None:
            assert self.after.wait(30)
        self.seen.append((state, action, next_state))
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives or Signal(self.name, self.reward_type, 1.0)


def signals(*functions: Any) -> SignalBundle:
    before, after = state(), state()
    found = asyncio.run(signals_of(functions, before, Action("a"), after))
    for function in functions:
        if isinstance(function, Fixed):
            assert function.seen == [(before, Action("a"), after)]
    return found


def test_signals_come_in_the_order_of_their_functions_though_they_work_side_by_side() -> None:
    done = threading.Event()

    class Last(Fixed):
        def compute(self, *args: Any) -> Any:
            done.set()  # the first one waits for this one
            return super().compute(*args)

    found = signals(Fixed("a", after=done), Last("b"))
    assert [signal.name for signal in found] == ["a", "b"]
    assert signals() == SignalBundle.empty()


def test_what_a_function_raises_names_it_and_waits_for_the_others() -> None:
    other = Fixed("good")
    failing = Fixed("bad", ZeroDivisionError("no"))
    with pytest.raises(ZeroDivisionError, match="no") as caught:
        signals(failing, other)
    assert caught.value.__notes__ == ['Raised by the reward function "bad".']
    assert len(other.seen) == 1


def test_a_function_that_gives_no_signal_is_told_apart_from_the_model_s_faults() -> None:
    with pytest.raises(UsageError, match='"plain" gave float where a Signal is due'):
        signals(Fixed("plain", 0.5))


@pytest.mark.parametrize("reward", ["0.5", [1.0], 1j])
def test_a_reward_that_is_no_number_is_the_function_s_mistake(reward: Any) -> None:
    with pytest.raises(UsageError, match='"odd" gave the reward'):
        signals(Fixed("odd", Signal("odd", RewardType.OUTCOME, reward)))


@pytest.mark.parametrize(("reward", "known"), [(Fraction(1, 2), 0.5), (True, 1.0), (1, 1.0)])
def test_a_reward_of_any_kind_of_number_is_a_float(reward: Any, known: float) -> None:
    (signal,) = signals(Fixed("any", Signal("any", RewardType.OUTCOME, reward)))
    assert (signal.reward, type(signal.reward)) == (known, float)


def test_a_kind_of_reward_of_ours_may_have_a_compute_of_its_own() -> None:
    class Halved(CodeExecutionReward):
        def compute(self, state: State, action: Action, next_state: State) -> Signal:
            whole = super().compute(state, action, next_state)
            assert whole.reward is not None
            return Signal("half", RewardType.PROCESS, whole.reward / 2)

    found = asyncio.run(signals_of([Halved(OwnExecutor())], having(TESTS), Action(ADD), state()))
    assert [(signal.name, signal.reward) for signal in found] == [("half", 0.25)]
