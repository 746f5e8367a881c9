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
    from nbrefine.config.factories import BackendFactory, EnvironmentFactory

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
    if name not in ("BackendFactory", "EnvironmentFactory"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("nbrefine.config.factories"), name)
