"""The environment interface: `reset` gives the first state, `step` the next for an action."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from nbrefine._portal import Run
from nbrefine.state import Action, State, StepResult


class Environment(ABC):
    """A transition: `reset` gives the first state, `step` the next one for an action."""

    @abstractmethod
    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]: ...

    @abstractmethod
    async def _step(self, state: State, action: Action) -> StepResult: ...

    @abstractmethod
    async def aclose(self) -> None:
        """Release what the environment holds."""

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

    def close(self) -> None:
        """Release what the environment holds and wait until it is gone."""
        Run(self.aclose()).result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await Run(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
