"""What a terminal would show of a text with carriage returns, backspaces and erased lines."""

from __future__ import annotations

import re

ROW = 4096
"""Characters of an unfinished line that a carriage return can reach.

A terminal returns to the start of the last wrapped row; a longer line is final up to its end.
"""

_MOVES = re.compile(r"[\r\b]|\x1b\[[012]?K")
_PIECE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|.", re.DOTALL)


class Terminal:
    """One text as it grows: finished lines leave it, the last line can still change.

    The cursor model is ECMA-48's: CR goes to the start of the line, BS one column back, neither
    erases; EL (`ESC [ K`) does.  Colour codes take no column.
    """

    def __init__(self) -> None:
        self.line = ""
        """The unfinished last line, as shown."""
        self._column: int | None = None  # None: behind the last character

    def feed(self, text: str) -> str:
        """Add text and give what is final now; the rest stays in `line`."""
        if self._column is None and not _MOVES.search(text):
            final, newline, self.line = (self.line + text).rpartition("\n")
            return final + newline + self._spill()
        lines = text.split("\n")
        final = ""
        for segment in lines[:-1]:
            self._write(segment)
            final += self.line + "\n"
            self.line, self._column = "", None
        self._write(lines[-1])
        return final + self._spill()

    def _spill(self) -> str:
        if len(self.line) <= ROW:
            return ""
        if self._column is None:
            spilled, self.line = self.line[:-ROW], self.line[-ROW:]
            return spilled
        cells, colour = _cells(self.line)
        _close(cells, len(cells), colour)
        spilled, self.line = "".join(cells[:-ROW]), "".join(cells[-ROW:])
        self._column = max(0, self._column - max(0, len(cells) - ROW))
        return spilled

    def _write(self, segment: str) -> None:
        if self._column is None and not _MOVES.search(segment):
            self.line += segment
            return
        # A colour belongs to the character that follows, or to the one before a move.
        cells, colour = _cells(self.line)
        if self._column is None:
            column = len(cells)
        else:
            column = self._column
            _close(cells, len(cells), colour)
            colour = ""
        for piece in _PIECE.findall(segment):
            if len(piece) > 1 and not piece.endswith("K"):
                colour += piece
            elif piece in "\r\b" or len(piece) > 1:
                _close(cells, column, colour)
                colour = ""
                column = _move(cells, column, piece)
            else:
                cells[column : column + 1] = [colour + piece]
                colour = ""
                column += 1
        _close(cells, column, colour)
        self.line = "".join(cells)
        self._column = None if column >= len(cells) else column


def _move(cells: list[str], column: int, piece: str) -> int:
    """Move the cursor or erase, and give the new column."""
    if piece == "\r":
        return 0
    if piece == "\b":
        return max(0, column - 1)
    mode = piece[2:-1] or "0"
    if mode == "0":
        del cells[column:]
    elif mode == "1":
        cells[:column] = [" "] * min(column, len(cells))
    else:
        cells[:] = [" "] * column
    return column


def _close(cells: list[str], column: int, colour: str) -> None:
    """Let a colour code that no character followed stay behind the last one."""
    if colour:
        last = max(0, column - 1)
        cells[last:column] = ["".join(cells[last:column]) + colour]


def _cells(line: str) -> tuple[list[str], str]:
    """Split a line into its columns, each with the colours before it, and the colours behind."""
    cells: list[str] = []
    colour = ""
    for piece in _PIECE.findall(line):
        if len(piece) > 1:
            colour += piece
        else:
            cells.append(colour + piece)
            colour = ""
    return cells, colour
