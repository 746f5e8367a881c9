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
"""Characters by which a passage is found; a text that was cut has its head or its tail."""

_RECENT = 24
"""Passages that are looked for; what comes again does so soon."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that has a place on the page."""

    text: str
    target: str
    """Id of the element that holds it and nothing else."""
    told: str
    """What it is, such as "the code of attempt 2"."""


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
    """The passages that a page has had so far."""

    def __init__(self) -> None:
        self._lasting: list[Passage] = []
        self._recent: deque[Passage] = deque(maxlen=_RECENT)

    def add(self, text: str, target: str, told: str, *, lasting: bool = False) -> None:
        """Remember a passage; a short one is not worth it."""
        if len(text) >= SHORTEST:
            (self._lasting if lasting else self._recent).append(Passage(text, target, told))

    def split(self, text: str) -> list[str | Quote]:
        """Give a text as what is new in it and quotes of what is not."""
        return list(self._split(text))

    def _split(self, text: str) -> Iterator[str | Quote]:
        found = self._longest(text)
        if found is None:
            if text:
                yield text
            return
        begin, quote = found
        yield from self._split(text[:begin])
        yield quote
        yield from self._split(text[begin + quote.end - quote.begin :])

    def _longest(self, text: str) -> tuple[int, Quote] | None:
        if len(text) < SHORTEST:
            return None
        every = (
            match
            for passage in (*self._lasting, *reversed(self._recent))
            for match in _matches(text, passage)
        )
        return max(every, key=lambda match: match[1].end - match[1].begin, default=None)


def _matches(text: str, passage: Passage) -> Iterator[tuple[int, Quote]]:
    """Find the head and the tail of a passage in a text, as far as both agree."""
    source = passage.text
    at = text.find(source[:_ANCHOR])
    if at >= 0:
        same = _common(text[at:], source)
        if same >= SHORTEST:
            yield at, Quote(passage, 0, same)
            if same == len(source):
                return
    at = text.rfind(source[-_ANCHOR:])
    if at >= 0:
        stop = at + _ANCHOR
        same = _common(text[:stop][::-1], source[::-1])
        if same >= SHORTEST:
            yield stop - same, Quote(passage, len(source) - same, len(source))


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
