"""Interpreters that become nurseries: started by path, and waited for."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from nbrefine.errors import KernelStartError
from nbrefine.kernel.inside.branching import wire
from nbrefine.kernel.processes.forking import Forked, Nursery
from nbrefine.kernel.readable import readable

PROGRAM = Path(__file__).parents[1] / "inside" / "branching" / "launch.py"
"""What the interpreter runs; its environment need not have nbrefine."""

BUILD = 60.0
"""Seconds in which a keeper or template must have been built."""


class Unbuildable(KernelStartError):
    """An interpreter cannot fork kernels, for a reason that stays, such as an old ipykernel.

    Parameters
    ----------
    package: the one that could not be imported beforehand, if that is the reason, or "".
    """

    def __init__(self, message: str, *, package: str = "") -> None:
        super().__init__(message)
        self.package = package


@dataclass(frozen=True, slots=True)
class Built:
    """A nursery that is a process of ours."""

    process: subprocess.Popen[bytes]
    nursery: Nursery
    ipykernel: str
    """Version of its ipykernel."""


class Handle(Protocol):
    """What is needed of a process, ours or forked for us."""

    pid: int

    def wait(self, timeout: float | None = None) -> int: ...
    def kill(self) -> None: ...


async def build(
    python: Sequence[str],
    environment: Mapping[str, str],
    *,
    role: str,
    cwd: str | None = None,
    folder: Path | None = None,
    preload: Sequence[str] = (),
) -> Built:
    """Start an interpreter that becomes a nursery, and wait until it can fork.

    Parameters
    ----------
    role: "keeper" or "template".
    folder: what a keeper removes at its end.
    preload: packages that are imported first.

    Raises
    ------
    Unbuildable: it says that it cannot.
    KernelStartError: it ended, or said nothing in time.
    """
    words = [*python, str(PROGRAM), "--role", role]
    words += ["--folder", str(folder)] if folder else []
    words += ["--preload", ",".join(preload)] if preload else []
    with tempfile.TemporaryFile() as log:
        process, near = _launch(words, environment, cwd, log)
        try:
            about = await _about(near, python[0], log)
        except BaseException:
            near.close()
            process.kill()
            process.wait()
            raise
    return Built(process, Nursery(near, process.pid), str(about["ipykernel"]))


def _launch(
    words: Sequence[str], environment: Mapping[str, str], cwd: str | None, log: IO[bytes]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    near, far = wire.pair()
    near.setblocking(False)
    try:
        process = subprocess.Popen(
            [*words, "--connection", str(far.fileno())],
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=[far.fileno()],
        )
    except OSError as error:
        near.close()
        raise KernelStartError(f"{words[0]} could not be started: {error}") from error
    finally:
        far.close()
    return process, near


async def gone(process: Handle, limit: float) -> None:
    """Wait until a process has ended; it is sent SIGKILL where that takes longer than allowed."""
    if isinstance(process, Forked):
        if not await process.ended(limit):
            process.kill()
        return
    with contextlib.suppress(OSError):  # it was waited for already
        pidfd = os.pidfd_open(process.pid)
        try:
            if not await readable(limit, pidfd):
                process.kill()
        finally:
            os.close(pidfd)


async def _about(connection: socket.socket, interpreter: str, log: IO[bytes]) -> dict[str, Any]:
    if not await readable(BUILD, connection.fileno()):
        raise KernelStartError(f"{interpreter} could fork nothing within {BUILD:g} s")
    message, fds = wire.receive(connection)
    wire.close(fds)
    if message is None:
        log.seek(0)
        words = log.read().decode(errors="replace").strip().splitlines()
        raise KernelStartError(
            f"{interpreter} ended before it could fork", hint="\n".join(words[-20:])
        )
    if "broken" in message:
        package = str(message.get("package", ""))
        raise Unbuildable(str(message["broken"]), package=package)
    about: dict[str, Any] = message["built"]
    return about
