"""An episode in a terminal: attempt by attempt, with the changes between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nbrefine.errors import RecordError
from nbrefine.notebook import load, steps, wording
from nbrefine.notebook.folder import records_in
from nbrefine.notebook.markdown import shorten, visible
from nbrefine.values import Episode
from nbrefine.views.story import Act, Scene, Story, story

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

OUTPUT_LINES = 12
FEEDBACK_LINES = 60
"""A failed test takes four lines, and a reader wants to see what the model saw."""
TASK_LINES = 30
LIST_LINES = 40
CODE_LINES = 200


def show(
    source: Episode | str | Path, *, step: bool = False, console: Console | None = None
) -> None:
    """Print an episode for reading.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.
    step: one attempt at a time: Enter goes on, b goes back, q ends.  Without a terminal there is
        no waiting.
    console: where to print; by default the standard output.

    Raises
    ------
    RecordError: the path holds no episode.
    """
    from rich.console import Console as Terminal

    told = story(source if isinstance(source, Episode) else load(source))
    console = console or Terminal()
    waiting = step and console.is_terminal and sys.stdin.isatty()
    pages = list(_pages(told))
    number = 0
    while number < len(pages):
        for part in pages[number]:
            console.print(part)
        number += 1
        if waiting and number < len(pages):
            move = _move(console)
            if move is None:
                return
            number = max(0, number + move)
        if number < len(pages):
            console.print()


def listed(folder: Path) -> Iterator[str]:
    """Give a line for each episode in a folder and those within it: its notebook and how it ended.

    A file that cannot be read is told of; a notebook of another kind is passed over.

    Raises
    ------
    UsageError: there is none.
    """
    for path, found in records_in(folder):
        if isinstance(found, RecordError):
            yield visible(found.message)
        else:
            yield f"{visible(str(path))}  {visible(wording.verdict(found))}"


def _move(console: Console) -> int | None:
    """Ask how many pages on from the next one are wanted; None for the end."""
    try:
        answer = console.input("Enter: go on, b: back, q: end > ", markup=False)
    except (EOFError, KeyboardInterrupt):
        return None
    wanted = answer.strip().lower()[:1]
    return None if wanted == "q" else -2 if wanted == "b" else 0


def _pages(told: Story) -> Iterator[list[RenderableType]]:
    """Give what is shown at a time: the task, every scene as it happened, and the end."""
    yield list(_beginning(told))
    before: Act | None = None
    for act, scene in told.in_order():
        opening = _opening(act) if act is not before and act.step.subtask is not None else ()
        yield [*opening, *_scene(scene)]
        before = act
    yield list(_ending(told))


def _beginning(told: Story) -> Iterator[RenderableType]:
    yield _rule(told.title)
    if told.task:
        yield _block(told.task, TASK_LINES)
    yield _line(told.verdict, "bold")
    yield _grid(told.facts())
    yield from map(_line, told.plans())
    yield from (_line(warning, "yellow") for warning in told.warnings())
    if tests := told.episode.task.tests.strip():
        yield _label("Tests that the model was shown")
        yield _source(tests, told.episode.kernel.language)


def _opening(act: Act) -> Iterator[RenderableType]:
    """Tell what a step is to do, and when it is done."""
    yield _rule(act.title)
    if act.goal:
        yield _block(act.goal, TASK_LINES)
    if act.needs:
        yield _line(act.needs)
    if act.checks:
        yield _label("It is done when these checks hold")
        yield _block("\n".join(f"- {check}" for check in act.checks), LIST_LINES)


def _scene(scene: Scene) -> Iterator[RenderableType]:
    yield _rule(scene.title)
    if unshown := scene.unshown:
        yield _line(unshown, "cyan")
    if scene.plan is not None:
        yield _line(scene.plan_told)
        yield _block("\n".join(steps.goals(scene.plan)), LIST_LINES)
    if scene.said:
        yield _label("The model wrote")
        yield _block(scene.said)
    if scene.origin:
        yield _line(scene.origin, "yellow")
    if scene.code:
        yield _source(scene.code, scene.language)
        yield from _changes(scene)
    yield from _outcome(scene)
    if scene.feedback:
        yield _label("Feedback to the model")
        yield _block(scene.feedback, FEEDBACK_LINES)


def _changes(scene: Scene) -> Iterator[RenderableType]:
    if scene.before is None:
        return
    if scene.repeats:
        yield _line(f"The code is the same as in attempt {scene.before.attempt}.", "cyan")
    else:
        yield _label(f"Changes since attempt {scene.before.attempt}")
        yield _source(scene.changes, "diff")


def _outcome(scene: Scene) -> Iterator[RenderableType]:
    """Tell what the cell printed, how it ended, and which tests did not pass."""
    if scene.ran and scene.text:
        yield _label("Output")
        yield _block(scene.text)
    if scene.trouble:
        yield _line(scene.trouble, "red" if scene.ran else "yellow")
    if scene.ran:
        yield from (_line(missed, "red") for missed in scene.missed)
        yield from (_line(note, "yellow") for note in scene.notes)
    if scene.ran and scene.effects:
        yield _label("What it changed")
        yield _block("\n".join(scene.effects))
    if scene.ran and scene.where:
        yield _line(scene.where, "dim")


def _ending(told: Story) -> Iterator[RenderableType]:
    yield _rule("Result")
    yield _line(told.verdict, "bold")
    if rows := told.outcome():
        yield _grid(rows)
    yield from (_line(doubt, "yellow") for doubt in told.doubts())


def _grid(rows: list[tuple[str, str]]) -> RenderableType:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for label, told in rows:
        grid.add_row(_line(label), _line(told))
    return grid


def _rule(title: str) -> RenderableType:
    from rich.rule import Rule
    from rich.text import Text

    return Rule(Text(visible(title), "bold"), align="left", style="cyan")


def _label(text: str) -> RenderableType:
    return _line(f"{text}:", "cyan")


def _line(text: str, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(visible(text), style)


def _block(text: str, lines: int = OUTPUT_LINES) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(shorten(text, lines)), (0, 0, 0, 2), expand=False)


def _source(code: str, language: str) -> RenderableType:
    from rich.padding import Padding
    from rich.syntax import Syntax

    shown = shorten(code, CODE_LINES)
    syntax = Syntax(shown, language, theme="ansi_dark", word_wrap=True, background_color="default")
    return Padding(syntax, (0, 0, 0, 2), expand=False)
