"""Reads calls of tools: as a server streams them, sends them whole, or a script writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from nbrefine.values import Tool, ToolCall

DEEPEST = 20
"""Levels of nesting in arguments that are taken; no tool has a use for more."""


class Calls:
    """The calls of one reply, as far as they have arrived."""

    def __init__(self) -> None:
        self.spoiled: str | None = None
        """What the model wrote where the server could not read a call in it."""
        self._calls: list[_Call] = []
        self._by_index: dict[Any, _Call] = {}

    @property
    def received(self) -> int:
        """Characters of arguments that have arrived."""
        return sum(len(piece) for call in self._calls for piece in call.pieces)

    def take(self, parts: Iterable[Any]) -> None:
        """Take in pieces of calls, or whole ones, as a delta or a message holds them.

        Servers depart from the protocol: some leave out the index of a call, some give the same
        one to all, some repeat id and name with every piece, some send another id with each.  So
        a piece begins another call where its index is new, or where it names both a tool and an
        id that is new.
        """
        for part in parts:
            self._take(part)

    def _take(self, part: Any) -> None:
        function = getattr(part, "function", None)
        name = getattr(function, "name", None) or ""
        arguments = getattr(function, "arguments", None) or ""
        call = self._call(getattr(part, "index", None), getattr(part, "id", None) or "", name)
        if name != call.name:
            call.name += name
        if isinstance(arguments, dict):  # some servers do not put JSON into JSON
            arguments = json.dumps(arguments)
        call.pieces.append(arguments)

    def _call(self, index: Any, id: str, name: str) -> _Call:
        """Give the call that a piece belongs to."""
        call = self._by_index.get(index)
        if call is None and index is None and self._calls and not name:
            call = self._calls[-1]
        if call is None or (name and id not in ("", call.id)):
            call = self._by_index[index] = _Call()
            self._calls.append(call)
        call.id = call.id or id
        return call

    def read(self, *, cut: bool = False) -> tuple[ToolCall, ...]:
        """Give the calls, in the order in which they began.

        Parameters
        ----------
        cut: whether the reply reached its token limit, which is then said of the last call.
        """
        whole = [
            (call.name, text, call.id)
            for call in self._calls
            if (text := "".join(call.pieces)) or call.name
        ]
        last = len(whole)
        calls = [read_call(*each, cut=cut and at == last) for at, each in enumerate(whole, 1)]
        if self.spoiled is not None:
            problem = "the server found no call that it could read in what was written"
            calls.append(ToolCall("", problem=problem, raw=self.spoiled))
        return tuple(calls)


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []


def read_call(name: str, arguments: str, id: str = "", *, cut: bool = False) -> ToolCall:
    """Make a call of what was sent; where that is no JSON object, the call tells the problem.

    Parameters
    ----------
    name, id: as sent.
    arguments: JSON text; an empty one stands for no arguments.
    cut: whether the text was cut at the token limit of the reply.
    """
    try:
        # Small models break lines within a string, as in the code that it holds.
        read = json.loads(arguments, strict=False) if arguments.strip() else {}
        problem = "" if isinstance(read, dict) else "not a JSON object"
        if not problem and not _within(read, DEEPEST):
            problem = f"nested in more than {DEEPEST} levels"
    except (ValueError, RecursionError) as error:
        problem = "cut at the token limit of the reply" if cut else f"not valid JSON ({error})"
    if problem:
        return ToolCall(name, id=id, problem=problem, raw=arguments)
    return ToolCall(name, read, id)


def _within(value: Any, levels: int) -> bool:
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    return levels >= 0 and all(_within(each, levels - 1) for each in inner)


def offer(tool: Tool) -> dict[str, Any]:
    """Describe a tool as a request of chat completions does."""
    told = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": told}
