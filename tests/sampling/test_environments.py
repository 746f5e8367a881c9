"""Candidates that are steps from a state of an environment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbrefine.env import IterativeEnvironment, NotebookEnvironment, Problem, SingleTurnEnvironment
from nbrefine.errors import UsageError
from nbrefine.executors import SubprocessCodeExecutor
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.sampling import sample
from nbrefine.state import Action
from nbrefine.values import Task
from tests.sampling.doubling import DOUBLE, RIGHT, SQUARE, WRONG, reasons, replies, value


@pytest.fixture
def tested() -> Iterator[IterativeEnvironment]:
    rewards = (CodeExecutionReward(SubprocessCodeExecutor(workers=2)),)
    inner = SingleTurnEnvironment([Problem(DOUBLE)], rewards=rewards, name="one", adapter="one")
    with IterativeEnvironment(inner, max_turns=3) as env:
        yield env


def test_candidates_are_steps_from_any_state_of_a_pure_environment(
    tested: IterativeEnvironment,
) -> None:
    start = tested.reset()[0]
    second = tested.step(start, Action.from_text(replies(WRONG)[0])).next_state
    samples = sample(None, replies(SQUARE, RIGHT), 2, environment=tested, state=second, workers=1)
    assert samples.task == DOUBLE
    assert samples.chosen_index == 1
    assert [len(episode.turns) for episode in samples.episodes] == [2, 2]
    assert samples.episodes[0].turns[0] == samples.episodes[1].turns[0]
    # What was sent for a turn stays with that turn.
    first, last = samples.episodes[1].turns
    assert first.messages == ()
    assert "0/2 tests passed" in last.messages[-1].content
    assert reasons(samples) == ["max-turns", "solved"]  # one step each, of the three there are
    assert samples.state is not None
    assert samples.state.metadata.is_terminal
    # The state can be stepped as before.
    again = tested.step(second, Action.from_text(replies(RIGHT)[0]))
    assert again.terminated


def test_a_notebook_environment_goes_on_from_the_chosen_state() -> None:
    with NotebookEnvironment(Task("Go.", setup="items = []")) as env:
        start = env.reset()[0]
        codes = replies("items.append(1); 1 / 0", "items.append(2)", "items.append(3)")
        samples = sample(None, codes, 3, environment=env, state=start, select="best", workers=1)
        assert samples.chosen_index == 1
        assert samples.state is not None
        assert env._session is not None
        assert value(env._session.kernel, "items") == "[2]"
        assert env.step(start, Action.from_code("assert items == []")).terminated


def test_the_best_that_has_not_passed_can_be_gone_on_from() -> None:
    with NotebookEnvironment(DOUBLE, max_turns=3) as env:
        start = env.reset()[0]
        codes = replies(WRONG, SQUARE)
        samples = sample(None, codes, 2, environment=env, state=start, select="best", workers=1)
        assert samples.chosen_index == 1
        assert samples.state is not None
        after = env.step(samples.state, Action.from_code(RIGHT))
        assert after.terminated
        assert [turn.code for turn in after.next_state.hidden.episode.turns] == [SQUARE, RIGHT]
        assert env._session is not None
        assert value(env._session.kernel, "double(5)") == "10"  # accepted for good


def test_a_state_that_cannot_be_stepped_twice_is_refused() -> None:
    with NotebookEnvironment(DOUBLE, isolation="none") as env:
        start = env.reset()[0]
        with pytest.raises(UsageError, match="attempts do not run in branches"):
            sample(None, replies(RIGHT), 1, environment=env, state=start)
