"""One small rule each for where the answer of a reply stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from nbrefine.errors import UsageError
from nbrefine.extraction import extract

Extracted = tuple[str | None, dict[str, Any]]


@runtime_checkable
class Extractor(Protocol):
    """Anything that finds the answer in a reply."""

    def extract(self, text: str) -> Extracted:
        """Give the answer, or None, and a dict that says why."""
        ...


def answered(answer: str, **facts: Any) -> Extracted:
    """Give an answer, unless it is blank."""
    if not answer.strip():
        return unanswered("empty", "The place for the answer is empty.")
    return answer, {"reason": "found", **facts}


def unanswered(reason: str, detail: str, **facts: Any) -> Extracted:
    """Give no answer, and why."""
    return None, {"reason": reason, "detail": detail, **facts}


@dataclass(frozen=True, slots=True)
class RawGenerationExtractor:
    """Takes the whole reply as it is."""

    def extract(self, text: str) -> Extracted:
        return text, {"reason": "found"}


@dataclass(frozen=True, slots=True)
class CodeBlockExtractor:
    """Takes the last code block of the wanted language that parses; see `nbrefine.extraction`.

    A reply without a fence that is code, or begins as code does, is taken whole: what another
    extractor has already taken out of its fence stays code, its syntax errors included.
    """

    language: str | None = None
    """None for any; a block with a tag is preferred then."""

    def __post_init__(self) -> None:
        if self.language is not None and not self.language.strip():
            raise UsageError(
                "The language of a code block is empty", hint="Name one, or leave it out for any"
            )

    def extract(self, text: str) -> Extracted:
        found = extract(text, language=self.language)
        facts = {"language": found.language, "blocks": found.blocks}
        if found.status == "found":
            return found.code, {"reason": "found", "detail": found.reason, **facts}
        if not found.blocks and self._is_python() and _BEGINS_AS_CODE.match(text):
            detail = "No fence, but the reply begins as code; it does not parse."
            return text, {"reason": "found", "detail": detail, **facts}
        return unanswered(found.status, found.reason, **facts)

    def _is_python(self) -> bool:
        return self.language is None or self.language.lower() in ("python", "py", "python3")


_BEGINS_AS_CODE = re.compile(
    r"\s*(?:#[^\n]*\n\s*)*"
    r"(?:(?:async\s+def|def|class)\s+\w+\s*[(:]|import\s+[\w.]+\s*(?:,|$|\n| as )"
    r"|from\s+[\w.]+\s+import\s|@\w[\w.]*\s*[(\n])"
)


@dataclass(frozen=True, slots=True)
class TagBasedExtractor:
    """Takes what stands between `<answer>` and `</answer>`, attributes and any case allowed."""

    tag_name: str = "answer"
    strip_whitespace: bool = True

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_][\w.:-]*", self.tag_name):
            raise UsageError(
                f'"{self.tag_name}" is no name of a tag', hint='Write it bare, as in "answer"'
            )

    def extract(self, text: str) -> Extracted:
        name = re.escape(self.tag_name)
        edge = re.compile(rf"<(/?){name}(?=[\s>/])[^<>]*>", re.IGNORECASE)
        # Only neighbours are a pair: words about the tag before the answer open nothing.
        opened: re.Match[str] | None = None
        answer: str | None = None
        for found in edge.finditer(text):
            if found[0].endswith("/>"):
                continue
            if not found[1]:
                opened = found
            elif opened is not None:
                held = text[opened.end() : found.start()]
                answer, opened = held if held.strip() or answer is None else answer, None
        if opened is not None:
            return unanswered("incomplete", f"<{self.tag_name}> was opened and not closed.")
        if answer is None:
            return unanswered(
                "no-match", f"The reply holds no <{self.tag_name}>…</{self.tag_name}>."
            )
        return answered(answer.strip() if self.strip_whitespace else answer)


@dataclass(frozen=True, slots=True)
class RegexExtractor:
    """Takes one group of a pattern's last match; flags stand in the pattern, as in `(?i)`.

    Raises
    ------
    UsageError: the pattern is none, or has no such group.
    """

    pattern: str
    group_index: int = 1

    def __post_init__(self) -> None:
        try:
            groups = re.compile(self.pattern).groups
        except (re.error, TypeError) as error:
            raise UsageError(f"{self.pattern!r} is no regular expression ({error})") from None
        if not 0 <= self.group_index <= groups:
            raise UsageError(
                f"The pattern {self.pattern!r} has no group {self.group_index}",
                hint="Put the answer into parentheses, or set group_index=0 for the whole match",
            )

    def extract(self, text: str) -> Extracted:
        matches = [found[self.group_index] for found in re.finditer(self.pattern, text)]
        answers = [answer for answer in matches if answer is not None]
        if not answers:
            return unanswered("no-match", f"Nothing in the reply matches {self.pattern}")
        # A pattern that may match nothing does so at the end of every text.
        filled = [answer for answer in answers if answer.strip()]
        return answered((filled or answers)[-1])


@dataclass(frozen=True, slots=True)
class NumericExtractor:
    """Takes the last number, as Python's `float` reads it.

    `1,234.5`, `1e-3`, `-7`, `$12` and `-$12` become `1234.5`, `1e-3`, `-7`, `12` and `-12`; `50%`
    becomes `50`, and the dict says `percent`.  A minus counts only where no number or word ends
    before it; a fraction, a range and a date are several numbers, a version such as 2.0.1 is none.
    """

    def extract(self, text: str) -> Extracted:
        numbers = list(_NUMBER.finditer(text))
        if not numbers:
            return unanswered("no-match", "The reply holds no number.")
        found = numbers[-1]
        minus = "-" if found["sign"] in ("-", "\u2212") or found["minus"] else ""
        number = minus + found["digits"].replace(",", "")
        return answered(number, raw=found[0], percent=text[found.end() :].lstrip("\\ ")[:1] == "%")


_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)\]%])[-+\u2212])?"
    r"(?:[$\u20ac\u00a3\u00a5](?P<minus>[-\u2212])?)?"
    r"(?<![\w.])"
    r"(?P<digits>(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"(?![0-9]|\.[0-9]|,[0-9]{3}(?![0-9]))"
)


@dataclass(frozen=True, slots=True)
class BoxedExtractor:
    r"""Takes the contents of the last `\boxed{…}`, braces within it included.

    Without one it is the last `\fbox{…}`, as in the MATH data set.
    """

    def extract(self, text: str) -> Extracted:
        marks = (re.finditer(rf"\\{mark}\s*\{{", text) for mark in ("f?boxed", "fbox"))
        opened = next(filter(None, map(list, marks)), [])
        if not opened:
            return unanswered("no-match", r"The reply holds no \boxed{…}.")
        start, depth = opened[-1].end(), 1
        for brace in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)  # an escaped brace is text
            if depth == 0:
                return answered(text[start : start + brace.start()].strip())
        return unanswered("incomplete", r"\boxed{ was opened and not closed.")


@dataclass(frozen=True, slots=True)
class TailExtractor:
    """Takes the last lines that are not blank."""

    lines: int = 1

    def __post_init__(self) -> None:
        if self.lines < 1:
            raise UsageError(f"The last {self.lines} lines hold nothing", hint="Ask for 1 or more")

    def extract(self, text: str) -> Extracted:
        kept = [line for line in text.splitlines() if line.strip()]
        if not kept:
            return unanswered("empty", "The reply is empty.")
        return answered("\n".join(kept[-self.lines :]).strip())


@dataclass(frozen=True, slots=True)
class LastLineExtractor:
    """Takes the last line that is not blank."""

    def extract(self, text: str) -> Extracted:
        return TailExtractor(1).extract(text)


@dataclass(frozen=True, slots=True)
class Gsm8kExtractor:
    """Takes the number after the last `####`, where GSM8K's answers stand."""

    def extract(self, text: str) -> Extracted:
        marked = re.findall(r"####([^\n]*)", text)
        if not marked:
            return unanswered("no-match", "The reply holds no line with #### and the answer.")
        return NumericExtractor().extract(marked[-1])


@dataclass(frozen=True, slots=True)
class MultipleChoiceExtractor:
    """Takes the letter that is chosen.

    That is the last one said to be the answer ("the answer is (B)", "Answer: b"), or else the
    last that is alone on its line, or else the last in parentheses, or else the only one that
    begins a line as in "B) because".  Capital or small makes no difference where a bracket, the
    end of a sentence or nothing follows; a letter that is only a word, as in "A dog", is none.
    """

    choices: str = "ABCDE"

    def __post_init__(self) -> None:
        if not self.choices.isalnum():
            raise UsageError(
                f"{self.choices!r} are no choices", hint='Write their letters, as in "ABCD"'
            )

    def extract(self, text: str) -> Extracted:
        letters, either = f"[{self.choices}]", f"[{self.choices}{self.choices.swapcase()}]"
        stated = (
            r"(?i:answer|choice|option)(?i:\s+is)?\s*[:=]?\s*[*_$(\[{\"'`]*"
            rf"(?:({letters})(?![\w'\u2019-])|({either})(?:[)\]}}.*_\"'`$]+(?!\w)|(?=\s*\Z)))"
        )
        alone = rf"(?m)^[ \t*_(\[\"'`]*({letters})[ \t*_)\].:\"'`]*\r?$"
        for pattern in (stated, alone, rf"(?<!\w)\(({either})\)"):
            if matches := list(re.finditer(pattern, text)):
                return answered(self._choice(matches[-1][matches[-1].lastindex or 1]))
        # Several letters at the begins of lines are a list of what there is to choose from.
        begun = {self._choice(x) for x in re.findall(rf"(?m)^[ \t*_]*({either})\)(?!\w)", text)}
        bare = text.strip(" \t\r\n.()*")
        if len(bare) == 1 and self._choice(bare) in self.choices:
            begun = {self._choice(bare)}
        if len(begun) == 1:
            return answered(begun.pop())
        return unanswered("no-match", f"The reply chooses none of {', '.join(self.choices)}.")

    def _choice(self, letter: str) -> str:
        return letter if letter in self.choices else letter.swapcase()
