"""What a failed call to a model server means: whose fault, worth another try, what to do next."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import openai

from nbrefine.errors import (
    ModelAuthError,
    ModelError,
    ModelLimitError,
    ModelRequestError,
    ModelResponseError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from nbrefine.models._stream import UnreadableReply

EXCERPT = 300
"""Characters of a server's own words that an error quotes."""

TRANSIENT = frozenset({408, 409, 425, 429, *range(500, 600)})
"""Statuses worth another try: the official client's, and 425 Too Early of RFC 8470."""

_TOOLS = re.compile(
    r"support tool|tools? (?:is |are )?not supported|unsupported param\w*: tool"
    r"|tools? (?:param|choice requires)",
    re.IGNORECASE,
)
"""How Ollama, OpenRouter, llama.cpp and vLLM say that a model is not served with tools."""

_SILENT = (httpx2.ReadTimeout, httpx2.WriteTimeout)
_BROKEN = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError, httpx2.DecodingError)
FAILURES = (openai.OpenAIError, httpx2.HTTPError, UnreadableReply, TimeoutError)
"""What a call can fail with."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed call, in nbrefine's terms."""

    kind: type[ModelError]
    what: str
    """What happened, as a sentence without its final full stop."""
    hint: str
    again: bool
    """Whether another try may do better."""
    wait: float = 0.0
    """Seconds the server asked to wait before it."""


def diagnose(failure: Exception, *, url: str, timeout: float, known: bool) -> Fault:
    """Say what a failed call means.

    Parameters
    ----------
    failure: one of `FAILURES`.
    url: the server's base URL.
    timeout: seconds of silence after which the call was given up.
    known: whether the server has answered before, well or not; where not, its address is more
        likely wrong than the server is away, and it is not waited for.
    """
    if isinstance(failure, openai.APIStatusError):
        return _refused(failure, url)
    if isinstance(failure, UnreadableReply):
        return Fault(
            ModelResponseError,
            f"The server at {url} {failure}",
            "Check that it speaks OpenAI's chat completions",
            again=True,
        )
    if isinstance(failure, (openai.APIConnectionError, httpx2.HTTPError)):
        return _unreached(failure, url, timeout, known)
    if isinstance(failure, TimeoutError):
        return _silent(url, timeout)
    return Fault(
        ModelResponseError,
        f"The server at {url} reported an error within its reply: {_words(failure)}",
        "Look into the server's log",
        again=True,
    )


def is_filtered(failure: Exception) -> bool:
    """Tell whether a content filter refused the prompt, as Azure's servers say it."""
    return isinstance(failure, openai.BadRequestError) and _code(failure) in (
        "content_filter",
        "content_policy_violation",
    )


def spoiled_call(failure: Exception) -> str | None:
    """Give the call of a tool that the model wrote and the server could not read, as Groq's say it.

    None is given where the failure is another.
    """
    if isinstance(failure, openai.APIError) and _code(failure) == "tool_use_failed":
        return str(_body(failure).get("failed_generation") or "")
    return None


def rules_out_replies(failure: Exception) -> bool:
    """Tell whether a failure to list the models shows that no call would be answered.

    A server that is there may have no such list, or not for every key: it says so with 403, or
    names the scope that the key lacks.
    """
    if isinstance(failure, openai.AuthenticationError):
        return "scope" not in _words(failure)
    unanswered = isinstance(failure, openai.APIConnectionError)
    return unanswered and not isinstance(failure.__cause__, (*_SILENT, *_BROKEN))


def _refused(failure: openai.APIStatusError, url: str) -> Fault:
    status, words = failure.status_code, _words(failure)
    said = f"The server at {url} answered {status}: {words}"
    if status in (401, 403):
        return Fault(
            ModelAuthError, said, "Check the key: api_key=… or OPENAI_API_KEY", again=False
        )
    if status not in (408, 429) and _TOOLS.search(words):
        hint = 'Ask the model for fenced code instead: style="fenced"'
        return Fault(ModelRequestError, said, hint, again=False)
    if status == 404:
        hint = "Check the model's name and the base URL, which mostly ends in /v1"
        return Fault(ModelUnavailableError, said, hint, again=False)
    if status == 429:
        spent = _code(failure) == "insufficient_quota"
        hint = "Check the account's quota" if spent else "Wait, or ask less often"
        return Fault(ModelLimitError, said, hint, again=not spent, wait=_retry_after(failure))
    if status in TRANSIENT:
        return Fault(
            ModelUnavailableError,
            said,
            "Try again later, or look into the server's log",
            again=True,
            wait=_retry_after(failure),
        )
    return Fault(
        ModelRequestError,
        said,
        "Change the request: a shorter prompt, other sampling settings, other extra fields",
        again=False,
    )


def _unreached(failure: Exception, url: str, timeout: float, known: bool) -> Fault:
    cause = failure.__cause__ if isinstance(failure, openai.APIConnectionError) else failure
    if isinstance(cause, _SILENT):
        return _silent(url, timeout)
    if isinstance(cause, _BROKEN):
        return Fault(
            ModelResponseError,
            f"The server at {url} broke off its reply ({_words(cause)})",
            "Look into the server's log",
            again=True,
        )
    return Fault(
        ModelUnavailableError,
        f"No server can be reached at {url} ({_words(cause or failure)})",
        f"Start it, or correct base_url or OPENAI_BASE_URL; test it with: curl {url}/models",
        again=known,
    )


def _silent(url: str, timeout: float) -> Fault:
    return Fault(
        ModelTimeoutError,
        f"The server at {url} sent nothing for {timeout:g} s",
        "Give it more time with timeout=…, or ask for a shorter reply",
        again=True,
    )


def _body(failure: Exception) -> dict[str, Any]:
    body = getattr(failure, "body", None)
    return body if isinstance(body, dict) else {}


def _code(failure: Exception) -> str:
    return str(_body(failure).get("code") or "")


def _words(failure: object) -> str:
    """The server's own words, on one line and cut."""
    words = _body(failure).get("message") if isinstance(failure, Exception) else None
    line = " ".join(str(words or failure).split()) or type(failure).__name__
    return line if len(line) <= EXCERPT else line[:EXCERPT] + "…"


def _retry_after(failure: openai.APIStatusError) -> float:
    """Seconds that the headers ask to wait: `retry-after-ms`, or RFC 9110's two forms."""
    headers = failure.response.headers
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        return max(0.0, float(headers.get("retry-after", "0")))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (ValueError, KeyError):
        return 0.0
