"""The difference between two texts, line by line, of a size that somebody reads."""

from __future__ import annotations

import difflib
from itertools import takewhile

from nbrefine.notebook.markdown import visible

LINES = 1_000
"""Lines of each text that are compared, from the first on that differs."""
CONTEXT = 3
"""Lines around a change."""


def changes(old: str, new: str) -> str:
    """Give a unified diff without the lines that name its two sides; "" where both are the same.

    A line that is far behind the first change may not be compared; then the end says so.
    """
    ours, theirs = lines(old), lines(new)
    if ours == theirs:
        return ""
    same = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(ours, theirs)))  # noqa: B905 - one may go on
    begin = max(0, same - CONTEXT)
    end = begin + LINES
    told = difflib.unified_diff(ours[begin:end], theirs[begin:end], lineterm="", n=CONTEXT)
    found = [_moved(line, begin) if line.startswith("@@") else line for line in list(told)[2:]]
    left = max(len(ours), len(theirs)) - end
    return "\n".join([*found, f"@@ {left:,} more lines are not compared @@"] if left > 0 else found)


def lines(text: str) -> list[str]:
    """Give the lines of a text as a reader sees them."""
    return visible(text).rstrip("\n").split("\n") if text else []


def counted(changes: str) -> str:
    """Say how many lines only one of two texts has."""
    found = changes.split("\n")
    only_a, only_b = (sum(line.startswith(sign) for line in found) for sign in "-+")
    return f"{_many(only_a)} only in A, {_many(only_b)} only in B"


def _many(count: int) -> str:
    return f"{count:,} line{'' if count == 1 else 's'}"


def _moved(header: str, by: int) -> str:
    """Number a hunk's lines as they are in the whole texts."""
    _, ours, theirs, _ = header.split(" ")
    return f"@@ {_shifted(ours, by)} {_shifted(theirs, by)} @@"


def _shifted(span: str, by: int) -> str:
    start, comma, length = span[1:].partition(",")
    return f"{span[0]}{int(start) + by}{comma}{length}"
