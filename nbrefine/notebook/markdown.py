"""Text of programs and models inside Markdown, so that it can only be read as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from nbrefine.outputs import strip_ansi

LINE = 400
"""Characters of one line that a display copy shows."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|!&~$])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_TAG = re.compile(r"[^\w+#.-]")


def visible(text: str) -> str:
    """Strip ANSI codes and show what would act on a terminal or turn the text around."""
    text = strip_ansi(text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], text)


def one_line(text: str, limit: int = 200) -> str:
    """Put a text on one line of at most `limit` characters; blanks within a line stay."""
    line = " ".join(part.strip() for part in visible(text).splitlines() if part.strip())
    return line if len(line) <= limit else line[: limit - 4].rstrip() + " ..."


def plain(text: str, limit: int = 200) -> str:
    """Give a text as Markdown that shows these very characters, on one line."""
    return _SPECIAL.sub(r"\\\1", one_line(text, limit))


def span(text: str, limit: int = 200) -> str:
    """Give a text as inline code, whatever backticks it holds."""
    line = one_line(text, limit)
    mark = "`" * (_longest(line, "`") + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{mark}{pad}{line}{pad}{mark}" if line else ""


def fence(text: str, language: str = "text", *, lines: int = 15) -> str:
    """Give a text as a fenced block that nothing in it can close.

    Parameters
    ----------
    text: any text; at most `lines` lines are shown, head and tail, and the gap is told.
    """
    shown = shorten(text, lines)
    mark = "`" * max(3, _longest(shown, "`") + 1)
    return f"{mark}{_TAG.sub('', language)}\n{shown}\n{mark}"


def shorten(text: str, lines: int) -> str:
    """Keep the head and the tail of a text, made visible, and tell what is left out between."""
    found = text.rstrip("\n").split("\n")
    if len(found) > lines:
        head, tail = (lines + 1) // 2, lines // 2
        gap = f"... {len(found) - head - tail} lines are left out here ..."
        found[head : len(found) - tail] = [gap]
    return "\n".join(_cut(line) for line in visible("\n".join(found)).split("\n"))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a Markdown table; its cells are Markdown already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cut(line: str) -> str:
    if len(line) <= LINE:
        return line
    return f"{line[:LINE]} ... {len(line) - LINE:,} characters are left out here"


def _longest(text: str, mark: str) -> int:
    return max((len(run) for run in re.findall(re.escape(mark) + "+", text)), default=0)
