"""Shell and IOPub of a kernel that speaks over a socket of our own, without ZeroMQ."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from functools import cache
from typing import Literal

from jupyter_client.session import Session

from nbrefine.kernel.inside.branching.framing import PACKET, SHELL, Assembler, packets
from nbrefine.kernel.messages.channels import Deliver, Message, Reader

_BURST = 50  # packets that are read before the loop goes on


class Direct:
    """Shell and IOPub of one kernel over one socket, read on the current loop.

    Parameters
    ----------
    connection: our end of it.
    deliver: called on the current loop with each message, in order.
    """

    def __init__(self, connection: socket.socket, deliver: Deliver) -> None:
        connection.setblocking(False)
        self.session_id: str = _unsigned().session
        self._connection = connection
        self._deliver = deliver
        self._reader = Reader(_unsigned())
        self._assembler = Assembler()
        self._unsent: deque[bytes] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection, self._receive)

    def send(self, channel: Literal["shell", "control"], kind: str, content: Message) -> str:
        """Send a request and give its id."""
        message = _unsigned().msg(kind, content)
        self._unsent.extend(packets(SHELL, _unsigned().serialize(message)))
        self._send()
        return str(message["header"]["msg_id"])

    def nudge(self) -> None:
        """Wake the kernel's shell by a message."""
        self.send("shell", "kernel_info_request", {})

    async def close(self) -> None:
        """Close the socket; a second call does nothing."""
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()

    def _send(self) -> None:
        try:
            while self._unsent:
                self._connection.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._connection, self._send)
            return
        except OSError:  # the kernel has ended, which is noticed elsewhere
            self._unsent.clear()
        self._loop.remove_writer(self._connection)

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for _ in range(_BURST):
                if not self._take():
                    self._loop.remove_reader(self._connection)
                    self._deliver("lost", {})
                    return

    def _take(self) -> bool:
        """Take a packet in; False: there are no more, ever."""
        try:
            packet = self._connection.recv(PACKET)
        except ConnectionError:
            return False
        if packet and (taken := self._assembler.take(packet)) is not None:
            channel, frames = taken
            try:
                message = self._reader.read(frames)
                self._deliver("shell" if channel == SHELL else "iopub", message)
            except Exception as error:  # noqa: BLE001 - one message must not take all with it
                self._deliver("unreadable", {"reason": f"{type(error).__name__}: {error}"})
        return bool(packet)


@cache
def _unsigned() -> Session:
    """Give the session of all sockets, whose ends nobody else has."""
    return Session(key=b"", digest_history_size=0)
