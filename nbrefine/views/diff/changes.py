"""The difference between two texts, line by line, of a size that somebody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile

from nbrefine.notebook.markdown import visible

LINES = 1_000
"""Lines of each text that are compared, from the first on that differs."""
CONTEXT = 3
"""Lines around a change."""
ALIKE = 2_000
"""Pairs of equal lines that are looked at; the time that a comparison takes grows with them."""


def changes(old: str, new: str) -> str:
    """Give a unified diff without the lines that name its two sides; "" where both are the same.

    A line that is far behind the first change may not be compared; then the end says so.
    """
    ours, theirs = lines(old), lines(new)
    if ours == theirs:
        return ""
    both = zip(ours, theirs, strict=False)
    begin = max(0, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both)) - CONTEXT)
    end = begin + LINES
    found = list(_hunks(ours[begin:end], theirs[begin:end], begin))
    left = max(len(ours), len(theirs)) - end
    return "\n".join([*found, f"@@ {left:,} more lines are not compared @@"] if left > 0 else found)


def _hunks(ours: Sequence[str], theirs: Sequence[str], begin: int) -> Iterator[str]:
    matcher = SequenceMatcher(None, *_keys(ours, theirs), autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        (_, i, _, j, _), (_, _, k, _, m) = group[0], group[-1]
        yield f"@@ -{_span(i + begin, k - i)} +{_span(j + begin, m - j)} @@"
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from (f" {line}" for line in ours[i1:i2])
            else:
                yield from (f"-{line}" for line in ours[i1:i2])
                yield from (f"+{line}" for line in theirs[j1:j2])


def _keys(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[_Key], list[_Key]]:
    """Give what lines are compared by: where the same few come often, also which time it is."""
    left, right = Counter(ours), Counter(theirs)
    if sum(count * right[line] for line, count in left.items()) <= ALIKE:
        return [(line, 0) for line in ours], [(line, 0) for line in theirs]
    return list(_numbered(ours)), list(_numbered(theirs))


_Key = tuple[str, int]


def _numbered(found: Sequence[str]) -> Iterator[_Key]:
    seen: Counter[str] = Counter()
    for line in found:
        seen[line] += 1
        yield line, seen[line]


def _span(start: int, length: int) -> str:
    """Name lines as a unified diff does: from 1 on, and the one before where there are none."""
    first = start + 1 if length else start
    return f"{first}" if length == 1 else f"{first},{length}"


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
