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

    planning: whether the model may make a plan ("auto"), must begin with one ("ask"), or works on
        without any ("none").  A task's own subtasks hold in any case.
    style: whether the model writes fenced blocks ("fenced"), or calls tools ("tools").
    images: whether a model that takes images gets the pictures that a cell drew.
    max_turns: turns until the episode ends.
    max_attempts: attempts at one subtask until it is planned anew or given up; see
        `StepLimits.attempts`.
    max_step_tokens: tokens that one subtask may take until then; None for no limit.
    max_step_seconds: seconds that one subtask may take until then; None for no limit.
    max_replans: how often the rest of the work may be planned anew.
    accept_best: whether the best attempt at a failed subtask that ran without an error is kept.
    timeout: seconds that a cell may run; None for no limit.
    test_timeout: seconds that one postcondition or test may run.
    isolation: where attempts run: in branches, else it is an error ("fork"), without branches
        ("rebuild"), in the session itself ("none"), or in the safest way that can be had ("auto").
    rebuild_limit: seconds that setup and accepted cells have run up to which a session is rebuilt.
    workspace: what becomes of files that attempts write: held back until one is accepted
        ("overlay"), told only ("report"), or the first where it can be had ("auto").
    temperature: how freely replies vary; None leaves it to the server.
    top_p: how much of the likeliest tokens is drawn from; None leaves it to the server.
    max_tokens: tokens that one reply may have; None leaves it to the server.
    """

    planning: Literal["auto", "ask", "none"]
    style: Literal["fenced", "tools"]
    images: bool
    max_turns: int
    max_attempts: int
    max_step_tokens: int | None
    max_step_seconds: float | None
    max_replans: int
    accept_best: bool
    timeout: float | None
    test_timeout: float
    isolation: IsolationPolicy
    rebuild_limit: float
    workspace: WorkspaceMode
    temperature: float | None
    top_p: float | None
    max_tokens: int | None


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
