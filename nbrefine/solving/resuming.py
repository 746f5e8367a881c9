"""Going on with a recorded episode: where it was left, or from an earlier step in another way.

Setup and accepted cells run again in a fresh kernel, which brings the session to where the last
accepted one had left it; then the work goes on live.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack
from uuid import uuid4

from nbrefine._portal import blocking
from nbrefine.briefing.amending import amended
from nbrefine.driver import EpisodeRun
from nbrefine.env.course import pending
from nbrefine.errors import RecordError, UsageError
from nbrefine.inputs import data_files
from nbrefine.kernel import Kernel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import Recorder, gaps_of, load
from nbrefine.planning import planned
from nbrefine.solving.options import AnyModel, Options, Surroundings, parted
from nbrefine.solving.settings import complete
from nbrefine.solving.starting import KIND, Work, begin, undo_of
from nbrefine.values import Episode, Plan, Stop, Subtask, Turn, utc_now


def start_resuming(
    path: str | Path,
    *,
    model: AnyModel | None = None,
    **options: Unpack[Options],
) -> EpisodeRun:
    """Begin to go on with a recorded episode and give the handle to the running one.

    Files that accepted cells had written stay as they are.

    Parameters
    ----------
    path: its notebook, which is written on.
    model: who goes on; by default the recorded one, where that has a name.
    options: see `Options`; settings are what is to be other than recorded, such as `max_turns`.
        The kernel is by default a fresh one of the recorded kind; a live one must hold the state
        that the last accepted cell had left, and is needed where the episode began in one.
        Variables that were lent are lent again, and nothing that was spent before counts.

    Raises
    ------
    RecordError: the path holds no episode, or a run is recording there at this moment.
    UsageError: the episode is solved or was answered, is not one of `solve`, or needs what is not
        given or there; from the running episode, also where nothing is left to do.
    """
    path = Path(path)
    before = _of_solve(path)
    recorder = Recorder(path, resume=True)
    recorder.reserve()
    try:
        episode = _left(path, before.stop)
    except BaseException:
        recorder.close()
        raise
    return _go_on(
        episode,
        path,
        recorder,
        model=model,
        options=options,
    )


@blocking(start_resuming)
def resume() -> None:
    """Go on with a recorded episode that was stopped or killed, and give the whole of it.

    Parameters and errors are those of `start_resuming`; an error's `episode` holds the turns so
    far.
    """


def start_branching(
    path: str | Path,
    step: int,
    *,
    record: str | Path,
    instruction: str = "",
    overwrite: bool = False,
    model: AnyModel | None = None,
    **options: Unpack[Options],
) -> EpisodeRun:
    """Begin a new episode that shares another one's steps before one of them, and give its handle.

    The recorded episode stays as it is, and so do the files in the working folder: what later
    steps had written there is there.

    Parameters
    ----------
    path: the recorded episode's notebook.
    step: 1-based number of the first step that is worked on anew.
    record: path `NAME.ipynb` of the new episode's notebook.
    instruction: what is wanted from that step on, in words; "" tries the same again.  The task's
        own steps and their checks stay, so it must be within them.
    overwrite: whether a recorded episode at that path may be replaced.
    model, options: see `start_resuming`.

    Raises
    ------
    RecordError: the path holds no episode, or the new one cannot be recorded.
    UsageError: there is no such step, the episode is not one of `solve`, it needs what is not
        given or there, or the turns that are taken over are as many as there may be.
    """
    path, record = Path(path), Path(record)
    if os.path.realpath(path) == os.path.realpath(record):
        raise UsageError("The new episode would replace the old one", hint="Choose another name")
    episode = _of_solve(path)
    if isinstance(step, bool) or not isinstance(step, int):
        raise UsageError(f"step is {step!r}, but a number is wanted", hint="Give it as 2, say")
    begun = _up_to(episode, step, instruction)
    recorder = Recorder(record, overwrite=overwrite)
    return _go_on(
        begun,
        path,
        recorder,
        model=model,
        options=options,
        note={"branched_from": {"episode": episode.id, "step": step, "instruction": instruction}},
        record=record,
    )


@blocking(start_branching)
def branch_off() -> None:
    """Work on anew from a step of a recorded episode, and give the new episode.

    Parameters and errors are those of `start_branching`; an error's `episode` holds the turns so
    far.
    """


def _left(path: Path, stop: Stop | None) -> Episode:
    """Give the episode that is gone on with, and leave its files as the record tells.

    Parameters
    ----------
    stop: what the record told before we reserved it.
    """
    episode = _of_solve(path)  # nobody else is recording any more
    if episode.stop is None:  # it was killed, and seems to run, as it is reserved by us
        episode = replace(episode, stop=stop or Stop("killed"))
    if episode.solved:
        raise UsageError(
            f"The episode in {path} has reached its goal",
            hint="Branch off from one of its steps with another instruction",
        )
    if episode.answer is not None:
        raise UsageError(
            f"The episode in {path} was answered, which ends it",
            hint="Branch off from one of its steps",
        )
    undo = undo_of(path, path.parent / episode.settings.get("folder", "."))
    if told := undo.settle(episode):
        raise RecordError(
            f"Files that the last cell had changed are not as the record tells: {told[0]}",
            hint="Make that possible, and try again",
        )
    if lost := gaps_of(episode):
        known = episode.settings.get("differences", ())
        differences = list(dict.fromkeys((*known, *lost)))
        episode = replace(episode, settings={**episode.settings, "differences": differences})
    return episode


def _of_solve(path: Path) -> Episode:
    episode = load(path)
    if episode.settings.get("kind") != KIND:
        raise UsageError(
            f"The episode in {path} is not one of solve()", hint="Only those can be gone on with"
        )
    return episode


def _up_to(episode: Episode, step: int, instruction: str) -> Episode:
    """Give what an episode was before a step, to go on from there in another way."""
    steps = sorted({turn.step for turn in episode.turns})
    if step not in steps:
        told = f"it has steps {steps[0]} to {steps[-1]}" if steps else "it has none"
        raise UsageError(f"The episode has no step {step}", hint=f"Choose one: {told}")
    count = next(at for at, turn in enumerate(episode.turns) if turn.step >= step)
    turns = episode.turns[:count]
    instruction = instruction.strip()
    return replace(
        episode,
        id=uuid4().hex,
        created=utc_now(),
        task=amended(episode.task, step, instruction) if instruction else episode.task,
        turns=turns,
        plans=_plans(episode, turns, instruction),
        answer=None,
        grade=None,
        stop=None,
    )


def _plans(episode: Episode, turns: tuple[Turn, ...], instruction: str) -> tuple[Plan, ...]:
    """Give the plans that hold up to a step, and what becomes of the newest behind it."""
    plans = tuple(plan for plan in episode.plans if plan.since <= len(turns) + 1)
    if not plans or not instruction:
        return plans
    # What the task asks for stays; what the model had in mind gives way to the instruction.
    own = pending(replace(episode, turns=turns, plans=plans))
    since, reason = len(turns) + 1, "another instruction was given"
    changed = planned(
        plans, turns, () if own else (Subtask(instruction),), since=since, reason=reason
    )
    return (*plans, replace(changed, origin="task"))  # it uses up none of the model's


def _go_on(
    episode: Episode,
    path: Path,
    recorder: Recorder,
    *,
    model: AnyModel | None,
    options: Options,
    note: dict[str, Any] | None = None,
    record: Path | None = None,
) -> EpisodeRun:
    """Go on with an episode.

    Parameters
    ----------
    path: the notebook in which it was recorded.
    record: where it is recorded from now on; by default there.
    """
    recorded = episode.settings
    told = {**(note or _origin(recorded))}
    try:
        around, settings = parted(options, beside=("model",))
        if model is None:
            model, base_url = _model_of(episode, around.get("base_url"))
            around = {**around, "base_url": base_url}
            told["model"] = recorded["model"]  # of a script, what it gives is no name
        _check_given(episode, around)
        taken_up = complete(settings, recorded=recorded)
        _check_turns(episode, taken_up["max_turns"])
        _check_files(episode, path.parent / recorded.get("folder", "."))
    except BaseException:
        recorder.close()
        raise
    if around.get("kernel") is None:
        around = {**around, "kernel": episode.kernel.name or None}
    work = Work(
        episode.task,
        model,
        path.parent / recorded.get("folder", "."),
        taken_up,
        episode.seed,
        around,
        recorder=recorder,
        episode=episode,
        note=told,
        record=record or path,
        source=path,
    )
    return begin(work)


def _model_of(episode: Episode, base_url: str | None) -> tuple[AnyModel, str | None]:
    """Give the recorded model and its server; a script goes on where it was."""
    recorded = episode.settings
    if recorded.get("model") is None:
        raise UsageError(
            f"The record does not say how to get its model {episode.model!r}", hint="Give model="
        )
    name: str = recorded["model"]
    if name.startswith("scripted:"):
        script = ScriptedModel.from_file(name.removeprefix("scripted:"))
        script.skip(sum(turn.reply is not None for turn in episode.turns))
        return script, None
    return name, base_url or recorded.get("base_url")


def _check_given(episode: Episode, around: Surroundings) -> None:
    """Refuse to go on without what an episode began with beside its setup."""
    if episode.handed_in is None or isinstance(around.get("kernel"), Kernel):
        return
    lent = episode.settings.get("lent")
    if lent and around.get("lend") is None:
        raise UsageError(
            f"The episode began with variables that were lent to it: {', '.join(lent)}",
            hint="Lend them again",
        )
    if not lent:
        raise UsageError(
            "The episode began in a kernel that was handed in",
            hint="Give that one, as the episode has left it: kernel= or --connect",
        )


def _check_turns(episode: Episode, max_turns: Any) -> None:
    """Refuse a new episode that has no turn left; of one that is resumed its stop says it."""
    taken = len(episode.turns)
    if episode.stop is None and taken and isinstance(max_turns, int) and max_turns <= taken:
        over = "1 turn is" if taken == 1 else f"{taken} turns are"
        raise UsageError(
            f"max_turns is {max_turns}, and {over} taken over", hint=f"Give at least {taken + 1}"
        )


def _check_files(episode: Episode, folder: Path) -> None:
    """Refuse to go on without the data, except where accepted cells have taken it away."""
    own = {change.path for turn in episode.accepted if turn.files for change in turn.files.changes}
    data_files([folder / name for name in episode.task.files if name not in own], folder)


def _origin(recorded: dict[str, Any]) -> dict[str, Any]:
    return {key: recorded[key] for key in ("branched_from",) if key in recorded}
