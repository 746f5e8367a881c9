"""The controller's end of a nursery, and a handle on every process it has forked for us.

A nursery is a process with one thread that forks on request: a template, a keeper, a checkpoint.
Its messages are taken in by whoever waits for one, on any event loop or on none, so that it costs
the controller neither a thread nor a task.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from nbrefine.errors import KernelStartError
from nbrefine.kernel.inside.branching import wire
from nbrefine.kernel.readable import readable

_FORK = 30.0  # seconds in which a nursery must have forked
_EXIT = 1.0  # seconds from a process's end in which its parent must have told the exit status
_LOOK = 0.05  # seconds after which one looks again, as another thread may have taken a message in
_UNTOLD = -int(signal.SIGKILL)  # what ended a process whose parent ended with it

T = TypeVar("T")
_Answer: TypeAlias = concurrent.futures.Future[tuple[dict[str, Any], list[int]]]


class Unattachable(KernelStartError):
    """A process was forked, and then could not become a kernel.

    Parameters
    ----------
    trouble: its traceback.
    unsuitable: its ipykernel seems to be another one than is relied upon.
    """

    def __init__(self, trouble: str, *, unsuitable: bool) -> None:
        super().__init__(f"The kernel could not be set up:\n{trouble[-2000:]}")
        self.reason = trouble.rpartition("\n")[2]
        self.unsuitable = unsuitable


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process has ended."""

    status: int
    """As `subprocess.Popen.returncode` has it: negative for a signal."""
    peak_memory: int
    """Most bytes it had in memory."""


class Nursery:
    """The controller's end of a nursery's connection.

    Parameters
    ----------
    connection: our end; when it is closed, a keeper or checkpoint ends with all beneath it.
    pid: the nursery's process.
    """

    def __init__(self, connection: socket.socket, pid: int) -> None:
        connection.setblocking(False)
        self.pid = pid
        self.closed = False
        """Whether either end is known to be closed."""
        self.heard = time.monotonic()
        """When it spoke last."""
        self._connection = connection
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._answers: dict[int, _Answer] = {}
        self._exits: dict[int, concurrent.futures.Future[Exit | None]] = {}
        self._pongs: list[concurrent.futures.Future[bool]] = []
        nurseries.add(self)
        _inherited.add(connection)

    async def fork(
        self,
        role: str,
        spawn: dict[str, Any],
        stdio: tuple[int, int, int],
        *,
        heirs: Sequence[Nursery] = (),
        limit: float = _FORK,
    ) -> Forked:
        """Have a process forked.

        Parameters
        ----------
        role: "kernel", or of a template "keeper".
        spawn: what it needs to know.
        stdio: descriptors that become its 0, 1 and 2; they stay open here.
        heirs: who may become its parent when this nursery has ended before it.
        limit: seconds in which it must have forked.

        Raises
        ------
        KernelStartError: the nursery has ended, does not answer, or cannot fork.
        """
        number = next(self._numbers)
        answer: _Answer = concurrent.futures.Future()
        near, far = wire.pair()
        try:
            with self._lock:
                self._send(
                    {"op": "fork", "id": number, "role": role, "spawn": spawn},
                    [far.fileno(), *stdio],
                )
                self._answers[number] = answer
            message, fds = await self._heard(answer, limit)
        except BaseException as error:
            near.close()
            with self._lock:
                self._answers.pop(number, None)
                if answer.done() and not answer.cancelled() and answer.exception() is None:
                    message, fds = answer.result()
                    wire.close(fds)
                    self.forget(int(message.get("pid", 0)))
            if isinstance(error, TimeoutError):
                raise KernelStartError(f"Nothing was forked within {limit:g} s") from None
            raise
        finally:
            far.close()
        if "forked" not in message:
            near.close()
            wire.close(fds)
            raise KernelStartError(f"A process could not be forked: {message.get('why')}")
        return Forked(int(message["pid"]), fds[0], near, (self, *heirs))

    def open(self) -> bool:
        """Look whether the nursery is there still."""
        with self._lock:
            if not self.closed:
                self._take()
            return not self.closed

    async def answers(self, limit: float) -> bool:
        """Tell whether it reacts within so many seconds."""
        pong: concurrent.futures.Future[bool] = concurrent.futures.Future()
        try:
            with self._lock:
                self._send({"op": "ping"})
                self._pongs.append(pong)
            return await self._heard(pong, limit)
        except (KernelStartError, TimeoutError):
            return False

    def sweep(self, spare: Collection[int] = ()) -> None:
        """End every process that has lost its parents to the nursery, with all beneath it.

        Kernels and nurseries on which somebody here has a handle are left alone.

        Parameters
        ----------
        spare: processes that are left alone, too.
        """
        held = {*spare, *forked_pids, *(each.pid for each in nurseries)}
        with contextlib.suppress(KernelStartError):
            self._send({"op": "sweep", "spare": sorted(held)})

    def leave(self) -> None:
        """Let it exit at once, without its children, which go to the next nursery above."""
        with contextlib.suppress(KernelStartError):
            self._send({"op": "leave"})
        self.close()

    def close(self) -> None:
        """Close the connection, at which the nursery ends; a second call does nothing."""
        with self._lock:
            with contextlib.suppress(OSError):  # copies of the descriptor must not keep it open
                self._connection.shutdown(socket.SHUT_RDWR)
            if not self.closed:
                self._take()  # all that was said, as no more can come
            self._end()
            self._connection.close()
            nurseries.discard(self)

    def expect(self, pid: int) -> None:
        """Keep the exit of a process that has begun, and is or may become the nursery's child."""
        with self._lock:
            if not self.closed:
                self._exits[pid] = concurrent.futures.Future()

    def forget(self, pid: int) -> None:
        """Keep the exit of a process no longer."""
        with self._lock:
            self._exits.pop(pid, None)

    def exit_of(self, pid: int) -> Exit | None:
        """Give the exit of an expected process, if it has been told by now."""
        with self._lock:
            if not self.closed:
                self._take()
            known = self._exits.get(pid)
            return known.result() if known is not None and known.done() else None

    async def exited(self, pid: int, wait: float) -> Exit | None:
        """Give the exit of an expected process, waiting for at most so many seconds."""
        with self._lock:
            known = self._exits.get(pid)
        if known is None:
            return None
        # The future is shared with others who may ask; none of them may cancel it.
        own: concurrent.futures.Future[Exit | None] = concurrent.futures.Future()
        known.add_done_callback(lambda done: _settle(own, done.result()))
        try:
            return await self._heard(own, wait)
        except (KernelStartError, TimeoutError):
            return None

    def wait_with(self, poll: select.poll) -> bool:
        """Have a poll wake up when there is something to take in; False once that cannot be."""
        with self._lock:
            if not self.closed:
                poll.register(self._connection, select.POLLIN)
            return not self.closed

    def _send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        if self.closed:
            raise KernelStartError("The process to fork from has ended")
        try:
            wire.send(self._connection, message, fds)
        except BrokenPipeError:
            raise KernelStartError("The process to fork from has ended") from None
        except OSError as error:
            raise KernelStartError(f"The process to fork from cannot be asked: {error}") from error

    async def _heard(self, answer: concurrent.futures.Future[T], limit: float) -> T:
        """Take messages in on the running loop until one is the answer."""
        with self._lock:
            if answer.done():
                return answer.result()
            if self.closed:
                raise KernelStartError("The process to fork from has ended")
            # A copy of its own, since a loop keeps one reader for each descriptor.
            ear = os.dup(self._connection.fileno())
        loop = asyncio.get_running_loop()
        loop.add_reader(ear, self._take)
        try:
            self._take()  # another loop may have been about to
            return await asyncio.wait_for(asyncio.wrap_future(answer), limit)
        finally:
            loop.remove_reader(ear)
            os.close(ear)

    def _take(self) -> None:
        with self._lock:
            while not self.closed:
                try:
                    message, fds = wire.receive(self._connection)
                except BlockingIOError:
                    return
                except (OSError, ValueError):
                    message, fds = None, []
                if message is None:
                    self._end()
                else:
                    self.heard = time.monotonic()
                    self._on(message, fds)

    def _on(self, message: dict[str, Any], fds: list[int]) -> None:
        if "forked" in message or "failed" in message:
            number = message.get("forked", message.get("failed"))
            if number is None:  # a request that it could not read: the oldest, as it serves in turn
                number = next(iter(self._answers), 0)
            answer = self._answers.pop(number, None)
            pid = int(message.get("pid", 0))
            if answer is not None and pid:
                self.expect(pid)  # its exit may be the next message
            if answer is None or not _settle(answer, (message, fds)):
                wire.close(fds)  # the line is closed already, so the process ends itself
                self.forget(pid)
            return
        wire.close(fds)
        if "exit" in message:
            told = message["exit"]
            if (known := self._exits.get(told["pid"])) is not None:
                _settle(known, Exit(int(told["status"]), int(told["maxrss"])))
        elif "pong" in message:
            while self._pongs:
                _settle(self._pongs.pop(), True)

    def _end(self) -> None:
        self.closed = True
        ended = KernelStartError("The process to fork from has ended")
        for answer in self._answers.values():
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                answer.set_exception(ended)
        self._answers.clear()
        while self._pongs:
            _settle(self._pongs.pop(), False)
        for known in self._exits.values():
            _settle(known, None)


class Forked:
    """A process that a nursery forked for us: what `subprocess.Popen` is to a child of our own.

    Parameters
    ----------
    pid: its number.
    pidfd: a descriptor of the process, by which it cannot be taken for another one.
    line: our end of its line; when it is closed, the process ends itself.
    parents: the nurseries that may tell its exit status.
    """

    stdin = stdout = stderr = None

    def __init__(
        self, pid: int, pidfd: int, line: socket.socket, parents: tuple[Nursery, ...]
    ) -> None:
        line.setblocking(False)
        self.pid = pid
        self.pidfd = pidfd
        self.line = line
        self.exit: Exit | None = None
        """How it ended; None too where nobody could tell."""
        self._parents = parents
        self._gone = False
        forked_pids.add(pid)
        _inherited.add(line)
        for each in parents[1:]:  # the first has begun when it told of the process
            each.expect(pid)

    async def ready(self, limit: float) -> dict[str, Any]:
        """Wait until it says that it is ready, and give what it said.

        Raises
        ------
        Unattachable: it says that it could not be set up.
        KernelStartError: it ended, or said nothing in time.
        """
        deadline = time.monotonic() + limit
        while True:
            if not await readable(deadline - time.monotonic(), self.line.fileno(), self.pidfd):
                raise KernelStartError(
                    f"The kernel was not ready within {limit:g} s",
                    hint="Give it a longer timeout, or see what keeps this machine busy",
                )
            try:
                message, fds = wire.receive(self.line)
            except BlockingIOError:
                message, fds = None, []
            wire.close(fds)
            if message is None:
                raise KernelStartError("The kernel ended before it was ready")
            if "broken" in message:
                raise Unattachable(
                    str(message["broken"]).strip(), unsuitable=message.get("unsuitable") is True
                )
            if "ready" in message:
                ready: dict[str, Any] = message["ready"]
                return ready

    @property
    def returncode(self) -> int | None:
        """Its exit status once it is known to have ended, as `subprocess.Popen` has it."""
        if not self._gone:
            return None
        return self.exit.status if self.exit is not None else _UNTOLD

    def poll(self) -> int | None:
        """Look whether it has ended; give its exit status, None while it runs."""
        if not self._gone and self._ended(0):
            self.exit = _exit_from(self._parents, self.pid)
            self._bury()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Block until it has ended and give its exit status.

        Raises
        ------
        subprocess.TimeoutExpired: it runs on after so many seconds.
        """
        if not self._gone and not self._ended(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    async def ended(self, limit: float | None = None) -> bool:
        """Wait on the running loop until it has ended, and tell whether it has."""
        if not self._gone and not await readable(limit, self.pidfd):
            return False
        if not self._gone:
            told = await _exited(self._parents, self.pid)
            self.exit = self.exit or told
            self._bury()
        return True

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing happens where it has ended."""
        if not self._gone:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def send_group_signal(self, number: int) -> None:
        """Send a signal to its process group."""
        if not self._gone and not self._ended(0):  # or its number may be another's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go of it, at which it ends if it has not yet; a second call does nothing."""
        self.line.close()
        if self.pidfd >= 0:
            self._bury()
            os.close(self.pidfd)
            self.pidfd = -1

    def _ended(self, timeout: float | None) -> bool:
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(None if timeout is None else 1000 * timeout))

    def _bury(self) -> None:
        self._gone = True
        forked_pids.discard(self.pid)
        for each in self._parents:
            each.forget(self.pid)


def _exit_from(parents: Sequence[Nursery], pid: int) -> Exit | None:
    """Give the exit of a process that has ended, blocking until one of its parents tells it."""
    deadline = time.monotonic() + _EXIT
    while True:
        for each in parents:
            if (told := each.exit_of(pid)) is not None:
                return told
        poll = select.poll()
        waiting = [each for each in parents if each.wait_with(poll)]
        if not waiting or time.monotonic() >= deadline:
            return None
        poll.poll(1000 * _LOOK)


async def _exited(parents: Sequence[Nursery], pid: int) -> Exit | None:
    """Give the exit of a process that has ended as soon as one of its parents tells it."""
    asking = {asyncio.ensure_future(each.exited(pid, _EXIT)) for each in parents}
    told: Exit | None = None
    try:
        while asking and told is None:
            answered, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            for each in answered:
                told = told or each.result()
    finally:
        for each in asking:
            each.cancel()
    return told


def _settle(future: concurrent.futures.Future[T], value: T) -> bool:
    """Give a future its value, unless it has one or nobody waits for it."""
    try:
        future.set_result(value)
    except concurrent.futures.InvalidStateError:
        return False
    return True


nurseries: weakref.WeakSet[Nursery] = weakref.WeakSet()
"""Those whose connection is open."""

forked_pids: set[int] = set()
"""Processes that somebody here holds a handle on and will end."""

_inherited: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close what a fork of the controller inherits, or the controller's death goes unnoticed."""
    for each in list(_inherited):
        each.close()
    _inherited.clear()
    nurseries.clear()
    forked_pids.clear()


os.register_at_fork(after_in_child=_close_in_child)
