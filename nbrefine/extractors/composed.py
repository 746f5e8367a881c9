"""Rules made of rules, and how each is built by the name that a configuration gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import Any

from nbrefine.errors import UsageError, nearest
from nbrefine.extractors.cleaners import CLEANERS, Cleaner
from nbrefine.extractors.rules import (
    BoxedExtractor,
    CodeBlockExtractor,
    Extracted,
    Extractor,
    Gsm8kExtractor,
    LastLineExtractor,
    MultipleChoiceExtractor,
    NumericExtractor,
    RawGenerationExtractor,
    RegexExtractor,
    TagBasedExtractor,
    TailExtractor,
    answered,
    unanswered,
)


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
        return unanswered("no-match", " ".join(filter(None, details)))


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
        return answered(answer, **{key: facts[key] for key in facts if key != "reason"})


def _cleaned(text: str, cleaners: tuple[str | Cleaner, ...]) -> str:
    for cleaner in cleaners:
        text = (CLEANERS[cleaner] if isinstance(cleaner, str) else cleaner)(text)
    return text


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
    meant = nearest(str(name), known)
    return UsageError(f'There is no {what} "{name}"', hint=f"{meant}Known: {', '.join(known)}")
