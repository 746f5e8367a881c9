"""What a person sees of a running episode: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from nbrefine.notebook import steps
from nbrefine.notebook.line import line, words
from nbrefine.notebook.markdown import visible

if TYPE_CHECKING:
    from nbrefine._portal import Run
    from nbrefine.loop import EpisodeRun
    from nbrefine.values import Episode

TICK = 0.1
"""Seconds between two looks at the run."""

SHOWN_TURNS = 8
SHOWN_STEPS = 12
SHOWN_REPLY_LINES = 6


def follow(run: EpisodeRun, *, max_turns: int, quiet: bool, live: bool = True) -> Episode:
    """Show a run on stderr until it has ended, and give its episode.

    Parameters
    ----------
    max_turns: how many turns there may be.
    quiet: whether nothing is shown.
    live: whether a terminal gets a panel; without it, lines, between which others can write.

    Raises
    ------
    NbrefineError: as the run raises it.
    """
    console = Console(stderr=True, highlight=False)
    if quiet:
        _wait(run)
    elif console.is_terminal and live:
        spinner = Spinner("dots")
        with Live(
            get_renderable=lambda: _panel(run, max_turns, spinner),
            console=console,
            refresh_per_second=1 / TICK,
        ):
            _wait(run)
    else:
        _wait(run, told=run.earlier)
    return run.result()


def _wait(run: EpisodeRun, told: int | None = None) -> None:
    """Wait for the end; with `told`, the number of turns told so far, tell each as it comes."""
    while True:
        ended = run.done()
        episode = run.episode
        if told is not None and episode is not None:
            for turn in episode.turns[told:]:
                typer.echo(line(episode, turn), err=True)
            told = len(episode.turns)
        if ended:
            return
        time.sleep(TICK)


def _panel(run: EpisodeRun, max_turns: int, spinner: Spinner) -> RenderableType:
    episode = run.episode
    turns = episode.turns if episode is not None else ()
    parts: list[RenderableType] = []
    if episode is not None and episode.plans:
        parts.append(_steps(episode))
    if episode is not None and turns:
        table = Table(box=None, pad_edge=False, show_header=False)
        for column in range(4):
            table.add_column(justify="right" if column in (2, 3) else "left", no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for turn in turns[-SHOWN_TURNS:]:
            style = "green" if turn.accepted else ""
            table.add_row(*(Text(word, style=style) for word in words(episode, turn)))
        if len(turns) > SHOWN_TURNS:
            parts.append(Text(f"({len(turns) - SHOWN_TURNS} earlier turns)", style="dim"))
        parts.append(table)
    if not run.done():
        spinner.update(text=_now(run, max_turns))
        parts.append(spinner)
        parts += _reply_tail(run.activity.reply_text)
    return Group(*parts)


def _steps(episode: Episode) -> RenderableType:
    """Give the steps that are planned, and what became of each so far."""
    found = steps.steps_of(episode)
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True)
    shown = found[-SHOWN_STEPS:]
    for step in shown:
        style = {"done": "green", "running": "bold"}.get(step.fate, "")
        table.add_row(Text(visible(step.title), style=style), Text(step.told, style=style))
    if len(found) > len(shown):
        return Group(Text(f"({len(found) - len(shown)} earlier steps)", style="dim"), table)
    return table


def _now(run: EpisodeRun, max_turns: int) -> Text:
    doing = run.activity
    words = [doing.told]
    if doing.turn:
        recorded = run.episode.settings if run.episode is not None else {}
        words.insert(0, f"turn {doing.turn}/{recorded.get('max_turns', max_turns)}")
    words.append(f"{time.monotonic() - doing.since:.1f} s")
    if run.episode is not None:
        words.append(f"{run.episode.usage.total_tokens} tokens so far")
    return Text(" · ".join(words))


def _reply_tail(text: str) -> list[RenderableType]:
    lines = visible(text).splitlines()[-SHOWN_REPLY_LINES:]
    return [Text("  " + line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines]


def report(episode: Episode, record: Path, *, earlier: int = 0) -> None:
    """Tell on stdout how an episode ended, the code it found, and where the record is.

    Parameters
    ----------
    earlier: how many turns it had begun with, which this run has not taken.
    """
    stop = episode.stop
    detail = f": {stop.detail}" if stop is not None and stop.detail else ""
    spent = _spent(episode)
    if earlier:
        now = _spent(replace(episode, turns=episode.turns[earlier:]), " now")
        spent = f"{now}; {_spent(episode, ' in all')}"
    if steps.in_steps(episode):
        typer.echo(f"{'Solved' if episode.solved else 'Not solved'}{detail} ({spent})\n")
        for line in _outcome(episode):
            typer.echo(visible(line))
    elif episode.solved:
        typer.echo(f"Solved{detail} ({spent})\n")
        typer.echo(visible(episode.accepted[-1].code.rstrip()) + "\n")
    else:
        best = episode.best
        typer.echo(f"Not solved{detail} ({spent})")
        if best is not None and best.tests is not None and best.tests.passed:
            tests = f"{best.tests.passed} of {best.tests.total} tests"
            typer.echo(f"Best: attempt {best.number} with {tests}")
    named = shlex.quote(str(record))
    typer.echo(f"Record: {record} (read it with `nbrefine show {named} --step`)")


def _spent(episode: Episode, which: str = "") -> str:
    turns = f"{len(episode.turns)} turn{'' if len(episode.turns) == 1 else 's'}{which}"
    return f"{turns}, {episode.usage.total_tokens} tokens, {episode.seconds:.1f} s"


def _outcome(episode: Episode) -> Iterator[str]:
    """Tell steps, answer and files of an episode, each part with a blank line behind it."""
    if episode.plans:
        told = steps.steps_of(episode)
        yield from (f"{step.title.removesuffix('.')}: {step.told}" for step in told)
        yield ""
    if episode.answer is not None:
        yield from (f"{label}: {text}" for label, text in steps.answered(episode.answer))
        yield ""
    if files := episode.artifacts:
        yield from (f"{each.path} ({each.size:,} bytes)" for each in files)
        yield ""


def download(what: str, begin: Callable[[Callable[[int, int], None]], Run[Path]]) -> Path:
    """Show a download on stderr, as a bar or, elsewhere than on a terminal, every tenth of it.

    Parameters
    ----------
    what: its name.
    begin: starts it; is given what to tell bytes done and bytes in all.
    """
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*Progress.get_default_columns()[:2], *columns, console=console) as bar:
            task = bar.add_task(what, total=None)
            return begin(lambda done, whole: bar.update(task, completed=done, total=whole)).result()
    told = -1

    def tell(done: int, whole: int) -> None:
        nonlocal told
        if (tenth := 10 * done // whole) > told:
            told = tenth
            typer.echo(f"{what}: {tenth * 10} % of {whole / 1e6:.0f} MB", err=True)

    return begin(tell).result()
