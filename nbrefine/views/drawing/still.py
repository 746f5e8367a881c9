"""What a notebook's output tells as text, which stays readable where no widget is alive.

Only tags are used that the strictest readers keep or show in a way that does not hurt: no style,
no table, nothing that needs a script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from markupsafe import Markup

from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import one_line, shorten

ROOM = 60_000
"""Characters that all parts of a fold may take."""
LISTED = 12
"""Parts that the plain text names."""
LINE = 1_000
"""Characters of a sentence."""

T = TypeVar("T")


def bundle(
    title: str, under: Sequence[str], html: Iterable[Markup], names: Iterable[str]
) -> dict[str, str]:
    """Give a text as a MIME bundle of HTML and plain text.

    Parameters
    ----------
    under: what stands below the title, a sentence each.
    html: what the HTML has below that.
    names: what the plain text has below that, a line each.
    """
    parts = [strong(title), *map(line, under), *html]
    text = [one_line(told, LINE) for told in (title, *under)]
    return {
        "text/html": clean("\n".join(parts)),
        "text/plain": clean("\n".join([*text, *names])),
    }


def absent(told: str) -> dict[str, str]:
    """Give what stands in the place of widgets that are not alive."""
    return {"text/html": str(line(told)), "text/plain": told}


def folded(summary: str, parts: Iterable[Markup]) -> Markup:
    """Give what opens at a click."""
    return Markup("<details><summary>{}</summary>\n{}\n</details>").format(
        summary, Markup("\n").join(parts)
    )


def within_room(
    found: Sequence[T], draw: Callable[[T], Iterable[Markup]], left: str
) -> Iterator[Markup]:
    """Draw the first of what there is, as much of it as there is room for.

    Parameters
    ----------
    left: what to say of the rest, with "{:,}" for how many there are.
    """
    room = ROOM
    for place, each in enumerate(found):
        drawn = Markup("\n").join(draw(each))
        room -= len(drawn)
        if room < 0:
            yield line(left.format(len(found) - place))
            return
        yield drawn


def listed(found: Sequence[T], name: Callable[[T], str]) -> Iterator[str]:
    """Name the first of what there is, and tell how many there are besides."""
    yield from map(name, found[:LISTED])
    if (more := len(found) - LISTED) > 0:
        yield f"and {more:,} more"


def line(text: str, limit: int = LINE) -> Markup:
    """Give a sentence."""
    return Markup("<div>{}</div>").format(one_line(text, limit))


def strong(text: str) -> Markup:
    """Give a heading."""
    return Markup("<div><strong>{}</strong></div>").format(one_line(text, LINE))


def laid_out(text: str, lines: int) -> Markup:
    """Give a text with its lines as they are.

    Parameters
    ----------
    lines: how many are shown.
    """
    return Markup("<pre>{}</pre>").format(shorten(text.strip("\n"), lines))
