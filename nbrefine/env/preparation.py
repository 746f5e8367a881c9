"""A task made ready for a session: what can be recorded, what can be tested, what runs first."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from nbrefine.env.session import Session
from nbrefine.errors import InvalidTaskError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.postconditions import tests_of
from nbrefine.redaction import clean_text
from nbrefine.rewards.tests import parse_tests
from nbrefine.values import AnswerForm, Postcondition, Task


def recordable(task: Task) -> Task:
    """Take lone surrogates out of a task's texts, which no record and no request can hold."""
    values: dict[str, Any] = {field.name: getattr(task, field.name) for field in fields(task)}
    for name, value in values.items():
        if isinstance(value, str):
            values[name] = clean_text(value)
    return Task(**values)


def answered(task: Task) -> Task:
    """Give a task the form of its answer, where it is answered and does not say how."""
    return task if task.subtasks or task.answer else replace(task, answer=AnswerForm())


async def borrow(session: Session, kernel: Kernel, names: tuple[str, ...]) -> tuple[str, ...]:
    """Copy variables that are lent into a session that has just begun, and name them.

    Raises
    ------
    UsageError: one cannot be copied.
    """
    copied = await kernel.copy_variables(names, session.kernel, every=True)
    if copied.failed:
        name, why = next(iter(copied.failed.items()))
        raise UsageError(f"{name} cannot be lent: {why}", hint="Leave it out, or make it anew")
    session.track.brought = f"{', '.join(names)} came from another kernel"
    return names


def check_tests(task: Task) -> None:
    """Refuse tests that no code can pass here, which would be counted against the model."""
    for case in parse_tests(task.tests, task.entry_point):
        if case.message:
            raise InvalidTaskError(
                f"{case.name} cannot be run as a visible test: {case.message}",
                hint="Rewrite the test or take it out",
            )


def check_steps(task: Task, language: str) -> None:
    """Refuse checks of subtasks, of the answer and of the whole that cannot be run here.

    Raises
    ------
    InvalidTaskError: one does not parse or checks nothing, the kernel is none of Python's, or a
        file that is the answer lies elsewhere.
    """
    for path in task.answer.files if task.answer is not None else ():
        if Path(path).is_absolute() or Path(os.path.normpath(path)).parts[:1] in ((), ("..",)):
            raise InvalidTaskError(
                f"{path!r} is no file of the working folder, so no answer can be it",
                hint="Give its path relative to that folder",
            )
    groups = [subtask.postconditions for subtask in task.subtasks]
    groups += [task.answer.postconditions] if task.answer is not None else []
    conditions = [condition for group in groups for condition in group]
    if (conditions or task.tests) and language != "python":
        raise InvalidTaskError(
            f"Checks run in a Python kernel, and this one speaks {language}",
            hint="Give the task without postconditions and tests",
        )
    check_conditions(conditions)
    check_tests(task)


def check_conditions(conditions: Iterable[Postcondition]) -> None:
    """Refuse postconditions that no code can fulfil here.

    Raises
    ------
    InvalidTaskError: one does not parse, or checks nothing.
    """
    for condition in conditions:
        source = tests_of([condition])
        if not parse_tests(source):
            raise InvalidTaskError(
                f"The postcondition {condition.source!r} checks nothing",
                hint="Write it as one or more assert statements",
            )
        check_tests(Task("", tests=source))


def setup_source(task: Task, seed: int | None, language: str) -> str:
    """Give the setup cell: seeds for a Python kernel, then the task's own setup."""
    parts = []
    if seed is not None and language == "python":
        parts.append(_SEEDING.replace("SEED", str(seed)))
    if task.setup.strip():
        parts.append(task.setup.strip())
    return "\n".join(parts)


_SEEDING = """\
__import__("random").seed(SEED)
try:
    __import__("numpy").random.seed(SEED)
except ImportError:
    pass"""
