"""A model that answers from a record: to replay an episode's loop without asking anyone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import zip_longest

from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.errors import ModelMismatchError, UsageError
from nbrefine.values import Episode, Message, Reply, Sampling, Tool, Turn

EXCERPT = 40
"""Characters of each text shown around the place where two messages differ."""


class RecordedModel:
    """A model that gives the replies of a recorded episode.

    Each call is answered by the first turn not yet used whose prompt and sampling are the same;
    a setting that the call leaves to the server matches any, and tools that are offered are not
    compared, since a record does not hold them.  So a loop that still does what
    was recorded gets the recorded replies, and one that does not is told where it departs.

    Parameters
    ----------
    episode: the record; its turns without a reply are passed over.
    strict: whether the prompt must be as recorded; without it, the replies come in order.

    Raises
    ------
    UsageError: the episode holds no reply.
    """

    def __init__(self, episode: Episode, *, strict: bool = True) -> None:
        self.name = f"recorded:{episode.model or episode.id}"
        self.strict = strict
        self.takes_images = any(m.images for turn in episode.turns for m in turn.messages)
        self._turns = [turn for turn in episode.turns if turn.reply is not None]
        self._total = len(self._turns)
        if not self._turns:
            raise UsageError("The episode holds no model's reply", hint="Record one with a model")

    def __repr__(self) -> str:
        return f"RecordedModel(name={self.name!r}, strict={self.strict})"

    async def check(self) -> None:
        """Do nothing: a record can always be read."""

    def complete(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling = Sampling(),
        budget: Budget | None = None,
        on_text: Callable[[str], None] | None = None,
        tools: Sequence[Tool] = (),
    ) -> Run[Reply]:
        """Give the recorded reply to this prompt; see `Model.complete`.

        Raises
        ------
        ModelMismatchError: the record has no such prompt left; it names the first difference.
        BudgetExceeded: a limit was reached.
        """
        return Run(self._complete(tuple(messages), sampling, budget, on_text))

    async def _complete(
        self,
        messages: tuple[Message, ...],
        sampling: Sampling,
        budget: Budget | None,
        on_text: Callable[[str], None] | None,
    ) -> Reply:
        if budget is not None:
            budget.check()
        turn = self._take(messages, sampling)
        assert turn.reply is not None
        if budget is not None:
            budget.add_call(turn.reply.usage)
        if on_text is not None and turn.reply.text:
            on_text(turn.reply.text)
        return turn.reply

    def _take(self, messages: tuple[Message, ...], sampling: Sampling) -> Turn:
        if not self._turns:
            raise ModelMismatchError(
                f"The record holds {self._total} replies, and all have been given",
                hint="The run takes more turns than the recorded one: compare the two",
            )
        differences = [
            _difference(turn, messages, sampling) if self.strict else "" for turn in self._turns
        ]
        if all(differences):
            raise ModelMismatchError(
                f"The prompt is not the one recorded for turn {self._turns[0].number}: "
                f"{differences[0]}",
                hint="Replay with the recorded settings, or pass strict=False to go on in order",
            )
        return self._turns.pop(differences.index(""))

    async def aclose(self) -> None:
        """Do nothing: a record holds nothing."""


def _difference(turn: Turn, messages: tuple[Message, ...], sampling: Sampling) -> str:
    """Say in one phrase where a request departs from a turn's, or give ""."""
    for number, (was, now) in enumerate(zip_longest(turn.messages, messages), 1):
        if was is None or now is None:
            return f"{len(turn.messages)} messages were recorded, {len(messages)} came"
        if was.role != now.role:
            return f"message {number} was by {was.role}, now by {now.role}"
        if was.content != now.content:
            return f"message {number} ({now.role}) {_departure(was.content, now.content)}"
        if was.images != now.images:
            return f"message {number} ({now.role}) came with other images"
    assert turn.reply is not None
    for setting in fields(Sampling):
        asked = getattr(sampling, setting.name)
        drawn = getattr(turn.reply.sampling, setting.name)
        if asked not in (None, (), drawn):
            return f"{setting.name} was {drawn}, now {asked}"
    return ""


def _departure(was: str, now: str) -> str:
    pairs = enumerate(zip_longest(was, now))
    place = next(index for index, (before, after) in pairs if before != after)
    line = was.count("\n", 0, place) + 1
    was, now = was[place : place + EXCERPT], now[place : place + EXCERPT]
    return f"differs in line {line}: {was!r} was recorded, {now!r} came"
