"""Rewards and what tests said, as values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from nbrefine.outputs import Output


class RewardType(Enum):
    """What a signal speaks of."""

    OUTCOME = "outcome"
    STEP = "step"
    FORMAT = "format"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Signal:
    """A named reward with optional textual feedback."""

    name: str
    reward_type: RewardType
    reward: float | None = None
    feedback: str | None = None
    metadata: dict[str, Any] | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class SignalBundle:
    """All signals of one step, in order."""

    signals: tuple[Signal, ...] = ()

    @classmethod
    def single(
        cls,
        reward: float | None,
        name: str = "reward",
        reward_type: RewardType = RewardType.OUTCOME,
    ) -> SignalBundle:
        """Make a bundle of one signal."""
        return cls((Signal(name, reward_type, reward),))

    @classmethod
    def empty(cls) -> SignalBundle:
        """Make a bundle without signals."""
        return cls()

    @property
    def total(self) -> float:
        """The sum of reward times weight over the signals that have a reward."""
        return sum(s.reward * s.weight for s in self.signals if s.reward is not None)

    @property
    def outcome(self) -> float | None:
        """The best reward of an outcome signal; None where none has one, and NaN is none."""
        rewards = (s.reward for s in self.by_type(RewardType.OUTCOME))
        return max((r for r in rewards if r is not None and not math.isnan(r)), default=None)

    def by_name(self, name: str) -> Signal | None:
        """Give the first signal of that name, or None."""
        return next((s for s in self.signals if s.name == name), None)

    def by_type(self, reward_type: RewardType) -> tuple[Signal, ...]:
        """Give the signals of one type, in order."""
        return tuple(s for s in self.signals if s.reward_type is reward_type)

    def numeric_signals(self) -> tuple[Signal, ...]:
        """Give the signals that have a reward, in order."""
        return tuple(s for s in self.signals if s.reward is not None)

    def feedback_texts(self) -> tuple[str, ...]:
        """Give every feedback text, in order."""
        return tuple(s.feedback for s in self.signals if s.feedback is not None)

    def __iter__(self) -> Iterator[Signal]:
        return iter(self.signals)

    def __len__(self) -> int:
        return len(self.signals)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What one visible test said about an attempt."""

    name: str
    """Unique within its report: "test_3", a function's name, or "check[2]"."""
    status: Literal["passed", "failed", "error", "timeout", "not-run"]
    """`failed`: an assertion did not hold; `error`: something else was raised;
    `not-run`: an earlier test ended the process."""
    expression: str = ""
    """The asserted source, on one line."""
    got: str = ""
    """The value that was there, as text."""
    expected: str = ""
    """The value that was asked for, as text."""
    message: str = ""
    """What was raised, or the assertion's own message."""

    @property
    def passed(self) -> bool:
        return self.status == "passed"


@dataclass(frozen=True, slots=True)
class TestReport:
    """What all visible tests said about an attempt: feedback, never a grade."""

    __test__ = False  # not a test class, whatever pytest may think of the name

    cases: tuple[CaseResult, ...] = ()
    problem: str = ""
    """Why there is no case to count, or why cases did not run: "no tests were found" …, or ""."""
    outputs: tuple[Output, ...] = ()
    """What running the tests put out, as one cell with all of them would have it."""
    entry_point: str = ""
    """The function that `check(candidate)` was given, where the session had to tell."""
    seconds: float = 0.0

    @property
    def output(self) -> str:
        """What the tests printed, on both channels."""
        return "".join(output.text for output in self.outputs if output.kind == "stream")

    @property
    def passed(self) -> int:
        return sum(case.passed for case in self.cases)

    @property
    def total(self) -> int:
        return len(self.cases)

    @property
    def failed(self) -> int:
        return self.total - self.passed

    @property
    def solved(self) -> bool:
        """Whether at least one test was found and all of them passed."""
        return self.total > 0 and self.failed == 0
