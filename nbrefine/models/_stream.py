"""Reads one reply of OpenAI's chat completions, streamed or whole."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from nbrefine.models._calls import Calls
from nbrefine.models._replies import tidy
from nbrefine.redaction import clean_text
from nbrefine.values import Finish, Reply, Sampling, Usage

if TYPE_CHECKING:
    from openai import AsyncStream

_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
}


class UnreadableReply(Exception):
    """A reply is not what the protocol says; the message completes "the server …"."""


class Draft:
    """A reply as far as it has arrived."""

    def __init__(self) -> None:
        self.finish: str | None = None
        self.usage = Usage()
        self.calls = Calls()
        self._model = ""
        self._text: list[str] = []
        self._reasoning: list[str] = []

    @property
    def begun(self) -> bool:
        """Whether any text has arrived."""
        return any(self._text)

    async def read(self, stream: AsyncStream[ChatCompletionChunk]) -> AsyncGenerator[str]:
        """Take the reply in and pass on each piece of its text, "" where there is none.

        Raises
        ------
        UnreadableReply: it is not what the protocol says, or ends before it is finished.
        """
        try:
            if "text/event-stream" in stream.response.headers.get("content-type", ""):
                async for chunk in stream:
                    yield self._take(chunk)
            else:
                whole = json.loads(await stream.response.aread())
                yield self._take(ChatCompletion.construct(**whole))
        except (ValueError, TypeError, AttributeError) as error:
            raise UnreadableReply(f"sent a reply that cannot be read ({error})") from error
        if self.finish is None:
            received = sum(map(len, self._text)) + self.calls.received
            raise UnreadableReply(
                f"broke off its reply after {received} characters"
                if received
                else "sent a reply without any choice"
            )

    def _take(self, part: Any) -> str:
        """Take in a chunk, or a whole reply; servers leave out fields at will."""
        if (counted := getattr(part, "usage", None)) is not None:
            self.usage = _usage(counted)
        self._model = getattr(part, "model", None) or self._model
        pieces = []
        for choice in part.choices or ():
            said = getattr(choice, "delta", None) or getattr(choice, "message", None)
            thought = getattr(said, "reasoning_content", None) or getattr(said, "reasoning", None)
            self._reasoning.append(thought or "")
            pieces += [getattr(said, name, None) or "" for name in ("content", "refusal")]
            self.calls.take(getattr(said, "tool_calls", None) or ())
            self.finish = getattr(choice, "finish_reason", None) or self.finish
        piece = "".join(pieces)
        self._text.append(piece)
        return clean_text(piece)

    def reply(self, sampling: Sampling, *, seconds: float, retries: int) -> Reply:
        """Build the value."""
        finish = _FINISH.get(self.finish or "", "unknown")
        calls = self.calls.read(cut=finish == "length")
        if calls and finish in ("stop", "unknown"):  # as some servers end a reply of calls
            finish = "tool-calls"
        return tidy(
            Reply(
                "".join(self._text),
                finish=finish,
                usage=self.usage,
                model=self._model,
                reasoning="".join(self._reasoning),
                seconds=seconds,
                retries=retries,
                sampling=sampling,
                tool_calls=calls,
            )
        )


def _usage(counted: Any) -> Usage:
    details = getattr(counted, "prompt_tokens_details", None)
    return Usage(
        counted.prompt_tokens or 0,
        counted.completion_tokens or 0,
        getattr(details, "cached_tokens", None) or 0,
    )
