r"""From a reply to the answer in it: one small rule each, plain values that can be compared.

An extractor gives the answer, or None, and a dict that says why: its `reason` is one word
("found", "no-match", "empty", "incomplete", "no-code"), its `detail` a sentence where there is no
answer.  Where several places match, the last one is the answer; one that was begun after it and
not finished makes the reply incomplete, since the model was about to change its mind.

The names in `EXTRACTORS` are those of a configuration file; `make_extractor` builds one by name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
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


def _found(answer: str, **facts: Any) -> Extracted:
    if not answer.strip():
        return _missing("empty", "The place for the answer is empty.")
    return answer, {"reason": "found", **facts}


def _missing(reason: str, detail: str, **facts: Any) -> Extracted:
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
        return _missing(found.status, found.reason, **facts)

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
            return _missing("incomplete", f"<{self.tag_name}> was opened and not closed.")
        if answer is None:
            return _missing("no-match", f"The reply holds no <{self.tag_name}>…</{self.tag_name}>.")
        return _found(answer.strip() if self.strip_whitespace else answer)


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
            return _missing("no-match", f"Nothing in the reply matches {self.pattern}")
        # A pattern that may match nothing does so at the end of every text.
        filled = [answer for answer in answers if answer.strip()]
        return _found((filled or answers)[-1])


@dataclass(frozen=True, slots=True)
class NumericExtractor:
    """Takes the last number, as Python's `float` reads it.

    `1,234.5`, `1e-3`, `-7`, `$12` and `-$12` become `1234.5`, `1e-3`, `-7`, `12` and `-12`; `50%`
    becomes `50`, and the dict says `percent`.  A minus counts only where no number or word ends
    before it; a fraction, a range and a date are several numbers, a version such as 2.0.1 is none.
    """

    def extract(self, text: str) -> Extracted:
        found = None
        for found in _NUMBER.finditer(text):  # noqa: B007 - the last one counts
            pass
        if found is None:
            return _missing("no-match", "The reply holds no number.")
        minus = "-" if found["sign"] in ("-", "\u2212") or found["minus"] else ""
        number = minus + found["digits"].replace(",", "")
        return _found(number, raw=found[0], percent=text[found.end() :].lstrip("\\ ")[:1] == "%")


_NUMBER = re.compile(
    r"(?P<sign>(?<![\w.)\]%])[-+\u2212])?"
    r"(?:[$\u20ac\u00a3\u00a5](?P<minus>[-\u2212])?)?"
    r"(?<![\w.])"
    r"(?P<digits>(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"(?![0-9]|\.[0-9]|,[0-9]{3}(?![0-9]))"
)


@dataclass(frozen=True, slots=True)
class BoxedExtractor:
    r"""Takes the contents of the last `\boxed{…}`, braces within it included."""

    def extract(self, text: str) -> Extracted:
        opened = list(re.finditer(r"\\f?boxed\s*\{", text))
        if not opened:
            return _missing("no-match", r"The reply holds no \boxed{…}.")
        start, depth = opened[-1].end(), 1
        for brace in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)  # an escaped brace is text
            if depth == 0:
                return _found(text[start : start + brace.start()].strip())
        return _missing("incomplete", r"\boxed{ was opened and not closed.")


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
            return _missing("empty", "The reply is empty.")
        return _found("\n".join(kept[-self.lines :]).strip())


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
            return _missing("no-match", "The reply holds no line with #### and the answer.")
        return NumericExtractor().extract(marked[-1])


@dataclass(frozen=True, slots=True)
class MultipleChoiceExtractor:
    """Takes the letter that is chosen.

    That is the last one said to be the answer ("the answer is (B)", "Answer: B"), or else the
    last that is alone on its line, or else the last in parentheses.  A letter of the choices
    that is only a word, such as "A" or "I", is none.
    """

    choices: str = "ABCDE"

    def __post_init__(self) -> None:
        if not self.choices.isalnum():
            raise UsageError(
                f"{self.choices!r} are no choices", hint='Write their letters, as in "ABCD"'
            )

    def extract(self, text: str) -> Extracted:
        letters = f"[{self.choices}]"
        stated = (
            r"(?i:answer|choice|option)(?i:\s+is)?\s*[:=]?\s*"
            rf"[*_$(\[{{\"'`]*({letters})(?![\w'\u2019-])"
        )
        alone = rf"(?m)^[\s*_(\[\"'`]*({letters})[\s*_)\].:\"'`]*$"
        for pattern in (stated, alone, rf"\(({letters})\)"):
            if matches := re.findall(pattern, text):
                return _found(matches[-1])
        bare = text.strip(" \t\r\n.()*").swapcase()
        if len(bare) == 1 and bare in self.choices:
            return _found(bare)
        return _missing("no-match", f"The reply chooses none of {', '.join(self.choices)}.")


@dataclass(frozen=True, slots=True)
class FallbackExtractor:
    """Takes what the first of several extractors finds."""

    extractors: tuple[Extractor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "extractors", _several(self.extractors))

    def extract(self, text: str) -> Extracted:
        details = []
        for extractor in self.extractors:
            answer, facts = extractor.extract(text)
            if answer is not None:
                return answer, {**facts, "extractor": type(extractor).__name__}
            details.append(str(facts.get("detail", "")))
        return _missing("no-match", " ".join(filter(None, details)))


@dataclass(frozen=True, slots=True)
class CompositeExtractor:
    """Lets each of several extractors read what the one before it has found."""

    extractors: tuple[Extractor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "extractors", _several(self.extractors))

    def extract(self, text: str) -> Extracted:
        facts: dict[str, Any] = {}
        for extractor in self.extractors:
            answer, facts = extractor.extract(text)
            if answer is None:
                return None, {**facts, "extractor": type(extractor).__name__}
            text = answer
        return text, facts


Cleaner = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class CleanedExtractor:
    """Cleans the reply before another extractor reads it, and the answer afterwards.

    Parameters
    ----------
    extractor: an extractor, or its name.
    pre, post: names of `CLEANERS`, or functions from text to text, in the order of their use.
    """

    extractor: Extractor
    pre: tuple[str | Cleaner, ...] = ("strip_special_tokens",)
    post: tuple[str | Cleaner, ...] = ("strip_trailing_punctuation",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extractor", _one(self.extractor))
        for side in ("pre", "post"):
            given = getattr(self, side)
            cleaners = (given,) if isinstance(given, str) or callable(given) else tuple(given)
            object.__setattr__(self, side, cleaners)
            for cleaner in cleaners:
                if not callable(cleaner) and cleaner not in CLEANERS:
                    raise _unknown("cleaner", cleaner, CLEANERS)

    def extract(self, text: str) -> Extracted:
        answer, facts = self.extractor.extract(_cleaned(text, self.pre))
        if answer is None:
            return None, facts
        answer = _cleaned(answer, self.post)
        return _found(answer, **{key: facts[key] for key in facts if key != "reason"})


def _cleaned(text: str, cleaners: tuple[str | Cleaner, ...]) -> str:
    for cleaner in cleaners:
        text = (CLEANERS[cleaner] if isinstance(cleaner, str) else cleaner)(text)
    return text


_SPECIAL = re.compile(
    r"<\|[^<>|\s]{1,40}\|>|<\uff5c[^<>\uff5c]{1,40}\uff5c>|</?s>|<(?:bos|eos|pad|unk)>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]"
)


def strip_special_tokens(text: str) -> str:
    """Take out marks of chat templates, such as `<|im_end|>` and `</s>`."""
    return _SPECIAL.sub("", text)


def strip_thinking_tokens(text: str) -> str:
    """Take out thinking sections; one that is not closed goes on to the end."""
    text = re.sub(r"(?is)<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", "", text)
    return re.split(r"(?i)</think(?:ing)?>", text)[-1].strip()  # the prompt may have opened it


def strip_trailing_punctuation(text: str) -> str:
    """Take blanks and `. , ; : ! ?` from the end."""
    return text.rstrip(" \t\r\n.,;:!?\u3002")


def strip_surrounding_quotes(text: str) -> str:
    """Take one pair of quotation marks from around the text."""
    text = text.strip()
    pairs = ("''", '""', "``", "\u201c\u201d", "\u2018\u2019", "\u00ab\u00bb")
    return text[1:-1].strip() if len(text) > 1 and text[0] + text[-1] in pairs else text


def strip_latex_dollars(text: str) -> str:
    r"""Take the marks of LaTeX mathematics, `$…$`, `$$…$$`, `\(…\)` or `\[…\]`, from around it."""
    found = re.fullmatch(r"(?s)\s*(?:\$\$(.+)\$\$|\$(.+)\$|\\\((.+)\\\)|\\\[(.+)\\\])\s*", text)
    return next(part for part in found.groups() if part).strip() if found else text


CLEANERS: Mapping[str, Cleaner] = MappingProxyType(
    {
        cleaner.__name__: cleaner
        for cleaner in (
            strip_special_tokens,
            strip_thinking_tokens,
            strip_trailing_punctuation,
            strip_surrounding_quotes,
            strip_latex_dollars,
        )
    }
)
"""Cleaners by name."""

EXTRACTORS: Mapping[str, type] = MappingProxyType(
    {
        "raw": RawGenerationExtractor,
        "code_block": CodeBlockExtractor,
        "tag_based": TagBasedExtractor,
        "regex": RegexExtractor,
        "numeric": NumericExtractor,
        "boxed": BoxedExtractor,
        "last_line": LastLineExtractor,
        "tail": TailExtractor,
        "gsm8k": Gsm8kExtractor,
        "multiple_choice": MultipleChoiceExtractor,
        "fallback": FallbackExtractor,
        "composite": CompositeExtractor,
        "cleaned": CleanedExtractor,
    }
)
"""Extractors by the name that a configuration gives them."""


def make_extractor(name: str, config: Mapping[str, Any] | None = None) -> Extractor:
    """Build an extractor by name.

    Parameters
    ----------
    name: one of `EXTRACTORS`.
    config: its settings; where one is itself an extractor, a name or a mapping with a `name` and
        further settings does.

    Raises
    ------
    UsageError: there is no such extractor or setting, one is missing, or its value is wrong.
    """
    if name not in EXTRACTORS:
        raise _unknown("extractor", name, EXTRACTORS)
    kind: Any = EXTRACTORS[name]
    settings = dict(config or {})
    known = fields(kind)
    allowed = ", ".join(field.name for field in known) or "none"
    for key in settings:
        if key not in {field.name for field in known}:
            raise UsageError(
                f'The extractor "{name}" has no setting "{key}"', hint=f"Allowed: {allowed}"
            )
    for field in known:
        if field.default is MISSING and field.name not in settings:
            raise UsageError(
                f'The extractor "{name}" needs the setting "{field.name}"',
                hint=f"Its settings are: {allowed}",
            )
    try:
        made: Extractor = kind(**settings)
    except (TypeError, AttributeError) as error:
        raise UsageError(
            f'A setting of the extractor "{name}" has a value of a wrong type ({error})'
        ) from None
    return made


def _one(given: Extractor | str | Mapping[str, Any]) -> Extractor:
    if isinstance(given, str):
        return make_extractor(given)
    if isinstance(given, Mapping):
        return make_extractor(given.get("name", ""), {k: given[k] for k in given if k != "name"})
    if not isinstance(given, Extractor):
        raise UsageError(
            f"{type(given).__name__} is no extractor",
            hint=f"Give an object with extract(text), or a name: {', '.join(EXTRACTORS)}",
        )
    return given


def _several(given: Any) -> tuple[Extractor, ...]:
    made = tuple(map(_one, given))
    if not made:
        raise UsageError("There is no extractor to ask", hint="Give at least one")
    return made


def _unknown(what: str, name: object, known: Mapping[str, Any]) -> UsageError:
    near = difflib.get_close_matches(str(name), known, n=1)
    meant = f'Did you mean "{near[0]}"? ' if near else ""
    return UsageError(f'There is no {what} "{name}"', hint=f"{meant}Known: {', '.join(known)}")
