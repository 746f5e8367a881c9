"""Long texts that come again and again, so that each stands on a page once.

A prompt repeats the task, the code and what came of it, and the feedback repeats the output.  What
has a place on the page already is quoted: by a link, which a script replaces by the text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

SHORTEST = 300
"""Characters from which a passage is quoted and not repeated."""

_ANCHOR = 80
"""Characters by which a line is known."""

_RECENT = 6
"""Passages that are looked at for a line; what comes again has mostly come just before."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that has a place on the page."""

    text: str
    target: str
    """Id of the element that holds it and nothing else, or quotes of parts of it."""
    told: str
    """What it is, such as "the code of attempt 2"."""
    quotes: bool = False
    """Whether its element quotes others in turn."""


@dataclass(frozen=True, slots=True)
class Quote:
    """A part of a passage in place of its text."""

    passage: Passage
    begin: int
    end: int

    @property
    def told(self) -> str:
        """Such as "the code of attempt 2, 312 characters"."""
        length, whole = self.end - self.begin, len(self.passage.text)
        part = (
            f"{length:,} characters" if length == whole else f"{length:,} of {whole:,} characters"
        )
        return f"{self.passage.told}, {part}"

    @property
    def units(self) -> tuple[int, int]:
        """Where it begins and ends as a script counts, in units of UTF-16."""
        return _units(self.passage.text[: self.begin]), _units(self.passage.text[: self.end])


class Passages:
    """The passages that a page has had so far, found by the lines in them."""

    def __init__(self) -> None:
        self._known: dict[str, deque[tuple[Passage, int]]] = {}

    def add(self, text: str, target: str, told: str, *, quotes: bool = False) -> None:
        """Remember a passage; a short one is not worth it.

        Parameters
        ----------
        quotes: whether its element quotes others in turn.
        """
        if len(text) < SHORTEST:
            return
        passage = Passage(text, target, told, quotes)
        lines: dict[str, int] = {}
        for at in _starts(text):
            lines.setdefault(_line(text, at), at)
        for line, at in lines.items():
            self._known.setdefault(line, deque(maxlen=_RECENT)).append((passage, at))

    def split(self, text: str, *, flat: bool = False) -> list[str | Quote]:
        """Give a text as what is new in it and quotes of what is not.

        Parameters
        ----------
        flat: quote only what quotes nothing in turn, so that no quotation leads on without end.
        """
        return [piece for piece in self._split(text, flat) if piece]

    def _split(self, text: str, flat: bool) -> Iterator[str | Quote]:
        done, starts = 0, deque(_starts(text))
        while starts:
            at = starts.popleft()
            found = self._longest(text, at, flat)
            if found is None:
                continue
            passage, begin, same = found
            back = _common(text[done:at][::-1], passage.text[:begin][::-1])
            first, last = _whole_lines(text, at - back, at, at + same)
            yield text[done:first]
            yield Quote(passage, begin + first - at, begin + last - at)
            done = last
            while starts and starts[0] < done:
                starts.popleft()
        yield text[done:]

    def _longest(self, text: str, at: int, flat: bool) -> tuple[Passage, int, int] | None:
        """Find what reads on as a text does from a place in it."""
        wanted = text[at : at + SHORTEST]
        if len(wanted) < SHORTEST:
            return None
        every = (
            (passage, begin, _common(text[at:], passage.text[begin:]))
            for passage, begin in reversed(self._known.get(_line(text, at), ()))
            if passage.text.startswith(wanted, begin) and not (flat and passage.quotes)
        )
        return max(every, key=lambda match: match[2], default=None)


def _whole_lines(text: str, first: int, at: int, last: int) -> tuple[int, int]:
    """Leave out a part of a line at either end of what is alike, where enough is left of it.

    Parameters
    ----------
    first, at, last: where it begins and ends, and where a line of it begins.
    """
    if first > 0 and text[first - 1] != "\n":
        first = text.find("\n", first, at) + 1 or at
    if last < len(text) and text[last] != "\n":
        end = text.rfind("\n", first, last)
        last = end if end - first >= SHORTEST else last
    return first, last


def _starts(text: str) -> Iterator[int]:
    """Give where the lines of a text begin."""
    at = 0
    while at >= 0:
        yield at
        at = text.find("\n", at) + 1 or -1


def _line(text: str, at: int) -> str:
    """Give the beginning of a line, by which it is known."""
    return text[at : at + _ANCHOR].partition("\n")[0]


def _common(one: str, other: str) -> int:
    """Count the characters in which two texts begin alike."""
    same, differs = 0, min(len(one), len(other))
    if one[:differs] == other[:differs]:
        return differs
    while differs - same > 1:  # alike up to `same`, not alike up to `differs`
        middle = (same + differs) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            differs = middle
    return same


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
