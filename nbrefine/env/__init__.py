"""The environment: the transition, and the one place that decides where attempts run."""

from __future__ import annotations

from nbrefine.env.base import Environment
from nbrefine.env.notebook import NotebookEnvironment, NotebookHidden
from nbrefine.env.session import IsolationPolicy

__all__ = ["Environment", "IsolationPolicy", "NotebookEnvironment", "NotebookHidden"]
