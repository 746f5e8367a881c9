"""What is taken away from a reply or an answer before it is compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from nbrefine.thinking import without_thinking

Cleaner = Callable[[str], str]

_SPECIAL = re.compile(
    r"<\|[^<>|\s]{1,40}\|>|<\uff5c[^<>\uff5c]{1,40}\uff5c>|</?s>|<(?:bos|eos|pad|unk)>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]"
)


def strip_special_tokens(text: str) -> str:
    """Take out marks of chat templates, such as `<|im_end|>` and `</s>`."""
    return _SPECIAL.sub("", text)


def strip_thinking_tokens(text: str) -> str:
    """Take out thinking sections; one that is not closed goes on to the end."""
    return without_thinking(text, anywhere=True)


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
