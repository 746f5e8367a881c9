"""What tests see of the code's iterators and coroutines: items and results, as they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from .plain import become
from .proxies import Asks


def coroutine_function(asks: Asks, function: Any, name: str) -> Callable[..., Any]:
    """Make a coroutine function, so that tests see that what it gives is to be awaited."""

    async def call(*arguments: Any, **named: Any) -> Any:
        return await asks.request("call", function, *arguments, **named)

    call.__name__ = call.__qualname__ = name
    return call


async def coroutine(asks: Asks, awaited: Any) -> Any:
    """Give what a coroutine of the code gives, once it is awaited here."""
    return asks.request("await", awaited)


def generate(asks: Asks, iterator: Any) -> Generator[Any, Any, Any]:
    """Give the items of an iterator of the code: one, then more and more at a time."""
    count = 1
    given: list[Any] = []
    while True:
        items, state, extra = asks.request("next", iterator, count)
        if state == "same":
            if extra == len(given):
                given.append(items[-1])
            else:
                become(given[extra], items[-1])
                items[-1] = given[extra]
        count = min(count * 2, 1_000)
        for item in items:
            sent = yield item
            while sent is not None:
                answers, state, extra = asks.request("send", iterator, sent)
                if not answers:
                    return extra
                count = 1  # who sends wants to know what comes next before it is made
                sent = yield answers[0]
        if state == "end":
            return extra


class CodeIterator:
    """An iterator of the code that is no generator."""

    def __init__(self, items: Iterator[Any], name: str) -> None:
        self._items = items
        self._name = name

    def __iter__(self) -> CodeIterator:
        return self

    def __next__(self) -> Any:
        return next(self._items)

    def __repr__(self) -> str:
        return f"<{self._name} object>"
