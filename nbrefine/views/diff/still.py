"""A comparison as text in a notebook's output, which stays readable where no widget is alive.

Only tags are used that the strictest readers keep: no style, no table, nothing that needs a script.
"""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import one_line, shorten
from nbrefine.views.diff import telling
from nbrefine.views.diff.compared import EpisodeDiff, Pair

ROOM = 60_000
"""Characters that all changes may take."""
CHANGES = 60
"""Lines of one difference."""
LISTED = 12
"""Pairs that the plain text names."""

ABSENT = "Run this cell to go through the differences."


def still(compared: EpisodeDiff) -> dict[str, str]:
    """Give a comparison as a MIME bundle of HTML and plain text."""
    names = [one_line(f"{side.letter} is {side.name}") for side in (compared.a, compared.b)]
    around = [
        one_line(f"{what}: {a} in A, {b} in B", 400)
        for what, a, b in telling.contrasts((*compared.runs, *compared.ends))
    ]
    html = [
        Markup("<div><strong>{}</strong></div>").format(one_line(compared.sentence, 1_000)),
        *(Markup("<div>{}</div>").format(name) for name in names),
        Markup("<details><summary>All differences as text</summary>"),
        *(Markup("<div>{}</div>").format(line) for line in around),
        *_pairs(compared),
        Markup("</details>"),
    ]
    listed = [_line(pair) for pair in compared.pairs[:LISTED]]
    more = len(compared.pairs) - LISTED
    listed += [f"and {more:,} more"] if more > 0 else []
    text = "\n".join([one_line(compared.sentence, 1_000), *names, *listed])
    return {"text/html": clean("\n".join(html)), "text/plain": clean(text)}


def absent() -> dict[str, str]:
    """Give what stands in the place of widgets that are not alive."""
    return {"text/html": f"<div>{ABSENT}</div>", "text/plain": ABSENT}


def _line(pair: Pair) -> str:
    return one_line(
        f"{pair.place}: {telling.fate(pair.a)} in A, {telling.fate(pair.b)} in B ({pair.told})", 400
    )


def _pairs(compared: EpisodeDiff) -> Iterator[Markup]:
    room, pairs = ROOM, compared.pairs
    for place, pair in enumerate(pairs):
        told = Markup("\n").join(_pair(pair))
        room -= len(told)
        if room < 0:
            left = len(pairs) - place
            yield Markup("<div>{:,} more turns are not told here.</div>").format(left)
            return
        yield told


def _pair(pair: Pair) -> Iterator[Markup]:
    yield Markup("<div><strong>{}</strong></div>").format(_line(pair))
    for name, changes in telling.sections(pair) if pair.differs else ():
        yield Markup("<div>{}:</div>\n<pre>{}</pre>").format(name, shorten(changes, CHANGES))
    for name, a, b in pair.tests:
        yield Markup("<div>{}</div>").format(one_line(f"{name}: {a} in A, {b} in B", 400))
