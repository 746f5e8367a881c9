"""Rewards that read the reply itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nbrefine.extractors import (
    CleanedExtractor,
    CompositeExtractor,
    Extractor,
    Gsm8kExtractor,
    MultipleChoiceExtractor,
    NumericExtractor,
    RawGenerationExtractor,
    TagBasedExtractor,
)
from nbrefine.rewards.base import RewardFunction
from nbrefine.rewards.format import AnswerReward, FormatReward, answer_in
from nbrefine.state import Action, Observation, State
from nbrefine.values import RewardType, Signal


def judged(reward: RewardFunction, text: str, **hidden: Any) -> Signal:
    state = State(Observation("2 + 2?"), SimpleNamespace(**hidden))
    return reward.compute(state, Action(text), state)


def test_a_reply_in_the_wanted_form_is_worth_one_whatever_it_says() -> None:
    reward = FormatReward(answer_extractor=TagBasedExtractor(), weight=0.5)
    signal = judged(reward, "<answer>5</answer>", expected_answer="4")
    assert signal == Signal("format", RewardType.FORMAT, 1.0, None, {"reason": "found"}, 0.5)
    assert reward.reward_type is RewardType.FORMAT


def test_a_reply_in_another_form_is_told_what_is_amiss() -> None:
    signal = judged(FormatReward(TagBasedExtractor(), name="tags"), "<answer>4")
    assert (signal.name, signal.reward) == ("tags", 0.0)
    assert signal.feedback == (
        "No answer was found in the response. <answer> was opened and not closed."
    )
    assert signal.metadata is not None
    assert signal.metadata["reason"] == "incomplete"
    assert judged(FormatReward(TagBasedExtractor()), "").reward == 0.0


@pytest.mark.parametrize(
    ("extractor", "text", "reward"),
    [
        (None, " 4\n", 1.0),
        (None, "It is 4", 0.0),
        (NumericExtractor(), "It is 4", 1.0),
        (None, "4.0", 0.0),
        (NumericExtractor(), "It is 4.0", 1.0),
        (NumericExtractor(), "It is 5", 0.0),
        (Gsm8kExtractor(), "2 + 2 = 4\n#### 4", 1.0),
    ],
)
def test_an_answer_is_right_if_it_equals_the_expected_one(
    extractor: Extractor | None, text: str, reward: float
) -> None:
    answers = AnswerReward(extractor) if extractor else AnswerReward()
    signal = judged(answers, text, expected_answer="4 ")
    assert (signal.name, signal.reward_type, signal.reward) == (
        "correctness",
        RewardType.OUTCOME,
        reward,
    )
    assert signal.feedback == ("The answer is correct." if reward else "The answer is not correct.")


@pytest.mark.parametrize(
    ("extractor", "reply", "expected", "right"),
    [
        (NumericExtractor(), "That makes 1,234.", "1,234", True),
        (NumericExtractor(), "That makes $5", "$5", True),
        (NumericExtractor(), "That makes 18", "9 + 9 = 18\n#### 18", True),
        (MultipleChoiceExtractor(), "The answer is B", "(B)", True),
        (MultipleChoiceExtractor(), "The answer is A", "(B)", False),
        (NumericExtractor(), "18.00", "18", True),
        (NumericExtractor(), "18.01", "18", False),
        (Gsm8kExtractor(), "#### 1e3", "#### 1,000", True),
        (CleanedExtractor(NumericExtractor()), "$18.50", "18.5", True),
        (
            CompositeExtractor((TagBasedExtractor(), NumericExtractor())),
            "<answer>18.0</answer>",
            "<answer>18</answer>",
            True,
        ),
        (TagBasedExtractor(), "<answer>18.00</answer>", "18", False),
    ],
)
def test_the_expected_answer_is_read_as_the_reply_is(
    extractor: Extractor, reply: str, expected: str, right: bool
) -> None:
    signal = judged(AnswerReward(extractor), reply, expected_answer=expected)
    assert signal.reward == float(right)


@pytest.mark.parametrize(
    ("extractor", "reply", "right"),
    [
        (RawGenerationExtractor(), "<think>\n4 or 5?\n</think>\n\n4", True),
        (TagBasedExtractor(), "<think>\n<answer>4</answer>\n</think>\n\nI am not sure.", False),
    ],
)
def test_what_was_thought_is_no_part_of_the_answer(
    extractor: Extractor, reply: str, right: bool
) -> None:
    assert judged(AnswerReward(extractor), reply, expected_answer="4").reward == float(right)


def test_the_expected_answer_is_told_to_nobody() -> None:
    signal = judged(AnswerReward(), "5", expected_answer="forty-two")
    assert "forty-two" not in repr(signal)


def test_a_reply_without_an_answer_is_wrong_and_told_why() -> None:
    signal = judged(AnswerReward(NumericExtractor()), "none", expected_answer="4")
    assert signal.reward == 0.0
    assert signal.feedback == "No answer was found in the response. The reply holds no number."
    assert signal.metadata is not None
    assert signal.metadata["extraction_failed"] is True


@pytest.mark.parametrize(
    ("hidden", "reward"),
    [
        ({"answer": 4}, 1.0),
        ({"ground_truth": "4"}, 1.0),
        ({"target": "5"}, 0.0),
        ({"expected_answer": "", "ground_truth": "4"}, 1.0),
        ({"expected_answer": 0}, 0.0),
        ({}, None),
        ({"expected_answer": " "}, None),
    ],
)
def test_without_an_expected_answer_there_is_no_reward(
    hidden: dict[str, Any], reward: float | None
) -> None:
    signal = judged(AnswerReward(), "4", **hidden)
    assert signal.reward == reward
    assert (signal.feedback is None) == (reward is None)


def test_an_answer_is_found_in_a_mapping_as_in_an_object() -> None:
    assert answer_in({"answer": " 4 "}) == answer_in(SimpleNamespace(answer=4)) == "4"
    assert answer_in({"expected_answer": " ", "target": 5}) == "5"
    assert answer_in({"answer": ["4"]}) == answer_in(None) == ""
