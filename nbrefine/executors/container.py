"""Code in a container, with its tests outside of it.

What forks the candidates runs in the container and has one socket to the controller; all else of
the host is out of its sight. It ends when that socket does, and the container with it, however the
controller has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn
from uuid import uuid4

from nbrefine.errors import ExecutorError
from nbrefine.executors.bench import MEMORY
from nbrefine.executors.nursery import PROGRAM, SETTINGS, LocalHost, last_words, launch
from nbrefine.executors.runtime import ContainerConfig, Engine, find_engine, said
from nbrefine.executors.subprocess import SubprocessCodeExecutor
from nbrefine.kernel.inside.branching import wire
from nbrefine.kernel.processes.building import gone
from nbrefine.kernel.processes.runtime import RuntimeFolder
from nbrefine.kernel.readable import readable

PLACE = "/nbrefine"
"""The folder of a container that holds our program and the socket."""

_ROOT = Path(__file__).parents[1]
_WIRE = Path(wire.__file__)

_MOST_PROCESSES = 4096  # of all candidates together
_SCRATCH = 1 << 30  # bytes of all candidates' files together, where they have no room each
_END = 10.0  # seconds in which a container that was left must have ended


class ContainerCodeExecutor(SubprocessCodeExecutor):
    """Runs code in a container and its tests outside of it, in a process of this machine.

    The container starts with the first check and is gone when this is closed. The code has no
    network, none of the host's files, and no privileges; every result tells what holds it
    (`CodeExecutionResult.isolation`), also where code runs without a container, as there is none.

    Parameters
    ----------
    config: the container.
    workers: checks at a time; None: as many as there are processors.
    memory: bytes of address space for each process of the code; None: no limit.

    Warns
    -----
    ContainerWarning: what runs the code is not what the configuration asks for.

    Raises
    ------
    UsageError: `docker_command` does not answer, or `workers` or `memory` is too small.
    ExecutorError: the image is not on this machine, or nothing can do what was asked for.
    """

    def __init__(
        self,
        config: ContainerConfig = ContainerConfig(),  # noqa: B008 - frozen
        *,
        workers: int | None = None,
        memory: int | None = MEMORY,
    ) -> None:
        self.config = config
        self.engine = find_engine(config)
        """What runs the container; None where code runs without one."""
        host = (
            LocalHost("candidate", isolation=("no container",))
            if self.engine is None
            else ContainerHost(config, self.engine)
        )
        super().__init__(workers=workers, memory=memory, host=host)


class ContainerHost:
    """A nursery in a container of its own.

    Parameters
    ----------
    config: the container.
    engine: what runs it.
    """

    def __init__(self, config: ContainerConfig, engine: Engine) -> None:
        self.isolation: tuple[str, ...] = (
            f"container of {config.content} ({engine}) without network and privileges",
        )
        if config.memory is not None:
            self.isolation += (f"{config.memory >> 20:,} MiB of memory for all of it",)
        self._config = config
        self._engine = engine
        self._name = ""
        self._folder: RuntimeFolder | None = None
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> socket.socket:
        self._name = f"nbrefine-{uuid4().hex[:12]}"
        self._folder = RuntimeFolder()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        try:
            folder = _furnished(self._folder.path)
            with _listening(folder / "socket", *self._engine.user) as listener:
                # Podman's monitor leaves a file "oom" where it was started.
                cwd = self._folder.path
                self._process = launch([*self._words(folder)], os.environ, self._log, cwd=cwd)
                return await self._met(listener, self._process)
        except BaseException as error:
            words = await asyncio.shield(asyncio.ensure_future(self.stop()))
            if isinstance(error, TimeoutError | OSError):
                self._explain(error, words)
            raise

    async def _met(
        self, listener: socket.socket, process: subprocess.Popen[bytes]
    ) -> socket.socket:
        """Give the connection to the nursery, once that has come up."""
        ending = os.pidfd_open(process.pid)
        try:
            if not await readable(self._config.timeout, listener.fileno(), ending):
                raise TimeoutError(f"it was not up within {self._config.timeout:g} s")
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                raise ChildProcessError("it ended at its start") from None
            return connection
        finally:
            os.close(ending)

    def _explain(self, error: OSError, words: str) -> NoReturn:
        hint = words
        if "executable file not found" in words or "no such file or directory" in words.lower():
            hint = f"Use an image with python3, 3.9 or later\n{words}"
        raise ExecutorError(
            f"A container of {self._config.content} did not come up with {self._engine}: {error}",
            hint=hint,
        ) from None

    async def stop(self) -> str:
        process, log, folder = self._process, self._log, self._folder
        self._process = self._log = self._folder = None
        if log is None or folder is None:
            return ""
        try:
            if process is not None:
                await self._end(process)
            return last_words(log)
        finally:
            log.close()
            folder.remove()

    async def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the container, to which nobody speaks any more, has ended and is removed."""
        with contextlib.suppress(OSError):  # it was waited for already
            ending = os.pidfd_open(process.pid)
            try:
                if not await readable(_END, ending):
                    await asyncio.to_thread(said, self._engine.command, "kill", self._name)
                    await gone(process, _END)
                    await asyncio.to_thread(said, self._engine.command, "rm", "--force", self._name)
            finally:
                os.close(ending)
        process.wait()

    def _words(self, folder: Path) -> Iterator[str]:
        """Give the command that runs the nursery.

        Parameters
        ----------
        folder: is at `PLACE` in the container.
        """
        config, engine = self._config, self._engine
        user, group = engine.user
        yield from (
            _absolute(engine.command),
            "run",
            "--rm",
            "--name",
            self._name,
            "--label",
            "nbrefine",
        )
        yield from ("--pull", "never", "--network", "none", "--log-driver", "none")
        yield from ("--user", f"{user}:{group}", "--cap-drop", "ALL", "--workdir", "/")
        yield from ("--security-opt", "no-new-privileges")
        # SELinux lets nobody in a container connect to a socket of the host.
        yield from ("--security-opt", "label=disable")
        yield from ("--read-only", "--tmpfs", f"/tmp:rw,nosuid,nodev,mode=1777,size={_SCRATCH}")  # noqa: S108 - in the container
        yield from ("--pids-limit", str(_MOST_PROCESSES))
        yield from _limits()
        if engine.kind == "podman":
            # A process that sees all of /proc may have a /proc of its own, and only so can each
            # candidate be kept apart from the others; nobody's reads nothing of the host's there.
            yield from ("--security-opt", "unmask=ALL", "--http-proxy=false")
        if config.memory is not None:
            yield from ("--memory", str(config.memory), "--memory-swap", str(config.memory))
        yield from ("--volume", f"{folder}:{PLACE}:ro")
        for source, place in config.volumes.items():
            yield from ("--volume", f"{os.path.realpath(source)}:{place}:ro")
        for name, value in {**SETTINGS, **config.env_vars}.items():
            yield from ("--env", f"{name}={value}")
        yield from ("--entrypoint", "python3")
        if config.rootfs is not None:
            yield from ("--rootfs", f"{os.path.realpath(config.rootfs)}:O")  # O: left as it is
        else:
            yield config.content
        yield from ("-s", f"{PLACE}/{PROGRAM.relative_to(_ROOT)}", "candidate")
        yield from ("--connect", f"{PLACE}/socket")
        for place in config.volumes.values():
            yield from ("--readable", str(place))


def _absolute(command: str) -> str:
    """Give the path of a program, for whoever starts it from another folder."""
    return str(Path(shutil.which(command) or command).absolute())


def _limits() -> Iterator[str]:
    """Give limits that engines can give: their own may be above what this process is allowed."""
    for name, number, most in _ULIMITS:
        _, hard = resource.getrlimit(number)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        yield from ("--ulimit", f"{name}={limit}:{limit}")


_ULIMITS = (
    ("nofile", resource.RLIMIT_NOFILE, 4096),  # as many as a nursery takes
    ("nproc", resource.RLIMIT_NPROC, 32_768),  # of the user in and out of it; podman has no more
)


def _furnished(base: Path) -> Path:
    """Make a folder with a copy of our program, which whoever is in the container may read."""
    folder = base / "shared"
    for source in (*PROGRAM.parent.glob("*.py"), _WIRE):
        copy = folder / source.relative_to(_ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        copy.chmod(0o644)
    for each in (folder, *folder.rglob("*/")):
        if each.is_dir():
            each.chmod(0o755)
    return folder


@contextlib.contextmanager
def _listening(path: Path, user: int, group: int) -> Iterator[socket.socket]:
    """Listen to one who may connect; afterwards nobody can."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        try:
            path.chmod(0o600)
            if os.geteuid() == 0:
                os.chown(path, user, group)
            listener.listen(1)
            listener.setblocking(False)
            yield listener
        finally:
            path.unlink(missing_ok=True)
