"""What models were sent: every message stands on the page once, where it was sent first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from nbrefine.values import Message
from nbrefine.views.page import highlight
from nbrefine.views.page.outputs import shown
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

    The messages must live as long as it does: it knows them by their identity as well.
    """

    def __init__(self, passages: Passages) -> None:
        self._passages = passages
        self._numbers: dict[Message, int] = {}
        self._seen: dict[int, int] = {}

    def draw(self, messages: Sequence[Message]) -> Prompt:
        """Give a prompt as what is new in it, and where the rest stands."""
        parts: list[Sent | Again] = []
        first = last = 0  # of the run of known messages that is being read
        for message in messages:
            known = self._number(message)
            if last and known == last + 1:
                last = known
                continue
            if last:
                parts.append(Again(first, last))
            first = last = known or 0
            if known is None:
                parts.append(self._sent(message))
        if last:
            parts.append(Again(first, last))
        characters = sum(len(message.content) for message in messages)
        return Prompt(tuple(parts), len(messages), characters)

    def _number(self, message: Message) -> int | None:
        """Give the number of a message that was sent before.

        A chat sends all of its messages again at every turn, mostly the very same objects, and to
        hash them all would take longer than everything else.
        """
        number = self._seen.get(id(message))
        if number is None and (number := self._numbers.get(message)) is not None:
            self._seen[id(message)] = number
        return number

    def _sent(self, message: Message) -> Sent:
        number = len(self._numbers) + 1
        self._numbers[message] = number
        name = f"m{number}"
        drawn = quoted(self._passages, shown(message.content), name, f"message {number}")
        return Sent(number, message.role, drawn, len(message.images))


def quoted(passages: Passages, text: str, name: str = "", told: str = "") -> Markup:
    """Give a text with quotes in place of what the page has had.

    Parameters
    ----------
    name, told: id and words for the new parts, so that they can be quoted in turn; "" where the
        text is remembered as a whole.
    """
    drawn = []
    for place, piece in enumerate(passages.split(text)):
        if isinstance(piece, Quote):
            drawn.append(_quote(piece))
        elif name and len(piece) >= SHORTEST:
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
