"""The controller's end of a nursery: a process that forks the processes of checks on request."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypedDict, TypeVar

from nbrefine.errors import ExecutorError
from nbrefine.kernel.inside.branching import wire
from nbrefine.kernel.processes.building import gone

PROGRAM = Path(__file__).parent / "inside" / "nursery.py"
"""What the interpreter runs; its environment need not have nbrefine."""

_READY = 60.0  # seconds in which a nursery must have imported what its children start with
_END = 5.0  # seconds in which one must have ended with all that it forked

_ENDED = "a process to fork from has ended"
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")

Role = Literal["candidate", "tester"]

T = TypeVar("T")


class NurseryLost(Exception):
    """A nursery has ended, and what it had forked with it; with the reason."""


class Limits(TypedDict):
    """What one candidate may use; None is no limit."""

    memory: int | None
    """Bytes of address space, for each of its processes."""
    processes: int | None
    """Processes and threads, where the system can count them."""
    file_size: int | None
    """Bytes of one file."""


class CandidateHost(Protocol):
    """Where a nursery of candidates runs; it is started again when it has ended."""

    isolation: tuple[str, ...]
    """What holds the candidates back beside what the nursery itself does, in words."""

    async def start(self) -> socket.socket:
        """Start a nursery and give the socket to speak with it.

        Raises
        ------
        ExecutorError: it did not come up.
        """

    async def stop(self) -> str:
        """Wait until the nursery, whose socket is closed, has ended; give its last words."""


class LocalHost:
    """A nursery on this machine.

    Parameters
    ----------
    role: what is forked.
    python: the interpreter.
    preload: packages that are imported first.
    isolation: what there is to say of this place.
    """

    def __init__(
        self,
        role: Role,
        *,
        python: str = sys.executable,
        preload: Sequence[str] = (),
        isolation: tuple[str, ...] = (),
    ) -> None:
        self.isolation = isolation
        self._words = [python, "-s", str(PROGRAM), role]
        self._words += ["--preload", ",".join(preload)] if preload else []
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    async def start(self) -> socket.socket:
        near, far = wire.pair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        try:
            words = [*self._words, "--fd", str(far.fileno())]
            self._process = launch(words, environment(), self._log, [far.fileno()])
        except OSError as error:
            near.close()
            self._log.close()
            raise ExecutorError(
                f"{self._words[0]} could not be started: {error}",
                hint="Give the path of a Python interpreter",
            ) from error
        finally:
            far.close()
        return near

    async def stop(self) -> str:
        process, log = self._process, self._log
        self._process = self._log = None
        if process is None or log is None:
            return ""
        with log:
            await gone(process, _END)
            process.wait()
            return last_words(log)


def launch(
    words: Sequence[str],
    environment: Mapping[str, str],
    log: IO[bytes],
    fds: Sequence[int] = (),
    *,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program that outlives Ctrl-C and writes its errors to a file.

    Parameters
    ----------
    cwd: the folder it starts in; None: the current one.

    Raises
    ------
    OSError: there is no such program.
    """
    process = subprocess.Popen(
        words,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=log,
        pass_fds=fds,
        start_new_session=True,  # Ctrl-C is the controller's
    )
    _processes.add(process)
    return process


def last_words(log: IO[bytes]) -> str:
    """Give the last lines of a file."""
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").strip().splitlines()[-20:])


class Nursery:
    """A nursery that is ready to fork; made by `start`."""

    def __init__(self, connection: socket.socket, host: CandidateHost) -> None:
        connection.setblocking(False)
        self.isolation: tuple[str, ...] = ()
        """What holds its children back."""
        self.lost = False
        """Whether either end of the connection is closed."""
        self._connection = connection
        self._host = host
        self._ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._numbers = itertools.count(1)
        self._children: dict[int, Child] = {}
        _open.add(self)
        asyncio.get_running_loop().add_reader(connection, self._take)

    @classmethod
    async def start(cls, host: CandidateHost) -> Nursery:
        """Start a nursery and wait until it can fork.

        Raises
        ------
        ExecutorError: it did not come up.
        """
        nursery = cls(await host.start(), host)
        try:
            async with asyncio.timeout(_READY):
                said = await nursery._ready
        except BaseException as error:
            words = await nursery.stop()
            if isinstance(error, TimeoutError):
                raise ExecutorError(f"No check could begin within {_READY:g} s") from None
            if isinstance(error, NurseryLost):
                raise ExecutorError(
                    "The process that forks those of checks ended at its start", hint=words
                ) from None
            raise
        if said["op"] == "broken":
            await nursery.stop()
            raise ExecutorError(
                f"No process could be made ready for checks: {said['why']}",
                hint="Give an interpreter that has the packages of `preload`",
            )
        nursery.isolation = (*host.isolation, *said["isolation"])
        return nursery

    def fork(self, limits: Limits, fds: Sequence[int], task: Sequence[str] = ()) -> Child:
        """Have a child forked, which the caller is to kill in the end.

        Parameters
        ----------
        fds: descriptors that it gets; they stay open here.
        task: tests, setup and entry point, for a tester that others with the same may follow.

        Raises
        ------
        NurseryLost: the nursery has ended.
        """
        number = next(self._numbers)
        message = {"op": "fork", "id": number, "limits": limits}
        self.send({**message, "task": task} if task else message, fds)
        child = self._children[number] = Child(self, number)
        return child

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a message.

        Raises
        ------
        NurseryLost: the nursery has ended, or has read nothing for long.
        """
        if self.lost:
            raise NurseryLost(_ENDED)
        try:
            wire.send(self._connection, message, fds)
        except OSError as error:
            self.close()
            raise NurseryLost(f"a process to fork from cannot be asked: {error}") from error

    def close(self) -> None:
        """Close the connection, at which the nursery ends; a second call does nothing."""
        if self.lost:
            return
        self.lost = True
        asyncio.get_running_loop().remove_reader(self._connection)
        with contextlib.suppress(OSError):  # copies of the descriptor must not keep it open
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        _fail(self._ready, NurseryLost(_ENDED))
        for child in self._children.values():
            child.fail(NurseryLost(_ENDED))
        self._children.clear()

    async def stop(self) -> str:
        """Close it and wait until it has ended with all that it forked; give its last words."""
        self.close()
        return await self._host.stop()

    def forget(self) -> None:
        """Close this process's copy of the connection, which goes on for another process."""
        self.lost = True
        self._connection.close()

    def _take(self) -> None:
        while not self.lost:
            try:
                message, fds = wire.receive(self._connection)
            except BlockingIOError:
                return
            except OSError:
                message, fds = None, []
            wire.close(fds)
            if message is None:
                self.close()
            else:
                self._on(message)

    def _on(self, message: dict[str, Any]) -> None:
        operation = message["op"]
        if operation in ("ready", "broken"):
            _settle(self._ready, message)
        elif operation == "failed":
            why = f"A process for a check could not be forked: {message['why']}"
            self._children.pop(message["id"]).fail(ExecutorError(why))
        elif operation == "ended":
            child = self._children.pop(message["id"])
            if message["unconfined"]:
                why = f"The code could not be confined and was not run: {message['unconfined']}"
                child.fail(ExecutorError(why))
            else:
                _settle(child.ended, message["status"])


class Child:
    """A process that a nursery forks for a check.

    Its futures raise `NurseryLost` where nobody can know, and `ExecutorError` where it has not run.
    """

    def __init__(self, nursery: Nursery, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int] = loop.create_future()
        """Its exit code, or minus the signal that ended it."""
        self._nursery = nursery
        self._number = number

    def signal(self, number: int) -> None:
        """Send it a signal; nothing happens where it has ended."""
        self._send({"op": "signal", "id": self._number, "signal": number})

    def kill(self) -> None:
        """End it with all that it has started; nothing happens where it has ended."""
        self._send({"op": "kill", "id": self._number})

    def fail(self, error: Exception) -> None:
        """Tell whoever waits for it that it has not run."""
        _fail(self.ended, error)

    def _send(self, message: dict[str, Any]) -> None:
        if not self.ended.done():
            with contextlib.suppress(NurseryLost):
                self._nursery.send(message)


def _settle(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # looked at, as nobody may wait for it


def environment() -> dict[str, str]:
    """Give what a nursery and all it forks have for an environment: no key is on the list."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | SETTINGS


SETTINGS = {
    "PYTHONHASHSEED": "0",
    "PYTHONSAFEPATH": "1",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MPLBACKEND": "Agg",
    # A fork has one thread only, whatever the library's pool thinks.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""Variables that a nursery has wherever it runs."""


_open: weakref.WeakSet[Nursery] = weakref.WeakSet()
"""Nurseries whose connection a fork of the controller inherits."""

_processes: weakref.WeakSet[subprocess.Popen[bytes]] = weakref.WeakSet()
_inherited: list[object] = []
"""Handles on processes of the parent's, kept: they warn when they are collected."""


def _forget_in_child() -> None:
    """Close what a fork of the controller inherits, or the controller's end goes unnoticed."""
    for nursery in list(_open):
        nursery.forget()
    _inherited.extend(_processes)


os.register_at_fork(after_in_child=_forget_in_child)
