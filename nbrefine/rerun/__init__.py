"""A recorded episode again: what is the same as in the record, and what is not."""

from __future__ import annotations

from nbrefine.rerun.comparing import Level
from nbrefine.rerun.replaying import replay
from nbrefine.rerun.results import (
    CellVerdict,
    Divergence,
    How,
    PackageChange,
    Replay,
    StateVerdict,
    StepReplay,
)

__all__ = [
    "CellVerdict",
    "Divergence",
    "How",
    "Level",
    "PackageChange",
    "Replay",
    "StateVerdict",
    "StepReplay",
    "replay",
]
