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
from datetime import UTC, datetime, timedelta
from typing import Self

from nbrefine.outputs import strip_ansi


@dataclass(frozen=True, slots=True)
class Ran:
    """When a text was put out, so that the clock is told from data."""

    at: datetime | None = None
    """None where nobody knows: then no date is the clock's."""
    seconds: float | None = None
    """How long that took; no longer time is the run's own."""

    @classmethod
    def of(cls, at: str, seconds: float | None) -> Self:
        """Read when it was from a record, in ISO 8601 and in UTC where no zone is named."""
        try:
            moment = datetime.fromisoformat(at)
        except ValueError:
            return cls(None, seconds)
        return cls(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC), seconds)


Rewrite = Callable[[str, Ran], str]
"""Writes what a rule is about in one way."""

NEAR = timedelta(days=1)
"""How far a date may be from when it was put out to be the clock's, whatever the time zone."""

MINUTES = timedelta(minutes=10)
"""The same of a time of day, which stands without a date."""

SLACK = 0.1
"""Seconds that a time may be longer than its cell took, twice over where several cores worked."""

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


_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_CLOCK = r"\d\d?:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
_DATE = re.compile(
    rf"(?<![\w.-])(?P<y>\d{{4}})[-/](?P<m>\d\d)[-/](?P<d>\d\d)(?:[T ]{_CLOCK}{_ZONE})?(?![\w-])"
    rf"|(?<!\w)(?P<d2>\d\d?)[./](?P<m2>\d\d?)[./](?P<y2>\d{{4}})(?:,? {_CLOCK})?(?!\w)"
    r"|(?<!\w)(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w{0,6},? )?(?:"
    rf"(?P<M3>[A-Z][a-z]{{2}})[a-z]{{0,6}}  ?(?P<d3>\d\d?)(?: {_CLOCK}|,) (?P<y3>\d{{4}})"
    rf"|(?P<d4>\d\d?) (?P<M4>[A-Z][a-z]{{2}})[a-z]{{0,6}} (?P<y4>\d{{4}})(?: {_CLOCK}{_ZONE})?)"
    r"(?!\w)"
    r"|(?<!\w)datetime\.date(?:time)?\((?P<y5>\d{4}), (?P<m5>\d\d?), (?P<d5>\d\d?)"
    r"(?:, \d{1,6}){0,5}\)"
    r"|(?<![\w.])(?P<unix>1\d{9})(?:\.\d{1,9})?(?![\w.])"
    r"|(?<![\w:.])(?P<time>\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?(?![\w:])"
)


_DIGIT = re.compile(r"\d")


def _times(text: str, ran: Ran) -> str:
    """Replace dates and times that are about those of the moment at which the text came.

    Those that lie elsewhere are data, and one that changed is a change.
    """
    moment = ran.at
    if moment is None or _DIGIT.search(text) is None:
        return text
    return _DATE.sub(lambda found: "<time>" if _clocks(found, moment) else found[0], text)


def _clocks(found: re.Match[str], moment: datetime) -> bool:
    """Tell whether a date or time is that of the clock."""
    given = {name: value for name, value in found.groupdict().items() if value is not None}
    try:
        if "unix" in given:
            return abs(float(given["unix"]) - moment.timestamp()) <= NEAR.total_seconds()
        if "time" in given:
            return _near(given["time"], moment)
        parts = {name[0]: value for name, value in given.items()}
        month = _MONTHS[parts["M"]] if "M" in parts else int(parts["m"])
        days = {(month, int(parts["d"]))}
        if "d2" in given:  # which of the two is the month, nobody says
            days.add((int(parts["d"]), month))
        return any(_same_day(int(parts["y"]), *day, moment) for day in days)
    except (KeyError, ValueError, OverflowError):
        return False


def _same_day(year: int, month: int, day: int, moment: datetime) -> bool:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return False
    return abs(datetime(year, month, day, 12, tzinfo=moment.tzinfo) - moment) <= NEAR * 1.5


def _near(clock: str, moment: datetime) -> bool:
    """Tell whether a time of day is that of a moment, in UTC or here."""
    hours, minutes, seconds = map(int, clock.split(":"))
    if hours > 23 or minutes > 59 or seconds > 59:  # how long, and not when
        return False
    shown = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    for now in (moment, moment.astimezone()):
        there = timedelta(hours=now.hour, minutes=now.minute, seconds=now.second)
        apart = abs(shown - there)
        if min(apart, timedelta(days=1) - apart) <= MINUTES:
            return True
    return False


_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,  # the micro sign, and the Greek letter
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1,
    "sec": 1,
    "secs": 1,
    "second": 1,
    "seconds": 1,
    "min": 60,
    "mins": 60,
    "minute": 60,
    "minutes": 60,
    "h": 3600,
    "hour": 3600,
    "hours": 3600,
}
_NUMBER = r"\d[\d,]{0,15}(?:\.\d{0,18})?(?:e[+-]?\d{1,3})?"
_UNIT = "|".join(sorted(_UNITS, key=len, reverse=True))
_DURATION = re.compile(
    rf"(?P<before>(?<!\w)(?:in|took|takes|elapsed|after|runtime|duration|time|total|user|sys)"
    rf"(?: time)?(?: was| of)?[:=]? {{0,8}})(?P<long>{_NUMBER}) ?(?P<unit>{_UNIT})"
    r"(?: \d\d?(?:\.\d{1,3})? ?m?s)?(?!\w)"
    r"|(?P<before2>(?<!\w)(?:took|elapsed|runtime)(?: time)?[:=]? {0,8})(?P<bare>\d{1,6}\.\d{1,18})"
    r"(?![\w.])"
    rf"|(?<![\w.,]){_NUMBER} ?(?:{_UNIT}) ± {_NUMBER} ?(?:{_UNIT}) per loop"
    r"(?: \(mean ± std\. dev\. of [\d,]{1,15} runs?, [\d,]{1,15} loops? each\))?"
    r"|\[\d\d(?::\d\d){1,2}<[\d:?]{1,12}, {0,4}[\d.?]{1,12} ?[A-Za-z]{1,12}/[A-Za-z]{1,12}\]"
    r"|(?<!\w)\d{1,6}s \d{1,6}[mµu]?s/(?:step|epoch)(?!\w)",
    re.IGNORECASE,
)


def _durations(text: str, ran: Ran) -> str:
    """Replace how long something took, as far as its cell can have taken that long."""
    if _DIGIT.search(text) is None:
        return text
    limit = math.inf if ran.seconds is None else 2 * ran.seconds + SLACK

    def told(found: re.Match[str]) -> str:
        number = found["long"] or found["bare"]
        unit = _UNITS[found["unit"].lower()] if found["unit"] else 1
        if number is not None and float(number.replace(",", "")) * unit > limit:
            return found[0]
        return f"{found['before'] or found['before2'] or ''}<duration>"

    return _DURATION.sub(told, text)


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
    Rule("time", "a date or time of day that was the clock's when the cell ran", _times),
    Rule("duration", "how long something took", _durations, ("s", "S", "m", "M", "h", "H")),
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
