"""A first plan, a plan in the place of another, and what became of the subtasks before.

A subtask has one number for the whole episode.  A new plan therefore keeps all that were begun,
also those that it gives up, and puts what is still to be done behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nbrefine.errors import InvalidTaskError
from nbrefine.values import Plan, Subtask, Task, Turn

UNPLANNED = "Work before there was a plan"
"""The goal of a step that was worked on without one."""


def first_plan(task: Task) -> Plan | None:
    """Give the plan that a task brings along, or None.

    Raises
    ------
    InvalidTaskError: a subtask needs one that does not come before it.
    """
    for number, subtask in enumerate(task.subtasks, start=1):
        for needed in subtask.needs:
            if not 1 <= needed < number:
                raise InvalidTaskError(
                    f"Subtask {number} needs subtask {needed}, which does not come before it",
                    hint="Order the subtasks so that each needs earlier ones only",
                )
    return Plan(task.subtasks) if task.subtasks else None


def planned(
    plans: Sequence[Plan],
    turns: Sequence[Turn],
    subtasks: Sequence[Subtask],
    *,
    since: int,
    reason: str = "",
) -> Plan:
    """Make the plan that a model's subtasks give after what was done.

    The subtasks begun so far stay as they are, done or not; then come the model's, then those of
    the task's own that are not done, under new numbers.

    Parameters
    ----------
    plans: those before, in order.
    turns: all of the episode.
    subtasks: the model's; their `needs` count from its own first one.
    since: number of the first turn that the plan holds for.
    reason: why there is another plan.
    """
    past = _before(turns, since)
    kept, done = begun(plans, past), done_by(past)
    old = plans[-1].subtasks if plans else ()
    unplanned = (Subtask(UNPLANNED),) * (kept - len(old))
    new = {number: kept + number for number in range(1, len(subtasks) + 1)}
    pending = [number for number in standing(plans, past).own if number not in done]
    moved = {n: kept + len(subtasks) + place for place, n in enumerate(pending, start=1)}
    return Plan(
        (
            *old[:kept],
            *unplanned,
            *(_renumbered(each, new) for each in subtasks),
            *(_renumbered(old[number - 1], moved) for number in pending),
        ),
        "model",
        since,
        reason,
    )


def _renumbered(subtask: Subtask, numbers: Mapping[int, int]) -> Subtask:
    """Give a subtask whose needs have other numbers; those that are done keep theirs."""
    return replace(subtask, needs=tuple(numbers.get(n, n) for n in subtask.needs))


@dataclass(frozen=True, slots=True)
class Standing:
    """What later plans have made of the subtasks of earlier ones."""

    own: tuple[int, ...] = ()
    """The numbers that the task's own subtasks have by now, in their order."""
    replaced: frozenset[int] = frozenset()
    """The numbers of those that were begun, and left undone when another plan was made."""


def standing(plans: Sequence[Plan], turns: Sequence[Turn]) -> Standing:
    """Follow the subtasks through all plans of an episode."""
    own: list[int] = []
    replaced: set[int] = set()
    for place, plan in enumerate(plans):
        past = _before(turns, plan.since)
        kept, done = begun(plans[:place], past), done_by(past)
        replaced.update(number for number in range(1, kept + 1) if number not in done)
        if place == 0:
            own = list(range(1, len(plan.subtasks) + 1)) if plan.origin == "task" else []
            continue
        pending = [number for number in own if number not in done]
        first = len(plan.subtasks) - len(pending) + 1
        moved = {number: first + index for index, number in enumerate(pending)}
        own = [moved.get(number, number) for number in own]
    return Standing(tuple(own), frozenset(replaced))


def begun(plans: Sequence[Plan], turns: Sequence[Turn]) -> int:
    """Give the highest number that has been worked on.

    A look at the data before there is a plan, and a turn that makes one, begin nothing.
    """
    return max(
        (
            turn.step
            for turn in turns
            if turn.tried or (turn.kind != "plan" and turn.step <= _known(plans, turn))
        ),
        default=0,
    )


def _known(plans: Sequence[Plan], turn: Turn) -> int:
    """Give how many subtasks the plan had that held for a turn."""
    held = [plan for plan in plans if plan.since <= turn.number]
    return len(held[-1].subtasks) if held else 0


def done_by(turns: Sequence[Turn]) -> frozenset[int]:
    """Give the numbers of the steps of which an attempt was accepted."""
    return frozenset(turn.step for turn in turns if turn.accepted)


def _before(turns: Sequence[Turn], since: int) -> tuple[Turn, ...]:
    return tuple(turn for turn in turns if turn.number < since)
