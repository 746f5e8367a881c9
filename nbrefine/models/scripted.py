"""A model that says what it was told to: for tests, classes and work without a network."""

from __future__ import annotations

import json
import reprlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nbrefine._portal import Run, call_user
from nbrefine.budget import Budget
from nbrefine.errors import UsageError
from nbrefine.models._calls import read_call
from nbrefine.models._replies import tidy
from nbrefine.values import Message, Reply, Sampling, Tool, ToolCall

Script = Iterable[str | Mapping[str, Any] | Reply] | Callable[[Sequence[Message]], Any]

CALL = '{"tool": NAME, "arguments": {…}}, with "text" where it says something besides'
"""How a script writes the call of a tool."""

_END: Any = object()


class ScriptedModel:
    """A model whose replies are given beforehand.

    It counts no tokens: `Reply.usage` stays at zero unless a given `Reply` says otherwise.

    Parameters
    ----------
    replies: a list, an iterator that is asked for one reply per call, or a function of the
        messages, plain or `async`.  Each reply is a text, a `Reply`, or the call of a tool as a
        mapping: `{"tool": NAME, "arguments": {…}}`, with `text` where it also says something;
        arguments given as a text are read as a server's are.
    name: what the record calls the model.
    takes_images: whether it is sent the images of messages.
    """

    def __init__(
        self, replies: Script, *, name: str = "scripted", takes_images: bool = False
    ) -> None:
        self.name = name
        self.takes_images = takes_images
        self.requests: list[tuple[Message, ...]] = []
        """The messages of every call so far."""
        self.offers: list[tuple[Tool, ...]] = []
        """The tools of every call so far."""
        if callable(replies):
            self._answer: Callable[[Sequence[Message]], Any] = replies
        else:
            source = iter(replies)
            self._answer = lambda _messages: next(source, _END)

    @classmethod
    def from_file(cls, path: str | Path) -> ScriptedModel:
        """Read the replies from a file.

        Parameters
        ----------
        path: a YAML or JSON list of texts and calls of tools (`.yaml`, `.yml`, `.json`); any
            other file is text whose replies are separated by lines that hold `---` alone.

        Raises
        ------
        UsageError: the file is missing, is not UTF-8, or holds something else.
        """
        path = Path(path)
        return cls(_read(path), name=f"scripted:{path.name}")

    def skip(self, count: int) -> None:
        """Leave out the next replies of a list or file, as they have been played before."""
        for _ in range(count):
            self._answer(())

    def __repr__(self) -> str:
        return f"ScriptedModel(name={self.name!r})"

    async def check(self) -> None:
        """Do nothing: a script can always be played."""

    def complete(
        self,
        messages: Sequence[Message],
        *,
        sampling: Sampling = Sampling(),
        budget: Budget | None = None,
        on_text: Callable[[str], None] | None = None,
        tools: Sequence[Tool] = (),
    ) -> Run[Reply]:
        """Give the next reply; see `Model.complete`.

        Raises
        ------
        UsageError: the script has ended, or gave something that is no reply.
        BudgetExceeded: a limit was reached.
        """
        return Run(self._complete(tuple(messages), sampling, budget, on_text, tuple(tools)))

    async def _complete(
        self,
        messages: tuple[Message, ...],
        sampling: Sampling,
        budget: Budget | None,
        on_text: Callable[[str], None] | None,
        tools: tuple[Tool, ...],
    ) -> Reply:
        if budget is not None:
            budget.check()
        began = time.monotonic()
        answer = await call_user(self._answer, messages)
        if answer is _END:
            raise UsageError(
                f"The scripted model has given all its replies ({len(self.requests)})",
                hint="Give it one reply for every turn of the run, or ask for fewer turns",
            )
        self.requests.append(messages)
        self.offers.append(tools)
        if not isinstance(answer, Reply):
            seconds = time.monotonic() - began
            answer = replace(_reply(answer), model=self.name, sampling=sampling, seconds=seconds)
        reply = tidy(answer)
        if budget is not None:
            budget.add_call(reply.usage)
        if on_text is not None and reply.text:
            on_text(reply.text)
        return reply

    async def aclose(self) -> None:
        """Do nothing: a script holds nothing."""


def _reply(given: Any) -> Reply:
    """Make a reply of a text or of a mapping that calls a tool."""
    if isinstance(given, str):
        return Reply(given)
    if not isinstance(given, Mapping):
        raise UsageError(
            f"The scripted model gave {type(given).__name__} where a reply is due",
            hint=f"Let it give the reply's text, a Reply, or {CALL}",
        )
    name, arguments, text = given.get("tool"), given.get("arguments", {}), given.get("text", "")
    if (
        not (isinstance(name, str) and isinstance(text, str))
        or not isinstance(arguments, (str, Mapping))
        or given.keys() - {"tool", "arguments", "text"}
    ):
        raise UsageError(
            f"A scripted call of a tool cannot be read: {reprlib.repr(dict(given))}",
            hint=f"Write it as {CALL}",
        )
    if isinstance(arguments, str):
        call = read_call(name, arguments)
    else:
        call = ToolCall(name, dict(arguments))
    return Reply(text, finish="tool-calls", tool_calls=(call,))


def _read(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"There is no file {path} of replies", hint="Check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The file {path} of replies cannot be read ({error})") from None
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml", ".json"):
        return _listed(path, text, json.loads if suffix == ".json" else _load_yaml)
    return _separated(text)


def _listed(path: Path, text: str, parse: Callable[[str], Any]) -> list[Any]:
    try:
        replies = parse(text)
    except ValueError as error:
        raise UsageError(f"The file {path} of replies does not parse: {error}") from None
    if not isinstance(replies, list) or not all(isinstance(each, (str, dict)) for each in replies):
        raise UsageError(
            f"The file {path} does not hold a list of replies",
            hint=f"Write one list whose items are texts, or {CALL}",
        )
    try:
        for reply in replies:
            _reply(reply)
    except UsageError as error:
        raise UsageError(f"In the file {path}: {error.message}", hint=error.hint) from None
    return replies


def _load_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _separated(text: str) -> list[str]:
    replies: list[list[str]] = [[]]
    for line in text.splitlines(keepends=True):
        if line.strip() == "---":
            replies.append([])
        else:
            replies[-1].append(line)
    return [reply for lines in replies if (reply := "".join(lines)).strip()]
