"""The environment: the transition, and the one place that decides where attempts run."""

from __future__ import annotations

from nbrefine.env.base import Environment
from nbrefine.env.iterative import (
    IterativeEnvironment,
    IterativeHidden,
    IterativeTask,
    UnsolvableWarning,
)
from nbrefine.env.notebook import REBUILD_LIMIT, NotebookEnvironment, NotebookHidden
from nbrefine.env.session import IsolationPolicy
from nbrefine.env.single import Problem, SingleTurnEnvironment, SingleTurnHidden
from nbrefine.env.templates import COUNTED_PROMPTS
from nbrefine.kernel.workspace.overlays import WorkspaceMode

__all__ = [
    "COUNTED_PROMPTS",
    "REBUILD_LIMIT",
    "Environment",
    "IsolationPolicy",
    "IterativeEnvironment",
    "IterativeHidden",
    "IterativeTask",
    "NotebookEnvironment",
    "NotebookHidden",
    "Problem",
    "SingleTurnEnvironment",
    "SingleTurnHidden",
    "UnsolvableWarning",
    "WorkspaceMode",
]
