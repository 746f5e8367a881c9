"""Messages of a check: whole, bounded, and JSON."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from nbrefine.executors.inside import frames

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def test_messages_arrive_in_order_and_whole(pair: Pair) -> None:
    messages = [{"a": [1, None, "é\ud800"]}, [], "x" * 3_000_000, 1.5]

    def send_all() -> None:
        for message in messages:
            frames.send(pair[0], message)

    sender = threading.Thread(target=send_all)
    sender.start()
    assert [frames.receive(pair[1]) for _ in messages] == messages
    sender.join()


def test_the_end_of_a_connection_is_none_also_within_a_message(pair: Pair) -> None:
    pair[0].sendall(struct.pack(">I", 10) + b"[1")
    pair[0].close()
    assert frames.receive(pair[1]) is None
    assert frames.receive(pair[1]) is None


def test_a_message_that_does_not_come_is_a_time_out(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        frames.receive(pair[1], timeout=0.01)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_no_message(pair: Pair, text: bytes) -> None:
    pair[0].sendall(struct.pack(">I", len(text)) + text)
    with pytest.raises(ValueError, match=r"."):
        frames.receive(pair[1])


def test_a_message_is_bounded_before_it_is_read(pair: Pair) -> None:
    pair[0].sendall(struct.pack(">I", frames.LIMIT + 1))
    with pytest.raises(ValueError, match="67,108,865 bytes"):
        frames.receive(pair[1])


def test_a_message_of_very_many_values_is_refused_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="4,000,000 values"):
        frames.unpack(b"[" + b"1," * frames.PARTS + b"1]")


def test_a_message_that_is_too_long_is_not_sent(pair: Pair) -> None:
    with pytest.raises(ValueError, match="of at most"):
        frames.send(pair[0], "x" * frames.LIMIT)
    with pytest.raises(ValueError, match=r"."):
        frames.send(pair[0], float("nan"))
    frames.send(pair[0], 1)
    assert frames.receive(pair[1]) == 1
