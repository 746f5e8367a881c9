"""`solve`: a goal in words and files in, an episode with its answer out.

The work itself is `MultiStepEnvironment`, stepped by `driver.Driver` as every episode is; here
the two are put together.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, Unpack

from nbrefine._portal import blocking
from nbrefine.answers import fields_form, form_of
from nbrefine.driver import Driver, EpisodeRun
from nbrefine.env.multistep import MultiStepEnvironment
from nbrefine.env.undo import Undo
from nbrefine.errors import RecordError, UsageError
from nbrefine.inputs import data_files, in_words, one_of, within
from nbrefine.kernel import OutputLimits
from nbrefine.models import resolve
from nbrefine.notebook import Recorder, load, paths_of
from nbrefine.notebook.line import line
from nbrefine.planning import subtasks_of
from nbrefine.postconditions import postcondition_of
from nbrefine.solving.options import AnyModel, Options, Surroundings, parted
from nbrefine.solving.settings import Settings, complete, sampling_of, step_limits
from nbrefine.values import AnswerForm, Episode, Subtask, Task

KIND = "solve"
"""What a record's settings call an episode of this kind."""


def start_solving(
    goal: Task | str,
    *,
    data: str | Path | Iterable[str | Path] = (),
    model: AnyModel = "local",
    subtasks: Sequence[Subtask | str | Mapping[str, Any]] = (),
    answer: AnswerForm | str | Mapping[str, Any] | None = None,
    setup: str = "",
    tests: str = "",
    seed: int | None = 0,
    record: str | Path | None = None,
    overwrite: bool = False,
    cwd: str | Path | None = None,
    **options: Unpack[Options],
) -> EpisodeRun:
    """Begin to work on a goal and give the handle to the running episode.

    Each subtask is a loop of attempts in branches of the live kernel; what is accepted becomes
    the session, in which the next one begins.

    Parameters
    ----------
    goal: what is asked, as a `Task` or in plain words.
    data: file or files the goal speaks of; the prompt names them relative to the kernel's folder.
    model: see `start`.
    subtasks: the steps to take, each a `Subtask`, words, or a mapping with `goal`, `needs` and
        `check`; without any, the model decides on its steps.
    answer: the form of the answer, as an `AnswerForm`, a mapping or a short form such as
        "fields:mean,sd", "value" or "files:prices.csv"; by default the form `@name[value]` where
        the goal speaks of one, else text, and none where there are subtasks.
    setup: code that runs in the session before the first attempt.
    tests: what must hold of the session at the end.
    seed: seeds the session and the model's sampling; None leaves both to chance.
    record: path `NAME.ipynb` of the episode notebook, written while the episode runs.
    overwrite: whether a recorded episode at that path may be replaced.
    cwd: the kernel's folder; by default the notebook's, or the current one without a record.
    options: see `Options`: the kernel to work in, who is asked before a cell runs, limits, and
        the settings that the record keeps.

    Raises
    ------
    UsageError: a file is missing, the record cannot be written, the model is not known, an
        option is not known or out of range, or something is given beside the task's own.
    InvalidTaskError: tests or postconditions do not parse.
    """
    record = Path(record) if record is not None else None
    folder = Path(cwd) if cwd is not None else record.parent if record else Path.cwd()
    task = _task(goal, subtasks=subtasks, answer=answer, setup=setup, tests=tests)
    task = replace(task, files=(*task.files, *data_files(data, folder)))
    around, settings = parted(options, beside=start_solving.__kwdefaults__ or ())
    work = Work(
        task,
        model,
        folder,
        complete(settings),
        seed,
        around,
        recorder=Recorder(record, overwrite=overwrite) if record else None,
        record=record,
    )
    return begin(work)


@blocking(start_solving)
def solve() -> None:
    """Work on a goal until it is reached or given up, and give the `Episode`.

    Parameters and errors are those of `start_solving`; an error's `episode` holds the turns so
    far.
    """


def _task(
    goal: Task | str,
    *,
    subtasks: Sequence[Subtask | str | Mapping[str, Any]],
    answer: AnswerForm | str | Mapping[str, Any] | None,
    setup: str,
    tests: str,
) -> Task:
    """Put a goal and what is given beside it into one task."""
    if not isinstance(goal, Task | str):
        raise UsageError(f"{goal!r} is no goal", hint="Give a text or a Task")
    task = Task(in_words(goal, "goal")) if isinstance(goal, str) else goal
    if not task.prompt.strip():
        raise UsageError("The goal is blank", hint="Say what is to be done")
    if task.subtasks and subtasks:
        raise UsageError("The task has subtasks of its own", hint="Give subtasks only once")
    if task.answer is not None and answer is not None:
        raise UsageError("The task has an answer form of its own", hint="Give answer only once")
    steps = task.subtasks or (subtasks_of(subtasks, origin="task") if subtasks else ())
    form = task.answer if answer is None else answer_form(answer)
    if form is None and not steps:
        form = fields_form(task.prompt) or AnswerForm()
    return replace(
        task,
        subtasks=steps,
        answer=form,
        setup=one_of("setup", task.setup, setup),
        tests=one_of("tests", task.tests, tests),
    )


def answer_form(answer: AnswerForm | str | Mapping[str, Any]) -> AnswerForm:
    """Read the form of an answer, and what must hold of it.

    Raises
    ------
    UsageError: it cannot be read; the message says what is allowed.
    """
    if isinstance(answer, AnswerForm):
        return answer
    return form_of(answer, check=partial(postcondition_of, origin="task"))


@dataclass(frozen=True, slots=True)
class Work:
    """What an agent is to work on, and where."""

    task: Task
    model: AnyModel
    folder: Path
    """The kernel's."""
    settings: Settings
    seed: int | None
    around: Surroundings
    recorder: Recorder | None = None
    episode: Episode | None = None
    """What was done before and is gone on from; None for a new beginning."""
    record: Path | None = None
    """The episode notebook."""
    source: Path | None = None
    """The notebook of the episode that is gone on with."""
    note: Mapping[str, Any] | None = None
    """What the record says besides of where this comes from, as plain JSON."""

    def described(self) -> dict[str, Any]:
        """Give what the record keeps of the settings, as plain JSON."""
        named = isinstance(self.model, str)
        told: dict[str, Any] = {
            "kind": KIND,
            **self.settings,
            # Also where it has none: an earlier run's is not the one of this.
            "model": self.model if named else None,
            "base_url": self.around.get("base_url") if named else None,
            **(self.note or {}),
        }
        if (lend := self.around.get("lend")) is not None:
            told["lent"] = list(lend[1])
        if self.record is not None:
            told["folder"] = Path(os.path.relpath(self.folder, self.record.parent)).as_posix()
        return told


def begin(work: Work) -> EpisodeRun:
    """Put environment, model and record together and let them run.

    Whatever keeps it from beginning, the record is let go of.
    """
    try:
        return EpisodeRun(_driver(work), earlier=len(work.episode.turns) if work.episode else 0)
    except BaseException:
        if work.recorder is not None:
            work.recorder.close()
        raise


def undo_of(record: Path, folder: Path) -> Undo:
    """Give what keeps files of a working folder beside a record until their turn is in it."""
    return Undo(folder, Path(os.path.realpath(record)).with_suffix(".nbrefine.undo"))


class _Solving(Driver):
    """Leaves files as the record tells, also where the last turn did not get into it."""

    def __init__(
        self,
        *args: Any,
        undo: Undo | None,
        record: Path | None,
        fresh: bool,
        progress: Callable[[str], object] | None,
        **options: Any,
    ) -> None:
        super().__init__(*args, on_turn=self._turned, **options)
        self._undo = undo
        self._progress = progress
        self._record_path = record
        self._fresh = fresh

    async def _turned(self, episode: Episode) -> None:
        if self._undo is not None:
            self._undo.settle(episode)
        if self._progress is not None:
            told = self._progress(line(episode, episode.turns[-1]))
            if isawaitable(told):
                await told

    async def _begin_record(self) -> None:
        await super()._begin_record()
        if self._fresh and self._undo is not None:  # what it holds is of an episode that is gone
            await asyncio.to_thread(self._undo.drop)

    async def drive(self) -> Episode:
        try:
            return await super().drive()
        finally:
            if self._undo is not None and self._undo.holds:
                await asyncio.to_thread(self._settle, self._undo)

    def _settle(self, undo: Undo) -> None:
        assert self._record_path is not None
        with suppress(RecordError):  # there is none, or it cannot be read: the next run may
            undo.settle(load(self._record_path))


def _driver(work: Work) -> Driver:
    settings, recorder, around = work.settings, work.recorder, work.around
    undo = undo_of(work.record, work.folder) if work.record is not None else None
    own = (*recorder.paths, undo.place) if recorder and undo else ()
    if work.source is not None:  # whose hidden tests a model must not read, either
        own = (*own, *paths_of(work.source), undo_of(work.source, work.folder).place)
    env = MultiStepEnvironment(
        work.task,
        kernel=around.get("kernel") or "python3",
        lend=around.get("lend"),
        max_turns=settings["max_turns"],
        limits_per_step=step_limits(settings),
        max_replans=settings["max_replans"],
        planning=settings["planning"],
        style=settings["style"],
        images=settings["images"],
        accept_best=settings["accept_best"],
        approve=around.get("approve"),
        rules=around.get("rules"),
        timeout=settings["timeout"],
        test_timeout=settings["test_timeout"],
        isolation=settings["isolation"],
        rebuild_limit=settings["rebuild_limit"],
        confirm=around.get("confirm"),
        workspace=settings["workspace"],
        ignore=within(work.folder, own),
        cwd=work.folder,
        limits=OutputLimits(folder=recorder.folder if recorder else None),
        undo=undo,
    )
    model = resolve(work.model, base_url=around.get("base_url"), load=load)
    if settings["images"] and isinstance(work.model, str) and hasattr(model, "takes_images"):
        model.takes_images = True  # whoever names a model says by the setting that it takes them
    return _Solving(
        env,
        model,
        close_model=model is not work.model,
        options={"episode": work.episode} if work.episode is not None else None,
        budget=around.get("budget"),
        sampling=sampling_of(settings),
        seed=work.seed,
        recorder=recorder,
        settings=work.described(),
        undo=undo,
        record=work.record,
        fresh=work.episode is None or work.record != work.source,
        progress=around.get("progress"),
    )
