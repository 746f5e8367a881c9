"""Multi-step agents: a goal on real files, broken into subtasks that one live kernel remembers."""

from __future__ import annotations

from nbrefine.plan.resuming import branch_off, resume, start_resuming
from nbrefine.plan.settings import DEFAULTS, Settings
from nbrefine.plan.solving import solve, start_solving

__all__ = [
    "DEFAULTS",
    "Settings",
    "branch_off",
    "resume",
    "solve",
    "start_resuming",
    "start_solving",
]
