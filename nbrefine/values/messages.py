"""What is said between a caller and a model: messages, replies, calls of tools, and their cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that goes with a message, for models that take them."""

    mime: str
    """Such as "image/png"."""
    data: str
    """Base64."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str
    images: tuple[Image, ...] = ()
    """For the user's messages; a model that takes no images never gets any."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model may call instead of writing text."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments, an object."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, as the model asked for it."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    """The server's name for the call."""
    problem: str = ""
    """Why the arguments could not be read, or ""; `raw` has them then."""
    raw: str = ""
    """The arguments as they were sent, where they are no JSON object."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens one or more model calls took, as the server counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The part of `input_tokens` that was served from a prompt cache."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a reply is drawn; None leaves a setting to the server."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()


Finish = Literal["stop", "length", "content-filter", "tool-calls", "unknown"]
"""Why a model stopped writing; `length` means the reply was cut at the token limit."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model, unedited."""

    text: str
    finish: Finish = "stop"
    usage: Usage = Usage()
    model: str = ""
    """The model's name as the server gave it."""
    reasoning: str = ""
    """A separate thinking section, where the server sends one."""
    seconds: float = 0.0
    """Wall time of the call, retries included."""
    retries: int = 0
    sampling: Sampling = Sampling()
    """The settings the reply was drawn with."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The calls of tools that the reply asks for, in order."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found in a reply where code was expected."""

    status: Literal["found", "given", "no-code", "incomplete"]
    """`found`: a fenced block; `given`: the caller supplied code, nothing was read;
    `incomplete`: a fence was opened and not closed."""
    code: str = ""
    """The chosen code; for `incomplete`, the part that arrived, which is never run."""
    language: str = ""
    """The chosen block's tag, lower case."""
    reason: str = ""
    """Why this block was chosen, or why there is none, in one sentence."""
    blocks: int = 0
    """How many fenced blocks the reply held."""
