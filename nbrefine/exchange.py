"""What goes to a model: messages that it can take, the tools it is offered, and what was sent."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace

from nbrefine.errors import UsageError
from nbrefine.models import Model
from nbrefine.redaction import clean_text
from nbrefine.state import State
from nbrefine.values import Episode, Message, Tool, Turn


def sendable(messages: Sequence[Message], model: Model) -> tuple[Message, ...]:
    """Give messages as they are sent: valid text, and images only to a model that takes them."""
    takes_images = getattr(model, "takes_images", False)
    return tuple(
        replace(
            message,
            content=clean_text(message.content),
            images=message.images if takes_images else (),
        )
        for message in messages
    )


def offered(state: State, model: Model) -> dict[str, tuple[Tool, ...]]:
    """Give the tools that a state has for the model, as an argument of its `complete`, or none.

    Raises
    ------
    UsageError: there are some, and the model has no such parameter.
    """
    shown = state.observation.available_tools
    tools = tuple(tool for tool in shown if isinstance(tool, Tool))
    if not tools:
        return {}
    taken = inspect.signature(model.complete).parameters.values()
    if not any(each.name == "tools" or each.kind is each.VAR_KEYWORD for each in taken):
        raise UsageError(
            f"The model {model.name} takes no tools",
            hint='Give its complete() a parameter "tools", or ask for fenced code: style="fenced"',
        )
    return {"tools": tools}


class Prompts:
    """Puts prompts as they were sent in the place of those that an environment has shown.

    Parameters
    ----------
    turns: those that the episode begins with, whose prompts are as they are.
    """

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._sent = [turn.messages for turn in turns]
        self._kept: list[tuple[Turn, Turn]] = []

    def restored(self, episode: Episode, sent: tuple[Message, ...]) -> Episode:
        """Take in what was sent for the newest turn; turns that are as before stay themselves."""
        self._sent.append(sent)
        turns = [self._turn(at, turn) for at, turn in enumerate(episode.turns)]
        return replace(episode, turns=tuple(turns))

    def _turn(self, at: int, turn: Turn) -> Turn:
        # The journal writes again what is another object, and so it stays the same one here.
        if at < len(self._kept) and self._kept[at][0] is turn:
            return self._kept[at][1]
        kept = turn
        if at < len(self._sent) and turn.messages != self._sent[at]:
            kept = replace(turn, messages=self._sent[at])
        self._kept[at : at + 1] = [(turn, kept)]
        return kept
