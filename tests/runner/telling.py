"""An environment of tasks whose feedback can be told, and a model that knows their answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbrefine.env import Environment
from nbrefine.env.iterative import IterativeEnvironment, IterativeTask
from nbrefine.models.scripted import ScriptedModel
from nbrefine.runner import (
    TrajectoryRunner,
)
from nbrefine.state import Action, EnvironmentSpec, Observation, State, StateMetadata, StepResult
from nbrefine.values import (
    Message,
    RewardType,
    Signal,
    SignalBundle,
)

ANSWERS = ["four", "nine", "two", "six", "ten", "one"]


def iterative(**settings: Any) -> IterativeEnvironment:
    tasks = [IterativeTask(f"TASK{n}", answer) for n, answer in enumerate(ANSWERS)]
    return IterativeEnvironment(tasks=tasks, extra_rewards=(Told(),), **settings)


class Told:
    """An outcome reward that says what was wrong."""

    name = "answer"
    reward_type = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        right = next_state.hidden.submissions[-1] == state.hidden.ground_truth
        said = None if right else f"FEEDBACK on {next_state.hidden.submissions[-1]}"
        return Signal(self.name, self.reward_type, float(right), said)


def knowing(messages: Sequence[Message]) -> str:
    """Answer wrongly first, and rightly as soon as there is any feedback."""
    task = next(word for m in messages for word in m.content.split() if word.startswith("TASK"))
    return ANSWERS[int(task[4:])] if "FEEDBACK" in messages[-1].content else "zero"


def run(environment: Environment, replies: Any, **settings: Any) -> ScriptedModel:
    model = ScriptedModel(replies)
    TrajectoryRunner(environment, model, **settings).run_trajectory()
    return model


class Plain(Environment):
    """Three turns, each told as a text or a chat; keeps no episode of its own."""

    def __init__(self, *, system: str = "", chat: bool = True, limit: int | None = 3) -> None:
        self.system = system
        self.chat = chat
        self.limit = limit

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec("plain", "test", max_steps=self.limit, pure_step=True)

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        opening = [Message("system", self.system)] if self.system else []
        chat = (*opening, Message("user", "TASK")) if self.chat else ()
        return State(Observation("TASK", chat)), {}

    async def _step(self, state: State, action: Action) -> StepResult:
        step = state.metadata.step + 1
        said = Message("assistant", action.text or "")
        told = f"FEEDBACK{step}"
        chat = (*state.observation.messages, said, Message("user", told)) if self.chat else ()
        return StepResult(
            State(Observation(told, chat), metadata=StateMetadata(step)),
            SignalBundle(),
            truncated=step == 3,
        )
