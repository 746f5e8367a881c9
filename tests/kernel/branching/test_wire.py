"""Messages with descriptors over a connection that has no path."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbrefine.kernel.inside.branching import wire

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = wire.pair()
    with here, there:
        yield here, there


def test_messages_stay_whole_and_in_order(pair: Pair) -> None:
    here, there = pair
    wire.send(here, {"op": "ping"})
    wire.send(here, {"text": "Zoë \udc80"})
    assert wire.receive(there) == ({"op": "ping"}, [])
    assert wire.receive(there) == ({"text": "Zoë \udc80"}, [])


@pytest.mark.parametrize("length", [10, 900_000])
def test_descriptors_come_with_their_message(pair: Pair, length: int) -> None:
    here, there = pair
    read, write = os.pipe()
    wire.send(here, {"text": "x" * length}, [write, read])
    os.close(write)
    message, fds = wire.receive(there)
    assert message == {"text": "x" * length}
    assert not any(os.get_inheritable(fd) for fd in fds)
    os.write(fds[0], b"through")
    assert os.read(read, 10) == b"through"
    wire.close([read, *fds])


def test_a_message_of_more_than_a_mebibyte_is_not_sent(pair: Pair) -> None:
    here, there = pair
    wire.send(here, {"text": "x" * (wire.LIMIT - 12)})
    assert len((wire.receive(there)[0] or {})["text"]) == wire.LIMIT - 12
    with pytest.raises(OSError, match="1,048,577 bytes") as caught:
        wire.send(here, {"text": "x" * (wire.LIMIT - 11)})
    assert caught.value.errno == errno.EMSGSIZE
    there.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.receive(there)


def test_the_end_of_a_connection_is_no_message(pair: Pair) -> None:
    here, there = pair
    wire.send(here, {"op": "last"})
    here.close()
    assert wire.receive(there) == ({"op": "last"}, [])
    assert wire.receive(there) == (None, [])
    with pytest.raises(BrokenPipeError):
        wire.send(there, {"too": "late"})


def test_what_was_sent_before_the_end_is_read_also_where_the_sender_has_left_something_unread(
    pair: Pair,
) -> None:
    here, there = pair
    wire.send(there, {"exit": "unread"})
    wire.send(here, {"op": "leave"})
    here.close()
    assert wire.receive(there) == ({"op": "leave"}, [])
    assert wire.receive(there) == (None, [])


def test_an_end_with_something_unread_is_the_end(pair: Pair) -> None:
    here, there = pair
    wire.send(there, {"exit": "unread"})
    here.close()
    assert wire.receive(there) == (None, [])


def test_descriptors_beyond_the_room_are_closed(pair: Pair) -> None:
    here, there = pair
    before = set(Path("/proc/self/fd").iterdir())
    wire.send(here, {}, [0] * 12)
    with pytest.raises(OSError, match="more than 2 descriptors"):
        wire.receive(there, room=2)
    assert set(Path("/proc/self/fd").iterdir()) == before


def _in_memory(data: bytes) -> int:
    file = os.memfd_create("test")
    os.write(file, data)
    return file


@pytest.mark.parametrize(
    ("data", "files"),
    [
        (b"{", []),
        (b"[1]", []),
        (b"[" * 30_000, []),
        (b"in the first descriptor", []),
        (b"in the first descriptor", [b"no JSON"]),
        (b"in the first descriptor", [b'{"long": "' + b"x" * wire.LIMIT + b'"}']),
    ],
)
def test_what_is_no_message_is_an_error_and_leaves_no_descriptor(
    pair: Pair, data: bytes, files: list[bytes]
) -> None:
    here, there = pair
    fds = [_in_memory(each) for each in files]
    before = set(Path("/proc/self/fd").iterdir())
    socket.send_fds(here, [data], [*fds, *fds])
    with pytest.raises(OSError, match="could not be read") as caught:
        wire.receive(there)
    assert caught.value.errno == errno.EBADMSG
    assert set(Path("/proc/self/fd").iterdir()) == before
    wire.close(fds)


def test_neither_end_is_inherited_by_a_program(pair: Pair) -> None:
    assert [each.get_inheritable() for each in pair] == [False, False]
