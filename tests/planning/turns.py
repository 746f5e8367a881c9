"""Turns of an episode in a few words."""

from __future__ import annotations

from nbrefine.outputs import CellResult
from nbrefine.values import Extraction, Reply, ToolCall, Turn, TurnKind, Usage


def turn(
    number: int,
    step: int = 1,
    code: str = "",
    *,
    kind: TurnKind = "attempt",
    accepted: bool = False,
    tokens: int = 0,
    seconds: float = 0.0,
    said: str = "",
    calls: tuple[ToolCall, ...] = (),
) -> Turn:
    """Make a turn; without code, nothing ran in it."""
    return Turn(
        number,
        kind=kind,
        step=step,
        reply=Reply(said or code, usage=Usage(tokens, 0), tool_calls=calls),
        extraction=Extraction("found", code) if code else Extraction("no-code"),
        result=CellResult(code, "ok") if code else None,
        accepted=accepted,
        seconds=seconds,
    )
