"""The prompts of a multi-step task, and what a model is told of each turn."""

from __future__ import annotations

from nbrefine.briefing.feedback import turn_feedback
from nbrefine.briefing.past import shortened
from nbrefine.briefing.prompt import LIMIT, Seen, brief

__all__ = ["LIMIT", "Seen", "brief", "shortened", "turn_feedback"]
