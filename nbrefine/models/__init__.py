"""Models: anything that answers a list of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.errors import UsageError
from nbrefine.values import Episode, Message, Reply, Sampling, Tool

if TYPE_CHECKING:
    from nbrefine.models.openai import OpenAIBackend

__all__ = ["FORMS", "Model", "OpenAIBackend", "resolve"]

FORMS = (
    'Known forms: "local", "local:NAME", "openai:NAME", "scripted:FILE", "recorded:FILE", '
    "a function from messages to text, a list of replies, a Model"
)


class Model(Protocol):
    """Anything that answers a list of messages.

    One that takes images of messages says so by an attribute `takes_images` that is true; any
    other is never sent one.  A model that is asked for text and fenced code alone may do without
    the parameter `tools`: it is given only where there are some.
    """

    @property
    def name(self) -> str:
        """What the record calls the model, for example `openai:gpt-4o-mini`."""
        ...

    async def check(self) -> None:
        """Find out, before anything is begun, what would keep the model from answering.

        It is quick and costs nothing; what only a real call can tell stays open.

        Raises
        ------
        ModelError: a call would fail, and why.
        """
        ...

    def complete(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling = ...,
        budget: Budget | None = None,
        on_text: Callable[[str], None] | None = None,
        tools: Sequence[Tool] = (),
    ) -> Run[Reply]:
        """Ask for one reply.

        Parameters
        ----------
        messages: the conversation so far.
        sampling: how the reply is drawn.
        budget: checked before every call, retries included; the model adds what each took,
            since it alone sees the retries.
        on_text: called on the portal with each piece of text as it arrives; must not block.
            An empty piece says that the reply broke off and begins anew.
        tools: what the model may call; its calls are in `Reply.tool_calls`.

        Raises
        ------
        ModelError: the host's trouble, by kind; see `nbrefine.errors`.
        BudgetExceeded: a limit was reached before a call.
        """
        ...

    async def aclose(self) -> None:
        """Release what the model holds."""
        ...


def resolve(
    spec: Model | str | Callable[..., Any] | Iterable[Any],
    *,
    base_url: str | None = None,
    load: Callable[[Path], Episode] | None = None,
) -> Model:
    """Give the model that a short form stands for.

    Parameters
    ----------
    spec: "local", "local:NAME" (a catalogue name or a .gguf file), "openai:NAME" for any
        server that speaks OpenAI's protocol ("openai" alone takes the name from OPENAI_MODEL),
        "scripted:FILE", "recorded:FILE", a function from messages to text, an iterable of
        replies, or a model, which is given back as it is.
    base_url: the server of an "openai:" model; elsewhere it is refused.
    load: reads the episode of a "recorded:" model.

    Raises
    ------
    UsageError: the form or the file is not known.
    ModelError: the model cannot be used here; see `OpenAIModel` and `LocalModel`.
    """
    if base_url is not None and not (isinstance(spec, str) and spec.split(":")[0] == "openai"):
        raise UsageError(
            "A base URL goes with a model on a server only",
            hint='Name the model as that server knows it, as in "openai:NAME"',
        )
    if hasattr(spec, "complete"):
        return cast("Model", spec)
    if isinstance(spec, str):
        return _named(spec, base_url, load)
    if callable(spec) or isinstance(spec, Iterable):
        from nbrefine.models.scripted import ScriptedModel

        return ScriptedModel(spec)
    raise UsageError(f"{type(spec).__name__} is not a model", hint=FORMS)


def _named(spec: str, base_url: str | None, load: Callable[[Path], Episode] | None) -> Model:
    kind, _, rest = spec.partition(":")
    if kind == "local":
        from nbrefine.models.local import LocalModel

        return LocalModel(rest or None)
    if kind == "openai":
        from nbrefine.models.openai import OpenAIModel

        return OpenAIModel(rest or None, base_url=base_url)
    if kind == "scripted" and rest:
        from nbrefine.models.scripted import ScriptedModel

        return ScriptedModel.from_file(rest)
    if kind == "recorded" and rest and load is not None:
        from nbrefine.models.recorded import RecordedModel

        return RecordedModel(load(Path(rest)))
    forms = 'Use "local", "local:NAME", "openai:NAME", "scripted:FILE" or "recorded:FILE"'
    raise UsageError(f'"{spec}" names no model', hint=forms)


def __getattr__(name: str) -> Any:
    """Load the model on a server when it is asked for: its client takes a while."""
    if name != "OpenAIBackend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from nbrefine.models.openai import OpenAIBackend

    return OpenAIBackend
