"""What is done to a reply when it is built, whichever model gave it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nbrefine.redaction import Redactor, clean_text
from nbrefine.values import Reply, ToolCall


def tidy(reply: Reply) -> Reply:
    """Give the reply without known secrets and lone surrogates, and else as it came."""
    redactor = Redactor()

    def clean(text: str) -> str:
        return redactor.redact(clean_text(text))[0]

    return replace(
        reply,
        text=clean(reply.text),
        reasoning=clean(reply.reasoning),
        tool_calls=tuple(_tidy(call, clean) for call in reply.tool_calls),
    )


def _tidy(call: ToolCall, clean: Callable[[str], str]) -> ToolCall:
    return ToolCall(
        clean(call.name),
        _cleaned(call.arguments, clean),
        clean(call.id),
        clean(call.problem),
        clean(call.raw),
    )


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(each, clean) for each in value]
    if isinstance(value, dict):
        return {clean(str(key)): _cleaned(each, clean) for key, each in value.items()}
    return value
