"""An episode in a terminal: attempt by attempt, with the changes between them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nbrefine.errors import RecordError, UsageError
from nbrefine.findings import findings
from nbrefine.notebook import load, steps, wording
from nbrefine.notebook.markdown import one_line, shorten, visible
from nbrefine.values import CaseResult, Episode, Turn

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

OUTPUT_LINES = 12
FEEDBACK_LINES = 60
"""A failed test takes four lines, and a reader wants to see what the model saw."""
CODE_LINES = 200
DOUBTS = 3
"""Tests that may be wrong and are told of."""


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

    episode = source if isinstance(source, Episode) else load(source)
    console = console or Terminal()
    waiting = step and console.is_terminal and sys.stdin.isatty()
    pages = list(_pages(episode))
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

    Raises
    ------
    UsageError: there is none.
    """
    found = False
    for path in sorted(folder.rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts:
            continue
        with suppress(RecordError):  # a notebook of another kind
            episode, found = load(path), True
            yield f"{visible(str(path))}  {visible(wording.verdict(episode))}"
    if not found:
        raise UsageError(
            f"There is no episode notebook in {folder}", hint="Give the path of an episode"
        )


def _move(console: Console) -> int | None:
    """Ask how many pages on from the next one are wanted; None for the end."""
    try:
        answer = console.input("Enter: go on, b: back, q: end > ", markup=False)
    except (EOFError, KeyboardInterrupt):
        return None
    wanted = answer.strip().lower()[:1]
    return None if wanted == "q" else -2 if wanted == "b" else 0


def _pages(episode: Episode) -> Iterator[list[RenderableType]]:
    yield _header(episode)
    previous: Turn | None = None
    found = {step.number: step for step in steps.steps_of(episode) if step.subtask is not None}
    for place, turn in enumerate(wording.in_order(episode)):
        before = previous if previous is not None and previous.step == turn.step else None
        new = place == 0 or episode.turns[place - 1].step != turn.step
        begun = _step(found[turn.step]) if new and turn.step in found else []
        if wording.is_attempt(episode, turn):
            yield [*begun, *_attempt(episode, turn, before)]
        else:
            yield [*begun, *_said(episode, turn)]
        if turn.code:
            previous = turn
    yield [
        _rule("Result"),
        _line(wording.verdict(episode), "bold"),
        *_result(episode),
        *_doubts(episode),
    ]


def _step(step: steps.Step) -> list[RenderableType]:
    """Tell what a step is to do, and when it is done."""
    goal = step.subtask.goal if step.subtask is not None else ""
    needs = steps.needs(step.subtask) if step.subtask is not None else ""
    checks = "\n".join(f"- {steps.check_told(check)}" for check in step.checks)
    return [
        _rule(step.title),
        *([_block(goal, lines=30)] if goal not in step.title else []),
        *([_line(f"It {needs}.")] if needs else []),
        *(
            [_label("It is done when these checks hold"), _block(checks, lines=40)]
            if checks
            else []
        ),
    ]


def _said(episode: Episode, turn: Turn) -> list[RenderableType]:
    """Tell of a turn that ran no cell."""
    parts = [_rule(f"Turn {turn.number}: the model {steps.headline(turn)}")]
    plan = steps.made_at(episode, turn)
    if plan is not None:
        parts.append(_line(steps.plans_told(episode)[episode.plans.index(plan)]))
        parts.append(_block("\n".join(steps.goals(plan)), lines=40))
    elif said := steps.asked(turn):
        parts += [_label("The model wrote"), _block(said)]
    if turn.feedback:
        parts += [_label("Feedback to the model"), _block(turn.feedback, lines=FEEDBACK_LINES)]
    return parts


def _result(episode: Episode) -> Iterator[RenderableType]:
    """Tell steps, answer and files of an episode that has them."""
    from rich.table import Table

    shown = steps.steps_of(episode) if episode.plans else []
    rows = [(step.title, step.told) for step in shown]
    if episode.answer is not None:
        rows += steps.answered(episode.answer)
    rows += ((path, f"{size} bytes, sha256 {sha256}") for path, size, sha256 in _files(episode))
    if rows:
        grid = Table.grid(padding=(0, 2))
        for label, told in rows:
            grid.add_row(_line(label), _line(told))
        yield grid


def _files(episode: Episode) -> list[list[str]]:
    return [[path, size, sha256[:12]] for path, size, sha256 in steps.files_of(episode)]


def _doubts(episode: Episode) -> Iterator[RenderableType]:
    """Tell of tests that may be wrong, the likely ones first."""
    every = {each.detail: each for part in _parts(episode) for each in findings(part)}
    found = sorted(every.values(), key=lambda finding: not finding.likely)
    for finding in found[:DOUBTS]:
        yield _line(f"Possible trouble with the tests: {one_line(finding.detail, 400)}.", "yellow")
    if len(found) > DOUBTS:
        yield _line(f"The same holds for {len(found) - DOUBTS} more tests.", "yellow")


def _parts(episode: Episode) -> list[Episode]:
    """Give an episode as one for each step: the checks of two steps have nothing in common."""
    if not episode.plans:
        return [episode]
    return [replace(episode, turns=step.turns) for step in steps.steps_of(episode)]


def _header(episode: Episode) -> list[RenderableType]:
    from rich.table import Table

    facts = Table.grid(padding=(0, 2))
    for label, fact in (*steps.facts(episode), *wording.facts(episode)):
        facts.add_row(label, _line(fact))
    title, prompt = wording.title(episode), episode.task.prompt
    return [
        _rule(title),
        *([_block(prompt, lines=30)] if prompt.strip() != title else []),
        _line(wording.verdict(episode), "bold"),
        facts,
        *(_line(told) for told in steps.plans_told(episode)),
        *([_line(told, "yellow")] if (told := wording.came_with(episode)) else []),
    ]


def _attempt(episode: Episode, turn: Turn, before: Turn | None) -> list[RenderableType]:
    tests = f", {steps.checks_told(episode, turn)}" if turn.tests else ""
    of = sum(
        other.step == turn.step and wording.is_attempt(episode, other) for other in episode.turns
    )
    place = wording.place(episode, turn).capitalize()
    parts = [_rule(f"{place} of {of}: {wording.fate(turn)}{tests}")]
    if turn.code:
        parts.append(_source(turn.code, wording.language(episode, turn)))
    elif turn.reply is not None:
        parts += [_label("The model wrote"), _block(steps.asked(turn))]
    if before is not None and turn.code:
        parts += _changes(before, turn)
    parts += _outcome(turn)
    if turn.feedback and not turn.accepted:
        parts += [_label("Feedback to the model"), _block(turn.feedback, lines=FEEDBACK_LINES)]
    return parts


def _changes(before: Turn, turn: Turn) -> list[RenderableType]:
    changes = wording.diff(before, turn)
    if not changes:
        return [_label(f"The code is the same as in attempt {before.attempt}")]
    return [_label(f"Changes since attempt {before.attempt}"), _source(changes, "diff")]


def _outcome(turn: Turn) -> list[RenderableType]:
    """Tell what the cell printed, how it ended, and which tests did not pass."""
    result = turn.result
    if wording.unjudged(turn):
        return [_line(wording.reason(turn), "yellow")]
    if not turn.tried or wording.withheld(turn):
        return [_line(f"Nothing was run: {wording.reason(turn)}", "yellow")]
    parts: list[RenderableType] = []
    if result is not None and result.text:
        parts += [_label("Output"), _block(result.text)]
    if why := wording.reason(turn):
        parts.append(_line(why, "red"))
    parts += (_line(_case(case), "red") for case in wording.not_passed(turn))
    if result is not None:
        parts += (_line(f"Note: {note}", "yellow") for note in result.notes)
        parts += (_line(cut, "yellow") for cut in wording.left_out(result))
    if told := wording.changed(turn):
        parts += [_label("What it changed"), _block("\n".join(told))]
    return [*parts, _line(wording.where(turn), "dim")]


def _case(case: CaseResult) -> str:
    told = [one_line(case.expression)]
    told.append(f"got {one_line(case.got)}" if case.got else "")
    told.append(f"expected {one_line(case.expected)}" if case.expected else "")
    told.append(one_line(case.message))
    details = "; ".join(filter(None, told))
    return f"{case.name} {wording.STATUS[case.status]}{': ' if details else ''}{details}"


def _rule(title: str) -> RenderableType:
    from rich.rule import Rule
    from rich.text import Text

    return Rule(Text(visible(title), "bold"), align="left", style="cyan")


def _label(text: str) -> RenderableType:
    return _line(f"{text}:", "cyan")


def _line(text: str, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(visible(text), style)


def _block(text: str, *, lines: int = OUTPUT_LINES) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(shorten(text, lines)), (0, 0, 0, 2), expand=False)


def _source(code: str, language: str) -> RenderableType:
    from rich.padding import Padding
    from rich.syntax import Syntax

    shown = shorten(code, CODE_LINES)
    syntax = Syntax(shown, language, theme="ansi_dark", word_wrap=True, background_color="default")
    return Padding(syntax, (0, 0, 0, 2), expand=False)
