"""Where a running episode stands, in a sentence."""

from __future__ import annotations

import time

from nbrefine.budget import Budget
from nbrefine.driver import EpisodeRun
from nbrefine.notebook import steps, wording
from nbrefine.notebook.steps import Step
from nbrefine.values import Episode


def sentence(run: EpisodeRun, max_turns: int) -> str:
    """Say what is being done: "Step 2 of 4, attempt 1, running the tests, 12 s"."""
    doing, episode = run.activity, run.episode
    seconds = time.monotonic() - doing.since
    begun = episode is not None and doing.turn and doing.doing not in ("ended", "closing")
    words = [_place(episode, doing.turn, max_turns)] if begun and episode is not None else []
    words += [doing.told, f"{seconds:.0f} s"]
    told = ", ".join(words)
    return told[0].upper() + told[1:]


def _place(episode: Episode, number: int, max_turns: int) -> str:
    """Name the turn of that number, which has begun, and may have just ended."""
    if not steps.in_steps(episode):
        return f"attempt {number} of {max_turns}"
    found = steps.steps_of(episode)
    ended = next((turn for turn in episode.turns if turn.number == number), None)
    now: Step | None
    if ended is not None:
        now = next(step for step in found if step.number == ended.step)
    else:
        now = next((step for step in found if step.fate in ("running", "not-begun")), None)
    if now is None:
        return f"turn {number}"
    tried = sum(turn.tried and not turn.stopped for turn in now.turns if turn.number < number)
    return f"{_name(episode, now, found)}, attempt {tried + 1}"


def _name(episode: Episode, now: Step, found: list[Step]) -> str:
    planned = [step for step in found if not wording.beyond(episode, step.number)]
    name = wording.step_name(episode, now.number)
    return f"{name} of {len(planned)}" if now in planned else name


def spending(budget: Budget) -> str:
    """Say what has been spent, and of how much: "2,841 tokens, 4 calls, 12 s of 60 s"."""
    spent, limits = budget.spent, budget.limits
    amounts = (
        (f"{spent.usage.total_tokens:,}", limits["tokens"], "tokens"),
        (f"{spent.calls:,}", limits["calls"], f"call{'' if spent.calls == 1 else 's'}"),
        (f"{spent.seconds:.0f}", limits["seconds"], "s"),
    )
    return ", ".join(
        f"{amount} of {limit:,} {unit}" if limit is not None else f"{amount} {unit}"
        for amount, limit, unit in amounts
    )
