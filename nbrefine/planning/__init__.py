"""How a task is broken into subtasks, and how far the work on them has got: pure functions."""

from nbrefine.planning.plans import first_plan, planned
from nbrefine.planning.progress import Progress, StepLimits, counted, progress
from nbrefine.planning.reading import MOST_SUBTASKS, plan_of, read_plan, subtasks_of

__all__ = [
    "MOST_SUBTASKS",
    "Progress",
    "StepLimits",
    "counted",
    "first_plan",
    "plan_of",
    "planned",
    "progress",
    "read_plan",
    "subtasks_of",
]
