"""A kernel's process that its provisioner starts: of any language, anywhere; it cannot branch."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_client.manager import AsyncKernelManager
from zmq.asyncio import Context

from nbrefine.errors import KernelError, KernelStartError
from nbrefine.kernel.messages.channels import context
from nbrefine.kernel.processes.environment import kernel_environment
from nbrefine.kernel.processes.launch import IPYKERNEL, QUIET, Launch, is_local
from nbrefine.kernel.processes.lifetime import Lifetime
from nbrefine.kernel.processes.runtime import MARK, Family, RuntimeFolder, family, kill_family

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

_KILL = 10.0  # seconds in which SIGKILL must have worked
_POLL = 0.1  # seconds between looks at a process that cannot be watched


class Provisioned(Lifetime):
    """One run of a kernel's process, until it has ended and nothing is left of it.

    Parameters
    ----------
    unbranchable: why it is not started so that it could branch.
    """

    line = None
    keeper = None
    nonce = ""
    introduction: dict[str, Any] | None = None

    def __init__(self, launch: Launch, spec: KernelSpec, unbranchable: str) -> None:
        super().__init__()
        self.unbranchable = unbranchable
        self._launch = launch
        self._spec = spec
        self._manager = _Manager(
            kernel_name=launch.name,
            context=Context(context()),
            transport="ipc" if os.name == "posix" else "tcp",
        )
        self._manager._kernel_spec = spec  # noqa: SLF001 - or it is looked for once more
        self.connection: dict[str, Any] = {}
        self._launched = False
        self._popen: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._pidfd = -1
        self._folder = RuntimeFolder()

    async def start(self) -> None:
        """Start the process; it may not answer yet.

        Raises
        ------
        KernelStartError: the command could not be started.
        """
        manager = self._manager
        manager.connection_file = str(self._folder.path / "kernel.json")
        if manager.transport == "ipc":
            manager.ip = str(self._folder.path / "k")
        manager.is_local = is_local(self._spec)
        environment = kernel_environment(self._launch.env, seed=self._launch.seed)
        environment[MARK] = str(self._folder.path)
        mouth = self._listen()
        _register(self)
        try:
            command, settings = await manager.pre_start_kernel(
                env=environment,
                cwd=self._launch.cwd,
                stdout=subprocess.DEVNULL,
                stderr=mouth,
                extra_arguments=[
                    *(QUIET if IPYKERNEL & set(self._spec.argv) else ()),
                    *self._launch.arguments,
                ],
            )
            self.connection = dict(await self._provisioner.launch_kernel(command, **settings))
            self._begin_watch()
            await self._provisioner.post_launch(**settings)
        except OSError as error:
            raise KernelStartError(
                f"The command of kernel {self._launch.name!r} could not be started: {error}",
                hint=f"Check argv in {Path(self._spec.resource_dir) / 'kernel.json'}",
            ) from error
        finally:
            os.close(mouth)

    @property
    def _provisioner(self) -> KernelProvisionerBase:
        assert self._manager.provisioner is not None  # made by pre_start_kernel
        return self._manager.provisioner

    @property
    def display_name(self) -> str:
        return str(self._spec.display_name)

    @property
    def connection_file(self) -> str:
        return str(self._manager.connection_file)

    @property
    def interrupts_by_message(self) -> bool:
        return bool(self._spec.interrupt_mode == "message")

    async def interrupt(self) -> None:
        """Send SIGINT to the process group."""
        await self._provisioner.send_signal(signal.SIGINT)

    async def kill(self) -> None:
        """End the process and its descendants at once.

        Raises
        ------
        KernelError: it is there all the same, as a process that waits for a disk may be.
        """
        if not self.exited.done():
            known = self._family()
            with contextlib.suppress(OSError):
                await self._provisioner.kill()
            kill_family(self.pid, self._folder.path, known=known)
            await asyncio.wait({self.exited}, timeout=_KILL)
        if not self.exited.done():
            raise KernelError(
                f"The kernel's process {self.pid or ''} is there {_KILL:g} s after SIGKILL",
                hint="See what it waits for, for example a network drive",
            )

    def _family(self) -> Family:
        return family(self.pid, self._folder.path)

    async def close(self, *, grace: float = 0.0, leave: bool = False) -> None:
        """Wait for the process to end, end it, and remove all that it and we have left.

        Parameters
        ----------
        grace: seconds the process gets to end by itself.
        leave: not for a process that no branch can take the place of.
        """
        assert not leave
        try:
            if self._launched:
                known = self._family()
                await asyncio.wait({self.exited}, timeout=grace)
                await self.kill()
                self._kill_group()
                self.pid = None  # may be another process's by now
                kill_family(None, self._folder.path, known=known)
        finally:
            self._release()
        with contextlib.suppress(OSError):
            await self._manager.cleanup_resources()

    def kill_now(self) -> None:
        """End and remove everything without a loop: the interpreter is about to exit."""
        self._kill_group()
        if self._popen is not None and self._popen.returncode is None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._popen.kill()
                self._popen.wait(timeout=2)
        kill_family(None, self._folder.path)
        self._folder.remove()

    def _kill_group(self) -> None:
        group = getattr(self._manager.provisioner, "pgid", None)
        if group and group != os.getpgrp():
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)

    def _begin_watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._launched = True
        process = getattr(self._manager.provisioner, "process", None)
        if isinstance(process, subprocess.Popen):
            self._popen = process
            self.pid = process.pid
        with contextlib.suppress(OSError, AttributeError):
            if self._popen is not None:
                self._pidfd = os.pidfd_open(self._popen.pid)
        if self._pidfd >= 0:
            loop.add_reader(self._pidfd, self._reap)
        else:
            self._watch = loop.create_task(self._poll())

    async def _poll(self) -> None:
        # A provisioner can only be asked, so there is no event to wait for.
        while (code := await self._provisioner.poll()) is None:  # noqa: ASYNC110
            await asyncio.sleep(_POLL)
        self._end(code, None, self._crash)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        process = self._popen
        assert process is not None
        try:
            # wait4 instead of Popen.poll, which throws the peak memory away.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            unit = 1 if sys.platform == "darwin" else 1024
            self._end(process.returncode, usage.ru_maxrss * unit, self._crash)
        except ChildProcessError:  # somebody else has waited for all children
            self._end(None, None, self._crash)

    @property
    def _crash(self) -> Path:
        return self._folder.path / "crash"

    def _release(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self._stop_listening()
        self._folder.remove()
        _live.discard(self)


class _Manager(AsyncKernelManager):
    """A kernel manager whose kernels die with us, also when SIGKILL ends us.

    ipykernel's own watch on its parent is a Python thread and waits for the GIL; the kernel's
    PR_SET_PDEATHSIG does not.  It is set by `setpriv`, which then becomes the kernel: a
    `preexec_fn` would fork this process with all its memory and threads.  The signal comes when
    the thread that spawned the kernel ends, so kernels are spawned by the portal.
    """

    is_local = True

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Give the command that starts the kernel."""
        command: list[str] = super().format_kernel_cmd(extra_arguments)
        setpriv = shutil.which("setpriv") if sys.platform == "linux" and self.is_local else None
        return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else command


_live: set[Provisioned] = set()


def _register(process: Provisioned) -> None:
    if not _live:
        atexit.register(_kill_all)
    _live.add(process)


def _kill_all() -> None:
    for process in list(_live):
        process.kill_now()
    _live.clear()


os.register_at_fork(after_in_child=_live.clear)
