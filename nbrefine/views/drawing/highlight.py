"""Code and differences as HTML with a few classes, for the colours of both themes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

LONGEST = 30_000
"""Characters of code that are coloured; more of it is no code that anyone reads."""


def code(source: str, language: str) -> Markup:
    """Give code with the classes of its tokens.

    Parameters
    ----------
    language: a name that Pygments knows; what it does not know stays as it is.
    """
    lexer = _lexer(language) if len(source) <= LONGEST else None
    if lexer is None:
        return text(source)
    return Markup("".join(_spans(lexer.get_tokens(source))))  # noqa: S704 - escaped run by run


def diff(changes: str) -> Markup:
    """Give a unified diff with its lines marked as inserted or deleted."""
    lines = "\n".join(map(_line, changes.split("\n")))
    return Markup(f"<code>{lines}</code>")  # noqa: S704 - escaped line by line


def text(plain: str) -> Markup:
    """Give a text as HTML; quotes need no escape between tags, and a page holds many of them."""
    return Markup(_escaped(plain))  # noqa: S704 - it has just been escaped


def _escaped(plain: str) -> str:
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _line(line: str) -> str:
    if line.startswith("@@"):
        return f'<span class="c">{_escaped(line)}</span>'
    tag = {"+": "ins", "-": "del"}.get(line[:1])
    return f"<{tag}>{_escaped(line)}</{tag}>" if tag else _escaped(line)


def _spans(tokens: Any) -> Iterator[str]:
    """Join neighbours of one class, so that a page does not consist of tags."""
    run, kept = "", ""
    for kind, value in tokens:
        found = kept if value.isspace() else _class(kind)
        if found != kept:
            yield _span(run, kept)
            run, kept = "", found
        run += value
    yield _span(run.removesuffix("\n"), kept)


def _span(run: str, kept: str) -> str:
    return f'<span class="{kept}">{_escaped(run)}</span>' if kept else _escaped(run)


@functools.cache
def _class(kind: Any) -> str:
    from pygments import token

    classes = (
        (token.Comment, "c"),
        (token.Keyword, "k"),
        (token.Operator.Word, "k"),
        (token.String, "s"),
        (token.Number, "m"),
        (token.Name.Function, "f"),
        (token.Name.Class, "f"),
        (token.Name.Decorator, "f"),
    )
    return next((name for family, name in classes if kind in family), "")


@functools.cache
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None
