"""The nursery: forks candidates or testers on request, and tells how each has ended."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from . import hooks, prctl
from .confine import Limits, Shelter, limit
from .folders import Folders
from .namespaces import Rooms

MOST_DESCRIPTORS = 4096
"""Descriptors of a nursery, and of each process it forks."""

_WORDS = 1000  # bytes that are told of what is in the way
_BROKEN = 70  # EX_SOFTWARE of sysexits.h
_AGAIN = 0.001  # seconds


class Nursery:
    """Serves one connection until that ends.

    Parameters
    ----------
    connection: this end of it; it blocks.
    wire: the module that reads and writes its messages.
    serve: what a forked process does with its sockets, the report's before the calls', and with
        what its message told of a task.
    homes: what forks.
    shelter: what holds a candidate; None for testers.
    prepare: does what the children of one task have in common, before they are forked.
    """

    def __init__(
        self,
        connection: socket.socket,
        wire: Any,
        serve: Callable[..., object],
        homes: Folders | Rooms,
        shelter: Shelter | None,
        *,
        prepare: Callable[..., object] | None = None,
    ) -> None:
        self._connection = connection
        self._wire = wire
        self._serve = serve
        self._homes = homes
        self._shelter = shelter
        self._prepare = prepare
        self._children: dict[int, _Child] = {}
        """By id."""
        self._poll = select.poll()

    def run(self) -> NoReturn:
        """Say that it is ready, and serve."""
        held = [] if self._shelter is None else self._shelter.held
        self._tell({"op": "ready", "python": sys.version.split()[0], "isolation": held})
        connection = self._connection.fileno()
        self._poll.register(connection, select.POLLIN)
        while True:
            if connection in self._wait():
                self._take()

    def _wait(self) -> set[int]:
        """Wait until something happens, reap the children that have ended; give what is ready."""
        ready = {fd for fd, _ in self._poll.poll(self._homes.sweep())}
        for number, child in list(self._children.items()):
            if child.watch in ready:
                self._reap(number)
        return ready

    def _take(self) -> None:
        message, fds = self._wire.receive(self._connection)
        if message is None:
            self._end()
        operation, number = message["op"], message["id"]
        child = self._children.get(number)
        if operation == "fork":
            task = message.get("task", ())
            if self._prepare is not None and task:
                with contextlib.suppress(Exception):  # the child finds the same, and tells it
                    self._prepare(*task)
                gc.freeze()
            self._fork(number, Limits(**message["limits"]), fds, task)
        elif operation == "kill" and child is not None:
            self._homes.kill(child.pid)
        elif operation == "signal" and child is not None:
            os.kill(child.pid, message["signal"])
        self._wire.close(fds)

    def _fork(self, number: int, limits: Limits, fds: list[int], task: list[str]) -> None:
        parent = os.getpid()
        hear, say = os.pipe()
        try:
            pid = self._homes.fork()
        except OSError as error:
            self._wire.close([hear, say])
            self._tell({"op": "failed", "id": number, "why": str(error)})
            return
        if pid == 0:
            self._become(parent, limits, fds, say, task)
        os.close(say)
        child = self._children[number] = _Child(pid, os.pidfd_open(pid), hear)
        self._poll.register(child.watch, select.POLLIN)

    def _become(
        self, parent: int, limits: Limits, fds: list[int], say: int, task: list[str]
    ) -> NoReturn:
        """Be a candidate or a tester from here on."""
        try:
            prctl.die_with_parent(parent)
            os.setsid()
            prctl.name("nb-tester" if self._shelter is None else "nb-candidate")
            if self._shelter is None:
                os.dup2(1, 2)  # what tests print goes nowhere
                self._homes.furnish()
                limit(limits)
            else:
                os.dup2(fds[1], 1)
                os.dup2(fds[2], 2)
                self._shelter.confine(limits)
            hooks.hand_on()
            sockets = self._only(fds[:1] if self._shelter else fds[::-1])
        except BaseException as error:  # noqa: BLE001 - it is told, and nothing is run
            os.write(say, f"{type(error).__name__}: {error}".encode()[:_WORDS])
            os._exit(_BROKEN)
        status = 1
        try:
            self._serve(*sockets, *task)
            status = 0
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(BaseException):  # the candidate may have replaced it
                    stream.flush()
            os._exit(status)

    def _only(self, fds: list[int]) -> list[socket.socket]:
        """Close all descriptors but these and the standard streams."""
        first = 3
        for fd in sorted(fds):
            os.closerange(first, fd)
            first = fd + 1
        os.closerange(first, MOST_DESCRIPTORS)
        return [socket.socket(fileno=fd) for fd in fds]

    def _reap(self, number: int) -> None:
        """Tell how a child has ended, and clear away what it has left."""
        child = self._children[number]
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if pid == 0:  # what traces it, as one that it has started may, has not let go of it
            self._homes.free(child.pid)
            time.sleep(_AGAIN)
            return
        del self._children[number]
        self._homes.let_go(child.pid)
        trouble = os.read(child.trouble, _WORDS).decode(errors="replace")
        self._poll.unregister(child.watch)
        self._wire.close([child.watch, child.trouble])
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._tell({"op": "ended", "id": number, "status": code, "unconfined": trouble})

    def _end(self) -> NoReturn:
        """Leave with all that was forked, as the connection has ended."""
        self._poll.unregister(self._connection)
        for child in self._children.values():
            self._homes.kill(child.pid)
        while self._children:
            self._wait()
        os._exit(0)

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the end of the connection is seen by the next poll
            self._wire.send(self._connection, message)


class _Child(NamedTuple):
    pid: int
    watch: int
    """A descriptor of the process, readable once that has ended."""
    trouble: int
    """The descriptor on which it tells why it could not be confined."""
