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
from nbrefine.config.loading import load_task
from nbrefine.config.reading import read_text
from nbrefine.config.run import RunConfig

if TYPE_CHECKING:
    from nbrefine.config.backends import BackendFactory
    from nbrefine.config.factories import EnvironmentFactory
    from nbrefine.config.solving import SolveConfig

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
    "SolveConfig",
    "load_task",
    "read_text",
]


def __getattr__(name: str) -> Any:
    """Load what brings every kind of environment with it when it is first used."""
    homes = {
        "BackendFactory": "backends",
        "EnvironmentFactory": "factories",
        "SolveConfig": "solving",
    }
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
