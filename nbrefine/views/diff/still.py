"""A comparison as text in a notebook's output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbrefine.notebook.markdown import one_line
from nbrefine.views.diff import telling
from nbrefine.views.diff.compared import EpisodeDiff, Pair
from nbrefine.views.drawing.still import bundle, folded, laid_out, line, listed, strong, within_room

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markupsafe import Markup

CHANGES = 60
"""Lines of one difference."""

SHORT = 400
"""Characters of a line that names both sides."""

ABSENT = "Run this cell to go through the differences."


def still(compared: EpisodeDiff) -> dict[str, str]:
    """Give a comparison as a MIME bundle of HTML and plain text."""
    names = [one_line(f"{side.letter} is {side.name}") for side in (compared.a, compared.b)]
    pairs = within_room(compared.pairs, _pair, "{:,} more turns are not told here.")
    differences = folded("All differences as text", (*_around(compared), *pairs))
    return bundle(compared.sentence, names, [differences], listed(compared.pairs, _headline))


def _around(compared: EpisodeDiff) -> Iterator[Markup]:
    for what, a, b in telling.contrasts((*compared.runs, *compared.ends)):
        yield line(f"{what}: {a} in A, {b} in B", SHORT)


def _pair(pair: Pair) -> Iterator[Markup]:
    yield strong(_headline(pair))
    for name, changes in telling.sections(pair) if pair.differs else ():
        yield from (line(f"{name}:"), laid_out(changes, CHANGES))
    for name, a, b in pair.tests:
        yield line(f"{name}: {a} in A, {b} in B", SHORT)


def _headline(pair: Pair) -> str:
    fates = f"{telling.fate(pair.a)} in A, {telling.fate(pair.b)} in B"
    return one_line(f"{pair.place}: {fates} ({pair.told})", SHORT)
