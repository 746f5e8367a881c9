"""The environment interface: `reset` gives the first state, `step` the next for an action."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from nbrefine._portal import Closing, Run
from nbrefine.state import Action, State, StepResult


class Environment(Closing):
    """A transition: `reset` gives the first state, `step` the next one for an action."""

    @abstractmethod
    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]: ...

    @abstractmethod
    async def _step(self, state: State, action: Action) -> StepResult: ...

    def areset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Run[tuple[State, dict[str, Any]]]:
        """Begin an episode; the started form of `reset`."""
        return Run(self._reset(seed=seed, options=options))

    def astep(self, state: State, action: Action) -> Run[StepResult]:
        """Take one step; the started form of `step`."""
        return Run(self._step(state, action))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[State, dict[str, Any]]:
        """Begin an episode and give its first state and a dict of facts about it."""
        return self.areset(seed=seed, options=options).result()

    def step(self, state: State, action: Action) -> StepResult:
        """Take one step and give what came of it."""
        return self.astep(state, action).result()
