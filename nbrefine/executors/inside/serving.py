"""The nursery: forks candidates or testers on request, and tells how each has ended."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from . import prctl
from .confine import Limits, Shelter, limit
from .folders import Folders
from .namespaces import Rooms

MOST_DESCRIPTORS = 4096
"""Descriptors of a nursery, and of each process it forks."""

_BROKEN = 70  # EX_SOFTWARE of sysexits.h


class Nursery:
    """Serves one connection until that ends.

    Parameters
    ----------
    connection: this end of it; it blocks.
    wire: the module that reads and writes its messages.
    serve: what a forked process does with its sockets, the report's before the calls'.
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
        self._pids: dict[int, int] = {}
        """Process by id."""
        self._troubles: dict[int, int] = {}
        """By id, the descriptor on which a child tells why it could not be confined."""

    def run(self) -> NoReturn:
        """Say that it is ready, and serve."""
        self._watch_children()
        held = [] if self._shelter is None else self._shelter.held
        self._tell({"op": "ready", "python": sys.version.split()[0], "isolation": held})
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._woken.fileno() in ready:
                self._reap()
            if self._connection.fileno() in ready:
                self._take()

    def _watch_children(self) -> None:
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _awake)

    def _take(self) -> None:
        message, fds = self._wire.receive(self._connection)
        if message is None:
            self._end()
        operation, number = message["op"], message["id"]
        pid = self._pids.get(number)
        if operation == "fork":
            if self._prepare is not None and "task" in message:
                with contextlib.suppress(Exception):  # the child finds the same, and tells it
                    self._prepare(*message["task"])
                gc.freeze()
            self._fork(number, Limits(**message["limits"]), fds)
        elif operation == "kill" and pid is not None:
            self._homes.kill(pid)
        elif operation == "signal" and pid is not None:
            os.kill(pid, message["signal"])
        self._wire.close(fds)

    def _fork(self, number: int, limits: Limits, fds: list[int]) -> None:
        parent = os.getpid()
        hear, say = os.pipe()
        try:
            pid = self._homes.fork()
        except OSError as error:
            self._wire.close([hear, say])
            self._tell({"op": "failed", "id": number, "why": str(error)})
            return
        if pid == 0:
            self._become(parent, limits, fds, say)
        os.close(say)
        self._pids[number], self._troubles[number] = pid, hear
        self._tell({"op": "forked", "id": number})

    def _become(self, parent: int, limits: Limits, fds: list[int], say: int) -> NoReturn:
        """Be a candidate or a tester from here on."""
        try:
            prctl.die_with_parent(parent)
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            prctl.name("nb-tester" if self._shelter is None else "nb-candidate")
            if self._shelter is None:
                os.dup2(1, 2)  # what tests print goes nowhere
                self._homes.furnish()
                limit(limits)
            else:
                os.dup2(fds[1], 1)
                os.dup2(fds[2], 2)
                self._shelter.confine(limits)
            os.environ["HOME"] = os.environ["TMPDIR"] = os.getcwd()
            sockets = self._only(fds[:1] if self._shelter else fds[::-1])
        except BaseException as error:  # noqa: BLE001 - it is told, and nothing is run
            os.write(say, f"{type(error).__name__}: {error}".encode()[:1000])
            os._exit(_BROKEN)
        status = 1
        try:
            self._serve(*sockets)
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

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        numbers = {pid: number for number, pid in self._pids.items()}
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] in numbers:
                    self._tell_end(numbers[ended[0]], *ended)

    def _tell_end(self, number: int, pid: int, status: int) -> None:
        del self._pids[number]
        self._homes.let_go(pid)
        with open(self._troubles.pop(number), "rb") as stream:
            trouble = stream.read().decode(errors="replace")
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._tell({"op": "ended", "id": number, "status": code, "unconfined": trouble})

    def _end(self) -> NoReturn:
        """Leave with all that was forked, as the connection has ended."""
        for pid in self._pids.values():
            self._homes.kill(pid)
        while self._pids:
            pid, _ = os.waitpid(-1, 0)
            self._homes.let_go(pid)
            self._pids = {number: each for number, each in self._pids.items() if each != pid}
        os._exit(0)

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the end of the connection is seen by the next poll
            self._wire.send(self._connection, message)


def _awake(signum: int, frame: object) -> None:
    """Take a signal that only has to wake the poll."""
