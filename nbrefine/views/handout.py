"""An episode as a notebook for students: what was asked and what has to hold, without the work.

Accepted cells are stubs, the checks are whole, and nothing in the file tells the solution: it
holds no record.  How a model did is read in the episode itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nbrefine.errors import InvalidTaskError, RecordError
from nbrefine.notebook import document, files, load, steps, wording
from nbrefine.notebook.codec import clean
from nbrefine.notebook.ending import answer_checks
from nbrefine.notebook.markdown import fence, plain, span
from nbrefine.notebook.reading import read_json
from nbrefine.notebook.steps import Step
from nbrefine.postconditions import cell_of
from nbrefine.rewards.tests import as_cell
from nbrefine.source import shape
from nbrefine.values import AnswerForm, Episode, Turn
from nbrefine.views.stubs import HERE, needed, stub

Cell = dict[str, Any]

_HASH_IS_COMMENT = ("python", "r", "R", "julia", "ruby", "bash", "perl")


def to_notebook(source: Episode | str | Path, *, attempts: bool = False) -> dict[str, Any]:
    """Give the handout of an episode as a notebook of format 4.5.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.
    attempts: whether the failed attempts are shown, with what came of them; one that says the
        same as an accepted cell never is.

    Raises
    ------
    RecordError: the path holds no episode.
    """
    episode = source if isinstance(source, Episode) else load(source)
    return {
        "cells": list(_cells(episode, attempts=attempts)),
        "metadata": {
            "title": clean(wording.title(episode)),
            **document.kernel_metadata(episode.kernel),
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write(
    source: Episode | str | Path,
    path: str | Path,
    *,
    attempts: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write the handout of an episode, and give its path.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.
    path: ends in `.ipynb`, in a folder that exists.
    attempts: see `to_notebook`.
    overwrite: whether a file that is there may be replaced; the record of an episode never is.

    Raises
    ------
    RecordError: there is a file already, the place cannot be written, or the source holds no
        episode.
    """
    target = files.target(path)
    if target.exists():
        if not overwrite:
            raise RecordError(
                f"{path} is there already",
                hint="Choose another name, or allow it with overwrite=True or --overwrite",
            )
        if _is_record(target):
            raise RecordError(f"{path} is the record of an episode", hint="Choose another name")
    files.replace_file(target, document.dumps(to_notebook(source, attempts=attempts)))
    return Path(path)


def _is_record(path: Path) -> bool:
    try:
        document.record_of(read_json(path), str(path))
    except RecordError:
        return False
    return True


def _cells(episode: Episode, *, attempts: bool) -> Iterator[Cell]:
    yield _text("task", _asked(episode))
    if episode.task.setup:
        yield _code("setup", episode.task.setup)
    shown = [step for step in steps.steps_of(episode) if step.fate != "replaced"]
    for place, step in enumerate(shown):
        later = [turn.code for after in shown[place + 1 :] for turn in _accepted(after)]
        checks = [_checks(each) for each in shown[place:]]
        yield from _step(episode, step, [*later, *checks, *_ends(episode)], attempts=attempts)
    if not shown:
        yield _gap(episode, "work", "", ())
    yield from _end(episode)


def _asked(episode: Episode) -> list[str]:
    title, prompt = wording.title(episode), episode.task.prompt
    names = ", ".join(span(path) for path in episode.task.files)
    return [
        f"# {plain(title)}",
        fence(prompt, lines=400) if prompt.strip() != title else "",
        f"Data files: {names}." if names else "",
        plain(wording.came_with(episode), 1_000),
    ]


def _step(episode: Episode, step: Step, later: Sequence[str], *, attempts: bool) -> Iterator[Cell]:
    """Give what a step asks for, the attempts that failed, the gap, and the checks."""
    number = f"step-{step.number}"
    if step.subtask is not None:
        goal, told = step.subtask.goal, [steps.check_told(check) for check in step.checks]
        whole = goal not in step.title
        yield _text(
            number,
            [
                f"## {plain(step.title)}",
                fence(goal, lines=100) if whole else "",
                "It is done when these checks hold:" if told else "",
                "\n".join(f"- {plain(each, 400)}" for each in told),
            ],
        )
    if step.fate == "answer":
        return  # what is asked for stands at the end
    if attempts:
        done = {shape(turn.code) for turn in episode.accepted}
        failed = (t for t in step.turns if t.tried and not t.accepted and shape(t.code) not in done)
        for place, turn in enumerate(failed, 1):
            yield _text(f"{number}-failed-{place}", _failed(episode, turn))
    accepted = _accepted(step)
    for place, turn in enumerate(accepted, 1):
        rest = [after.code for after in accepted[place:]]
        names = needed(turn.code, [*rest, *later])
        yield _gap(episode, f"{number}-work-{place}", turn.code, names, turn)
    if not accepted:
        yield _gap(episode, f"{number}-work", "", ())
    if source := _checks(step):
        yield _code(f"{number}-checks", source)


def _accepted(step: Step) -> list[Turn]:
    return [turn for turn in step.turns if turn.accepted]


def _checks(step: Step) -> str:
    return cell_of(step.checks).rstrip() if step.checks else ""


def _failed(episode: Episode, turn: Turn) -> list[str]:
    result = turn.result
    return [
        f"**Attempt {turn.attempt} failed**",
        span(wording.reason(turn)),
        fence(turn.code, wording.language(episode, turn), lines=400),
        *(["Output:", fence(result.text, lines=40)] if result is not None and result.text else []),
        *(["Feedback:", fence(turn.feedback, lines=40)] if turn.feedback else []),
    ]


def _gap(
    episode: Episode, cell_id: str, source: str, names: Sequence[str], turn: Turn | None = None
) -> Cell:
    """Give the cell that a student fills in."""
    if turn is not None and wording.runnable(turn) is None:
        return _text(cell_id, ["*Your answer here*"])
    language = episode.kernel.language
    if language == "python" and source:
        return _code(cell_id, stub(source, names))
    return _code(cell_id, HERE if language in _HASH_IS_COMMENT else "")


def _ends(episode: Episode) -> Iterator[str]:
    """Give the code that reads the session at the end."""
    form = episode.task.answer
    if form is not None and form.kind == "value":
        yield form.variable
    yield cell_of(answer_checks(episode))
    yield _tests(episode) or ""


def _end(episode: Episode) -> Iterator[Cell]:
    form = episode.task.answer
    if form is not None:
        yield _text(
            "answer", ["## Answer", plain(form.told, 1_000), _form(form), "*Your answer here*"]
        )
    if checks := answer_checks(episode):
        yield _code("answer-checks", cell_of(checks).rstrip())
    if not episode.task.tests:
        return
    source = _tests(episode)
    if source is not None:
        yield _code("tests", source)
    else:
        shown = fence(episode.task.tests, episode.kernel.language, lines=400)
        yield _text("tests", ["The tests:", shown])


def _form(form: AnswerForm) -> str:
    """Say what an answer consists of."""
    match form.kind:
        case "fields":
            return f"Fields: {', '.join(span(name) for name in form.fields)}."
        case "files":
            return f"Files: {', '.join(span(path) for path in form.files)}."
        case "value":
            return f"It is the value of {span(form.variable)}."
        case _:
            return ""


def _tests(episode: Episode) -> str | None:
    """Give the visible tests as a cell; None where they are none."""
    task = episode.task
    if not task.tests or episode.kernel.language != "python":
        return None
    reports = (turn.tests for turn in episode.accepted if turn.tests is not None)
    entry_point = next((report.entry_point for report in reports if report.entry_point), "")
    try:
        return as_cell(task.tests, task.entry_point or entry_point)
    except InvalidTaskError:
        return None


def _text(cell_id: str, parts: Sequence[str]) -> Cell:
    source = clean("\n\n".join(part for part in parts if part))
    return {"cell_type": "markdown", "id": cell_id, "metadata": {}, "source": source}


def _code(cell_id: str, source: str) -> Cell:
    return {
        "cell_type": "code",
        "id": cell_id,
        "metadata": {},
        "source": clean(source),
        "outputs": [],
        "execution_count": None,
    }
