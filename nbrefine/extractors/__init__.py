r"""From a reply to the answer in it: one small rule each, plain values that can be compared.

An extractor gives the answer, or None, and a dict that says why: its `reason` is one word
("found", "no-match", "empty", "incomplete", "no-code"), its `detail` a sentence where there is no
answer.  Where several places match, the last one is the answer; one that was begun after it and
not finished makes the reply incomplete, since the model was about to change its mind.

The names in `EXTRACTORS` are those of a configuration file; `make_extractor` builds one by name.
"""

from __future__ import annotations

from nbrefine.extractors.cleaners import (
    CLEANERS,
    Cleaner,
    strip_latex_dollars,
    strip_special_tokens,
    strip_surrounding_quotes,
    strip_thinking_tokens,
    strip_trailing_punctuation,
)
from nbrefine.extractors.composed import (
    EXTRACTORS,
    CleanedExtractor,
    CompositeExtractor,
    FallbackExtractor,
    make_extractor,
)
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
)

__all__ = [
    "CLEANERS",
    "EXTRACTORS",
    "BoxedExtractor",
    "CleanedExtractor",
    "Cleaner",
    "CodeBlockExtractor",
    "CompositeExtractor",
    "Extracted",
    "Extractor",
    "FallbackExtractor",
    "Gsm8kExtractor",
    "LastLineExtractor",
    "MultipleChoiceExtractor",
    "NumericExtractor",
    "RawGenerationExtractor",
    "RegexExtractor",
    "TagBasedExtractor",
    "TailExtractor",
    "make_extractor",
    "strip_latex_dollars",
    "strip_special_tokens",
    "strip_surrounding_quotes",
    "strip_thinking_tokens",
    "strip_trailing_punctuation",
]
