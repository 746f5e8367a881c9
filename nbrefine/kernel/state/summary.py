"""A session's variables in a few lines: tables first, then arrays, then the rest, newest first.

Names that differ by a number and stand for alike values share a line.  Whatever there is no room
for is named or counted.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from nbrefine.kernel.state.variable import Variable

LIMIT = 3000
"""Characters of a summary, unless said otherwise: as many as a prompt shows of any text."""

ALIKE = 4
"""From so many on, alike variables share a line."""

LATELY = 12
"""How many of the variables that were bound last are told before any table."""

BRIEF = 20
"""Characters of a value that is shown for many like it."""

DEEP, BROAD = 0.6, 0.85
"""Where not all fits: the share of the room for the first ones with all that is known of them,
and that up to which others are told by name, type and extent."""

NOTE = 300
"""Characters for the names of those that are left out."""


def describe(
    variables: Sequence[Variable], *, limit: int = LIMIT, recent: Sequence[str] = ()
) -> str:
    """Describe variables in a few lines, the most useful first; "" where there are none.

    Parameters
    ----------
    variables: in the order in which their names were first bound.
    limit: characters; what does not fit is named or counted in a last line.
    recent: names that were bound or changed lately, the newest first.
    """
    entries = _entries(variables, recent)
    lines = _whole(entries, limit) or _fitted(entries, limit)
    left = [entry for entry, line in zip(entries, lines, strict=True) if not line]
    note = _left_out(left, limit)
    room = limit - _length(lines) - (len(note) + 1 if note else 0)
    return "\n".join(part for part in (*_with_rows(entries, lines, room), note) if part)


TOGETHER = 3
"""The first rank of what is told in one line."""

_TOLD_TOGETHER = {"function": "functions", "class": "classes", "module": "modules"}


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the summary."""

    title: str
    """How it is named where it is left out."""
    count: int
    """How many names it stands for."""
    rank: int
    age: int
    """The smaller, the later it was bound."""
    recent: bool
    short: str
    fit: Callable[[int], str]
    """Gives the line in so many characters."""
    rows: str = ""
    """The first rows of a table."""


def _entries(variables: Sequence[Variable], recent: Sequence[str]) -> list[_Entry]:
    ages = {variable.name: -at for at, variable in enumerate(variables)}
    ages |= {name: at - len(variables) - len(recent) for at, name in enumerate(recent)}
    lately = frozenset(recent)
    data = [variable for variable in variables if variable.kind == "data"]
    entries = [_entry(group, ages, lately) for group in _groups(data, lately)]
    for rank, (kind, title) in enumerate(_TOLD_TOGETHER.items(), TOGETHER):
        named = [variable for variable in variables if variable.kind == kind]
        if named:
            named.sort(key=lambda each: ages[each.name])
            entries.append(_together(title, rank, named))
    return sorted(entries, key=lambda entry: (entry.rank, entry.age))


def _groups(data: Iterable[Variable], lately: frozenset[str]) -> list[list[Variable]]:
    """Put alike variables together; what is new is told apart from what was there before."""
    groups: dict[tuple[object, ...], list[Variable]] = {}
    for variable in data:
        stem = _NUMBER.sub("#", variable.name)
        shape = variable.shape
        key: tuple[object, ...] = (stem, variable.type, variable.name in lately)
        if _is_table(variable):
            key = (*key, variable.keys, shape and shape[1:])
        elif shape is not None and _rank(variable) == 1:
            key = (*key, len(shape), variable.detail)
        groups.setdefault(key, []).append(variable)
    found: list[list[Variable]] = []
    for key, group in groups.items():
        folded = "#" in str(key[0]) and len(group) >= ALIKE
        found += [group] if folded else [[variable] for variable in group]
    return found


_NUMBER = re.compile(r"[0-9]+")


def _entry(group: Sequence[Variable], ages: dict[str, int], lately: frozenset[str]) -> _Entry:
    first = group[0]
    age = min(ages[variable.name] for variable in group)
    recent = first.name in lately
    if len(group) > 1:
        ordered = sorted(group, key=lambda variable: _natural(variable.name))
        title = f"{ordered[0].name} … {ordered[-1].name}"
        short = f"{title}: {_many(ordered)}"
        rows = f"{ordered[0].name}: {ordered[0].preview}"
        tell = partial(_folded, title, ordered)
    else:
        title, rows, tell = first.name, first.preview, partial(_line, first)
        short = f"{title}: {_extent(first)}"
    return _Entry(
        _printable(title),
        len(group),
        _rank(first),
        age,
        recent,
        _printable(short),
        # Made when it is wanted, as there may be thousands and room for some.
        lambda room: _shortened(_printable(tell()), room),
        f"  first rows: {_printable(rows)}" if _is_table(first) and first.preview else "",
    )


def _natural(name: str) -> list[tuple[int, str]]:
    return [(len(digits), digits) for digits in (n.lstrip("0") for n in _NUMBER.findall(name))]


def _many(group: Sequence[Variable]) -> str:
    """Tell how many there are of alike variables, and their extents."""
    told = group[0].type if group[0].type.endswith("s") else f"{group[0].type}s"
    return f"{len(group):,} {told} {_between(group)}".rstrip()


def _folded(title: str, group: Sequence[Variable]) -> str:
    """Give the line of alike variables, which are in the order of their numbers."""
    first, short = group[0], f"{title}: {_many(group)}"
    if _is_table(first):
        # What is missing differs from one to the next.
        return f"{short}; {_MISSING.sub('', first.detail)}"
    if first.shape is not None:
        same = first.detail and len({each.detail for each in group}) == 1
        return f"{short}, {first.detail}" if same else short
    values = [each.preview for each in (first, group[1], group[-1])]
    plain = all(0 < len(value) <= BRIEF for value in values)
    return f"{short} = {values[0]}, {values[1]}, …, {values[2]}" if plain else short


_MISSING = re.compile(r", [\d,]+ missing")


def _between(group: Sequence[Variable]) -> str:
    """Tell the extents of several values; "" where they have none."""
    shapes = {variable.shape for variable in group if variable.shape is not None}
    if len(shapes) < 2:
        size = _size(group[0])
        return f"of {size}" if _is_table(group[0]) else size
    low, high = min(shapes), max(shapes)
    if _is_table(group[0]):
        return f"of {low[0]:,} to {high[0]:,} rows x {low[1]:,} columns"
    if len(low) == 1:
        return f"of length {low[0]:,} to {high[0]:,}"
    return f"of shapes {low} to {high}"


def _together(title: str, rank: int, named: Sequence[Variable]) -> _Entry:
    """Tell all functions, classes or modules in one line."""
    told = [_printable(_named(variable)) for variable in named]
    short = _listed(title, [_printable(variable.name) for variable in named], 80)
    count = len(named)
    return _Entry(
        f"{count:,} {title if count > 1 else named[0].kind}",
        count,
        rank,
        0,
        False,
        short,
        lambda room: _listed(title, told, room),
    )


def _named(variable: Variable) -> str:
    if variable.kind == "module":
        same = variable.preview in ("", variable.name)
        return variable.name if same else f"{variable.name} ({variable.preview})"
    return f"{variable.name}{variable.preview}"


def _rank(variable: Variable) -> int:
    dimensions = len(variable.shape or ())
    if _is_table(variable) or variable.type == "LazyFrame":
        return 0
    # A built-in container tells no dtype, and has no more than a length.
    return 1 if dimensions >= 2 or variable.type in ("ndarray", "Series") else 2


def _is_table(variable: Variable) -> bool:
    return len(variable.shape or ()) == 2 and variable.type.endswith("Frame")


def _line(variable: Variable) -> str:
    told = f"{variable.name}: {_extent(variable)}"
    if _is_table(variable):
        return f"{told}; {variable.detail}"
    told += f", {variable.detail}" if variable.detail else ""
    return f"{told} = {variable.preview}" if variable.preview else told


def _extent(variable: Variable) -> str:
    return f"{variable.type} {_size(variable)}".rstrip()


def _size(variable: Variable) -> str:
    shape = variable.shape
    if shape is None:
        return ""
    if _is_table(variable):
        return f"{shape[0]:,} rows x {shape[1]:,} columns"
    return f"of length {shape[0]:,}" if len(shape) == 1 else f"of shape {shape}"


def _whole(entries: Sequence[_Entry], limit: int) -> list[str]:
    """Give all lines; [] where not all fit, as soon as that is known."""
    lines: list[str] = []
    room = limit + 1
    for entry in entries:
        lines.append(entry.fit(sys.maxsize))
        room -= len(lines[-1]) + 1
        if room < 0:
            return []
    return lines


def _fitted(entries: Sequence[_Entry], limit: int) -> list[str]:
    """Give the lines where not all fit: some in full, more in short, "" for the rest."""
    order = _by_weight(entries)
    shown = [""] * len(entries)
    room = limit - _reserve(limit)
    for at in order:
        text = _below(entries[at].fit(max(limit // 3, 120)), entries[at].rows)
        if _length(shown) + len(text) + 1 > room * DEEP:
            break
        shown[at] = text
    used = _length(shown)
    for at in _by_breadth(entries, order):
        if not shown[at] and used + len(entries[at].short) + 1 <= room * BROAD:
            shown[at] = entries[at].short
            used += len(shown[at]) + 1
    left = [entry for entry, text in zip(entries, shown, strict=True) if not text]
    room = limit - used - (len(_left_out(left, limit)) + 1 if left else 0)
    for at in order:
        text = entries[at].fit(len(shown[at]) + max(room, 0)) if shown[at] else ""
        more = len(text) - len(shown[at])
        told = text.startswith(shown[at]) or entries[at].rank >= TOGETHER
        if "\n" not in shown[at] and told and 0 < more <= room:
            room -= more
            shown[at] = text
    return shown


def _by_weight(entries: Sequence[_Entry]) -> list[int]:
    """Give the places of the entries: what was bound last, then the others as they stand."""
    lately = sorted(
        (at for at, entry in enumerate(entries) if entry.recent), key=lambda at: entries[at].age
    )[:LATELY]
    return [*lately, *(at for at in range(len(entries)) if at not in lately)]


def _by_breadth(entries: Sequence[_Entry], order: Sequence[int]) -> list[int]:
    """Give the places again: what stands for many, then by turns of tables, arrays and others."""
    turns: Counter[int] = Counter()
    keys = {}
    for at in order:
        entry = entries[at]
        turns[entry.rank] += 1
        keys[at] = (entry.count == 1, 0 if entry.count > 1 else turns[entry.rank], entry.rank)
    return sorted(order, key=keys.__getitem__)


def _reserve(limit: int) -> int:
    return min(max(min(NOTE, limit // 4), 30), limit)  # to count them takes up to 30


def _length(lines: Iterable[str]) -> int:
    """Count the characters of lines put together."""
    return max(sum(len(line) + 1 for line in lines if line) - 1, 0)


def _below(line: str, rows: str) -> str:
    return f"{line}\n{rows}" if rows else line


def _with_rows(entries: Sequence[_Entry], lines: Sequence[str], room: int) -> list[str]:
    """Add the first rows of tables below their lines, as far as there is room."""
    told: list[str] = []
    for entry, line in zip(entries, lines, strict=True):
        fits = line and "\n" not in line and entry.rows and len(entry.rows) < room
        room -= len(entry.rows) + 1 if fits else 0
        told.append(_below(line, entry.rows) if fits else line)
    return told


def _shortened(line: str, room: int) -> str:
    """Cut a line at a comma, so that no column name is cut in two."""
    if len(line) <= room:
        return line
    head = line[: max(room - 3, 0)]
    whole, comma, _ = head.rpartition(", ")
    kept = (whole if comma else head).rstrip("; ")
    return f"{kept}, …"[: max(room, 0)]


def _left_out(left: Sequence[_Entry], limit: int) -> str:
    """Name what is left out, or count it."""
    counts = [entry.count for entry in left]
    room = _reserve(limit)
    told = _listed("not shown", [entry.title for entry in left], room, counts) if left else ""
    return told if len(told) <= room else told[:limit]


def _listed(title: str, texts: Sequence[str], room: int, counts: Sequence[int] = ()) -> str:
    """Name as many as fit in, and count the others.

    Parameters
    ----------
    counts: how many each text stands for; one each, if not given.
    """
    counts = counts or [1] * len(texts)
    left = sum(counts)
    line = ""
    for text, count in zip(texts, counts, strict=True):
        longer = f"{line}, {text}" if line else f"{title}: {text}"
        more = f" and {left - count:,} more" if left > count else ""
        if len(longer) + len(more) > room:
            return (
                f"{line} and {left:,} more"
                if line
                else f"{title}: {left:,} name{'s' if left > 1 else ''}"
            )
        line, left = longer, left - count
    return line


def _printable(text: str) -> str:
    """Spell out what would break a line, or colour it."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
