"""Messages of a check: a length in four bytes, and that many bytes of JSON."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any, NoReturn

LIMIT = 64 << 20
"""Bytes that a message may have."""
PARTS = 4_000_000
"""Values that a message may hold: each takes many times its text once it is read."""

_LENGTH = struct.Struct(">I")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# Bound here: the code of a check shares its process with one end, and may replace those of json.
# `ensure_ascii` also carries what UTF-8 cannot, lone surrogates.
_text_of = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode
_value_of = json.JSONDecoder(parse_constant=_refuse).decode


def send(sock: socket.socket, message: Any) -> None:
    """Send a message.

    Raises
    ------
    ValueError: it is no JSON, or longer than `LIMIT`; nothing was sent.
    OSError: the other end is closed.
    """
    write(sock, pack(message))


def receive(sock: socket.socket, timeout: float | None = None) -> Any:
    """Receive a message; None at the end of the connection.

    Parameters
    ----------
    timeout: seconds; where they are over the connection cannot be read any more.

    Raises
    ------
    ValueError: it was no message.
    TimeoutError: the time was up.
    """
    if timeout is None:
        data = read(sock)
    else:
        sock.settimeout(timeout)
        try:
            data = read(sock)
        finally:
            sock.settimeout(None)
    return None if data is None else unpack(data)


def pack(message: Any) -> bytes:
    """Give a message as bytes of JSON.

    Raises
    ------
    ValueError: it is no JSON, or too long.
    """
    data = _text_of(message).encode("ascii")
    if len(data) > LIMIT:
        raise ValueError(f"A message of {len(data):,} bytes, of at most {LIMIT:,}")
    return data


def unpack(data: bytes) -> Any:
    """Read a message.

    Raises
    ------
    ValueError: it is no JSON, or holds more than `PARTS` values.
    """
    if data.count(b",") + data.count(b"[") + data.count(b"{") > PARTS:
        raise ValueError(f"A message holds more than {PARTS:,} values")
    try:
        return _value_of(data.decode("ascii"))
    except RecursionError:
        raise ValueError("A message is too deep") from None


def write(sock: socket.socket, data: bytes) -> None:
    """Send a message that is bytes already."""
    sock.sendall(_LENGTH.pack(len(data)) + data)


def read(sock: socket.socket) -> bytes | None:
    """Receive a message as bytes; None at the end of the connection.

    Raises
    ------
    ValueError: it is longer than `LIMIT`.
    """
    head = _exactly(sock, 4)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > LIMIT:
        raise ValueError(f"A message of {length:,} bytes, of at most {LIMIT:,}")
    return _exactly(sock, length)


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    """Read so many bytes; None where the connection ends before."""
    try:
        data = sock.recv(count)
        if len(data) == count:
            return data
        parts = [data]
        while data and count > len(data):
            count -= len(data)
            data = sock.recv(min(count, 1 << 20))
            parts.append(data)
    except ConnectionError:
        return None
    return b"".join(parts) if data else None
