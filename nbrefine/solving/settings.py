"""How a multi-step agent works, as plain data that its record keeps and a later run takes up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, cast

from nbrefine.env import REBUILD_LIMIT, IsolationPolicy, WorkspaceMode
from nbrefine.planning import StepLimits
from nbrefine.values import Sampling


class Settings(TypedDict, total=False):
    """What `solve` takes beside the goal, its material and the people around it.

    Everything here is plain JSON.  `DEFAULTS` has the values of what is not given.
    """

    planning: Literal["auto", "ask", "none"]
    """Whether the model may make a plan (`auto`), must begin with one (`ask`), or works on
    without any (`none`).  A task's own subtasks hold in any case."""
    style: Literal["fenced", "tools"]
    """Whether the model writes fenced blocks, or calls tools."""
    images: bool
    """Whether a model that takes images gets the pictures that a cell drew."""
    max_turns: int
    """Turns until the episode ends."""
    max_attempts: int
    """Attempts at one subtask until it is planned anew or given up; see `StepLimits.attempts`."""
    max_step_tokens: int | None
    """Tokens that one subtask may take until then; None for no limit."""
    max_step_seconds: float | None
    """Seconds that one subtask may take until then; None for no limit."""
    max_replans: int
    """How often the rest of the work may be planned anew."""
    accept_best: bool
    """Whether the best attempt at a failed subtask that ran without an error is kept."""
    timeout: float | None
    """Seconds that a cell may run; None for no limit."""
    test_timeout: float
    """Seconds that one postcondition or test may run."""
    isolation: IsolationPolicy
    rebuild_limit: float
    workspace: WorkspaceMode
    """See `NotebookEnvironment` for these three."""
    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    """How replies are drawn; None leaves it to the server."""


DEFAULTS: Settings = {
    "planning": "auto",
    "style": "fenced",
    "images": False,
    "max_turns": 30,
    "max_attempts": 4,
    "max_step_tokens": None,
    "max_step_seconds": None,
    "max_replans": 1,
    "accept_best": False,
    "timeout": 120.0,
    "test_timeout": 10.0,
    "isolation": "auto",
    "rebuild_limit": REBUILD_LIMIT,
    "workspace": "auto",
    "temperature": 0.0,
    "top_p": None,
    "max_tokens": None,
}


def complete(given: Mapping[str, Any], *, recorded: Mapping[str, Any] | None = None) -> Settings:
    """Give all settings: what is given, else what an earlier run had, else the defaults."""
    earlier = {name: value for name, value in (recorded or {}).items() if name in DEFAULTS}
    return cast("Settings", {**DEFAULTS, **earlier, **given})


def sampling_of(settings: Settings) -> Sampling:
    """Give how replies are drawn."""
    return Sampling(
        temperature=settings["temperature"],
        top_p=settings["top_p"],
        max_tokens=settings["max_tokens"],
    )


def step_limits(settings: Settings) -> StepLimits:
    """Give what one subtask may take."""
    return StepLimits(
        attempts=settings["max_attempts"],
        tokens=settings["max_step_tokens"],
        seconds=settings["max_step_seconds"],
    )
