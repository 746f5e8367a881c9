"""Messages between a controller and its nurseries and kernels: JSON with file descriptors.

Connections are pairs of AF_UNIX SOCK_SEQPACKET sockets, so a packet is a message, a message is
whole or not there, and nothing has a path in the file system.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Sequence
from json import dumps, loads  # a cell may replace those of the module
from typing import Any

LIMIT = 1 << 20
"""Bytes that a message may have."""

# How large a packet may be depends on the host's net.core.wmem_max; what is longer than this goes
# through a file in memory, whose descriptor is sent in its stead.
_PACKET = 32_768
_CUT, _QUIET = int(socket.MSG_CTRUNC), int(socket.MSG_NOSIGNAL)  # as enums are slow to combine
_ELSEWHERE = b"in the first descriptor"


def pair() -> tuple[socket.socket, socket.socket]:
    """Make both ends of a connection; neither is inherited by a program that is executed.

    They have no number of a standard stream, also where these are closed.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return _above_standard(near), _above_standard(far)


def send(sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send a message; the descriptors stay open here.

    Raises
    ------
    OSError: EMSGSIZE, it has more than `LIMIT` bytes; EPIPE, the other end is closed; EAGAIN,
        the other end has not read for long and the socket does not block.
    """
    data = dumps(message).encode("ascii")
    if len(data) > LIMIT:
        raise OSError(errno.EMSGSIZE, f"A message of {len(data):,} bytes, of at most {LIMIT:,}")
    if len(data) <= _PACKET:
        _send(sock, data, fds)
        return
    file = os.memfd_create("nbrefine-message", os.MFD_CLOEXEC)
    try:
        with os.fdopen(file, "wb", closefd=False) as stream:
            stream.write(data)
        _send(sock, _ELSEWHERE, [file, *fds])
    finally:
        os.close(file)


def receive(sock: socket.socket, room: int = 8) -> tuple[dict[str, Any] | None, list[int]]:
    """Receive a message and its descriptors, which are the caller's to close.

    At the end of the connection the message is None.

    Parameters
    ----------
    room: how many descriptors a message may bring.

    Raises
    ------
    BlockingIOError: there is no message, and the socket does not block.
    OSError: EBADMSG, it was no message, or brought more descriptors than there was room for.
    """
    space = socket.CMSG_LEN((room + 1) * 4)
    try:
        data, ancillary, flags, _ = sock.recvmsg(2 * _PACKET, space, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        # The other end was closed before it had read all of ours. That is told once, and ahead of
        # what it has sent before: a nursery that took it for the end would end its children,
        # where "leave" lies waiting to be read.
        data, ancillary, flags, _ = sock.recvmsg(2 * _PACKET, space, socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(payload) // 4 * 4
            fds += memoryview(payload[:whole]).cast("i").tolist()
    if flags & _CUT:
        close(fds)
        raise OSError(errno.EBADMSG, f"A message brought more than {room} descriptors")
    if not data:
        close(fds)
        return None, []
    try:
        return _loaded(data, fds), fds
    except (OSError, ValueError, RecursionError) as error:
        close(fds)
        raise OSError(errno.EBADMSG, f"A message could not be read: {error}") from error


def close(fds: Sequence[int]) -> None:
    """Close descriptors, of which some may be closed already."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _above_standard(sock: socket.socket) -> socket.socket:
    if sock.fileno() > 2:
        return sock
    with sock:
        return socket.socket(fileno=fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, 3))


def _loaded(data: bytes, fds: list[int]) -> dict[str, Any]:
    if data == _ELSEWHERE:
        if not fds:
            raise ValueError("the descriptor of its text is missing")
        data = os.pread(fds[0], LIMIT + 1, 0)
        os.close(fds.pop(0))
        if len(data) > LIMIT:
            raise ValueError(f"it has more than {LIMIT:,} bytes")
    message = loads(data)
    if not isinstance(message, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - of JSON, and so a wrong value
    return message


def _send(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    socket.send_fds(sock, [data], list(fds), _QUIET)
