"""Two episodes side by side in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import one_line, shorten, visible
from nbrefine.views.diff import telling
from nbrefine.views.diff.compared import EpisodeDiff, Pair
from nbrefine.views.diff.runs import Contrast

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

TURNS = 60
"""Pairs of turns that the table holds, from the first on."""
DETAILED = 8
"""Pairs that differ and are told with their changes."""
CHANGES = 60
"""Lines of one difference."""
CONTRASTS = 24
"""Settings and packages that are named."""
TESTS = 20
"""Tests of a pair that are named."""


def show(compared: EpisodeDiff, *, console: Console | None = None) -> None:
    """Print a comparison for reading; where it is piped, it is plain text.

    Parameters
    ----------
    console: where to print; by default the standard output.
    """
    from rich.console import Console as Terminal

    console = console or Terminal()
    for part in _parts(compared):
        console.print(part)


def _parts(compared: EpisodeDiff) -> Iterator[RenderableType]:
    yield _line(compared.sentence, "bold")
    sides = [(side.letter, side.name) for side in (compared.a, compared.b)]
    yield from (_line(f"{letter}  {name}") for letter, name in sides)
    yield _table(("", "A", "B"), telling.overview(compared))
    yield from _contrasts("What differs before the first turn", compared.runs)
    yield from _contrasts("What differs at the end", compared.ends)
    yield from _turns(compared)
    yield from _details(compared)


def _contrasts(title: str, found: Sequence[Contrast]) -> Iterator[RenderableType]:
    if not found:
        return
    yield from _heading(title)
    rows = telling.contrasts(found)
    if rows:
        yield _table(("", "A", "B"), rows[:CONTRASTS])
    if len(rows) > CONTRASTS:
        yield _line(f"{len(rows) - CONTRASTS:,} more differ.", "dim")
    for each in found:
        if each.long:
            yield from _changes(each.what, each.changes)


def _turns(compared: EpisodeDiff) -> Iterator[RenderableType]:
    yield from _heading("Turn by turn")
    if not compared.pairs:
        yield _line("Neither has a turn.")
        return
    room, header = TURNS, ("", "A", "B", "Differs")
    for step in compared.steps:
        if compared.in_steps and room > 0:
            yield _line(telling.step_title(step), "cyan")
        rows = telling.turns(step)[: max(0, room)]
        room -= len(step.pairs)
        if rows:
            yield _table(header, rows)
    if room < 0:
        yield _line(f"{-room:,} more turns are not in this table; --html FILE has all.", "dim")


def _details(compared: EpisodeDiff) -> Iterator[RenderableType]:
    differing = [pair for pair in compared.pairs if pair.differs]
    for pair in differing[:DETAILED]:
        yield from _heading(f"{pair.place}: {pair.told}")
        yield from _detail(pair)
    if (more := len(differing) - DETAILED) > 0:
        many = f"{more:,} more turn{' differs' if more == 1 else 's differ'}"
        yield from ("", _line(f"{many}; --html FILE has all.", "dim"))


def _detail(pair: Pair) -> Iterator[RenderableType]:
    for letter, scene in (("A", pair.a), ("B", pair.b)):
        if scene is not None:
            trouble = f": {scene.trouble}" if scene.trouble else ""
            yield _line(one_line(f"{letter} {scene.fate}{trouble}", 400))
    if pair.a is not None and pair.a.code and not {"there", "code"} & {*pair.differs}:
        yield _line("The code is the same.", "dim")
    for name, text in telling.sections(pair):
        yield from _changes(name, text)
    if rows := pair.tests:
        yield _line("Tests that went otherwise:", "cyan")
        yield _table(("Test", "A", "B"), rows[:TESTS])
        if len(rows) > TESTS:
            yield _line(f"{len(rows) - TESTS:,} more went otherwise.", "dim")


def _heading(title: str) -> Iterator[RenderableType]:
    from rich.rule import Rule
    from rich.text import Text

    yield ""
    yield Rule(Text(_safe(title), "bold"), align="left", style="cyan")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, name in enumerate(header):
        # A column of names keeps its words whole as long as there is room for the others.
        table.add_column(name, overflow="fold", ratio=None if place in (0, 3) else 1)
    for name, *cells in rows:
        alike = len(set(cells[:2])) == 1
        style = "dim" if alike else ""
        table.add_row(Text(_safe(name)), *(Text(_safe(cell), style) for cell in cells))
    return table


def _changes(name: str, changes: str) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.syntax import Syntax

    yield _line(f"{name}:", "cyan")
    shown = clean(shorten(changes, CHANGES))
    syntax = Syntax(shown, "diff", theme="ansi_dark", word_wrap=True, background_color="default")
    yield Padding(syntax, (0, 0, 0, 2), expand=False)


def _line(text: str, style: str = "") -> RenderableType:
    from rich.text import Text

    return Text(_safe(text), style)


def _safe(text: str) -> str:
    return clean(visible(text))
