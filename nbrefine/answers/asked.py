"""What a wording asks of one field of an answer: one of some choices, or a number.

It is read only where the words leave no doubt: an answer that is refused for a choice that
nobody has asked for costs more than one that is not checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nbrefine.answers.fields import MARK, marked


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of one field; nothing, where nothing can be read."""

    placeholder: str = ""
    """What stands for the value, such as "mean_value" in "@mean[mean_value]"."""
    explained: bool = False
    """Whether the wording says what the placeholder stands for."""
    choices: tuple[str, ...] = ()
    number: bool = False

    @classmethod
    def of(cls, name: str, told: str) -> Asked:
        """Read what is asked of a field.

        Parameters
        ----------
        told: the wording, such as '@fit[fit], where "fit" is either "good" or "poor"'.
        """
        marks = [(field, (value or "").strip("\"' ")) for field, value, _ in marked(told)]
        place = next((value for field, value in marks if field == name), "")
        names = {part for mark in marks for part in mark if part}
        said = _about(place, told, names)
        return cls(
            place,
            bool(said) or "_" in place,
            _choices(place, said, names),
            _NUMBER.match(said) is not None and "string" not in said,
        )


def plain(text: str) -> str:
    """Give a choice as it is compared: without quotes and blanks around it, in small letters."""
    return text.strip().strip("\"'").casefold()


_SEVERAL = re.compile(r"[^\W\d]\w*(?:/[^\W\d]\w*)+")
_NUMBER = re.compile(
    r"\W*(?:is|are|represents?)\s+(?:an?\s+|the\s+)?"
    r"(?:(?:non-negative|positive|negative|real|single|whole|floating|floating-point|decimal)\s+)*"
    r"(?:float|number|integer|decimal)s?\b"
)
_TRUTH = re.compile(r"\W*(?:is|are)\s+(?:an?\s+)?(?:bool(?:ean)?\b|True or False)")
_CHOICE = re.compile(
    r"\b(?:either|be|is|takes? the values?|(?:either|one) of\b[^\"'.]*)\s*:?\s*[\"']"
)
_EXAMPLE = re.compile(r"\bsuch as\b|\be\.g\.|\bfor example\b|\blike\b", re.IGNORECASE)


def _choices(place: str, said: str, names: set[str]) -> tuple[str, ...]:
    if _SEVERAL.fullmatch(place):
        return tuple(place.split("/"))
    if _EXAMPLE.search(said):
        return ()
    quoted = tuple(each for each in _quoted(said) if each not in names)
    if len(quoted) > 1 and _CHOICE.search(said):
        return quoted
    return ("True", "False") if _TRUTH.match(said) else ()


def _quoted(text: str) -> list[str]:
    found = re.findall(r"\"([^\"\n]+)\"|(?<!\w)'([^'\n]+)'(?!\w)", text)
    return list(dict.fromkeys(double or single for double, single in found))


_FIELD = re.compile(MARK.pattern + r"[^\]]*\]")


def _about(place: str, told: str, names: set[str]) -> str:
    """Give what a wording says of a placeholder: from its name to the next one's."""
    if not place:
        return ""
    named = "|".join(re.escape(each) for each in sorted(names, key=len, reverse=True))
    mention = rf"[\"'](?P<quoted>{named})[\"']|(?<![\w@])(?P<bare>{named})(?=\s+(?:is|are)\b)"
    prose = _FIELD.sub(lambda field: " " * len(field[0]), told)
    mentions = list(re.finditer(mention, prose))
    for at, found in enumerate(mentions):
        if place in (found["quoted"], found["bare"]):
            # Of "mean" and "sd" one thing is said, behind the last of them.
            rest = mentions[at:]
            while len(rest) > 1 and _joined(prose[rest[0].end() : rest[1].start()]):
                rest = rest[1:]
            return prose[rest[0].end() : rest[1].start() if len(rest) > 1 else len(prose)]
    return ""


def _joined(between: str) -> bool:
    return re.fullmatch(r"\s*(?:,|and|or|, and)\s*", between) is not None
