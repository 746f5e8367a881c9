"""Rewards that read the reply itself: is there an answer in it, and is it the right one."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from numbers import Number
from typing import Any

from nbrefine.extractors import (
    CleanedExtractor,
    CompositeExtractor,
    Extractor,
    FallbackExtractor,
    Gsm8kExtractor,
    NumericExtractor,
    RawGenerationExtractor,
)
from nbrefine.state import Action, State
from nbrefine.thinking import without_thinking
from nbrefine.values import RewardType, Signal

_RAW = RawGenerationExtractor()

_ANSWERS = ("expected_answer", "answer", "ground_truth", "target")
"""What a state's hidden part may call its answer."""


class FormatReward:
    """Gives 1.0 where an answer can be read out of the reply, else 0.0 and what is amiss.

    Parameters
    ----------
    answer_extractor: finds the answer in a reply.
    name, weight: of the signals, which are of type FORMAT.
    """

    reward_type = RewardType.FORMAT

    def __init__(
        self, answer_extractor: Extractor, *, name: str = "format", weight: float = 1.0
    ) -> None:
        self.answer_extractor = answer_extractor
        self.name = name
        self.weight = weight

    def __repr__(self) -> str:
        return f"FormatReward({self.answer_extractor!r}, name={self.name!r})"

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        """Judge the form of a reply."""
        answer, facts = self.answer_extractor.extract(action.text or "")
        feedback = _not_found(facts) if answer is None else None
        reward = float(answer is not None)
        return Signal(self.name, self.reward_type, reward, feedback, dict(facts), self.weight)


class AnswerReward:
    """Gives 1.0 where the answer in the reply equals the expected one, blanks around them aside.

    The expected answer is `hidden.expected_answer`, or else `answer`, `ground_truth` or `target`;
    where there is none, there is no reward.  It is never told.  It counts as it stands and as the
    extractor reads it, so that an expected "1,234" is met by 1234 where numbers are read.  Where
    the extractor finds numbers they are compared as such, and 18.00 is 18; else as texts.

    Parameters
    ----------
    answer_extractor: finds the answer in a reply, thinking aside; by default the whole of it is
        the answer.
    name, weight: of the signals, which are of type OUTCOME.
    """

    reward_type = RewardType.OUTCOME

    def __init__(
        self,
        answer_extractor: Extractor = _RAW,
        *,
        name: str = "correctness",
        weight: float = 1.0,
    ) -> None:
        self.answer_extractor = answer_extractor
        self.name = name
        self.weight = weight

    def __repr__(self) -> str:
        return f"AnswerReward({self.answer_extractor!r}, name={self.name!r})"

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        """Judge the answer in a reply."""
        expected = expected_answer(state)
        if not expected:
            return self._signal(None, None, {"no_answer": True})
        answer, facts = self.answer_extractor.extract(without_thinking(action.text or ""))
        if answer is None:
            return self._signal(0.0, _not_found(facts), {**facts, "extraction_failed": True})
        read, _ = self.answer_extractor.extract(expected)
        right = answer.strip() in (expected, (read or expected).strip())
        if not right and read is not None and _numeric(self.answer_extractor):
            right = _same_number(answer, read)
        told = "The answer is correct." if right else "The answer is not correct."
        return self._signal(float(right), told, {"extracted": answer})

    def _signal(self, reward: float | None, told: str | None, metadata: dict[str, Any]) -> Signal:
        return Signal(self.name, self.reward_type, reward, told, metadata, self.weight)


def expected_answer(state: State) -> str:
    """Find the answer that a state's task expects, without blanks around it, or ""."""
    return answer_in(state.hidden)


def answer_in(hidden: object) -> str:
    """Find the expected answer in what a state hides, an object or a mapping, or "".

    It is the first of `expected_answer`, `answer`, `ground_truth` and `target` that is a text or
    a number and not blank.
    """
    for name in _ANSWERS:
        value = hidden.get(name) if isinstance(hidden, Mapping) else getattr(hidden, name, None)
        if isinstance(value, str | Number) and str(value).strip():
            return str(value).strip()
    return ""


def _numeric(extractor: Extractor) -> bool:
    """Tell whether what an extractor finds is a number."""
    if isinstance(extractor, CleanedExtractor):
        return _numeric(extractor.extractor)
    if isinstance(extractor, CompositeExtractor):
        return _numeric(extractor.extractors[-1])
    if isinstance(extractor, FallbackExtractor):
        return all(map(_numeric, extractor.extractors))
    return isinstance(extractor, NumericExtractor | Gsm8kExtractor)


def _same_number(one: str, other: str) -> bool:
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:  # a cleaner has made something else of it
        return False


def _not_found(facts: dict[str, Any]) -> str:
    return f"No answer was found in the response. {facts.get('detail') or ''}".strip()
