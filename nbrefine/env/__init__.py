"""The environment: the transition, and the one place that decides where attempts run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nbrefine.env.base import Environment
from nbrefine.env.iterative import (
    IterativeEnvironment,
    IterativeHidden,
    IterativeTask,
    UnsolvableWarning,
)
from nbrefine.env.live import REBUILD_LIMIT
from nbrefine.env.notebook import NotebookEnvironment, NotebookHidden
from nbrefine.env.session import IsolationPolicy
from nbrefine.env.single import Problem, SingleTurnEnvironment, SingleTurnHidden
from nbrefine.env.templates import COUNTED_PROMPTS
from nbrefine.kernel.workspace.overlays import WorkspaceMode

if TYPE_CHECKING:
    from nbrefine.env.coding import IterativeCodingEnvironment
    from nbrefine.env.container import ContainerEnvironment
    from nbrefine.env.huggingface import HuggingFaceEnvironment
    from nbrefine.env.multistep import MultiStepEnvironment
    from nbrefine.env.reasoning import ReasoningGymEnvironment

__all__ = [
    "COUNTED_PROMPTS",
    "REBUILD_LIMIT",
    "ContainerEnvironment",
    "Environment",
    "HuggingFaceEnvironment",
    "IsolationPolicy",
    "IterativeCodingEnvironment",
    "IterativeEnvironment",
    "IterativeHidden",
    "IterativeTask",
    "MultiStepEnvironment",
    "NotebookEnvironment",
    "NotebookHidden",
    "Problem",
    "ReasoningGymEnvironment",
    "SingleTurnEnvironment",
    "SingleTurnHidden",
    "UnsolvableWarning",
    "WorkspaceMode",
]

_HOMES = {
    "ContainerEnvironment": "container",
    "HuggingFaceEnvironment": "huggingface",
    "IterativeCodingEnvironment": "coding",
    "MultiStepEnvironment": "multistep",
    "ReasoningGymEnvironment": "reasoning",
}


def __getattr__(name: str) -> Any:
    """Load an environment that few need when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
