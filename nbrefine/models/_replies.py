"""What is done to a reply when it is built, whichever model gave it."""

from __future__ import annotations

from dataclasses import replace

from nbrefine.redaction import Redactor, clean_text
from nbrefine.values import Reply


def tidy(reply: Reply) -> Reply:
    """Give the reply without known secrets and lone surrogates, and else as it came."""
    redactor = Redactor()
    return replace(
        reply,
        text=redactor.redact(clean_text(reply.text))[0],
        reasoning=redactor.redact(clean_text(reply.reasoning))[0],
    )
