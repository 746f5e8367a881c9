"""An iterative environment in which a number is guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbrefine.env import (
    IterativeEnvironment,
    IterativeTask,
)
from nbrefine.state import Action, State, StepResult
from nbrefine.values import RewardType, Signal, Turn


@dataclass(frozen=True)
class Graded:
    """Rewards by what a submission begins with, such as "0.4 …"."""

    name: str = "graded"
    reward_type: RewardType = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        words = (action.text or "").removeprefix("SUBMIT ").split()
        try:
            reward = float(words[0])
        except (IndexError, ValueError):
            return Signal(self.name, self.reward_type)
        return Signal(self.name, self.reward_type, reward, f"score {words[0]}")


@dataclass(frozen=True)
class Noting:
    """Notes what it is shown."""

    seen: list[tuple[State, Action, State]]
    name: str = "noting"
    reward_type: RewardType = RewardType.PROCESS

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        self.seen.append((state, action, next_state))
        return Signal(self.name, self.reward_type, 0.25, "noted")


GUESS = IterativeTask("Guess a number.", ground_truth="1.0")


def guessing(**settings: Any) -> IterativeEnvironment:
    return IterativeEnvironment(tasks=[GUESS], extra_rewards=(Graded(),), **settings)


def begun(env: IterativeEnvironment, **options: Any) -> State:
    return env.reset(options=options)[0]


def newest(result: StepResult) -> Turn:
    turn: Turn = result.next_state.hidden.episode.turns[-1]
    return turn


@dataclass(frozen=True)
class Fixed:
    """Gives the signal it was made with."""

    signal: Signal

    @property
    def name(self) -> str:
        return self.signal.name

    @property
    def reward_type(self) -> RewardType:
        return self.signal.reward_type

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return self.signal
