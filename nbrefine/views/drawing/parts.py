"""The parts of which pages and widgets are made: paragraphs, lists, boxes of text, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from markupsafe import Markup

from nbrefine.notebook.markdown import visible
from nbrefine.views.drawing.highlight import text as escaped
from nbrefine.views.drawing.outputs import Block, shown
from nbrefine.views.drawing.tables import Cell, Table

LINES = 60
"""Lines of a list, such as tests that did not pass."""
ROWS = 300
"""Rows of a table of words."""
CELL = 400
"""Characters of one cell of a table that a program displayed."""
MANY, MOST = 8, 30
"""Columns of a table from which it is set in small type on paper, and up to which that helps."""
LONG = 300
"""Characters of a line from which an output is no layout that wrapping could spoil."""
WIDE, TALL = 48, 20
"""A text of longer lines or more of them may have to be scrolled, by keyboard as well."""


def paragraph(text: str, kind: str = "") -> Markup:
    """Give a sentence or two."""
    return _tag("p", escaped(visible(text)), kind)


def lines(found: Sequence[str], kind: str = "") -> Markup:
    """Give a list of the first of some lines, and tell how many there are besides."""
    more = len(found) - LINES
    kept = found if more <= 0 else [*found[:LINES], f"and {more:,} more"]
    items = "".join(f"<li>{escaped(visible(line))}</li>\n" for line in kept)
    return _tag("ul", _html(f"\n{items}"), kind)


def box(
    text: str | Markup, name: str, *, kind: str = "", key: str = "", plain: str | None = None
) -> Markup:
    """Give a text as it is laid out, in a box that scrolls, for the keyboard as well.

    Parameters
    ----------
    text: already HTML where it is markup.
    name: what it is, for those who do not see it.
    kind: its classes, of which "wrap" lets lines wrap.
    key: its id; "" for none.
    plain: the text that markup stands for.
    """
    html = text if isinstance(text, Markup) else escaped(text)
    reached = (
        f' tabindex="0" role="group" aria-label="{_attribute(name)}"'
        if _scrolls(text if plain is None else plain)
        else ""
    )
    named = f' id="{_attribute(key)}"' if key else ""
    classes = f' class="{kind}"' if kind else ""
    return _html(f"<pre{named}{classes}{reached}>{html}</pre>")


def blocks(found: Iterable[Block], key: str = "") -> Markup:
    """Give what a cell put out.

    Parameters
    ----------
    key: how the ids of the texts begin, so that they can be quoted; "" for none.
    """
    return _html(
        "\n".join(
            str(part)
            for number, block in enumerate(found)
            for part in _block(block, f"{key}-o{number}" if key else "")
        )
    )


def _block(block: Block, key: str) -> Iterator[Markup]:
    if block.label:
        yield paragraph(block.label, "label")
    if block.kind == "picture":
        told = _attribute(block.text or "Picture without a description")
        yield _html(f'<figure><img src="{escaped(block.source)}" alt="{told}"></figure>')
    elif block.kind == "table" and block.table is not None:
        yield table(block.table)
        if block.text:
            plain = box(block.text, "Table as plain text")
            yield _html(
                f'<details class="copy"><summary>As plain text</summary>\n{plain}</details>'
            )
    elif block.kind == "note":
        yield paragraph(block.text, "soft")
    else:
        failed = block.kind == "error"
        long = any(len(line) > LONG for line in block.text.split("\n"))
        yield box(
            block.text if block.drawn is None else block.drawn,
            "Error" if failed else "Output",
            kind=" ".join(filter(None, ("error" if failed else "", "long" if long else ""))),
            key=key,
            plain=block.text,
        )


def table(read: Table) -> Markup:
    """Give a table that a program displayed."""
    parts = (("thead", read.head), ("tbody", read.body))
    rows = "\n".join(
        f"<{part}>{''.join(map(_row, read.shown(found)))}</{part}>"
        for part, found in parts
        if found
    )
    caption = shown(read.caption.strip(), CELL)
    kind = "data many" if MANY < read.width <= MOST else "data"
    return _scrolling(caption, caption or "Table", kind, rows) + _left(read.left_out)


def _row(cells: list[Cell]) -> str:
    return f"<tr>{''.join(map(_cell, cells))}</tr>\n"


def _cell(cell: Cell) -> str:
    words = shown(cell.text.strip(), CELL)
    across = f' colspan="{cell.across}"' if cell.across > 1 else ""
    down = f' rowspan="{cell.down}"' if cell.down > 1 else ""
    if cell.scope and words:
        return f'<th scope="{cell.scope}"{across}{down}>{escaped(words)}</th>'
    long = ' class="long"' if len(words) > WIDE else ""
    return f"<td{long}{across}{down}>{escaped(words)}</td>"


def grid(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """Give a table of words, whose rows begin with a name; how a test ended has a colour."""
    head = "".join(f'<th scope="col">{escaped(visible(name))}</th>' for name in header)
    body = "\n".join(_named(name, words) for name, *words in rows[:ROWS])
    more = len(rows) - ROWS
    whole = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
    left = _left(f"{more:,} more are not shown here." if more > 0 else "")
    return _scrolling(caption, caption, "words", whole) + left


def _named(name: str, words: Iterable[str]) -> str:
    cells = "".join(f"<td{_mood(word)}>{escaped(visible(word))}</td>" for word in words)
    return f'<tr><th scope="row">{escaped(visible(name))}</th>{cells}</tr>'


_MOODS = {
    "pass": "good",
    "fail": "bad",
    "error": "bad",
    "timeout": "bad",
    "not run": "soft",
    "not there": "soft",
}


def _mood(word: str) -> str:
    return f' class="{_MOODS[word]}"' if word in _MOODS else ""


def _scrolling(caption: str, name: str, kind: str, rows: str) -> Markup:
    told = f"<caption>{escaped(visible(caption))}</caption>\n" if caption else ""
    return _html(
        f'<div class="wide" tabindex="0" role="group" aria-label="{_attribute(name)}">\n'
        f'<table class="{kind}">{told}{rows}</table></div>'
    )


def _left(told: str) -> Markup:
    return Markup("\n") + paragraph(told, "soft") if told else Markup("")


def _scrolls(text: str) -> bool:
    """Tell whether a text may be wider or taller than its box."""
    found = text.split("\n")
    return len(found) > TALL or any(len(line) > WIDE for line in found)


def _tag(name: str, html: Markup, kind: str) -> Markup:
    opening = f'{name} class="{kind}"' if kind else name
    return _html(f"<{opening}>{html}</{name}>")


def _attribute(text: str) -> str:
    return str(escaped(visible(text))).replace('"', "&#34;")


def _html(parts: str) -> Markup:
    return Markup(parts)  # noqa: S704 - made here, of texts that were escaped
