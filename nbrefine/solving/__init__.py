"""Multi-step agents: a goal on real files, broken into subtasks that one live kernel remembers."""

from __future__ import annotations

from nbrefine.env.approval import Approve, Decision, Proposal
from nbrefine.solving.options import Options
from nbrefine.solving.resuming import branch_off, resume, start_branching, start_resuming
from nbrefine.solving.settings import DEFAULTS, Settings
from nbrefine.solving.starting import solve, start_solving

__all__ = [
    "DEFAULTS",
    "Approve",
    "Decision",
    "Options",
    "Proposal",
    "Settings",
    "branch_off",
    "resume",
    "solve",
    "start_branching",
    "start_resuming",
    "start_solving",
]
