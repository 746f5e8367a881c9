"""Puzzles of the real reasoning_gym, made and judged in a process of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbrefine.env import reasoning
from nbrefine.env.iterative import IterativeEnvironment
from nbrefine.env.puzzles import Refused, _dataset, harmless
from nbrefine.env.reasoning import PuzzleReward, ReasoningGymEnvironment
from nbrefine.errors import RunStopped, UsageError
from nbrefine.extractors import TagBasedExtractor
from nbrefine.state import Action, State
from nbrefine.values import RewardType, Signal


@pytest.fixture(scope="module")
def sums() -> Iterator[ReasoningGymEnvironment]:
    with ReasoningGymEnvironment("chain_sum", size=3, seed=7, min_digits=1, max_digits=1) as env:
        yield env


@pytest.fixture(scope="module")
def polynomials() -> Iterator[ReasoningGymEnvironment]:
    """A set whose scorer gives the answer to sympy, which evaluates it as Python."""
    with ReasoningGymEnvironment("polynomial_multiplication", size=2) as env:
        yield env


def signal_for(env: ReasoningGymEnvironment, state: State, text: str) -> Signal:
    (told,) = env.step(state, Action.from_text(text)).rewards
    return told


def process_of(env: ReasoningGymEnvironment) -> asyncio.subprocess.Process:
    (reward,) = env.reward_functions
    assert isinstance(reward, PuzzleReward)
    process = reward._gym._process
    assert process is not None
    return process


def test_a_puzzle_is_its_question_with_the_answer_hidden(sums: ReasoningGymEnvironment) -> None:
    assert len(sums) == 3
    state, info = sums.reset(options={"task_index": 1})
    assert info == {"task_index": 1}
    assert state.observation.prompt == state.hidden.entry["question"]
    assert state.hidden.expected_answer == state.hidden.entry["answer"]
    assert state.hidden.task.id == "chain_sum/7/1"
    assert (sums.spec.name, sums.spec.adapter) == ("chain_sum", "reasoning_gym")
    assert sums.spec.pure_step
    term = state.observation.prompt.split("problem: ")[1].removesuffix(" =")
    assert str(eval(term)) == state.hidden.expected_answer  # a sum of one-digit numbers


def test_the_data_sets_own_score_is_an_outcome_reward(sums: ReasoningGymEnvironment) -> None:
    state, _ = sums.reset()
    right = sums.step(state, Action.from_text(f" {state.hidden.expected_answer}\n"))
    (told,) = right.rewards
    assert (told.name, told.reward_type, told.reward) == (
        "reasoning_gym",
        RewardType.OUTCOME,
        1.0,
    )
    assert right.info["solved"]
    wrong = sums.step(state, Action.from_text("1000"))
    assert wrong.rewards.signals[0].reward == 0.0
    assert not wrong.info["solved"]


def test_a_part_of_the_credit_is_given_as_reasoning_gym_gives_it(
    sums: ReasoningGymEnvironment,
) -> None:
    """Its base class gives len(answer) / len(reply) where the reply contains the answer."""
    state, _ = sums.reset()
    answer = state.hidden.expected_answer
    told = signal_for(sums, state, f"{answer} it is")
    assert told.reward == len(answer) / len(f"{answer} it is")


def test_the_answer_is_asked_for_in_a_tag_and_read_there_or_is_the_whole_reply(
    sums: ReasoningGymEnvironment,
) -> None:
    state, _ = sums.reset()
    system, question = state.observation.messages
    assert system.role == "system"
    assert "<answer>" in system.content
    assert question.content == state.hidden.entry["question"]
    answer = state.hidden.expected_answer
    assert signal_for(sums, state, f"So it is <answer>{answer}</answer>.").reward == 1.0
    assert signal_for(sums, state, answer).reward == 1.0
    first, _ = IterativeEnvironment(sums).reset()
    assert [message.role for message in first.observation.messages] == ["system", "user"]
    assert first.observation.messages[0] == system


def test_who_reads_answers_otherwise_asks_for_them() -> None:
    with ReasoningGymEnvironment("chain_sum", size=1, answer_extractor="last_line") as env:
        (question,) = env.reset()[0].observation.messages
        assert question.role == "user"


def test_a_part_of_the_credit_is_not_told_as_wrong(sums: ReasoningGymEnvironment) -> None:
    """The whole reply contains the one-digit answer, which makes 1 / 4 of it."""
    state, _ = sums.reset()
    answer = state.hidden.expected_answer
    told = signal_for(sums, state, answer + "." * (3 * len(answer)))
    assert told.feedback == "The answer scored 0.25 of 1."
    assert signal_for(sums, state, "1000").feedback == "The answer is not right."


def test_an_extractor_reads_the_answer_out_of_the_reply(sums: ReasoningGymEnvironment) -> None:
    (reward,) = sums.reward_functions
    assert isinstance(reward, PuzzleReward)
    tagged = PuzzleReward(reward._gym, TagBasedExtractor())
    state, _ = sums.reset()
    answer = state.hidden.expected_answer
    said = Action.from_text(f"I think <answer> {answer} </answer>.")
    assert tagged.compute(state, said, state).reward == 1.0
    missing = tagged.compute(state, Action.from_text(answer), state)
    assert missing.reward == 0.0
    assert missing.metadata is not None
    assert missing.metadata["extraction_failed"]


def test_it_is_refined_over_turns_and_stays_hidden(sums: ReasoningGymEnvironment) -> None:
    env = IterativeEnvironment(sums, max_turns=3)
    state, _ = env.reset(options={"task_index": 2})
    result = env.step(state, Action.from_text("1000"))
    assert "not right" in result.next_state.observation.prompt
    result = env.step(result.next_state, Action.from_text(state.hidden.ground_truth))
    assert result.terminated
    assert result.next_state.hidden.episode.solved


ATTACKS = [
    "__import__('os')._exit(0)",
    "open('{path}', 'w')",
    "exit()",
    "(open)('{path}', 'w')",
    "[open][0]('{path}', 'w')",
    "open#\n('{path}', 'w')",
    "x.__class__",
    "\uff4f\uff50\uff45\uff4e('{path}', 'w')",
    "sqrt(open('{path}', 'w'))",
    "(lambda: 1)()",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_answer_that_would_run_code_is_scored_and_not_run(
    polynomials: ReasoningGymEnvironment, tmp_path: Path, attack: str
) -> None:
    path = tmp_path / "made"
    state, _ = polynomials.reset()
    told = signal_for(polynomials, state, attack.format(path=path))
    assert told.reward == 0.0
    assert not path.exists()
    assert signal_for(polynomials, state, state.hidden.expected_answer).reward == 1.0


def test_such_an_answer_does_run_where_nobody_minds_it(tmp_path: Path) -> None:
    """What the guard is for: reasoning_gym by itself."""
    from reasoning_gym import create_dataset  # type: ignore[import-untyped]  # it has no types

    path = tmp_path / "made"
    attack = f"__import__('pathlib').Path('{path}').touch()"
    data = create_dataset("polynomial_multiplication", size=1)
    data.score_answer(attack, data[0])
    assert path.exists()
    assert not harmless(attack)


@pytest.mark.parametrize(
    "answer",
    [
        "-38416*x**9 + 2*(x + 1)",
        "sqrt(2)/172, 3.5e-3",
        "log( x ) + C",
        "['A', 'B']",
        "[[1, 2], (3)]",
        "((1))",
        "",
    ],
)
def test_plain_answers_pass_the_guard(answer: str) -> None:
    assert harmless(answer)


def test_an_answer_that_takes_for_ever_is_wrong_and_ends_nothing_but_itself(
    polynomials: ReasoningGymEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, _ = polynomials.reset()
    process = process_of(polynomials)
    with monkeypatch.context() as patch:
        patch.setattr(reasoning, "_ANSWERING", 0.2)
        told = signal_for(polynomials, state, "9**9**9**9")
    assert told.reward == 0.0
    assert told.metadata is not None
    assert "took more than 0.2 s" in told.metadata["unreadable"]
    assert signal_for(polynomials, state, state.hidden.expected_answer).reward == 1.0
    assert process_of(polynomials) is process


def test_a_process_that_ends_is_not_the_answer_s_fault_and_the_next_makes_the_same_puzzles(
    polynomials: ReasoningGymEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six of its data sets draw from sets of strings, whose order is another in every process."""
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    states = [polynomials.reset(options={"task_index": index})[0] for index in (0, 1)]
    process_of(polynomials).kill()
    assert signal_for(polynomials, states[0], states[0].hidden.expected_answer).reward == 1.0
    for index, state in enumerate(states):
        again, _ = polynomials.reset(options={"task_index": index})
        assert again.observation == state.observation
        assert again.hidden.expected_answer == state.hidden.expected_answer


def test_an_answer_that_its_scorer_cannot_read_is_wrong() -> None:
    """prime_factorization's scorer raises a ValueError at what is no number."""
    with ReasoningGymEnvironment("prime_factorization", size=1) as env:
        state, _ = env.reset()
        told = signal_for(env, state, "I do not know")
        assert told.reward == 0.0
        assert told.metadata is not None
        assert "ValueError" in told.metadata["unreadable"]
        assert "ValueError" not in (told.feedback or "")
        assert signal_for(env, state, state.hidden.expected_answer).reward == 1.0


async def _scores(env: ReasoningGymEnvironment, state: State, texts: list[str]) -> list[Any]:
    runs = [env.astep(state, Action.from_text(text)) for text in texts]
    results = await asyncio.gather(*(asyncio.ensure_future(_awaited(run)) for run in runs))
    return [result.rewards.signals[0].reward for result in results]


async def _awaited(run: Any) -> Any:
    return await run


def test_steps_side_by_side_get_their_own_scores_(sums: ReasoningGymEnvironment) -> None:
    state, _ = sums.reset()
    right = state.hidden.expected_answer
    assert asyncio.run(_scores(sums, state, [right, "1000", right, "x"])) == [1.0, 0.0, 1.0, 0.0]


def test_a_closed_environment_leaves_no_process(sums: ReasoningGymEnvironment) -> None:
    process = process_of(sums)
    sums.close()
    sums.close()
    assert process.returncode == -signal.SIGKILL


def test_scoring_that_is_broken_off_leaves_no_process(
    polynomials: ReasoningGymEnvironment,
) -> None:
    state, _ = polynomials.reset()
    group = process_of(polynomials).pid
    scoring = polynomials.astep(state, Action.from_text("9**9**9**9"))
    deadline = time.monotonic() + 60
    while not psutil.Process(group).children():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    scoring.stop()
    with pytest.raises(RunStopped):
        scoring.result()
    polynomials.close()
    while _is_there(group):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_there(group: int) -> bool:
    """Tell whether a process of a group is left, be it killed and not reaped by init yet."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "settings", "message", "hint"),
    [
        ("chainsum", {}, "no data set 'chainsum'", "chain_sum"),
        ("chain_sum", {"digits": 2}, "no setting 'digits'", "min_digits"),
        ("chain_sum", {"min_terms": 9, "max_terms": 2}, "refuses its settings", "Change them"),
    ],
)
def test_a_wrong_name_or_setting_is_told_with_the_right_ones(
    name: str, settings: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(Refused) as caught:
        _dataset(name, settings)
    assert message in caught.value.args[0]
    assert hint in caught.value.args[1]


def test_what_the_process_refuses_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="no data set 'chainsum'") as caught:
        ReasoningGymEnvironment("chainsum")
    assert "chain_sum" in caught.value.hint
    with pytest.raises(UsageError, match="size is 0"):
        ReasoningGymEnvironment("chain_sum", size=0)


def test_a_missing_package_is_told_with_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reasoning_gym.py").write_text("raise ImportError('no such package here')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="reasoning_gym cannot be imported: no such") as caught:
        ReasoningGymEnvironment("chain_sum")
    assert "nbrefine[gym]" in caught.value.hint
