"""Trajectories of an environment, one by one or many at once."""

from __future__ import annotations

from nbrefine.history import (
    HistoryEntry,
    PromptBudget,
    full_history,
    last_n_history,
    no_history,
    sliding_window_history,
)
from nbrefine.runner.prompt import TurnInfoConfig
from nbrefine.runner.rollout import derived_seed, record_name
from nbrefine.runner.trajectories import TrajectoryRunner

__all__ = [
    "HistoryEntry",
    "PromptBudget",
    "TrajectoryRunner",
    "TurnInfoConfig",
    "derived_seed",
    "full_history",
    "last_n_history",
    "no_history",
    "record_name",
    "sliding_window_history",
]
