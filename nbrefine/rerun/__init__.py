"""A recorded episode again: what is the same as in the record, and what is not."""

from __future__ import annotations

from nbrefine.rerun.clean import PackageChange, Replay, StepReplay, Verdict, replay

__all__ = ["PackageChange", "Replay", "StepReplay", "Verdict", "replay"]
