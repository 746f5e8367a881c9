"""A process with one thread that forks on request: a template, a keeper, or a checkpoint.

It holds what its children start with, an empty namespace or a full one, and does nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from . import overlay, wire

Role = Literal["template", "keeper", "checkpoint"]

_SET_NAME, _SET_CHILD_SUBREAPER = 15, 36  # of prctl(2)
_LAST_SECONDS = 5.0  # in which what was sent SIGKILL must have gone
_IGNORED = (signal.SIGINT, signal.SIGTERM)

# By its name a process of ours is told from one that a cell has started.
_NAMES = {"template": "nb-template", "keeper": "nb-keeper", "checkpoint": "nb-checkpoint"}
_KERNEL = "nb-kernel"


@dataclass(frozen=True)
class Order:
    """What a process that was just forked is to become."""

    role: str
    """kernel or keeper."""
    spawn: dict[str, Any]
    line: socket.socket
    """Its connection with the controller."""


class Nursery:
    """Serves one connection until it ends.

    Parameters
    ----------
    connection: this end of it; the nursery owns it.
    role: a template leaves its children alone when its connection ends; a keeper or checkpoint
        ends all its descendants, among them those whose own parents are gone.
    folder: removed by a keeper at its end, or "".
    """

    def __init__(self, connection: socket.socket, role: Role, folder: str = "") -> None:
        self._connection = connection
        self._role = role
        self._folder = folder
        self._children: set[int] = set()

    def run(self) -> Order:
        """Serve; returns in a forked child only."""
        if os.getpgrp() != os.getpid():
            os.setsid()
        name_process(_NAMES[self._role])
        if self._role != "template":
            _prctl(_SET_CHILD_SUBREAPER, 1)
        self._watch_children()
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        self._reap()  # who died before the watch
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._woken.fileno() in ready:
                self._reap()
            if self._connection.fileno() in ready:
                order = self._serve()
                if order is not None:
                    return order

    def _watch_children(self) -> None:
        """Be woken by SIGCHLD; remember what the children must have back."""
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._old_wake = signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        self._handlers = {
            each: signal.signal(each, signal.SIG_IGN if each in _IGNORED else _awake)
            for each in (*_IGNORED, signal.SIGCHLD)
        }

    def _serve(self) -> Order | None:
        try:
            message, fds = wire.receive(self._connection)
        except (OSError, ValueError) as error:
            self._tell({"failed": None, "why": _told(error)})
            return None
        if message is None:
            self._end()
        operation = message.get("op")
        if operation == "fork":
            return self._fork(message, fds)
        wire.close(fds)
        if operation == "leave":
            os._exit(0)
        elif operation == "sweep":
            self._tell({"swept": self._sweep(set(message.get("spare") or ()))})
        elif operation == "ping":
            self._tell({"pong": os.getpid(), "children": sorted(self._children)})
        else:
            self._tell({"failed": message.get("id"), "why": f"There is no {operation!r}"})
        return None

    def _fork(self, message: dict[str, Any], fds: list[int]) -> Order | None:
        role, spawn = message.get("role"), message.get("spawn")
        fork = message.get("id")
        try:
            self._check(role, spawn, fds)
            pid = os.fork()
        except (OSError, ValueError) as error:
            wire.close(fds)
            self._tell({"failed": fork, "why": _told(error)})
            return None
        if pid == 0:
            self._become_child(fds)
            assert isinstance(spawn, dict)  # as checked
            return Order(str(role), spawn, socket.socket(fileno=fds[0]))
        wire.close(fds)
        self._children.add(pid)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:  # no descriptor is left, and without one nobody could hold it
            _kill(pid)
            self._tell({"failed": fork, "why": _told(error)})
            return None
        self._tell({"forked": fork, "pid": pid}, [pidfd])
        os.close(pidfd)
        return None

    def _check(self, role: object, spawn: object, fds: list[int]) -> None:
        if role != "kernel" and (role != "keeper" or self._role != "template"):
            raise ValueError(f"A {self._role} forks no {role}")
        if not isinstance(spawn, dict) or len(fds) != 4:
            raise ValueError(f"A {role} needs its settings and 4 descriptors, not {len(fds)}")

    def _become_child(self, fds: list[int]) -> None:
        os.setsid()  # so that signals to this group reach this kernel and what it starts only
        name_process(_KERNEL)
        signal.set_wakeup_fd(self._old_wake)
        for number, handler in self._handlers.items():
            if handler is not None:  # None: it was not set from Python, and cannot be again
                signal.signal(number, handler)
        for each in (self._connection, self._woken, self._wake):
            each.close()
        for standard, fd in enumerate(fds[1:]):
            os.dup2(fd, standard)
            os.close(fd)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        for pid, status, usage in _ended(os.WNOHANG):
            self._children.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            unit = 1024  # of ru_maxrss on Linux
            exited = {"pid": pid, "status": code, "maxrss": usage.ru_maxrss * unit}
            self._tell({"exit": exited})

    def _sweep(self, spare: set[int]) -> int:
        """End the orphans, with all beneath them, that dead children have left to us."""
        parents = _parents()
        spare |= self._children
        ours = {pid for pid, parent in parents.items() if parent == os.getpid()}
        orphans = ours - spare
        ended = orphans | (_beneath(orphans, parents) - spare - _beneath(spare, parents))
        for pid in ended:
            _kill(pid)
        return len(ended)

    def _end(self) -> NoReturn:
        """Leave for good, as the connection has ended."""
        if self._role != "template":
            deadline = time.monotonic() + _LAST_SECONDS
            # What is ended here leaves its own children to us, so the last round finds none.
            while has_children() and time.monotonic() < deadline:
                for pid in _beneath({os.getpid()}, _parents()):
                    _kill(pid)
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    select.select([], [], [], 0.001)
        if self._folder:
            overlay.remove(self._folder)
        os._exit(0)

    def _tell(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        with contextlib.suppress(OSError):  # the end of the connection is seen by the next poll
            wire.send(self._connection, message, fds or [])


def has_children() -> bool:
    """Tell whether this process has children, without reading all of /proc."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def name_process(name: str) -> None:
    """Name the process, as `ps` and `top` show it."""
    _prctl(_SET_NAME, ctypes.c_char_p(name.encode()))


def _awake(signum: int, frame: object) -> None:
    """Take a signal that only has to wake the poll."""


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _ended(options: int) -> Iterator[tuple[int, int, Any]]:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status, usage = os.wait4(-1, options)
            if pid == 0:
                return
            yield pid, status, usage


def _parents() -> dict[int, int]:
    """Give the parent of every process."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                tail = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2]
                parents[int(entry)] = int(tail.split()[1])
    return parents


def _beneath(roots: set[int], parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    more = roots
    while more:
        more = {pid for pid, parent in parents.items() if parent in more} - found - roots
        found |= more
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


_control = ctypes.CDLL(None).prctl  # found once: a child would copy what the search writes to


def _prctl(option: int, argument: Any) -> None:
    _control(option, argument, 0, 0, 0)
