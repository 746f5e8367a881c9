"""Waking a kernel that says nothing of a request."""

from __future__ import annotations

import asyncio

import pytest

from nbrefine.kernel.messages.attention import Attention


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that are waited for before each look, none of which pass."""
    waits: list[float] = []
    later = asyncio.BaseEventLoop.call_later

    def at_once(loop, seconds, callback, *args, **kwargs):  # type: ignore[no-untyped-def]
        waits.append(seconds)
        return later(loop, 0, callback, *args, **kwargs)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", at_once)
    return waits


async def rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def test_a_kernel_is_woken_ever_more_seldom_until_it_is_heard(waits: list[float]) -> None:
    woken: list[int] = []

    async def ask() -> None:
        watching = Attention(lambda: woken.append(len(waits)))
        assert watching.asked("a") == "a"
        watching.asked("b")
        watching.heard("a")
        watching.heard("another's")
        while len(woken) < 8:
            await rounds(1)
        watching.heard("b")
        await rounds(50)

    asyncio.run(ask())
    assert woken == [1, 2, 3, 4, 5, 6, 7, 8]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_one_that_is_heard_in_time_is_left_alone(waits: list[float]) -> None:
    woken: list[str] = []

    async def ask() -> None:
        watching = Attention(lambda: woken.append("now"))
        for request in ("a", "b"):
            watching.asked(request)
            watching.heard(request)
            await rounds(50)

    asyncio.run(ask())
    assert woken == []
    assert waits == [1, 1]  # one look for each, the second as soon after it as the first


def test_nobody_is_woken_any_more_after_the_end(waits: list[float]) -> None:
    woken: list[str] = []

    async def ask() -> None:
        watching, unused = Attention(lambda: woken.append("now")), Attention(lambda: None)
        watching.asked("a")
        watching.close()
        unused.close()
        assert watching.asked("b") == "b"
        unused.asked("c")
        watching.close()
        await rounds(50)

    asyncio.run(ask())
    assert woken == []
    assert waits == [1]  # nothing waits for an end that has come


def test_the_first_wait_of_a_new_request_is_short_again(waits: list[float]) -> None:
    async def ask() -> None:
        watching = Attention(lambda: None)
        watching.asked("slow")
        while len(waits) < 4:
            await rounds(1)
        watching.heard("slow")
        await rounds(50)
        watching.asked("next")
        await rounds(1)

    asyncio.run(ask())
    assert waits[:5] == [1, 2, 4, 8, 1]


def test_a_new_request_does_not_wait_for_the_look_after_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    later = asyncio.BaseEventLoop.call_later

    def at_once_twice(loop, seconds, callback, *args, **kwargs):  # type: ignore[no-untyped-def]
        waits.append(seconds)
        return later(loop, 0 if len(waits) < 3 else 3600, callback, *args, **kwargs)

    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", at_once_twice)

    async def ask() -> None:
        watching = Attention(lambda: None)
        watching.asked("slow")
        while len(waits) < 3:
            await rounds(1)
        watching.asked("behind it")
        watching.heard("slow")
        watching.heard("behind it")
        watching.asked("next")
        watching.close()

    asyncio.run(ask())
    assert waits == [1, 2, 4, 1]
