"""How an iterative episode ends: solved, submitted early, or with its last turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.env import (
    IterativeEnvironment,
    IterativeTask,
    Problem,
    SingleTurnEnvironment,
)
from nbrefine.errors import UsageError
from nbrefine.rewards.format import AnswerReward
from nbrefine.state import Action, State
from nbrefine.values import RewardType, Signal, Task
from tests.env.guessing import Fixed, Noting, begun, guessing, newest


@pytest.fixture
def env() -> Iterator[IterativeEnvironment]:
    with guessing() as env:
        yield env


@pytest.mark.parametrize(
    ("rewards", "solved"),
    [
        ([1.0], True),
        ([0.2, 1.0], True),  # the best counts, as the page has it
        ([None, 1.0], True),
        ([0.99], False),
        ([None], False),
        ([], False),
        ([float("nan"), 0.5], False),
    ],
)
def test_solved_is_the_best_outcome_at_the_threshold(
    rewards: list[float | None], solved: bool
) -> None:
    given = [Fixed(Signal(f"s{n}", RewardType.OUTCOME, r)) for n, r in enumerate(rewards)]
    given.append(Fixed(Signal("judge", RewardType.PROCESS, 1.0)))  # no outcome
    inner = SingleTurnEnvironment([Problem(Task("t"))])
    with IterativeEnvironment(inner, extra_rewards=given) as env:
        result = env.step(begun(env), Action("x"))
    assert (result.terminated, result.info["solved"]) == (solved, solved)


def test_a_lower_threshold_is_reached_earlier() -> None:
    with guessing(solved_threshold=0.4) as env:
        assert env.step(begun(env), Action("0.4")).terminated
        assert not env.step(begun(env), Action("0.39")).terminated


@pytest.mark.parametrize(
    ("text", "early"),
    [
        ("SUBMIT my final answer is 0", True),
        ("SUBMIT", True),
        ("  \n SUBMIT 0", True),
        ("**SUBMIT** 0", True),
        ("__SUBMIT__ 0", True),
        ("`SUBMIT`: 0", True),
        ("*SUBMIT*\n0", True),
        ("SUBMIT: 0", True),
        ("**SUBMIT:** 0", True),
        ("Submitted earlier; here is a fix", False),
        ("submitting my code below", False),
        ("submit 0", False),
        ("SUBMITTED 0", False),
        ("SUBMIT_NOW = 0", False),
        ("SUBMIT-able code", False),
        ("SUBMIT's rules", False),
        ("I SUBMIT 0", False),
        ("", False),
    ],
)
def test_only_the_keyword_itself_at_the_start_submits_early(
    env: IterativeEnvironment, text: str, early: bool
) -> None:
    result = env.step(begun(env), Action(text))
    assert (result.terminated, result.info["early_submit"]) == (early, early)
    assert result.info["submission"] == text  # it keeps the keyword
    stop = result.next_state.hidden.episode.stop
    assert (stop.reason if stop else None) == ("submitted" if early else None)


def test_an_early_submission_is_still_judged_and_solved_wins(env: IterativeEnvironment) -> None:
    right = env.step(begun(env), Action("SUBMIT 1"))
    wrong = env.step(begun(env), Action("SUBMIT 0.5"))
    assert (right.rewards.total, wrong.rewards.total) == (1.0, 0.5)
    assert right.info["solved"] is right.info["early_submit"] is True
    assert right.next_state.hidden.episode.stop.reason == "solved"
    assert wrong.next_state.hidden.episode.stop.reason == "submitted"
    assert not wrong.next_state.hidden.episode.solved


@pytest.mark.parametrize(
    "text",
    [
        "SUBMIT 1.0",
        "**SUBMIT** 1.0",
        "**SUBMIT:** 1.0",
        "`SUBMIT`\n\n1.0",
        "SUBMIT. 1.0",
        "<think>\nSUBMIT or not?\n</think>\n\nSUBMIT 1.0",
    ],
)
def test_the_keyword_is_no_part_of_what_is_judged(text: str) -> None:
    seen: list[tuple[State, Action, State]] = []
    problems = [Problem(Task("Guess."), expected_answer="1.0")]
    inner = SingleTurnEnvironment(problems, rewards=(AnswerReward(),))
    with IterativeEnvironment(inner=inner, extra_rewards=(Noting(seen),)) as env:
        state = begun(env)
        result = env.step(state, Action(text))
        again = env.compute_rewards(state, Action(text), result.next_state)
    assert result.info["solved"] is result.info["early_submit"] is True
    assert again == result.rewards
    assert [action.text for _, action, _ in seen] == ["1.0", "1.0"]
    assert newest(result).code == "1.0"
    assert result.next_state.hidden.submissions == (text,)


def test_code_without_a_fence_is_judged_and_kept_without_the_keyword() -> None:
    code = "SUBMIT_TO = 2\ndef f():\n    return SUBMIT_TO"
    with IterativeEnvironment(tasks=IterativeTask("Write f.", test_code="assert f() == 2")) as env:
        bare = env.step(begun(env), Action(f"SUBMIT\n{code}"))
        fenced = env.step(begun(env), Action(f"SUBMIT\n```python\nSUBMIT = 2\n{code}\n```"))
    assert (bare.info["solved"], fenced.info["solved"]) == (True, True)
    assert newest(bare).code == code  # so that Run All of its record gives f


@pytest.mark.parametrize(
    ("keyword", "text", "early"),
    [
        (None, "SUBMIT 1", False),
        ("DONE", "SUBMIT 1", False),
        ("DONE", "DONE 0", True),
        ("FINAL ANSWER", "**FINAL ANSWER** 0", True),
        ("(end)", "(end) 0", True),
        ("fertig!", "fertig! 0", True),
    ],
)
def test_the_keyword_is_the_environment_s_own(keyword: str | None, text: str, early: bool) -> None:
    with guessing(submit_keyword=keyword) as env:
        assert env.step(begun(env), Action(text)).info["early_submit"] is early


def test_the_last_turn_truncates(env: IterativeEnvironment) -> None:
    state = begun(env)
    for turn in (1, 2):
        result = env.step(state, Action("0.1"))
        assert (result.done, result.info["turn"]) == (False, turn)
        state = result.next_state
    result = env.step(state, Action("0.1"))
    assert (result.terminated, result.truncated) == (False, True)
    assert result.next_state.hidden.episode.stop.reason == "max-turns"
    assert result.next_state.metadata.is_terminal
    assert result.next_state.observation.prompt == "Episode complete."
    assert result.next_state.observation.messages == ()
    with pytest.raises(UsageError, match="episode has ended"):
        env.step(result.next_state, Action("1"))


MOVES = st.lists(
    st.tuples(st.sampled_from(["none", "0", "0.5", "0.75", "1", "2"]), st.booleans()), max_size=7
)


@given(moves=MOVES, max_turns=st.integers(1, 5), threshold=st.sampled_from([0.5, 1.0, 1.5]))
def test_any_episode_ends_where_the_page_s_table_says(
    moves: list[tuple[str, bool]], max_turns: int, threshold: float
) -> None:
    """Solved, submitted or out of turns: whichever comes first, and nothing else."""
    with guessing(max_turns=max_turns, solved_threshold=threshold) as env:
        state = begun(env)
        for turn, (score, submit) in enumerate(moves, 1):
            result = env.step(state, Action(f"SUBMIT {score}" if submit else score))
            solved = score != "none" and float(score) >= threshold
            assert result.info["solved"] == solved
            assert result.terminated == (submit or solved)
            assert result.truncated == (not result.terminated and turn == max_turns)
            assert result.next_state.metadata.is_terminal == result.done
            state = result.next_state
            assert len(state.hidden.episode.turns) == state.hidden.turn == turn
            assert (state.hidden.episode.stop is not None) == result.done
            if result.done:
                break
