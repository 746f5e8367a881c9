"""The environment interface as values: state, observation, action, step result."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from typing import Any

from nbrefine.values import Message, Reply, SignalBundle


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agent sees."""

    prompt: str
    """The newest text: the task at the start, feedback afterwards."""
    messages: tuple[Message, ...] = ()
    """The whole prompt as a chat, ready to send."""
    tool_results: tuple[Any, ...] = ()
    available_tools: tuple[Any, ...] = ()
    task: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class StateMetadata:
    """Where in an episode a state stands."""

    step: int = 0
    """Actions taken so far."""
    episode_id: str = ""
    is_terminal: bool = False
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """One point of an episode: what is seen, what is hidden, where it stands."""

    observation: Observation
    hidden: Any = None
    metadata: StateMetadata = StateMetadata()

    def __repr__(self) -> str:  # one line: all that it holds is many pages
        at, prompt = self.metadata, reprlib.repr(self.observation.prompt)
        return f"State(step={at.step}, is_terminal={at.is_terminal}, prompt={prompt})"


@dataclass(frozen=True, slots=True)
class Action:
    """What the agent does: a text, as a model wrote it, or code as such."""

    text: str | None = None
    tool_calls: tuple[Any, ...] = ()
    reply: Reply | None = None
    """The reply the text came in, for the record."""
    code: str | None = None
    """Code to run as it is; nothing is extracted then."""

    @classmethod
    def from_text(cls, text: str) -> Action:
        """Make an action of a text that a model wrote."""
        return cls(text=text)

    @classmethod
    def from_reply(cls, reply: Reply) -> Action:
        """Make an action of a model's reply."""
        return cls(text=reply.text, tool_calls=reply.tool_calls, reply=reply)

    @classmethod
    def from_code(cls, code: str) -> Action:
        """Make an action of code that runs as it is."""
        return cls(text=code, code=code)

    @classmethod
    def from_tool_call(cls, call: Any) -> Action:
        """Make an action of one tool call."""
        return cls(tool_calls=(call,))

    @classmethod
    def from_tool_calls(cls, calls: tuple[Any, ...]) -> Action:
        """Make an action of several tool calls."""
        return cls(tool_calls=tuple(calls))

    @property
    def has_text(self) -> bool:
        return bool(self.text)

    @property
    def has_tool_calls(self) -> bool:
        return bool(self.tool_calls)

    @property
    def is_text_only(self) -> bool:
        return self.has_text and not self.has_tool_calls


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """What kind of environment it is, for whoever drives it."""

    name: str
    adapter: str
    """What it was made of: "iterative", "huggingface", "notebook" …"""
    max_steps: int | None = None
    """Steps until an episode is truncated; None for no limit."""
    is_multi_turn: bool = False
    supports_task_index: bool = True
    supports_len: bool = True
    supports_seed: bool = True
    pure_step: bool = False
    """Whether one state may be stepped again and again, each time as if it were the first."""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step gave."""

    next_state: State
    rewards: SignalBundle
    terminated: bool = False
    """The episode ended by itself: solved or submitted."""
    truncated: bool = False
    """The episode ended at a limit."""
    extracted_action: str | None = None
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def resolved_action(self) -> str | None:
        """The older name of `extracted_action`."""
        return self.extracted_action

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated
