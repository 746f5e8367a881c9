"""From what an agent says at the end to an answer in its form, or to what keeps it from being one.

A form tells how an answer looks; that it is right is said by checks alone, where there are any.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from nbrefine.answers import fields_of, problem, spoken
from nbrefine.env import written
from nbrefine.env.attempt import tested
from nbrefine.env.course import not_held, still_held, unmet
from nbrefine.env.looking import Folder
from nbrefine.env.points import Point
from nbrefine.env.session import Session
from nbrefine.errors import KernelError
from nbrefine.kernel.names import bind
from nbrefine.kernel.state.namespace import Plain, plain
from nbrefine.planning import Progress, counted
from nbrefine.postconditions import tests_of
from nbrefine.prompts import told_tests
from nbrefine.values import (
    Answer,
    AnswerForm,
    Artifact,
    Episode,
    Stop,
    Subtask,
    Task,
    TestReport,
    Turn,
)


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of an answer."""

    answer: Answer | None
    """None where it is not one."""
    problem: str = ""
    """Why not, fit to be fed back."""
    tests: TestReport | None = None
    """What the checks said; None where there are none, or they were not reached."""
    off_form: bool = False
    """Whether it is not in the form that is asked for."""


def given_by(turn: Turn, form: AnswerForm) -> str | None:
    """Give what an accepted cell answered in passing; "" for a value, None where it did not."""
    assert turn.result is not None
    if form.kind == "value":
        return "" if _binds(turn, form.variable) else None
    if form.kind == "files":
        return None
    return spoken(turn.result.text, form)


def _binds(turn: Turn, name: str) -> bool:
    if turn.change is not None and name in (*turn.change.new, *turn.change.changed):
        return True
    bound: dict[str, None] = {}
    bind(bound, turn.code)  # to an equal value, it has not changed
    return name in bound


class Answering:
    """Judges answers to a task.

    Parameters
    ----------
    session, folder: what the answer is about.
    limit: seconds one check may run.
    on_tests: called with True as checks begin and with False as they end.
    """

    def __init__(
        self,
        session: Session,
        folder: Folder,
        *,
        limit: float,
        on_tests: Callable[[bool], object],
    ) -> None:
        self._session = session
        self._folder = folder
        self._limit = limit
        self._on_tests = on_tests

    async def judge(
        self, said: str, form: AnswerForm, episode: Episode, point: Point, number: int
    ) -> Judged:
        """Tell whether what was said is an answer in its form, and whether its checks hold.

        Parameters
        ----------
        said: the answer in words; for a value and for files it may be anything.
        episode: with all turns before the answer, that of an accepted cell included.
        point: what the session holds.
        number: of the turn that gave it.
        """
        reading: dict[str, Callable[[], Awaitable[Answer | str]]] = {
            "value": lambda: self._value(form, point, number),
            "files": lambda: self._files(said, form, episode, number),
        }
        read = reading.get(form.kind)
        found = await read() if read is not None else _in_words(said, form, number)
        if isinstance(found, str):
            return Judged(None, found, off_form=True)
        if told := await asyncio.to_thread(problem, found.text, form):
            return Judged(None, told, off_form=True)
        report = await self.checked(episode, form, point)
        if report is not None and not report.solved:
            return Judged(None, "It does not pass all checks.", report)
        return Judged(found, tests=report)

    async def checked(
        self, episode: Episode, form: AnswerForm | None, point: Point
    ) -> TestReport | None:
        """Run what must hold at the end in a branch; None where nothing is asked."""
        task, checks = episode.task, form.postconditions if form is not None else ()
        parts = [tests_of(checks)] if checks else []
        source = "\n".join([*parts, *([task.tests] if task.tests.strip() else [])])
        if not source:
            return None
        asked = Task(task.prompt, tests=source, entry_point=task.entry_point)
        self._on_tests(True)
        try:
            async with self._session.looking(point, testing=True) as kernel:
                stamps = await written.lying_there(kernel, self._folder, checks, episode)
                report = await tested(kernel, asked, self._limit)
                return written.with_unwritten(report, stamps)
        finally:
            self._on_tests(False)

    async def _value(self, form: AnswerForm, point: Point, number: int) -> Answer | str:
        name = form.variable
        async with self._session.looking(point) as kernel:
            if kernel.info.language != "python":
                return f"The value of {name} can only be read in a Python kernel."
            try:
                found: Plain | None = await plain(kernel.core, name)
            except KernelError:  # what the value does when it is read is to blame
                if not kernel.owned:
                    raise
                return f"Reading the variable {name} took too long or ended the kernel."
        if found is None:
            return f"There is no variable {name}: bind it in a cell."
        if found.problem:
            return f"The variable {name} holds no plain value: {found.problem}."
        if found.value is None:
            return f"The variable {name} is {found.shown}, which is no answer."
        return Answer(found.shown, found.value, turn=number)

    async def _files(
        self, said: str, form: AnswerForm, episode: Episode, number: int
    ) -> Answer | str:
        paths = normal(form.files)
        there = {each.path: each for each in await self._folder.there(paths)}
        left = {each.path for each in episode.artifacts}
        if written.unwatched(episode):
            left |= there.keys()
        wrong = [told for path in paths if (told := _missing(path, there, left))]
        if wrong:
            return f"{'; '.join(wrong)}."
        text = said.strip() or ", ".join(paths)
        return Answer(text, files=tuple(there[path] for path in paths), turn=number)


def refusal(judged: Judged) -> str:
    """Say why an answer was not taken, with every check that failed; "" where it was."""
    if judged.answer is not None:
        return ""
    checked = told_tests(judged.tests) if judged.tests is not None else ""
    return "\n".join(part for part in (judged.problem, checked) if part)


def answered(judged: Judged, episode: Episode) -> Stop | None:
    """End an episode whose answer was taken, and say what speaks for that."""
    if judged.answer is None:
        return None
    form = "answered in the asked form"
    if steps := unmet(episode):
        return Stop("gave-up", f"{form}, but {not_held(steps)}")
    told, (checks, lost) = "nothing else checks it", still_held(episode)
    if (report := judged.tests) is not None:
        told = f"{counted(report.passed, 'check')} of it held"
    elif checks:
        held = f"{counted(checks, 'check')} of its steps held"
        told = f"{held}, and nothing checks the answer itself"
    return Stop("solved", f"{form}; {told}{lost}")


def too_early(left: Sequence[tuple[int, Subtask]], now: Progress) -> str:
    """Say what stands between an answer and its being taken."""
    lost = {*now.given_up, *now.blocked}
    todo = [f"step {number} ({each.goal})" for number, each in left if number not in lost]
    missing = [f"step {number} ({each.goal})" for number, each in left if number in lost]
    if todo:
        return f"It comes too early, for there is still to do: {'; '.join(todo)}."
    return f"None can be taken, for this was given up or could not be begun: {'; '.join(missing)}."


def normal(paths: Sequence[str]) -> list[str]:
    """Give paths as the changes of a folder name them."""
    return [os.path.normpath(path) for path in paths]


def _missing(path: str, there: dict[str, Artifact], written: set[str]) -> str:
    if path not in there:
        return f"{path} is not there"
    if there[path].size == 0:
        return f"{path} is empty"
    return "" if path in written else f"{path} was not written by a cell of yours"


def _in_words(said: str, form: AnswerForm, number: int) -> Answer:
    if form.kind != "fields":
        return Answer(said.strip(), turn=number)
    found = fields_of(said)
    return Answer(
        said.strip(), {name: found[name] for name in form.fields if name in found}, turn=number
    )
