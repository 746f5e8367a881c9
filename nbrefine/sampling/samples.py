"""What sampling gives: the candidates, the one that was taken, and what they say together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from nbrefine.metrics import Outcome, pass_at_k
from nbrefine.runner.grading import graded_outcome
from nbrefine.state import State
from nbrefine.values import Episode, Stop, Task

if TYPE_CHECKING:
    from nbrefine.rewards.grader import Grade

Select = Literal["first", "best"]
"""Which candidate is taken: the first that passes, or the best of all."""

LEFT = Stop("stopped", "another candidate had passed")
"""How a candidate ends that is not needed any more."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Several candidates for one task, and the one that was taken."""

    task: Task
    episodes: tuple[Episode, ...]
    """One for each candidate, in order; one that was broken off, or never begun, has the turns it
    came to and the stop "stopped" or "budget" or, where the model or the host gave out,
    "infra-error", which counts for nothing."""
    select: Select
    chosen_index: int | None = None
    """0-based; None where none was taken."""
    grades: tuple[Grade | None, ...] = ()
    """What the grader said of each candidate that had passed the visible tests; empty where none
    was asked."""
    note: str = ""
    """That the grade of the chosen one speaks against it, how the kernel that was handed in is not
    as it left its branch, and which candidates the model or the host kept from ending; or ""."""
    state: State | None = field(default=None, compare=False, repr=False)
    """Where the chosen one has led to, passed or not, in an environment of the caller's."""

    @property
    def chosen(self) -> Episode | None:
        """The candidate that was taken, or None."""
        return None if self.chosen_index is None else self.episodes[self.chosen_index]

    @property
    def code(self) -> str:
        """The code of the chosen one's best attempt, or ""."""
        best = self.chosen.best if self.chosen is not None else None
        return best.code if best is not None else ""

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """The candidates that ran to their end and say something, as statistics need them."""
        grades = self.grades or (None,) * len(self.episodes)
        found = (
            graded_outcome(episode, grade, sample=index)
            for index, (episode, grade) in enumerate(zip(self.episodes, grades, strict=True))
            if ran(episode)
        )
        return tuple(outcome for outcome in found if outcome.counts)

    @property
    def n(self) -> int:
        """Candidates that ran to their end."""
        return len(self.outcomes)

    @property
    def passed(self) -> int:
        """Candidates that passed; where they were graded, only the grade counts."""
        return sum(outcome.solved for outcome in self.outcomes)

    def pass_at_k(self, k: int) -> float:
        """Estimate how likely one of k candidates solves the task; see `metrics.pass_at_k`.

        NaN where fewer than k ran to their end, and where one that passed kept others from
        running: draws that end with a success are no fair sample.
        """
        if any(episode.stop == LEFT for episode in self.episodes):
            return math.nan
        return pass_at_k(self.n, self.passed, k)

    def to_rows(self) -> list[dict[str, Any]]:
        """Give one flat dict per turn, with the candidate's number and whether it was chosen."""
        return [
            {"sample": index, "chosen": index == self.chosen_index, **row}
            for index, episode in enumerate(self.episodes)
            for row in episode.to_rows()
        ]


def ran(episode: Episode) -> bool:
    """Tell whether a candidate ran to its end."""
    return episode.stop is not None and episode.stop.reason not in ("stopped", "budget")
