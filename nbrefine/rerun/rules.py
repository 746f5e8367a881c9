"""What may differ between two runs of one cell: named rules, each from a text to a plainer one.

Every rule takes time in proportion to its text, whatever that holds: no pattern has two parts in
a row that can take the same characters and may then fail.  What no rule names counts: a number
that is another one, or a word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nbrefine.outputs import strip_ansi
from nbrefine.rerun.clock import Ran, durations, times

Rewrite = Callable[[str, Ran], str]
"""Writes what a rule is about in one way."""

DEPTH = 40
"""How deep braces may stand in each other where sets are looked for."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of difference that says nothing about a result."""

    name: str
    """What a reader is told: "same after address, time"."""
    about: str
    """What is taken for equal, in one sentence."""
    rewrite: Rewrite
    signs: tuple[str, ...] = ()
    """A text that holds none of these has nothing for it."""

    def __call__(self, text: str, ran: Ran) -> str:
        """Write what the rule is about in one way."""
        if self.signs and not any(sign in text for sign in self.signs):
            return text
        return self.rewrite(text, ran)


def _replacing(pattern: str, by: str, flags: int = 0) -> Rewrite:
    compiled = re.compile(pattern, flags)
    return lambda text, _: compiled.sub(by, text)


def _plain(change: Callable[[str], str]) -> Rewrite:
    return lambda text, _: change(text)


def _progress(text: str) -> str:
    """Keep of each line what its last carriage return has left."""
    if "\r" not in text:
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


_PATH = re.compile(r"~?[/\\][^\s'\"<>|,;()\[\]]+")
_LIBRARY = re.compile(r".*(?:/|\\)(?:site|dist)-packages(?=/|\\)", re.DOTALL)
_STANDARD = re.compile(r".*/lib/python3\.\d+(?=/)", re.DOTALL)
_TEMPORARY = re.compile(r"(?:/private)?(?:/var)?/tmp(?=/)|(?:/private)?/var/folders/\w+/\w+/T(?=/)")
_RANDOM = re.compile(r"(?<=/)(?:tmp[a-z0-9_]{8}(?![a-z0-9_])|ipykernel_\d+/\d+(?=\.py))")
_HOME = re.compile(r"/(?:home|Users)/[^/]+|/root(?=/)")


def _path(found: re.Match[str]) -> str:
    path = found[0]
    for pattern, by in ((_LIBRARY, "<packages>"), (_STANDARD, "<python>")):
        if (start := pattern.match(path)) is not None:
            return by + path[start.end() :]
    if (start := _TEMPORARY.match(path)) is not None:
        return "<temp>" + _RANDOM.sub("<random>", path[start.end() :])
    if (start := _HOME.match(path)) is not None:
        return "~" + path[start.end() :]
    return path


def _paths(text: str) -> str:
    return _PATH.sub(_path, text)


_TOKEN = re.compile(r"[{}\[\](),:\\]|'[^'\\\n]*'|\"[^\"\\\n]*\"")


def _sets(text: str) -> str:
    """Sort the elements of what looks like the repr of a set, inner ones first."""
    if "{" not in text:
        return text
    open_ = [_Open("")]
    at = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        newest = open_[-1]
        newest.elements[-1].append(text[at : token.start()])
        at = token.end()
        if mark in _CLOSING:
            if len(open_) > DEPTH:
                return text
            called = text[token.start() - 1 : token.start()].isalnum()
            open_.append(_Open(mark, odd=called))
        elif mark in _CLOSING.values() and len(open_) > 1:
            if _CLOSING[newest.mark] != mark:
                return text
            open_.pop()
            open_[-1].elements[-1].append(newest.closed())
        elif mark == "," and len(open_) > 1:
            newest.elements.append([])
        else:
            newest.odd |= mark in (":", "\\")
            newest.elements[-1].append(mark)
    if len(open_) > 1:
        return text
    return "".join(open_[0].elements[0]) + text[at:]


_CLOSING = {"{": "}", "[": "]", "(": ")"}


@dataclass(slots=True)
class _Open:
    """A bracket that has been opened."""

    mark: str
    odd: bool = False
    """Whether it holds a dict, or nothing of Python's."""
    elements: list[list[str]] = field(default_factory=lambda: [[]])
    """The pieces of each."""

    def closed(self) -> str:
        elements = ["".join(pieces) for pieces in self.elements]
        if self.mark == "{" and not self.odd:
            elements = sorted(element.strip() for element in elements)
            return f"{{{', '.join(elements)}}}"
        return f"{self.mark}{','.join(elements)}{_CLOSING[self.mark]}"


RULES: tuple[Rule, ...] = (
    Rule("colour", "ANSI codes", _plain(strip_ansi), ("\x1b", "\x9b")),
    Rule("progress", "what a carriage return has overwritten", _plain(_progress), ("\r",)),
    Rule(
        "warning place",
        "the file and line at which a warning was given",
        _replacing(r"^[^\n:]+:\d+: (?=[A-Z]\w{0,60}Warning: )", "<place>: ", re.MULTILINE),
        ("Warning: ",),
    ),
    Rule(
        "path",
        "where packages, temporary files and the home folder lie",
        _plain(_paths),
        ("/", "\\"),
    ),
    Rule(
        "address",
        "where an object lies in memory",
        _replacing(
            r"(?<=\bat )0x[0-9A-Fa-f]{6,16}(?!\w)"
            # Elsewhere only what systems give to programs, since data may have twelve digits, too.
            r"|(?<!\w)0x(?:7[ef][0-9a-f]{2}|5[56][0-9a-f]{2}|ffff|aaaa)[0-9a-f]{8}(?!\w)",
            "<address>",
        ),
        ("0x",),
    ),
    Rule(
        "id",
        "a UUID but one made of a name (versions 3 and 5), or a name that a display got by chance",
        _replacing(
            r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-246-9A-Fa-f][0-9A-Fa-f]{3}"
            r"-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f])"
            r"|(?<=\"model_id\": \")[0-9a-f]{32}(?=\")|(?<=\bT_)[0-9a-f]{5}(?![0-9a-f])",
            "<id>",
        ),
        ("-", "model_id", "T_"),
    ),
    Rule("time", "a date or time of day that was the clock's when the cell ran", times),
    Rule("duration", "how long something took", durations, ("s", "S", "m", "M", "h", "H")),
    Rule(
        "count",
        "the number of the cell, as in In[7]",
        _replacing(r"(?<!\w)(In|Out) ?\[\d+\]|(?<=<ipython-input-)\d+-\w{1,40}", r"\1[<count>]"),
        ("[", "<ipython-input-"),
    ),
    Rule(
        "hint",
        "a name that Python thinks was meant",
        _replacing(r"\.? Did you mean:? [^\n?]{1,200}\?", ""),
        ("Did you mean",),
    ),
    Rule("set order", "in which order a set shows its elements", _plain(_sets), ("{",)),
)
"""The rules in the order in which they apply; `float` and those about outputs come after them."""

MARK = Rule(
    "mark",
    "the sign that fences a program's output, which follows from it",
    _replacing(r"(?<=[a-z] )[0-9a-f]{8}(?=>)", "<mark>"),
)
"""For prompts alone."""

FLOAT = re.compile(
    r"(?<![\w.])(?<!:\d\d:)[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE][+-]?\d))(?:[eE][+-]?\d+)?(?![\w.])"
)
_WHOLE = re.compile(r"[+-]?\d+\.0*")
_ZERO = re.compile(r"[+-]?[0.]+(?:[eE][+-]?\d+)?")
_BLANKS = re.compile(r"[ \t]+|-{2,}")


def close(was: str, now: str, rtol: float) -> bool:
    """Tell whether two texts are equal but for floats that are close, and the blanks around them.

    Whole numbers must be equal, also in a column of floats; so must a zero, to which nothing is
    near in proportion, what a float cannot hold, and the fraction of a second on a clock.
    """
    old, new = FLOAT.findall(was), FLOAT.findall(now)
    if len(old) != len(new) or old == new:
        return False
    near = (_close(a, b, rtol) for a, b in zip(old, new, strict=True))
    return all(near) and _frame(was) == _frame(now)


def _close(was: str, now: str, rtol: float) -> bool:
    old, new = float(was), float(now)
    if math.isinf(old) or math.isinf(new):
        return was == now
    if old == new == 0:
        return (_ZERO.fullmatch(was) and _ZERO.fullmatch(now)) is not None or was == now
    if _WHOLE.fullmatch(was) and _WHOLE.fullmatch(now):
        return old == new
    return math.isclose(old, new, rel_tol=rtol)


def _frame(text: str) -> str:
    return _BLANKS.sub(" ", FLOAT.sub(" <float> ", text))


@dataclass(frozen=True, slots=True)
class Likened:
    """Two texts after the rules."""

    was: str
    now: str
    same: bool
    after: tuple[str, ...] = ()
    """The names of the rules without which they would not be the same."""


def liken(
    was: str,
    now: str,
    rules: Sequence[Rule],
    *,
    ran: tuple[Ran, Ran] = (Ran(), Ran()),
    rtol: float = 0.0,
) -> Likened:
    """Compare two texts by rules, and tell which of them it took.

    Parameters
    ----------
    ran: when each of the texts was put out.
    rtol: how far floats may be apart, in proportion; 0 for not at all.
    """
    if was == now:
        return Likened(was, now, same=True)
    working = _working(was, now, rules, ran)
    old, new = _after(was, now, working, ran)
    if not _equal(old, new, rtol):
        return Likened(old, new, same=False)
    for rule in tuple(working):  # those that it goes without are not told
        fewer = [each for each in working if each is not rule]
        if _equal(*_after(was, now, fewer, ran), rtol):
            working = fewer
    old, new = _after(was, now, working, ran)
    names = [rule.name for rule in working] + (["float"] if old != new else [])
    return Likened(old, new, same=True, after=tuple(names))


def _working(was: str, now: str, rules: Sequence[Rule], ran: tuple[Ran, Ran]) -> list[Rule]:
    """Give the rules that find anything."""
    found = []
    for rule in rules:
        old, new = rule(was, ran[0]), rule(now, ran[1])
        if (old, new) != (was, now):
            found.append(rule)
        was, now = old, new
    return found


def _after(was: str, now: str, rules: Sequence[Rule], ran: tuple[Ran, Ran]) -> tuple[str, str]:
    for rule in rules:
        was, now = rule(was, ran[0]), rule(now, ran[1])
    return was, now


def _equal(was: str, now: str, rtol: float) -> bool:
    return was == now or (rtol > 0 and close(was, now, rtol))
