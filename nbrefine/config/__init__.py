"""Configurations as files: YAML in, checked values and built objects out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nbrefine.config.evaluation import (
    CodeExecutionConfig,
    ContainerConfig,
    EnvironmentConfig,
    EnvironmentLLMConfig,
    EvalConfig,
    InferenceConfig,
    IterativeConfig,
    JudgeConfig,
    ModelConfig,
)
from nbrefine.config.reading import read_text
from nbrefine.config.run import RunConfig

if TYPE_CHECKING:
    from nbrefine.config.backends import BackendFactory
    from nbrefine.config.factories import EnvironmentFactory

__all__ = [
    "BackendFactory",
    "CodeExecutionConfig",
    "ContainerConfig",
    "EnvironmentConfig",
    "EnvironmentFactory",
    "EnvironmentLLMConfig",
    "EvalConfig",
    "InferenceConfig",
    "IterativeConfig",
    "JudgeConfig",
    "ModelConfig",
    "RunConfig",
    "read_text",
]


def __getattr__(name: str) -> Any:
    """Load the factories, and with them every kind of environment, when they are first used."""
    homes = {"BackendFactory": "backends", "EnvironmentFactory": "factories"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
