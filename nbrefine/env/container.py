"""An environment whose code runs in a container."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nbrefine.env.base import Environment, close_all
from nbrefine.env.notebook import NotebookEnvironment
from nbrefine.env.wrapped import call
from nbrefine.errors import UsageError
from nbrefine.executors import ContainerCodeExecutor, ContainerConfig
from nbrefine.rewards.base import RewardFunction
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.state import Action, EnvironmentSpec, State, StepResult
from nbrefine.values import SignalBundle


class ContainerEnvironment(Environment):
    """An environment as it is, but for the code that it runs, which runs in a container.

    Every `CodeExecutionReward` of it gets the container for its executor; tests stay outside. What
    else the environment has is had from here, too. Closing it closes the environment, the
    container, and the executors that the rewards had before and own (`close_executor`).

    Parameters
    ----------
    environment: judges submissions by running them.
    container: the container; None: what `fields` say.
    fields: of a `ContainerConfig`, such as `runtime="podman"`; they win over those of `container`.

    Warns
    -----
    ContainerWarning: what runs the code is not what was asked for.

    Raises
    ------
    UsageError: the environment runs no code, or none that could run in a container.
    ExecutorError: the image is not on this machine, or nothing can do what was asked for.
    """

    def __init__(
        self,
        environment: Environment,
        container: ContainerConfig | None = None,
        **fields: Any,
    ) -> None:
        rewards = _running_code(environment)
        self.environment = environment
        self.container = replace(container or ContainerConfig(), **fields)
        self.executor = ContainerCodeExecutor(self.container)
        """What runs the code."""
        self._former = tuple(reward.executor for reward in rewards if reward.close_executor)
        for reward in rewards:
            reward.executor = self.executor

    def __getattr__(self, name: str) -> Any:
        # A copy that has no fields yet asks for some, and would be sent round in circles.
        if name.startswith("__") or name == "environment":
            raise AttributeError(name)
        return getattr(self.environment, name)

    def __repr__(self) -> str:
        return f"ContainerEnvironment({self.environment!r}, {self.container!r})"

    @property
    def spec(self) -> EnvironmentSpec:
        return self.environment.spec

    @property
    def reward_functions(self) -> tuple[RewardFunction, ...]:
        return tuple(self.environment.reward_functions)

    @property
    def available_tools(self) -> tuple[Any, ...]:
        return self.environment.available_tools

    @property
    def prompts(self) -> dict[str, str]:
        return self.environment.prompts

    def __len__(self) -> int:
        return len(self.environment)

    def release(self, state: State) -> None:
        self.environment.release(state)

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        first: tuple[State, dict[str, Any]] = await call(
            self.environment, "reset", seed=seed, options=options
        )
        return first

    async def _step(self, state: State, action: Action) -> StepResult:
        result: StepResult = await call(self.environment, "step", state, action)
        return result

    async def _compute_rewards(
        self, state: State, action: Action, next_state: State
    ) -> SignalBundle:
        signals: SignalBundle = await call(
            self.environment, "compute_rewards", state, action, next_state
        )
        return signals

    async def _close(self) -> None:
        await close_all((*self._former, self.executor, self.environment))


def _running_code(environment: Environment) -> tuple[CodeExecutionReward, ...]:
    """Find what runs an environment's code.

    Raises
    ------
    UsageError: there is nothing, or it cannot run in a container.
    """
    name = type(environment).__name__
    if isinstance(environment, NotebookEnvironment):
        raise UsageError(
            f"{name} runs code in live kernels, which are in no container",
            hint="Wrap an IterativeEnvironment with a CodeExecutionReward",
        )
    found = tuple(_code_rewards(environment))
    if not found:
        raise UsageError(
            f"{name} runs no code, so that in a container nothing would run",
            hint="Give it a CodeExecutionReward, or use it as it is",
        )
    for reward in found:
        language = getattr(reward.executor, "language", "python")
        if language != "python":
            raise UsageError(
                f"{name} runs {language}, and a container runs Python", hint="Use it as it is"
            )
    return found


def _code_rewards(environment: Environment) -> Iterator[CodeExecutionReward]:
    for reward in getattr(environment, "reward_functions", ()):
        if isinstance(reward, CodeExecutionReward):
            yield reward
