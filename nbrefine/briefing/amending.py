"""A goal that is changed from one of its steps on: how that is said, and what holds at a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nbrefine.values import Task

AMENDED = "amended"
"""Key of a task's metadata: `[step, instruction]` for each change of its goal, in order."""


def amended(task: Task, step: int, instruction: str) -> Task:
    """Give a task with what is wanted otherwise from a step on, in its goal and as data."""
    instruction = instruction.strip()
    changes = [*map(list, _changes(task)), [step, instruction]]
    prompt = f"{task.prompt}{_told(step, instruction)}"
    return replace(task, prompt=prompt, metadata={**task.metadata, AMENDED: changes})


def _told(step: int, instruction: str) -> str:
    return f"\n\nFrom step {step} on: {instruction}"


def _changes(task: Task) -> Iterator[tuple[int, str]]:
    """Give the changes of a goal; what somebody else keeps under that key is none."""
    found = task.metadata.get(AMENDED)
    for each in found if isinstance(found, list) else []:
        match each:
            case [int(step), str(instruction)]:
                yield step, instruction


def unamended(task: Task) -> str:
    """Give a goal as it was before it was changed."""
    goal = task.prompt
    for step, instruction in reversed([*_changes(task)]):
        goal = goal.removesuffix(_told(step, instruction))
    return goal


def instructions(task: Task, step: int) -> list[str]:
    """Give what was added to a goal that holds at a step, the newest last."""
    return [instruction for since, instruction in _changes(task) if since <= step]
