"""What the clock has put into a text: dates, times of day, and how long something took.

No pattern has two parts in a row that can take the same characters and may then fail, so that each
takes time in proportion to its text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self


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


NEAR = timedelta(days=1)
"""How far a date may be from when it was put out to be the clock's, whatever the time zone."""

MINUTES = timedelta(minutes=10)
"""The same of a time of day, which stands without a date."""

SLACK = 0.1
"""Seconds that a time may be longer than its cell took, twice over where several cores worked."""

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


def times(text: str, ran: Ran) -> str:
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


def durations(text: str, ran: Ran) -> str:
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
