"""The handbook's `iterative_refine`: its signature and its records, on the same core.

The names beside it live where they belong: `build_repair_prompt` in `nbrefine.prompts`,
`detect_cycle` and `track_regression` in `nbrefine.stopping`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbrefine.env import NotebookEnvironment
from nbrefine.prompts import build_repair_prompt
from nbrefine.state import Action
from nbrefine.values import Episode, Task, Turn

_NO_TESTS = "# no tests were given"
"""Stands for empty tests: without any, the handbook's loop never succeeds."""


def iterative_refine(
    task_description: str,
    initial_code: str,
    tests: str,
    llm_fn: Callable[[str], str],
    max_iterations: int = 5,
) -> dict[str, Any]:
    """Evaluate code and let a model repair it until the tests pass or the iterations end.

    Parameters
    ----------
    task_description: what the code should do.
    initial_code: what iteration 1 evaluates.
    tests: asserts, a `check(candidate)` function or pytest-style functions.
    llm_fn: from a repair prompt to code, which runs as it is; nothing is extracted from it.
    max_iterations: how many programs are evaluated at the most.

    Returns
    -------
    A dict of `final_code` (the last), `best_code` (most tests passed, ties to the earliest),
    `history` (per iteration: iteration, code, passed, failed, total, success) and `episode`.

    Raises
    ------
    InvalidTaskError: the tests do not parse.
    UsageError: `max_iterations` is less than 1.
    """
    with NotebookEnvironment(
        Task(task_description, tests=tests or _NO_TESTS), max_turns=max_iterations
    ) as env:
        state, _ = env.reset(seed=0)
        code = initial_code
        while not (result := env.step(state, Action.from_code(code))).done:
            state = result.next_state
            turn = state.hidden.episode.turns[-1]
            code = llm_fn(build_repair_prompt(task_description, code, _feedback(turn), turn.number))
    episode: Episode = result.next_state.hidden.episode
    return {
        "final_code": code,
        "best_code": episode.best.code if episode.best else initial_code,
        "history": [_record(turn) for turn in episode.turns],
        "episode": episode,
    }


def _record(turn: Turn) -> dict[str, Any]:
    passed, failed, total = (
        (turn.tests.passed, turn.tests.failed, turn.tests.total) if turn.tests else (0, 0, 0)
    )
    return {
        "iteration": turn.number,
        "code": turn.code,
        "passed": passed,
        "failed": failed,
        "total": total,
        "success": turn.accepted,
    }


def _feedback(turn: Turn) -> str:
    """Give the handbook's feedback: tests passed, every failure, and the error of the run."""
    texts = list(turn.signals.feedback_texts())
    if turn.result is not None:
        texts += [f"The code failed: {turn.result.error}"] if turn.result.error else []
        texts += turn.result.notes
    return "\n".join(texts)
