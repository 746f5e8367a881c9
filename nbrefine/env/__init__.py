"""The environment: the transition, and the one place that decides where attempts run."""

from __future__ import annotations

from nbrefine.env.base import Environment
from nbrefine.env.notebook import REBUILD_LIMIT, NotebookEnvironment, NotebookHidden
from nbrefine.env.session import IsolationPolicy
from nbrefine.kernel.workspace.overlays import WorkspaceMode

__all__ = [
    "REBUILD_LIMIT",
    "Environment",
    "IsolationPolicy",
    "NotebookEnvironment",
    "NotebookHidden",
    "WorkspaceMode",
]
