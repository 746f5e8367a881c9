"""Which attempts a prompt does not show, where its record lets a reader know.

What was sent is compared with what the attempts before it were: their replies, their code, and the
feedback on the last one.  How these stand in a prompt depends on the history that was asked for.
Where the record names one of ours, an attempt is all there or not at all, and of attempts that are
the same, those count as shown that this history shows first.  Of other prompts, which may sum up
what they leave out, no more is said than whose code is not in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nbrefine.notebook import wording
from nbrefine.solving.starting import KIND
from nbrefine.source import fenced
from nbrefine.values import Episode, Message, Turn

HEAD = 200
"""Characters by which feedback and code are found, as the middle of long ones may be left out."""

SEARCHED = 200_000
"""Characters of a prompt up to which it is searched for code."""


@dataclass(frozen=True, slots=True)
class Recall:
    """What the prompts of a step show of its attempts."""

    turns: tuple[Turn, ...]
    """Those of the step, in order."""
    history: str | None
    """The history that the record names, such as "current"; None where it names none."""
    solving: bool
    """Whether it is an episode of several steps, whose prompts tell earlier attempts in short."""

    @classmethod
    def of(cls, episode: Episode, turns: tuple[Turn, ...]) -> Recall:
        """Give it for the turns of a step of an episode."""
        named = episode.settings.get("history")
        history = named if isinstance(named, str) else None
        return cls(turns, history, episode.settings.get("kind") == KIND)

    def unshown(self, turn: Turn) -> str:
        """Name the attempts that the prompt of a turn does not show, in a sentence; "" for none."""
        earlier = [each for each in self.turns if each.number < turn.number]
        before = [each for each in earlier if _may_be_shown(each)]
        if not turn.messages or not before:
            return ""
        said = Counter(each.content for each in turn.messages if each.role == "assistant")
        afresh = turn.escalated and not said and not self.solving
        if self.history is None and not afresh:
            return _without_code(before, turn.messages)
        if said:
            return _not_in_chat(before, said)
        if afresh or self.history == "fresh":
            order = []
        else:
            order = before if self.history == "best" else before[::-1]
        return _not_in_text(before, _text(turn.messages), order)


def _may_be_shown(turn: Turn) -> bool:
    """Tell whether a turn is an attempt of which there is anything that a prompt could show."""
    said = turn.reply is not None and bool(turn.reply.text)
    return turn.kind == "attempt" and not turn.stopped and (said or bool(turn.code))


def _not_in_chat(before: Sequence[Turn], said: Counter[str]) -> str:
    """Name the attempts whose replies are not among those that are shown, which are the newest."""
    gone = []
    for turn in reversed(before):
        reply = turn.reply.text if turn.reply is not None else _block(turn)
        if said[reply] > 0:
            said[reply] -= 1
        else:
            gone.append(turn)
    return "" if any(said.values()) else _told(gone[::-1])


def _not_in_text(before: Sequence[Turn], text: str, order: Iterable[Turn]) -> str:
    """Name the attempts that are not in a prompt which shows the code of one of them, or of none.

    Parameters
    ----------
    order: those whose code may be shown, first the one that is of those with the same.
    """
    last = before[-1]
    shown = next((turn for turn in order if turn.code and _block(turn) in text), None)
    alone = last is not shown and (shown is None or not last.code)
    heard = last if alone and last.feedback and last.feedback[:HEAD] in text else None
    if shown is None and heard is None:
        return ""
    return _told([turn for turn in before if turn is not shown and turn is not heard], heard)


def _without_code(before: Sequence[Turn], messages: Sequence[Message]) -> str:
    """Name the attempts whose code is nowhere in a prompt."""
    if sum(len(message.content) for message in messages) > SEARCHED:
        return ""
    text = _text(messages)
    ran = (turn for turn in before if turn.result is not None and turn.code.strip())
    gone = [turn for turn in ran if turn.code.strip()[:HEAD] not in text]
    named = _named(gone)
    return f"The code of {named} is not in this prompt." if gone else ""


def _told(gone: Sequence[Turn], heard: Turn | None = None) -> str:
    """Say which attempts are not there, and of which one there is only the feedback."""
    only = f"of attempt {heard.attempt} only the feedback" if heard is not None else ""
    if not gone:
        return f"{only[:1].upper()}{only[1:]} is in this prompt." if only else ""
    named = _named(gone)
    are = "is" if len(gone) == 1 else "are"
    return f"{named.capitalize()} {are} not in this prompt{f', and {only}' if only else ''}."


def _named(turns: Sequence[Turn]) -> str:
    return wording.listed("attempt", [turn.attempt for turn in turns])


def _text(messages: Sequence[Message]) -> str:
    return "\n\n".join(message.content for message in messages)


def _block(turn: Turn) -> str:
    """Give the code as a history shows it."""
    return fenced(turn.code, turn.extraction.language or "python") if turn.code else ""
