"""The environment of one question and one answer, and what every environment says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from nbrefine.env import (
    Environment,
    IterativeEnvironment,
    NotebookEnvironment,
    Problem,
    SingleTurnEnvironment,
)
from nbrefine.errors import UsageError
from nbrefine.state import Action, EnvironmentSpec, Observation, State, StepResult
from nbrefine.values import Message, Reply, RewardType, Signal, SignalBundle, Task


@dataclass(frozen=True)
class Exact:
    """Rewards the expected answer, word for word."""

    name: str = "exact"
    reward_type: RewardType = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        right = action.text == state.hidden.expected_answer
        return Signal(self.name, self.reward_type, float(right), "right" if right else "wrong")


SUMS = [
    Problem(Task("1 + 1", id="a"), {"row": 0}, "2"),
    Problem(Task("2 + 2", id="b"), {"row": 1}, "4"),
]


@pytest.fixture
def sums() -> Iterator[SingleTurnEnvironment]:
    with SingleTurnEnvironment(SUMS, rewards=[Exact()], system_prompt="Be brief.") as env:
        yield env


def test_a_reset_asks_for_the_chosen_task_as_a_chat_that_is_ready_to_send(
    sums: SingleTurnEnvironment,
) -> None:
    state, info = sums.reset(seed=5, options={"task_index": 1, "episode_id": "e-1"})
    assert info == {"task_index": 1}
    assert state.observation == Observation(
        "2 + 2", (Message("system", "Be brief."), Message("user", "2 + 2")), task="2 + 2"
    )
    assert (state.hidden.entry, state.hidden.expected_answer) == ({"row": 1}, "4")
    assert (state.metadata.episode_id, state.metadata.step) == ("e-1", 0)
    assert (state.hidden.episode.id, state.hidden.episode.seed) == ("e-1", 5)


@pytest.mark.parametrize(("answer", "solved"), [("2", True), ("3", False)])
def test_one_answer_is_judged_and_ends_the_episode(
    sums: SingleTurnEnvironment, answer: str, solved: bool
) -> None:
    result = sums.step(sums.reset()[0], Action(answer))
    episode = result.next_state.hidden.episode
    assert (result.terminated, result.truncated) == (True, False)
    assert result.rewards.total == float(solved)
    assert result.extracted_action == answer
    assert result.info == {
        "turn": 1,
        "submission": answer,
        "feedback": ("right" if solved else "wrong",),
        "solved": solved,
    }
    assert episode.solved == solved
    assert episode.stop.reason == ("solved" if solved else "submitted")
    assert [turn.verdict for turn in episode.turns] == ["solved" if solved else "failed"]
    assert episode.turns[0].reply == Reply(answer)
    assert result.next_state.observation.prompt == "Episode complete."
    assert result.next_state.observation.messages == ()
    with pytest.raises(UsageError, match="episode has ended"):
        sums.step(result.next_state, Action("2"))


def test_an_index_is_a_plain_int_in_what_an_environment_gives(
    sums: SingleTurnEnvironment,
) -> None:
    class Whole:
        def __index__(self) -> int:
            return 0

    for env in (sums, IterativeEnvironment(sums)):
        state, info = env.reset(options={"task_index": Whole()})
        for index in (state.hidden.task_index, info["task_index"]):
            assert (index, type(index)) == (0, int)
        with pytest.raises(UsageError, match=r"'0', which is no whole number"):
            env.reset(options={"task_index": "0"})


def test_a_state_may_be_stepped_any_number_of_times(sums: SingleTurnEnvironment) -> None:
    state = sums.reset()[0]
    totals = [sums.step(state, Action(text)).rewards.total for text in ("3", "2", "3", "2")]
    assert totals == [0.0, 1.0, 0.0, 1.0]
    assert state.hidden.episode.turns == ()


def test_the_reply_and_the_prompt_that_led_to_it_are_in_the_turn(
    sums: SingleTurnEnvironment,
) -> None:
    state = sums.reset()[0]
    reply = Reply("2", model="m", seconds=1.5)
    turn = sums.step(state, Action.from_reply(reply)).next_state.hidden.episode.turns[0]
    assert (turn.reply, turn.messages) == (reply, state.observation.messages)
    assert turn.seconds >= 1.5


@pytest.mark.parametrize("index", [-1, 2, 10**9, "first", 0.5])
def test_an_index_out_of_bounds_is_a_value_error_that_says_how_many_there_are(
    sums: SingleTurnEnvironment, index: object
) -> None:
    with pytest.raises(ValueError, match=r"2 tasks|no whole number"):
        sums.reset(options={"task_index": index})


class Squares:
    """Problems without end, each made when it is asked for."""

    def __init__(self) -> None:
        self.made: list[int] = []

    def __getitem__(self, index: int) -> Problem:
        self.made.append(index)
        return Problem(Task(f"{index} * {index}"), expected_answer=str(index * index))


def test_problems_without_end_are_made_one_by_one_and_have_no_length() -> None:
    squares = Squares()
    with SingleTurnEnvironment(squares, rewards=[Exact()]) as env:
        state = env.reset(options={"task_index": 12})[0]
        assert env.step(state, Action("144")).rewards.total == 1.0
        with pytest.raises(TypeError, match="does not know how many"):
            len(env)
        assert not env.spec.supports_len
        assert env  # a length that is not known does not make it false
    assert squares.made == [12]


def test_the_spec_says_what_it_is(sums: SingleTurnEnvironment) -> None:
    assert sums.spec == EnvironmentSpec("single_turn", "single_turn", max_steps=1, pure_step=True)
    assert [function.name for function in sums.reward_functions] == ["exact"]
    assert (sums.prompts, sums.available_tools, len(sums)) == ({}, (), 2)


def test_rewards_can_be_computed_again_for_a_step_that_was_taken(
    sums: SingleTurnEnvironment,
) -> None:
    state = sums.reset()[0]
    result = sums.step(state, Action("2"))
    assert sums.compute_rewards(state, Action("2"), result.next_state) == result.rewards


def test_steps_are_awaited_on_any_loop_and_episodes_run_side_by_side(
    sums: SingleTurnEnvironment,
) -> None:
    async def episode(index: int) -> float:
        state, _ = await sums.areset(options={"task_index": index % 2})
        return (await sums.astep(state, Action("2"))).rewards.total

    async def several() -> list[float]:
        return await asyncio.gather(*map(episode, range(8)))

    assert asyncio.run(several()) == [1.0, 0.0] * 4
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda n: asyncio.run(episode(n)), range(8))) == [1.0, 0.0] * 4


@pytest.mark.parametrize(
    ("signals", "verdict"),
    [
        ([Signal("t", RewardType.OUTCOME, 0.5, metadata={"verdict": "timeout"})], "timeout"),
        ([Signal("t", RewardType.OUTCOME, 0.0, metadata={"verdict": "no-code"})], "no-code"),
        ([Signal("t", RewardType.OUTCOME, 1.0, metadata={"verdict": "timeout"})], "solved"),
        ([Signal("t", RewardType.OUTCOME, 0.5, metadata={"verdict": "solved"})], "failed"),
        ([Signal("t", RewardType.OUTCOME, float("nan"))], "invalid-task"),
        ([Signal("t", RewardType.OUTCOME, None, metadata={"error": "no"})], "infra-error"),
        ([Signal("t", RewardType.OUTCOME, None, metadata={"verdict": "invalid-task"})] * 2, ...),
        (
            [
                Signal("t", RewardType.OUTCOME, None, metadata={"verdict": "invalid-task"}),
                Signal("judge", RewardType.OUTCOME, 0.25),
            ],
            "failed",
        ),
        ([Signal("style", RewardType.PROCESS, 1.0)], "invalid-task"),
        ([], "invalid-task"),
    ],
)
def test_an_attempt_that_nothing_could_judge_does_not_count_against_the_model(
    signals: list[Signal], verdict: Any
) -> None:
    rewards = [Given(signal, f"given {at}") for at, signal in enumerate(signals)]
    with SingleTurnEnvironment(SUMS, rewards=rewards) as env:
        result = env.step(env.reset()[0], Action("x"))
    found = result.next_state.hidden.episode.turns[0].verdict
    assert found == ("invalid-task" if verdict is ... else verdict)


@dataclass(frozen=True)
class Given:
    """Gives the signal it was made with, once closed only an error."""

    signal: Signal
    name: str = "given"
    reward_type: RewardType = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return self.signal


class Held:
    """A reward function that holds something."""

    reward_type = RewardType.PROCESS

    def __init__(self, closed: list[str], mark: str, error: Exception | None = None) -> None:
        self.name = f"held {mark}"
        self._closed, self._mark, self._error = closed, mark, error

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return Signal(self.name, self.reward_type)

    async def aclose(self) -> None:
        self._closed.append(self._mark)
        if self._error is not None:
            raise self._error


def test_two_rewards_of_one_name_are_refused_wherever_an_environment_is_made() -> None:
    def two() -> list[Given]:
        return [Given(Signal("g", RewardType.STEP), "twin") for _ in range(2)]

    one, other = two()
    inner = SingleTurnEnvironment(SUMS, rewards=[one])
    for make in (
        lambda: SingleTurnEnvironment(SUMS, rewards=two()),
        lambda: IterativeEnvironment(inner, extra_rewards=[other]),
        lambda: NotebookEnvironment(Task("t"), extra_rewards=two()),
    ):
        with pytest.raises(UsageError, match='2 reward functions are named "twin"'):
            make()


def test_closing_closes_every_reward_function_whatever_the_others_do() -> None:
    closed: list[str] = []
    held = [Held(closed, "a"), Held(closed, "b", OSError("full")), Held(closed, "c")]
    env = SingleTurnEnvironment(SUMS, rewards=[Given(Signal("g", RewardType.STEP)), *held])
    with pytest.raises(OSError, match="full"):
        env.close()
    assert sorted(closed) == ["a", "b", "c"]


class Counter(Environment):
    """The least that a user writes."""

    def __init__(self) -> None:
        self._numbers = count()

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        return State(Observation(str(next(self._numbers)))), {}

    async def _step(self, state: State, action: Action) -> StepResult:
        return StepResult(state, SignalBundle.empty(), terminated=True)


def test_an_environment_of_a_user_s_own_needs_two_methods_and_promises_nothing() -> None:
    with Counter() as env:
        state, _ = env.reset()
        assert env.step(state, Action("x")).done
        assert env.spec == EnvironmentSpec("Counter", "custom", supports_len=False)
        assert env.compute_rewards(state, Action("x"), state) == SignalBundle.empty()
        env.release(state)
        with pytest.raises(TypeError, match="Counter does not know"):
            len(env)
