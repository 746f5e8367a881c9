"""From configurations to models."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

from nbrefine import models
from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.config.evaluation import VLLM_URL, ModelConfig
from nbrefine.errors import UsageError
from nbrefine.models import Model
from nbrefine.notebook import load
from nbrefine.values import Message, Reply, Sampling, Tool


class BackendFactory:
    """Makes models."""

    @staticmethod
    def create(config: ModelConfig) -> Model:
        """Make the model that a configuration names; whoever asks for it closes it.

        Raises
        ------
        UsageError: a file of replies cannot be read, or there is no such model file.
        ModelError: the model cannot be used here: a package or a key is missing.
        """
        with config.at("model"):
            return Throttled(_model(config), config.max_concurrency)


def _model(config: ModelConfig) -> Model:
    if config.backend in ("openai", "vllm"):
        from nbrefine.models.openai import OpenAIModel

        base_url = config.base_url or (VLLM_URL if config.backend == "vllm" else None)
        return OpenAIModel(
            config.model, base_url=base_url, api_key=_key(config), **given(timeout=config.timeout)
        )
    if config.backend == "local":
        from nbrefine.models.local import LocalModel

        return LocalModel(config.model, **given(timeout=config.timeout))
    return models.resolve(f"{config.backend}:{config.model}", load=load)


def _key(config: ModelConfig) -> str | None:
    if config.api_key_env is None:
        return None
    if not (key := os.environ.get(config.api_key_env)):
        raise UsageError(
            f"The environment variable {config.api_key_env} holds no key",
            hint="Set it, or leave out api_key_env",
        )
    return key


def given(**settings: Any) -> dict[str, Any]:
    """Leave out what was not given."""
    return {name: value for name, value in settings.items() if value is not None}


class Throttled:
    """A model of which only so many calls are under way at once."""

    def __init__(self, model: Model, calls: int) -> None:
        self.model = model
        self.takes_images = getattr(model, "takes_images", False)
        self._free = asyncio.Semaphore(calls)

    @property
    def name(self) -> str:
        return self.model.name

    async def check(self) -> None:
        await self.model.check()

    def complete(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling = Sampling(),
        budget: Budget | None = None,
        on_text: Callable[[str], None] | None = None,
        tools: Sequence[Tool] = (),
    ) -> Run[Reply]:
        """Ask for a reply as soon as it is this call's turn; see `Model.complete`."""

        async def in_turn() -> Reply:
            async with self._free:
                return await self.model.complete(
                    messages, sampling=sampling, budget=budget, on_text=on_text, tools=tools
                )

        return Run(in_turn())

    async def aclose(self) -> None:
        await self.model.aclose()
