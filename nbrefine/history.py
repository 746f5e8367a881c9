"""Which past a prompt shows, so that it fits.

A strategy is a callable from the opening messages and the turns so far to the messages to
send.  Roles alternate, no attempt is sent twice, and each strategy leaves out only what it
must; the episode keeps everything whatever the model sees.

`full_history` and its kin are the same for a `TrajectoryRunner`, which knows the past as entries:
from entries to the messages that stand between the task and the newest observation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from nbrefine.errors import UsageError
from nbrefine.source import fenced
from nbrefine.thinking import without_thinking
from nbrefine.values import Message, Turn

NO_FEEDBACK = "No specific feedback available."
"""Stands for the feedback of a turn that has none."""


LEAST = 400
"""Characters of the last feedback that are worth more to a model than its own last reply."""


class History(Protocol):
    """Anything that chooses the messages to send."""

    def __call__(
        self, opening: Sequence[Message], turns: Sequence[Turn], *, note: str = ""
    ) -> tuple[Message, ...]:
        """Give the messages of the next prompt.

        Parameters
        ----------
        opening: the system message and the task as first shown.
        turns: the turns so far, oldest first.
        note: a last word to the model, put at the end of the last user message.
        """
        ...


def full() -> History:
    """Show every reply and its feedback, as a chat."""

    def history(
        opening: Sequence[Message], turns: Sequence[Turn], *, note: str = ""
    ) -> tuple[Message, ...]:
        return joined(opening, _chat(turns), note)

    return history


def last(n: int) -> History:
    """Show the last `n` replies and their feedback, as a chat."""
    if n < 1:
        raise UsageError(f"last({n}) shows no turn", hint="Give a number from 1 on")

    def history(
        opening: Sequence[Message], turns: Sequence[Turn], *, note: str = ""
    ) -> tuple[Message, ...]:
        return joined(opening, _chat(turns[-n:]), note)

    return history


def current() -> History:
    """Show the task, the current code and the last feedback, as one user message."""

    def history(
        opening: Sequence[Message], turns: Sequence[Turn], *, note: str = ""
    ) -> tuple[Message, ...]:
        at = max((i for i, turn in enumerate(turns) if turn.code), default=None)
        if at is None:
            return joined(opening, _feedback(turns[-1:]), note)
        # After a reply without code, the feedback on the code still stands beside the newest.
        return joined(opening, [_attempt(turns[at]), *_feedback(turns[at + 1 :][-1:])], note)

    return history


def fresh() -> History:
    """Start over from the task and the last feedback, without the code that led to it.

    A model that has sent the same code twice copies it once more where it sees it.
    """

    def history(
        opening: Sequence[Message], turns: Sequence[Turn], *, note: str = ""
    ) -> tuple[Message, ...]:
        return joined(opening, _feedback(turns[-1:]), note)

    return history


def best() -> History:
    """Start over from the task, the best code so far and its feedback, as one user message."""

    def history(
        opening: Sequence[Message], turns: Sequence[Turn], *, note: str = ""
    ) -> tuple[Message, ...]:
        tried = [turn for turn in turns if turn.code]
        if not tried:
            return joined(opening, _feedback(turns[-1:]), note)
        return joined(opening, [_attempt(max(tried, key=lambda turn: turn.score))], note)

    return history


def estimate_tokens(text: str) -> int:
    """Estimate tokens as a third of the UTF-8 bytes, which overstates English and code."""
    return (len(text.encode("utf-8", "replace")) + 2) // 3


def window(max_tokens: int, count: Callable[[str], int] = estimate_tokens) -> History:
    """Show as many of the newest turns as fit, as a chat.

    The opening and the last feedback always stay: the oldest turns go first, then the middle
    of the last feedback, and where `LEAST` characters of it do not fit, the last reply.

    Parameters
    ----------
    max_tokens: what all messages may take together.
    count: tokens of a text.
    """
    if max_tokens < 1:
        raise UsageError(f"window({max_tokens}) has no room", hint="Give a number from 1 on")

    def fits(messages: Iterable[Message]) -> bool:
        return sum(count(message.content) for message in messages) <= max_tokens

    def history(
        opening: Sequence[Message], turns: Sequence[Turn], *, note: str = ""
    ) -> tuple[Message, ...]:
        chosen = joined(opening, [], note) if not turns else None
        # From the newest on, so that a long episode costs no more than what is shown of it.
        for shown in range(1, len(turns) + 1):
            messages = joined(opening, _chat(turns[-shown:]), note)
            if not fits(messages):
                break
            chosen = messages
        if chosen is not None:
            return chosen
        feedback = turns[-1].feedback or NO_FEEDBACK
        for reply in ([_reply(turns[-1])], []):
            messages, kept = _squeezed(opening, reply, feedback, note, fits)
            if kept >= min(LEAST, len(feedback)):
                break
        return messages

    return history


def by_name(name: str) -> History:
    """Give the strategy called "full", "current", "best", "fresh", "last:N" or "window:TOKENS".

    Raises
    ------
    UsageError: there is no strategy of that name.
    """
    kind, _, number = name.partition(":")
    plain = {"full": full, "current": current, "best": best, "fresh": fresh}
    counted: dict[str, Callable[[int], History]] = {"last": last, "window": window}
    if kind in plain and not number:
        return plain[kind]()
    if kind in counted and number.isdecimal():
        return counted[kind](int(number))
    raise UsageError(
        f"There is no history {name!r}",
        hint="Use full, current, best, fresh, last:N or window:TOKENS",
    )


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One past step: what the agent did, and what it was told of it."""

    action_text: str
    observation_text: str = ""
    """Empty for the newest step: a prompt ends with its observation whatever the history is."""
    observation_images: tuple[Any, ...] = ()
    step: int = 0
    """1-based."""


HistoryFunction = Callable[[Sequence[HistoryEntry]], Sequence[Message]]
"""From the steps so far, oldest first, to the messages that show them."""


def full_history(entries: Sequence[HistoryEntry]) -> tuple[Message, ...]:
    """Show every step, as a chat."""
    chat = (
        (Message("assistant", entry.action_text), Message("user", entry.observation_text))
        for entry in entries
    )
    return tuple(message for pair in chat for message in pair if message.content)


def no_history(entries: Sequence[HistoryEntry]) -> tuple[Message, ...]:
    """Show no step: the task and the newest observation are all there is."""
    return ()


def last_n_history(n: int) -> HistoryFunction:
    """Show the last `n` steps, as a chat."""
    if n < 1:
        raise UsageError(f"last_n_history({n}) shows no step", hint="Use no_history for that")
    return lambda entries: full_history(entries[-n:])


def sliding_window_history(
    max_tokens: int, token_counter: Callable[[str], int] = estimate_tokens
) -> HistoryFunction:
    """Show as many of the newest steps as fit, as a chat.

    Parameters
    ----------
    max_tokens: what the steps shown may take together; task and newest observation come on top.
    token_counter: tokens of a text.
    """
    if max_tokens < 1:
        raise UsageError(
            f"sliding_window_history({max_tokens}) has no room", hint="Give a number from 1 on"
        )
    return lambda entries: _fitting(entries, max_tokens, token_counter)


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """What a whole prompt may take, and what gives way first.

    The task always stays.  Of the rest, the oldest steps go first, then the middle of the newest
    observation, down to `min_current_observation_chars`; below that the prompt is as long as it
    must be.
    """

    max_prompt_tokens: int
    estimate_tokens: Callable[[str], int] = estimate_tokens
    """Tokens of a text."""
    build_history: Callable[[Sequence[HistoryEntry], int], Sequence[Message]] | None = None
    """From the steps so far and the tokens left for them to the messages that show them; by
    default the newest steps that fit."""
    min_current_observation_chars: int = LEAST

    def __post_init__(self) -> None:
        if self.max_prompt_tokens < 1:
            raise UsageError(
                f"max_prompt_tokens is {self.max_prompt_tokens}", hint="Give a number from 1 on"
            )
        if self.min_current_observation_chars < 0:
            raise UsageError("min_current_observation_chars is negative", hint="Give 0 or more")

    def build(
        self,
        opening: Sequence[Message],
        entries: Sequence[HistoryEntry],
        observation: str,
        *,
        note: str = "",
    ) -> tuple[Message, ...]:
        """Give the messages of a prompt.

        Parameters
        ----------
        opening: the system message and the task.
        entries: the steps so far; the newest has no observation.
        observation: what the newest step gave; "" before the first.
        note: a last word to the model, put at the end of the last user message.
        """
        bare = joined(opening, [], note)
        if not observation:
            return bare
        room = self.max_prompt_tokens - self._tokens(bare)
        past: Sequence[Message] = ()
        left = room - self.estimate_tokens(observation)
        if left >= 0:
            past = self._past(entries, left)
        else:
            observation = self._cut(observation, room)
        return joined(opening, [*past, Message("user", observation)], note)

    def _past(self, entries: Sequence[HistoryEntry], room: int) -> Sequence[Message]:
        if self.build_history is not None:
            return self.build_history(entries, room)
        return _fitting(entries, room, self.estimate_tokens)

    def _cut(self, observation: str, room: int) -> str:
        """Give the longest cut of an observation that fits, or the shortest that is allowed."""
        low, high = min(self.min_current_observation_chars, len(observation)), len(observation)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.estimate_tokens(_cut(observation, middle)) <= room
            low, high = (middle, high) if fits else (low, middle - 1)
        return _cut(observation, low)

    def _tokens(self, messages: Iterable[Message]) -> int:
        return sum(self.estimate_tokens(message.content) for message in messages)


def _fitting(
    entries: Sequence[HistoryEntry], room: int, count: Callable[[str], int]
) -> tuple[Message, ...]:
    # From the newest on, so that a long episode costs no more than what is shown of it.
    shown = len(entries)
    while shown:
        entry = entries[shown - 1]
        room -= count(entry.action_text) + count(entry.observation_text)
        if room < 0:
            break
        shown -= 1
    return full_history(entries[shown:])


def entries_of(turns: Sequence[Turn], *, reasoning: bool = False) -> tuple[HistoryEntry, ...]:
    """Give the steps of an episode; the newest without its observation.

    Parameters
    ----------
    reasoning: whether a model is shown what it thought before it answered.
    """
    return tuple(
        HistoryEntry(
            said(turn, reasoning=reasoning),
            (turn.feedback or NO_FEEDBACK) if turn is not turns[-1] else "",
            step=step,
        )
        for step, turn in enumerate(turns, 1)
    )


def said(turn: Turn, *, reasoning: bool = False) -> str:
    """Give what the model wrote in a turn, with or without its reasoning."""
    if turn.reply is None:
        return _reply(turn).content
    if not reasoning:
        return without_thinking(turn.reply.text)
    thought = turn.reply.reasoning
    return f"<think>\n{thought}\n</think>\n\n{turn.reply.text}" if thought else turn.reply.text


def _squeezed(
    opening: Sequence[Message],
    reply: list[Message],
    feedback: str,
    note: str,
    fits: Callable[[Iterable[Message]], bool],
) -> tuple[tuple[Message, ...], int]:
    """Cut the feedback to the longest that fits; give the messages and the characters kept."""

    def messages(keep: int) -> tuple[Message, ...]:
        return joined(opening, [*reply, Message("user", _cut(feedback, keep))], note)

    low, high = 0, len(feedback)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(messages(middle)) else (low, middle - 1)
    return messages(low), low


def _chat(turns: Sequence[Turn]) -> list[Message]:
    return [message for turn in turns for message in (_reply(turn), *_feedback([turn]))]


def _reply(turn: Turn) -> Message:
    if turn.reply is not None:
        return Message("assistant", turn.reply.text)
    return Message("assistant", _code(turn) if turn.code else "")


def _feedback(turns: Sequence[Turn]) -> list[Message]:
    return [Message("user", turn.feedback or NO_FEEDBACK) for turn in turns]


def _attempt(turn: Turn) -> Message:
    feedback = turn.feedback or NO_FEEDBACK
    return Message("user", f"Your current code:\n{_code(turn)}\n\n{feedback}")


def _code(turn: Turn) -> str:
    return fenced(turn.code, turn.extraction.language or "python")


def _cut(text: str, keep: int) -> str:
    """Keep the head and the tail of a text."""
    if keep >= len(text):
        return text
    tail = keep // 3
    left_out = f"[… {len(text) - keep:,} characters left out …]"
    return f"{text[: keep - tail]}\n{left_out}\n{text[len(text) - tail :]}"


def joined(opening: Sequence[Message], more: Sequence[Message], note: str) -> tuple[Message, ...]:
    """Put messages in a row in which roles alternate, the note at the end."""
    row: list[Message] = []
    for message in (*opening, *more, Message("user", note)):
        if not message.content:
            continue
        if row and row[-1].role == message.role:
            row[-1] = Message(message.role, f"{row[-1].content}\n\n{message.content}")
        else:
            row.append(message)
    return tuple(row)
