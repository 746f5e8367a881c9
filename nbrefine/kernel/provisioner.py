"""Forked kernels for everybody who starts kernels through jupyter_client.

A kernelspec that names the provisioner `nbrefine-fork` gets its kernels from a template in which
ipykernel and chosen packages are imported already::

    "metadata": {
      "kernel_provisioner": {
        "provisioner_name": "nbrefine-fork",
        "config": {"preload": ["numpy", "pandas"]}
      }
    }

For nbclient, papermill or a Jupyter server such a kernel is like any other, and each start and
restart gives a fresh one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import List, Unicode

from nbrefine._portal import Run
from nbrefine.errors import KernelStartError
from nbrefine.kernel.processes.forking import Forked
from nbrefine.kernel.processes.keeper import Keeper
from nbrefine.kernel.processes.launch import PythonCommand, Unforkable, split_command

_READY = 30.0  # seconds in which a forked kernel must have bound its sockets
_SHUTDOWN = 2.0  # seconds that a kernel is waited for before it is looked at
_KILL = 5.0  # seconds in which a signal must have ended a kernel

_KNOWN = frozenset({"cwd", "env", "independent", "stdin", "stdout", "stderr"})
"""What a start may ask for that a fork can give."""

Stream = int | IO[Any] | None


class ForkProvisioner(LocalProvisioner):
    """Starts kernels by forking; where that cannot be, as jupyter_client's own provisioner does."""

    preload = List(
        Unicode(),
        help="Packages imported before a kernel is there; one that is missing is left out.",
    ).tag(config=True)

    process: Any
    _keeper: Keeper | None = None

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start a fresh kernel, whatever ran before, and give its connection info."""
        await self._let_go()
        settings = self._scrub_kwargs(kwargs)
        try:
            command = _forkable(cmd, settings)
            process = await Run(self._fork(command, settings))
        except (KernelStartError, Unforkable) as error:
            self._tell(f"The kernel is started without forking: {error}")
            return await super().launch_kernel(cmd, **kwargs)
        self.process = process
        self.pid = self.pgid = process.pid
        self.cwd = settings.get("cwd") or Path.cwd()
        return self.connection_info

    async def wait(self) -> int | None:
        """Wait until the kernel has ended, woken by its end, and give its exit status."""
        process = self.process
        if isinstance(process, Forked):  # a cleanup meanwhile takes it from us
            await process.ended()
            status = process.wait()
            process.close()
            self.process = None
            return status
        return await super().wait()

    async def send_signal(self, signum: int) -> None:
        """Send a signal to the kernel's process group, if the kernel is there."""
        if isinstance(self.process, Forked):
            self.process.send_group_signal(signum)
        else:
            await super().send_signal(signum)

    async def shutdown_requested(self, restart: bool = False) -> None:
        """Wait for the kernel, which jupyter_client would look at every 100 ms."""
        await self._ended(_SHUTDOWN)

    async def kill(self, restart: bool = False) -> None:
        """End the kernel at once."""
        await super().kill(restart=restart)
        await self._ended(_KILL)

    async def terminate(self, restart: bool = False) -> None:
        """Ask the kernel to end by SIGTERM."""
        await super().terminate(restart=restart)
        await self._ended(_SHUTDOWN)

    async def cleanup(self, restart: bool = False) -> None:
        """Remove what the kernel has left."""
        await super().cleanup(restart=restart)
        if not restart:
            await self._let_go()

    async def _ended(self, limit: float) -> None:
        if isinstance(self.process, Forked):
            await self.process.ended(limit)

    async def _let_go(self) -> None:
        """End what is left of the last kernel, among it what its cells have started."""
        keeper, self._keeper = self._keeper, None
        if isinstance(self.process, Forked):
            self.process.close()
            self.process = None
        if keeper is not None:
            await Run(_released(keeper))

    async def _fork(self, command: PythonCommand, settings: Mapping[str, Any]) -> Forked:
        """Fork a keeper from the template, and from that the kernel; runs on the portal."""
        keeper = await Keeper.start_without_missing(
            command.python,
            settings.get("env") or os.environ,
            cwd=str(settings.get("cwd") or Path.cwd()),
            preload=tuple(self.preload),
            on_missing=self._tell,
        )
        keeper.acquire()
        try:
            spawn = {
                "connection": _read(command.connection_file),
                "connection_file": command.connection_file,
                "arguments": list(command.arguments),
                "environ": None,
                "variables": keeper.variables(keeper.number()),
                "cwd": None,
                "nonce": "",
                "crash": "",
                "overlay": None,
                "reseed": True,
            }
            with _streams(settings) as stdio:
                process = await keeper.nursery.fork("kernel", spawn, stdio)
            try:
                await process.ready(_READY)
            except BaseException:
                process.close()
                raise
        except BaseException:
            await _released(keeper)
            raise
        self._keeper, self.process = keeper, process  # also for a caller that is cancelled
        return process

    def _tell(self, warning: str) -> None:
        """Log a warning, and the same one once only."""
        if warning not in _told:
            _told.add(warning)
            self.log.warning(warning)


_told: set[str] = set()


def _forkable(cmd: list[str], settings: Mapping[str, Any]) -> PythonCommand:
    if sys.platform != "linux":
        raise Unforkable("only Linux kernels are forked")
    if settings.get("independent"):
        raise Unforkable("a forked kernel does not outlive who started it")
    if unknown := settings.keys() - _KNOWN:
        raise Unforkable(f"a fork cannot take {', '.join(sorted(unknown))} into account")
    if subprocess.PIPE in (settings.get("stdout"), settings.get("stderr")):
        raise Unforkable("its streams are to be pipes")
    return split_command(cmd)


def _read(connection_file: str) -> dict[str, Any]:
    connection: dict[str, Any] = json.loads(Path(connection_file).read_text())
    return connection


@contextmanager
def _streams(settings: Mapping[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Give the descriptors of a kernel's standard streams, as `subprocess.Popen` reads them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        output = _descriptor(settings.get("stdout"), 1, nothing)
        error = settings.get("stderr")
        yield (
            _descriptor(settings.get("stdin"), nothing, nothing),
            output,
            output if error == subprocess.STDOUT else _descriptor(error, 2, nothing),
        )
    finally:
        os.close(nothing)


def _descriptor(stream: Stream, inherited: int, nothing: int) -> int:
    if stream is None:
        return inherited
    if stream in (subprocess.DEVNULL, subprocess.PIPE):
        return nothing  # of a kernel, only its stdin may be a pipe, and nobody writes to that
    return stream if isinstance(stream, int) else stream.fileno()


async def _released(keeper: Keeper) -> None:
    keeper.release()
    await keeper.ended()
