"""A comparison as one HTML page, which asks for nothing from any network and needs no script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

from nbrefine._version import __version__
from nbrefine.notebook.markdown import visible
from nbrefine.views.diff import drawn, telling
from nbrefine.views.diff.compared import EpisodeDiff, Pair
from nbrefine.views.drawing import frame, highlight

MANY = 60
"""Pairs from which a browser draws only what is in view."""
DETAILED = 2_000
"""Pairs that differ and are told with their changes."""


def to_html(compared: EpisodeDiff) -> str:
    """Give a comparison as a page of HTML; equal comparisons give equal pages."""
    keys = _keys(compared)
    body = Markup("\n").join(_body(compared, keys))
    return frame.whole(
        f"{_title(compared)}: two runs compared",
        body,
        kind="many" if len(keys) > MANY else "",
        sheet=frame.asset("diff.css", __package__),
    )


def write(compared: EpisodeDiff, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a comparison's page, and give the path.

    Parameters
    ----------
    path: the page's file, in a folder that exists.
    overwrite: whether a file that is there may be replaced.

    Raises
    ------
    RecordError: there is a file already, or the place cannot be written.
    """
    target = frame.free(path, overwrite=overwrite)
    return frame.write(to_html(compared), target)


def _title(compared: EpisodeDiff) -> str:
    a, b = compared.a.story.title, compared.b.story.title
    return a if a == b else f"{a} and {b}"


def _keys(compared: EpisodeDiff) -> dict[int, str]:
    """Give the place on the page of each pair that is told, by the pair's number."""
    found = [number for number, pair in enumerate(compared.pairs) if pair.differs]
    return {number: f"p{number + 1}" for number in found[:DETAILED]}


def _body(compared: EpisodeDiff, keys: dict[int, str]) -> Iterator[Markup]:
    yield Markup('<a class="skip" href="#turns">Skip to the turns</a>')
    yield Markup(
        '<header>\n<p class="kind">Two runs compared</p>\n<h1>{}</h1>\n{}\n{}\n</header>\n<main>'
    ).format(
        highlight.text(visible(_title(compared))), drawn.verdict(compared), drawn.names(compared)
    )
    yield drawn.overview(compared)
    for title, caption, found in drawn.around(compared):
        if found:
            yield Markup("<section>\n<h2>{}</h2>").format(title)
            yield from drawn.contrasts(caption, found)
            yield Markup("</section>")
    yield from _turns(compared, keys)
    yield from _details(compared, keys)
    yield Markup(
        "</main>\n<footer><p>Made by nbrefine {} from the records of both episodes. Times and "
        "tokens are no difference.</p></footer>"
    ).format(__version__)


def _turns(compared: EpisodeDiff, keys: dict[int, str]) -> Iterator[Markup]:
    yield Markup('<section id="turns" tabindex="-1">\n<h2>Turn by turn</h2>')
    if not compared.pairs:
        yield Markup('<p class="note">Neither has a turn.</p>')
    number = 0
    for step in compared.steps:
        title = telling.step_title(step) if compared.in_steps else "Attempts side by side"
        linked = [keys.get(number + place, "") for place in range(len(step.pairs))]
        number += len(step.pairs)
        if step.pairs:
            yield drawn.turns(step, title, linked=linked)
        else:
            yield Markup('<p class="soft">{}: no turn</p>').format(visible(title))
    yield Markup("</section>")


def _details(compared: EpisodeDiff, keys: dict[int, str]) -> Iterator[Markup]:
    if not keys:
        return
    yield Markup('<section aria-labelledby="told">\n<h2 id="told">What differs</h2>')
    pairs = compared.pairs
    for number, key in keys.items():
        yield _detail(pairs[number], key)
    more = sum(bool(pair.differs) for pair in pairs) - len(keys)
    if more > 0:
        yield Markup('<p class="note">{:,} more turns differ and are not told here.</p>').format(
            more
        )
    yield Markup("</section>")


def _detail(pair: Pair, key: str) -> Markup:
    return Markup(
        '<section class="pair" id="{0}" aria-labelledby="{0}-t">\n'
        '<h3 id="{0}-t">{1} <small>{2}</small></h3>\n{3}\n</section>'
    ).format(
        key,
        highlight.text(visible(pair.place)),
        pair.told,
        Markup("\n").join(drawn.detail(pair)),
    )
