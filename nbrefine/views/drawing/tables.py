"""The tables in HTML that programs display, read as rows of texts and nothing else.

No tag, attribute, style or script of theirs reaches the page: it draws a table of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape

ROWS, COLUMNS = 200, 60
"""What is shown of a table; more is told."""

_SILENT = ("style", "script", "template")


@dataclass(slots=True)
class Cell:
    """One cell of a table."""

    text: str = ""
    scope: str = ""
    """ "col" or "row" where it is the head of one; "" for a value."""
    across: int = 1
    down: int = 1


@dataclass(slots=True)
class Table:
    """A table as rows of cells, those of the head first."""

    head: list[list[Cell]] = field(default_factory=list)
    body: list[list[Cell]] = field(default_factory=list)
    caption: str = ""

    @property
    def width(self) -> int:
        """How many columns it has."""
        return max((len(row) for row in (*self.head, *self.body)), default=0)

    @property
    def left_out(self) -> str:
        """What is not shown of it, in a sentence; "" where all of it is."""
        rows, width = len(self.head) + len(self.body), self.width
        if len(self.body) <= ROWS and width <= COLUMNS:
            return ""
        return f"The table has {rows:,} rows and {width:,} columns; not all of them are shown."

    def shown(self, rows: list[list[Cell]]) -> Iterator[list[Cell]]:
        """Give the part of some rows that is shown."""
        return (row[:COLUMNS] for row in rows[:ROWS])


def tables(html: str) -> list[Table]:
    """Read the tables of some HTML; [] where there is none with a cell in it.

    It takes time in proportion to its length, whatever it is: Python's own parser of HTML takes
    minutes for some texts of 100 kB.
    """
    reader = _Reader()
    for text, tag, attributes in _tokens(_without_comments(html)):
        reader.text(unescape(text))
        reader.tag(tag.lower(), attributes)
    return [table for table in reader.tables if table.head or table.body]


_TAG = re.compile(r"<(/?[a-zA-Z][a-zA-Z0-9]{0,15}+)([^<>]*+)>")
_SPANS = re.compile(r"\b(colspan|rowspan)\s*=\s*[\"']?(\d{1,4})\b", re.ASCII | re.IGNORECASE)


def _tokens(html: str) -> Iterator[tuple[str, str, str]]:
    """Give each tag with the text before it, its name, and what stands behind that."""
    at, lower = 0, html.lower()
    for found in _TAG.finditer(html):
        if found.start() < at:  # in what is skipped
            continue
        name = found[1].lower()
        yield html[at : found.start()], name, found[2]
        at = found.end()
        if name in _SILENT:
            end = lower.find(f"</{name}", at)
            at = end if end >= 0 else len(html)


def _without_comments(html: str) -> str:
    parts, at = [], 0
    while (begin := html.find("<!--", at)) >= 0 and (end := html.find("-->", begin)) >= 0:
        parts.append(html[at:begin])
        at = end + 3
    return "".join((*parts, html[at:]))


class _Reader:
    """Collects tables; one within another is read as a table of its own."""

    def __init__(self) -> None:
        self.tables: list[Table] = []
        self._cell: Cell | None = None
        self._in_head = self._in_caption = False

    def tag(self, name: str, attributes: str) -> None:
        """Take the next tag; an end tag's name begins with a slash."""
        if name == "table":
            self.tables.append(Table())
            self._cell, self._in_head, self._in_caption = None, False, False
        elif not self.tables:
            return
        elif name in ("td", "th"):
            self._cell = self._new_cell(name, attributes)
        elif name == "tr":
            self._rows.append([])
        elif name in ("thead", "tbody", "tfoot", "/thead"):
            self._in_head = name == "thead"
        elif name in ("caption", "/caption"):
            self._in_caption = name == "caption"
        elif name in ("/td", "/th", "/tr", "/table"):
            self._cell = None
        elif name == "br":
            self.text("\n")

    @property
    def _rows(self) -> list[list[Cell]]:
        return self.tables[-1].head if self._in_head else self.tables[-1].body

    def _new_cell(self, name: str, attributes: str) -> Cell:
        rows = self._rows
        if not rows:
            rows.append([])
        of = "col" if self._in_head or rows[-1] else "row"
        spans = {key.lower(): max(1, int(count)) for key, count in _SPANS.findall(attributes)}
        scope = of if name == "th" else ""
        cell = Cell("", scope, spans.get("colspan", 1), spans.get("rowspan", 1))
        rows[-1].append(cell)
        return cell

    def text(self, text: str) -> None:
        """Take the text before the next tag."""
        if self._cell is not None:
            self._cell.text += text
        elif self._in_caption:
            self.tables[-1].caption += text
