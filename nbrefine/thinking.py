"""What a model has thought before it answered, where that stands in its reply between tags."""

from __future__ import annotations

import re

BEGIN, END = r"<think(?:ing)?>", r"</think(?:ing)?>"
"""The tags, as patterns for which capital and small letters are the same."""

_FLAGS = re.DOTALL | re.IGNORECASE | re.MULTILINE
_AT_BEGINS = re.compile(rf"^[ \t]*{BEGIN}.*?(?:{END}\s*|\Z)|\A.*?^[ \t]*{END}\s*", _FLAGS)
_ANYWHERE = re.compile(rf"{BEGIN}.*?(?:{END}|\Z)", _FLAGS)
_REST = re.compile(rf"\A.*{END}", _FLAGS)


def without_thinking(text: str, *, anywhere: bool = False) -> str:
    """Take out the thinking that a model has put into its reply.

    A section that is not closed goes on to the end; one whose begin stood in the prompt has only
    its end.

    Parameters
    ----------
    anywhere: whether a tag counts wherever it stands, blanks around the answer go too; else only
        at the begin of a line, since words and code may hold one.
    """
    if "think" not in text.lower():
        return text.strip() if anywhere else text
    if anywhere:
        return _REST.sub("", _ANYWHERE.sub("", text)).strip()
    return _AT_BEGINS.sub("", text).strip("\n")
