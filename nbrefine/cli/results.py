"""How a command ends: what it tells of its episode or its trouble, and its exit code."""

from __future__ import annotations

import json
import math
import os
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nbrefine.cli.options import spelled
from nbrefine.errors import NbrefineError, RunStopped, UsageError

if TYPE_CHECKING:
    from nbrefine.values import Episode

SOLVED, UNSOLVED, USAGE, TROUBLE, INTERRUPTED = 0, 1, 2, 3, 130

Facts = dict[str, Any]
"""What a program is told, as plain JSON."""

given: ContextVar[bool] = ContextVar("given", default=False)
"""Whether a program has its document already: an interrupt may come at any time."""


def print_json(facts: Any) -> None:
    """Give a program its one JSON document; what is no number for JSON, such as NaN, is null."""
    try:
        text = json.dumps(facts, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(facts))
    given.set(True)
    typer.echo(text)


def _finite(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: _finite(fact) for name, fact in facts.items()}
    if isinstance(facts, (list, tuple)):
        return [_finite(fact) for fact in facts]
    return None if isinstance(facts, float) and not math.isfinite(facts) else facts


def summary(episode: Episode, record: Path) -> Facts:
    """Give the facts of an episode; the best attempt's, where none was accepted."""
    from nbrefine.notebook import wording

    told = (episode.accepted or (episode.best,))[-1]
    tests = told.tests if told else None
    return {
        "solved": episode.solved,
        "verdict": episode.verdict,
        "stop": asdict(episode.stop) if episode.stop else None,
        "code": told.code if told else None,
        "tests": {"passed": tests.passed, "total": tests.total} if tests else None,
        "tokens": {"input": episode.usage.input_tokens, "output": episode.usage.output_tokens},
        "seconds": round(episode.seconds, 3),
        "model": episode.model,
        "kernel": episode.kernel.name,
        "record": str(record),
        "turns": [{**row, "task": wording.title(episode)} for row in episode.to_rows()],
    }


def broken_off(
    error: NbrefineError,
    record: Path,
    *,
    command: str,
    facts: Callable[[Episode, Path], Facts],
    as_json: bool,
) -> int:
    """Tell a trouble and, to a program, the episode that had begun; give the exit code.

    Parameters
    ----------
    command: the one that was called.

    Raises
    ------
    NbrefineError: the trouble itself, where none had begun.
    """
    from nbrefine.values import Episode

    begun = error.episode
    if not isinstance(begun, Episode):
        raise error
    if begun.turns:
        typer.echo(f"The episode so far is in {record}", err=True)
    known = facts(begun, record) if as_json else None
    return trouble(error, command=command, facts=known, as_json=as_json)


def left_at_once(
    episode: Episode | None,
    record: Path,
    *,
    facts: Callable[[Episode, Path], Facts],
    as_json: bool,
) -> int:
    """Tell a program of an episode whose end nobody waits for; give the exit code.

    Parameters
    ----------
    episode: as far as it is known; None where none has begun.

    Raises
    ------
    KeyboardInterrupt: there is nothing to tell.
    """
    from nbrefine.driver import BY_A_PERSON

    if episode is None or not as_json:
        raise KeyboardInterrupt
    print_json(facts(replace(episode, stop=episode.stop or BY_A_PERSON), record))
    return INTERRUPTED


def interrupted(*, command: str, as_json: bool) -> int:
    """Tell a program that there is no result, if it was told nothing yet; give the exit code."""
    if as_json and not given.get():
        error = RunStopped("It was interrupted before it had a result", hint="Start it again")
        return trouble(error, command=command, as_json=True)
    return INTERRUPTED


def trouble(
    error: NbrefineError, *, command: str, as_json: bool, facts: Facts | None = None
) -> int:
    """Tell a trouble in one line, and to a program as JSON; give the exit code.

    Parameters
    ----------
    command: the one that was called; "" where there is none.
    facts: what else the program is told.
    """
    # A server's words may name settings of its own, which are no options of ours.
    ours = command if isinstance(error, UsageError) else ""
    line = spelled(" ".join(str(error).split()), ours)
    typer.echo(f"nbrefine: {line}", err=True)
    if os.environ.get("NBREFINE_DEBUG") == "1":
        traceback.print_exception(error)
    if as_json:
        message, hint = spelled(error.message, ours), spelled(error.hint, ours)
        told = {"kind": type(error).__name__, "message": message, "hint": hint}
        stop = {"reason": "stopped", "detail": error.message}
        known = {"stop": stop} if isinstance(error, RunStopped) else {}
        print_json({**known, **(facts or {}), "error": told})
    if isinstance(error, RunStopped):
        return INTERRUPTED
    return USAGE if isinstance(error, UsageError) else TROUBLE
