"""The tables in HTML that programs display, read as rows of texts and nothing else.

No tag, attribute, style or script of theirs reaches the page: it draws a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from html.parser import HTMLParser

ROWS, COLUMNS = 200, 60
"""What is shown of a table; more is told."""

_SPAN = 1_000
"""The widest cell that a table may ask for."""

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
    def left_out(self) -> str:
        """What is not shown of it, in a sentence; "" where all of it is."""
        rows = len(self.head) + len(self.body)
        width = max((len(row) for row in (*self.head, *self.body)), default=0)
        if len(self.body) <= ROWS and width <= COLUMNS:
            return ""
        return f"The table has {rows:,} rows and {width:,} columns; not all of them are shown."

    def shown(self, rows: list[list[Cell]]) -> Iterator[list[Cell]]:
        """Give the part of some rows that is shown."""
        return (row[:COLUMNS] for row in rows[:ROWS])


def tables(html: str) -> list[Table]:
    """Read the tables of some HTML; [] where there is none with a cell in it."""
    reader = _Reader()
    with suppress(AssertionError):  # the parser's word for declarations that make no sense
        reader.feed(html)
        reader.close()
    return [table for table in reader.tables if table.head or table.body]


class _Reader(HTMLParser):
    """Collects tables; one within another is read as a table of its own."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[Table] = []
        self._cell: Cell | None = None
        self._in_head = self._in_caption = False
        self._silent = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent = self._silent or tag
        elif tag == "table":
            self.tables.append(Table())
            self._cell, self._in_head = None, False
        elif self.tables:
            self._in_table(tag, dict(attrs))

    def _in_table(self, tag: str, attrs: dict[str, str | None]) -> None:
        table = self.tables[-1]
        rows = table.head if self._in_head else table.body
        if tag in ("thead", "tbody", "tfoot"):
            self._in_head = tag == "thead"
        elif tag == "caption":
            self._in_caption = True
        elif tag == "tr":
            rows.append([])
        elif tag in ("td", "th"):
            if not rows:
                rows.append([])
            of = "col" if self._in_head or rows[-1] else "row"
            across, down = _count(attrs.get("colspan")), _count(attrs.get("rowspan"))
            self._cell = Cell("", of if tag == "th" else "", across, down)
            rows[-1].append(self._cell)
        elif tag == "br":
            self.handle_data("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._silent:
            self._silent = ""
        elif tag in ("td", "th", "tr", "table"):
            self._cell = None
        elif tag == "caption":
            self._in_caption = False
        elif tag == "thead":
            self._in_head = False

    def handle_data(self, data: str) -> None:
        if self._silent or not self.tables:
            return
        if self._in_caption:
            self.tables[-1].caption += data
        elif self._cell is not None:
            self._cell.text += data


def _count(value: str | None) -> int:
    return min(int(value), _SPAN) if value and value.isascii() and value.isdigit() else 1
