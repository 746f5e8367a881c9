"""Fields of an answer, as `@name[value]`: a printed line carries them through any notebook."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nbrefine.values import AnswerForm

MARK = re.compile(r"@([^\W\d][\w-]*)[ \t]?\[")
"""Where a field begins; its name is the first group."""


def fields_of(text: str) -> dict[str, str]:
    """Read `@mean[34.65] @sd[1.2]` as {"mean": "34.65", "sd": "1.2"}; the last of a name counts.

    A value may hold brackets in balance; with a bracket too many or too few, it ends at the last
    one on its line.
    """
    return {name: value.strip() for name, value, _ in marked(text) if value is not None}


def only_fields(text: str) -> bool:
    """Tell whether a text is fields and nothing else, but for blanks and commas."""
    rest, found = text, False
    for name, value, _ in marked(text):
        if value is not None:
            rest, found = re.sub(rf"@{name}[ \t]?\[{re.escape(value)}\]", "", rest), True
    return found and not rest.strip(" \t\r\n,;")


def fields_form(text: str) -> AnswerForm | None:
    """Read a wording such as "@mean[value], where value is a number"; None without such a field.

    A field that is spoken of once only and behind an "if" may be left out of an answer.
    """
    marks = list(marked(text))
    names = [name for name, _, _ in marks]
    needed = [
        name for name, _, start in marks if names.count(name) > 1 or not _conditional(text, start)
    ]
    if not needed:
        return None
    told = text.strip()
    if told.startswith("{") and told.count("{") > told.count("}"):
        told = told[1:].strip()
    return AnswerForm("fields", told=told, fields=tuple(dict.fromkeys(needed)))


def marked(text: str) -> Iterator[tuple[str, str | None, int]]:
    """Give each field's name, its value or None where no bracket ends it, and where it begins."""
    marks = list(MARK.finditer(text))
    for at, mark in enumerate(marks):
        end = marks[at + 1].start() if at + 1 < len(marks) else len(text)
        yield mark[1], _within(text[mark.end() : end]), mark.start()


def _within(text: str) -> str | None:
    """Give what stands before the bracket that closes one already open; None without any."""
    depth = 1
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth == 0:
            return text[:at]
    line = text.partition("\n")[0]
    return line.rpartition("]")[0] if "]" in line else None


def _conditional(text: str, start: int) -> bool:
    sentence = re.split(r"[.;\n]\s", text[:start])[-1]
    return re.search(r"\bif\b", sentence, re.IGNORECASE) is not None
