"""Models: anything that answers a list of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.values import Message, Reply, Sampling


class Model(Protocol):
    """Anything that answers a list of messages."""

    @property
    def name(self) -> str:
        """What the record calls the model, for example `openai:gpt-4o-mini`."""
        ...

    def complete(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling = ...,
        budget: Budget | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Run[Reply]:
        """Ask for one reply.

        Parameters
        ----------
        messages: the conversation so far.
        sampling: how the reply is drawn.
        budget: checked before every call, retries included.
        on_text: called on the portal with each piece of text as it arrives; must not block.

        Raises
        ------
        ModelError: the host's trouble, by kind; see `nbrefine.errors`.
        BudgetExceeded: a limit was reached before a call.
        """
        ...

    async def aclose(self) -> None:
        """Release what the model holds."""
        ...
