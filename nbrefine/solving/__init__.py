"""Multi-step agents: a goal on real files, broken into subtasks that one live kernel remembers."""

from __future__ import annotations

from nbrefine.solving.resuming import branch_off, resume, start_resuming
from nbrefine.solving.settings import DEFAULTS, Settings
from nbrefine.solving.starting import solve, start_solving

__all__ = [
    "DEFAULTS",
    "Settings",
    "branch_off",
    "resume",
    "solve",
    "start_resuming",
    "start_solving",
]
