"""One end of a connection over which both processes of a check may call each other.

A call waits for its answer and meanwhile serves the calls that come back, one inside the other,
as a function that is passed to the code is called while the code runs.
"""

from __future__ import annotations

import socket
from typing import Any

from . import frames
from .kinds import Malformed

ENDED = "the code's process ended"


class Gone(BaseException):
    """The other process has ended, or cannot be understood any more; with the reason."""


class Peer:
    """Asks the other process and answers it; subclasses say what can be asked."""

    _sock: socket.socket

    def __init__(self, sock: socket.socket | None = None) -> None:
        if sock is not None:
            self._sock = sock
        self._count = 0

    def ask(self, operation: str, content: list[Any], names: list[str]) -> list[Any]:
        """Ask for an operation and give the answer's fields, its first whether it went well.

        Parameters
        ----------
        content: the arguments, packed.
        names: those of the last arguments that go by name.

        Raises
        ------
        Gone: the other process has ended.
        Malformed: what it said is no answer.
        ValueError: the message is too long.
        """
        self._count += 1
        count = self._count
        self.write(frames.pack(["ask", count, operation, content, names]))
        while True:
            data = self.read()
            message = self.understood(data)
            if message[0] == "ask":
                self.write(self.answer(message, data))
            elif message[1] == count:
                return message
            else:
                raise Malformed("an answer to another question")

    def answer(self, message: list[Any], data: bytes) -> bytes:
        """Do what was asked, and give the answer."""
        raise NotImplementedError

    def read(self) -> bytes:
        """Receive one message."""
        try:
            data = frames.read(self._sock)
        except OSError:
            raise Gone(ENDED) from None
        except ValueError as error:
            raise Malformed(str(error)) from None
        if data is None:
            raise Gone(ENDED)
        return data

    def write(self, data: bytes) -> None:
        """Send one message."""
        try:
            frames.write(self._sock, data)
        except OSError:
            raise Gone(ENDED) from None

    @staticmethod
    def understood(data: bytes) -> list[Any]:
        """Read a message, whose first fields are what it is and its number."""
        try:
            message = frames.unpack(data)
        except ValueError as error:
            raise Malformed(str(error)) from None
        if type(message) is not list or len(message) < 5:
            raise Malformed("a message of another form")
        return message
