"""What models were sent: every message stands on the page once, where it was sent first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from nbrefine.values import Message
from nbrefine.views.drawing import highlight
from nbrefine.views.drawing.outputs import shown
from nbrefine.views.page.passages import SHORTEST, Passages, Quote


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was not sent before."""

    number: int
    role: str
    text: Markup
    images: int


@dataclass(frozen=True, slots=True)
class Again:
    """Neighbours in a prompt that were neighbours before."""

    first: int
    last: int

    @property
    def told(self) -> str:
        """Such as "Messages 1 to 4"."""
        if self.first == self.last:
            return f"Message {self.first}"
        return f"Messages {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages of one call."""

    parts: tuple[Sent | Again, ...]
    messages: int
    characters: int

    @property
    def told(self) -> str:
        """Such as "2 messages, 1,204 characters"."""
        many = f"{self.messages} message{'' if self.messages == 1 else 's'}"
        return f"{many}, {self.characters:,} characters"


class Prompts:
    """The prompts of a page, in order.

    Parameters
    ----------
    passages: what the page has had so far; it grows by what is new in the messages.
    """

    def __init__(self, passages: Passages) -> None:
        self._passages = passages
        self._numbers: dict[Message, int] = {}
        self._before: tuple[Message, ...] = ()
        self._runs: list[Again] = []

    def draw(self, messages: Sequence[Message]) -> Prompt:
        """Give a prompt as what is new in it, and where the rest stands."""
        sent, known = tuple(messages), len(self._before)
        if sent[:known] != self._before:
            known, self._runs = 0, []
        self._before = sent
        # A chat sends all it has said again, and to look at each message anew would take longer
        # than all else on the page.
        parts: list[Sent | Again] = [*self._runs]
        for message in sent[known:]:
            number = self._numbers.get(message)
            if number is None:
                parts.append(self._sent(message))
                self._follow(len(self._numbers))
                continue
            last = parts[-1] if parts else None
            if isinstance(last, Again) and last.last + 1 == number:
                parts[-1] = Again(last.first, number)
            else:
                parts.append(Again(number, number))
            self._follow(number)
        return Prompt(tuple(parts), len(sent), sum([len(each.content) for each in sent]))

    def _follow(self, number: int) -> None:
        """Note the next message of the prompt that is drawn."""
        last = self._runs[-1] if self._runs else None
        if last is not None and last.last + 1 == number:
            self._runs[-1] = Again(last.first, number)
        else:
            self._runs.append(Again(number, number))

    def _sent(self, message: Message) -> Sent:
        number = len(self._numbers) + 1
        self._numbers[message] = number
        name = f"m{number}"
        drawn = quoted(self._passages, shown(message.content), name, f"message {number}")
        return Sent(number, message.role, drawn, len(message.images))


def quoted(passages: Passages, text: str, name: str, told: str, *, flat: bool = False) -> Markup:
    """Give a text with quotes in place of what the page has had.

    Parameters
    ----------
    name, told: id and words for the new parts, so that they can be quoted in turn.
    flat: see `Passages.split`.
    """
    drawn = []
    for place, piece in enumerate(passages.split(text, flat=flat)):
        if isinstance(piece, Quote):
            drawn.append(_quote(piece))
        elif len(piece) >= SHORTEST:
            new = f"{name}-{place}"
            drawn.append(f'<span id="{new}">{highlight.text(piece)}</span>')
            passages.add(piece, new, told)
        else:
            drawn.append(str(highlight.text(piece)))
    return Markup("".join(drawn))  # noqa: S704 - escaped piece by piece


def _quote(quote: Quote) -> str:
    begin, end = quote.units
    whole = quote.end - quote.begin == len(quote.passage.text)
    part = "" if whole else f' data-part="{begin} {end}"'
    return f'<a class="quote" href="#{quote.passage.target}"{part}>[{escape(quote.told)}]</a>'
