"""Outputs and other values without the secrets in their texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nbrefine.kernel.messages.spool import is_binary
from nbrefine.outputs import Display, Failure

Redact = Callable[[str], str]
"""Gives a text without its secrets."""


def redacted_display(display: Display, redact: Redact) -> Display:
    """Redact every text of a display, inside JSON too, and leave images as they are."""
    data = {
        mime: value if is_binary(mime) else redacted(value, redact)
        for mime, value in display.data.items()
    }
    return replace(display, data=data, metadata=redacted(display.metadata, redact))


def redacted_failure(failure: Failure, redact: Redact) -> Failure:
    """Redact every text of an error."""
    return Failure(
        redact(failure.ename), redact(failure.evalue), tuple(map(redact, failure.traceback))
    )


def redacted(value: Any, redact: Redact) -> Any:
    """Redact every text in a JSON value, keys included."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        # A listing has many thousands of items, and a call takes longer than most of them.
        return [item if type(item) in _PLAIN else redacted(item, redact) for item in value]
    if isinstance(value, dict):
        return {redact(key): redacted(item, redact) for key, item in value.items()}
    return value


_PLAIN = frozenset((int, float, bool, type(None)))
