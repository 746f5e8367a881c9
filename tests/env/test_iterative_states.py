"""States of iterative episodes, and the environments that are wrapped."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest

from nbrefine.env import (
    Environment,
    IterativeEnvironment,
    IterativeHidden,
    Problem,
    SingleTurnEnvironment,
)
from nbrefine.errors import UsageError
from nbrefine.state import Action, EnvironmentSpec, Observation, State, StepResult
from nbrefine.values import RewardType, Signal, SignalBundle, Task
from tests.env.guessing import GUESS, Graded, begun, guessing


@pytest.fixture
def env() -> Iterator[IterativeEnvironment]:
    with guessing() as env:
        yield env


def test_states_are_independent_and_may_be_stepped_again(env: IterativeEnvironment) -> None:
    first = env.step(begun(env), Action("0.1")).next_state
    one, two = env.step(first, Action("0.2")), env.step(first, Action("1"))
    again = env.step(first, Action("0.2"))
    assert one.next_state.hidden.submissions == ("0.1", "0.2")
    assert two.next_state.hidden.submissions == ("0.1", "1")
    assert (two.terminated, again.rewards) == (True, one.rewards)


class Dealt(SingleTurnEnvironment):
    """Asks for the number that the seed has dealt: its first state depends on it."""

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        state, info = await super()._reset(seed=seed, options=options)
        return replace(state, hidden=replace(state.hidden, expected_answer=str(seed))), info


@dataclass(frozen=True)
class Matches:
    name: str = "matches"
    reward_type: RewardType = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return Signal(
            self.name, self.reward_type, float(action.text == state.hidden.expected_answer)
        )


def dealt() -> IterativeEnvironment:
    return IterativeEnvironment(Dealt([Problem(Task("Which?"))], rewards=[Matches()]))


def test_two_seeds_of_one_task_do_not_collide() -> None:
    with dealt() as env:
        three, four = env.reset(seed=3)[0], env.reset(seed=4)[0]
        assert env.step(three, Action("3")).terminated
        assert not env.step(three, Action("4")).terminated
        assert env.step(four, Action("4")).terminated


def test_concurrent_episodes_on_one_environment_keep_to_themselves() -> None:
    def episode(env: Environment, seed: int) -> list[bool]:
        state = env.reset(seed=seed)[0]
        ends = []
        for answer in (seed + 1, seed):
            result = env.step(state, Action(str(answer)))
            ends.append(result.terminated)
            state = result.next_state
        return ends

    with dealt() as env, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: episode(env, n), range(24))) == [[False, True]] * 24


def test_what_is_no_state_or_no_action_is_told(env: IterativeEnvironment) -> None:
    first: Any = env.reset()
    with pytest.raises(UsageError, match="from a State, not from a tuple"):
        env.step(first, Action("1"))
    text: Any = "1"
    with pytest.raises(UsageError, match=r"an Action, not a str\. Give Action\(text\)"):
        env.step(first[0], text)


def test_an_environment_is_used_from_a_loop_of_the_caller_s() -> None:
    async def episode() -> bool:
        async with dealt() as env:
            state, _ = await env.areset(seed=5)
            results = await asyncio.gather(*(env.astep(state, Action(t)) for t in ("5", "6", "5")))
        return [result.terminated for result in results] == [True, False, True]

    assert asyncio.run(episode())


def test_the_environment_remembers_no_episode() -> None:
    class Mark:
        pass

    mark = Mark()
    gone = weakref.ref(mark)
    inner = SingleTurnEnvironment([Problem(Task("t"), {"mark": mark})])
    with IterativeEnvironment(inner, extra_rewards=[Graded()]) as env:
        for seed in range(3):
            result = env.step(env.reset(seed=seed)[0], Action("0.5"))
        inner.problems = []  # the states alone hold it now
        assert result.next_state.hidden.entry["mark"] is mark
        del mark, result
        gc.collect()
        assert gone() is None


DUPLICATES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    lambda hidden: pickle.loads(pickle.dumps(hidden)),
]


@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_a_hidden_state_is_copied_and_pickled(
    env: IterativeEnvironment, duplicate: Callable[[Any], Any]
) -> None:
    state = env.step(begun(env), Action("0.5")).next_state
    assert duplicate(state.hidden) == state.hidden
    assert duplicate(state) == state
    assert env.step(duplicate(state), Action("1")).terminated


def test_a_hidden_state_passes_unknown_names_on_and_is_frozen(env: IterativeEnvironment) -> None:
    hidden: IterativeHidden = begun(env).hidden
    assert hidden.expected_answer == "1.0"
    assert hidden.task.prompt == "Guess a number."
    with pytest.raises(AttributeError, match="nowhere"):
        _ = hidden.nowhere
    with pytest.raises(FrozenInstanceError):
        hidden.turn = 5  # type: ignore[misc]  # the point


@dataclass
class Answer:
    answer: str


@pytest.mark.parametrize(
    ("inner", "truth"),
    [
        (Answer("a"), "a"),
        ({"target": 7}, "7"),
        ({"ground_truth": "g", "target": "t"}, "g"),
        (GUESS, "1.0"),
        (None, ""),
    ],
)
def test_the_ground_truth_is_found_under_any_of_its_names(inner: object, truth: str) -> None:
    assert IterativeHidden(0, inner, "t").ground_truth == truth


def test_lengths_names_and_bounds_are_those_of_the_inner_environment() -> None:
    inner = SingleTurnEnvironment([Problem(Task("a")), Problem(Task("b"))], name="letters")
    with IterativeEnvironment(inner, max_turns=5) as env:
        assert (len(env), env.spec.name, env.spec.max_steps) == (2, "letters_iterative", 5)
        assert begun(env, task_index=1).observation.task == "b"
        assert begun(env, task_index=1).hidden.task_index == 1
        for index in (-1, 2):
            with pytest.raises(ValueError, match="2 tasks"):
                env.reset(options={"task_index": index})


class Endless:
    def __getitem__(self, index: int) -> Problem:
        return Problem(Task(f"task {index}"))


def test_an_inner_environment_without_a_length_works_and_has_none() -> None:
    with IterativeEnvironment(SingleTurnEnvironment(Endless())) as env:
        assert begun(env, task_index=10**6).observation.task == "task 1000000"
        assert not env.spec.supports_len
        with pytest.raises(TypeError):
            len(env)


class Plain:
    """An environment that knows nothing of ours but the words, and nothing of asyncio."""

    spec = EnvironmentSpec("plain", "own", pure_step=True)
    reward_functions = ()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[State, dict[str, Any]]:
        return State(Observation("Say yes."), {"target": "yes"}), {"own": True}

    def step(self, state: State, action: Action) -> StepResult:
        reward = float(action.text == state.hidden["target"])
        return StepResult(state, SignalBundle.single(reward), terminated=True)


def test_an_environment_of_a_user_s_own_is_wrapped_as_it_is() -> None:
    with IterativeEnvironment(Plain()) as env:  # type: ignore[arg-type]  # it need not be ours
        state, info = env.reset()
        assert info == {"own": True}
        assert state.hidden.ground_truth == "yes"
        assert not env.step(state, Action("no")).done
        assert env.step(state, Action("yes")).terminated


class Closed(SingleTurnEnvironment):
    closed = False

    async def _close(self) -> None:
        self.closed = True
        await super()._close()


def test_closing_it_closes_what_it_wraps() -> None:
    inner = Closed([Problem(Task("t"))])
    with IterativeEnvironment(inner):
        pass
    assert inner.closed
