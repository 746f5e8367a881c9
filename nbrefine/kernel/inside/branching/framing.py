"""Messages of several frames, as packets that are each whole or not there.

A large message takes several, between which those of another process may come: what a cell forks
prints to the same socket.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any

SHELL, IOPUB = b"s", b"p"
"""Channels."""

PACKET = 1 << 16
"""Bytes that a packet may have."""

_HEAD = struct.Struct("!c??I")  # channel, whether a message begins, whether it goes on, sender
_ROOM = PACKET - _HEAD.size


def packets(channel: bytes, frames: Sequence[bytes]) -> Iterator[bytes]:
    """Give the packets of a message."""
    lengths = struct.pack(f"!{1 + len(frames)}I", len(frames), *map(len, frames))
    data = b"".join((lengths, *frames))
    for start in range(0, len(data), _ROOM):
        head = _HEAD.pack(channel, start == 0, start + _ROOM < len(data), os.getpid())
        yield head + data[start : start + _ROOM]


class Assembler:
    """Makes messages of packets again; one that a signal handler has broken off is dropped."""

    def __init__(self) -> None:
        self._begun: dict[int, list[bytes]] = {}

    def take(self, packet: bytes) -> tuple[bytes, list[bytes]] | None:
        """Take a packet in; give channel and frames of the message it completes, if it does."""
        channel, begins, more, sender = _HEAD.unpack_from(packet)
        parts = [] if begins else self._begun[sender]
        self._begun[sender] = parts
        parts.append(packet[_HEAD.size :])
        if more:
            return None
        del self._begun[sender]
        return channel, _frames(b"".join(parts))


def _frames(data: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("!I", data)
    lengths: tuple[Any, ...] = struct.unpack_from(f"!{count}I", data, 4)
    frames = []
    at = 4 + 4 * count
    for length in lengths:
        frames.append(data[at : at + length])
        at += length
    return frames
