"""A kernel's process: started through its provisioner, watched, explained and cleaned away."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from zmq.asyncio import Context

from nbrefine.errors import KernelError, KernelStartError, UsageError
from nbrefine.kernel.channels import context
from nbrefine.kernel.environment import kernel_environment
from nbrefine.kernel.runtime import MARK, Family, RuntimeFolder, family, kill_family
from nbrefine.outputs import Death

if TYPE_CHECKING:
    from jupyter_client.provisioning.provisioner_base import KernelProvisionerBase

_TAIL = 16_384  # bytes of the error channel that are kept
_LOCAL = "local-provisioner"
_KILL = 10.0  # seconds in which SIGKILL must have worked
_POLL = 0.1  # seconds between looks at a process that cannot be watched
_FAULTS = ("SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL", "SIGTRAP")


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is started, and started again."""

    name: str
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    seed: int | None = 0
    arguments: tuple[str, ...] = ()
    preload: tuple[str, ...] | None = None
    plain: bool = False


class Process:
    """One run of a kernel's process, until it has ended and nothing is left of it."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._manager = _Manager(
            kernel_name=launch.name,
            context=Context(context()),
            transport="ipc" if os.name == "posix" else "tcp",
        )
        self.connection: dict[str, Any] = {}
        self.pid: int | None = None
        """Process id, where the kernel is a process of this host."""
        self.exited: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self._launched = False
        self._popen: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._pidfd = -1
        self._words = b""
        self._ear, self._mouth = -1, -1
        self._folder: RuntimeFolder | None = None

    async def start(self) -> None:
        """Start the process; it may not answer yet.

        Raises
        ------
        UsageError: no such kernelspec, or no such working folder.
        KernelStartError: the command could not be started.
        """
        spec = self._find_spec()
        self._folder = RuntimeFolder()
        manager = self._manager
        manager.connection_file = str(self._folder.path / "kernel.json")
        if manager.transport == "ipc":
            manager.ip = str(self._folder.path / "k")
        manager.is_local = _is_local(spec.metadata)
        environment = kernel_environment(self._launch.env, seed=self._launch.seed)
        environment[MARK] = str(self._folder.path)
        self._ear, self._mouth = os.pipe()
        os.set_blocking(self._ear, False)
        _register(self)
        try:
            command, settings = await manager.pre_start_kernel(
                env=environment,
                cwd=self._launch.cwd,
                stdout=subprocess.DEVNULL,
                stderr=self._mouth,
                extra_arguments=[*_ipykernel_arguments(spec.argv), *self._launch.arguments],
            )
            self.connection = dict(await self._provisioner.launch_kernel(command, **settings))
            self._begin_watch()
            await self._provisioner.post_launch(**settings)
        except OSError as error:
            raise KernelStartError(
                f"The command of kernel {self._launch.name!r} could not be started: {error}",
                hint=f"Check argv in {Path(spec.resource_dir) / 'kernel.json'}",
            ) from error
        finally:
            os.close(self._mouth)

    @property
    def _provisioner(self) -> KernelProvisionerBase:
        assert self._manager.provisioner is not None  # made by pre_start_kernel
        return self._manager.provisioner

    @property
    def _kernel_spec(self) -> KernelSpec:
        assert self._manager.kernel_spec is not None
        return self._manager.kernel_spec

    def _find_spec(self) -> KernelSpec:
        try:
            spec = self._kernel_spec
        except NoSuchKernel:
            known = ", ".join(sorted(KernelSpecManager().find_kernel_specs())) or "none at all"
            raise UsageError(
                f"There is no kernelspec {self._launch.name!r}; there are: {known}",
                hint="Name one of them, or install the kernel",
            ) from None
        if self._launch.cwd is not None and not Path(self._launch.cwd).is_dir():
            raise UsageError(
                f"There is no folder {self._launch.cwd!r} for the kernel to work in",
                hint="Create it first, or leave cwd out",
            )
        return spec

    @property
    def display_name(self) -> str:
        return str(self._kernel_spec.display_name)

    @property
    def connection_file(self) -> str:
        return str(self._manager.connection_file)

    @property
    def interrupts_by_message(self) -> bool:
        return bool(self._kernel_spec.interrupt_mode == "message")

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
            self._kill_family(known)
            await asyncio.wait({self.exited}, timeout=_KILL)
        if not self.exited.done():
            raise KernelError(
                f"The kernel's process {self.pid or ''} is there {_KILL:g} s after SIGKILL",
                hint="See what it waits for, for example a network drive",
            )

    def _family(self) -> Family:
        return family(self.pid, self._folder.path) if self._folder else {}

    def _kill_family(self, known: Family) -> None:
        if self._folder:
            kill_family(self.pid, self._folder.path, known=known)

    async def close(self, *, grace: float = 0.0, leave: bool = False) -> None:
        """Wait for the process to end, end it, and remove all that it and we have left.

        Parameters
        ----------
        grace: seconds the process gets to end by itself.
        """
        try:
            if self._launched:
                known = self._family()
                await asyncio.wait({self.exited}, timeout=grace)
                await self.kill()
                self._kill_group()
                self.pid = None  # may be another process's by now
                self._kill_family(known)
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
        if self._folder:
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
        loop.add_reader(self._ear, self._listen)
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
        self._end(code, None)

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        process = self._popen
        assert process is not None
        try:
            # wait4 instead of Popen.poll, which throws the peak memory away.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            unit = 1 if sys.platform == "darwin" else 1024
            self._end(process.returncode, usage.ru_maxrss * unit)
        except ChildProcessError:  # somebody else has waited for all children
            self._end(None, None)

    def _end(self, code: int | None, memory: int | None) -> None:
        self._listen()
        name = _signal_name(-code) if code is not None and code < 0 else ""
        stack = ""
        if name in _FAULTS and self._folder:
            with contextlib.suppress(OSError):
                stack = (self._folder.path / "crash").read_text(errors="replace")[-_TAIL:]
        words = self._words.decode(errors="replace").strip().splitlines()
        if not self.exited.done():
            self.exited.set_result(
                Death(
                    exit_code=code if not name else None,
                    signal=name,
                    stderr="\n".join(words[-20:]),
                    stack=stack.strip(),
                    peak_memory=memory,
                )
            )

    def _listen(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            for _ in range(16):
                heard = os.read(self._ear, 65_536)
                if not heard:
                    asyncio.get_running_loop().remove_reader(self._ear)
                    return
                self._words = (self._words + heard)[-_TAIL:]

    def _release(self) -> None:
        loop = asyncio.get_running_loop()
        if self._watch is not None:
            self._watch.cancel()
        for descriptor in (self._ear, self._pidfd):
            if descriptor >= 0:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        self._ear = self._pidfd = -1
        if self._folder:
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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _is_local(metadata: Mapping[str, Any]) -> bool:
    provisioner = (metadata or {}).get("kernel_provisioner") or {}
    return str(provisioner.get("provisioner_name", _LOCAL)) == _LOCAL


def _ipykernel_arguments(argv: list[str]) -> list[str]:
    """Give settings that only ipykernel knows.

    No history file, at which kernels wait for one another, and no cache, which keeps every value
    that a cell has shown.
    """
    if not any(word in ("ipykernel", "ipykernel_launcher") for word in argv):
        return []
    return ["--HistoryManager.enabled=False", "--InteractiveShell.cache_size=0"]


_live: set[Process] = set()


def _register(process: Process) -> None:
    if not _live:
        atexit.register(_kill_all)
    _live.add(process)


def _kill_all() -> None:
    for process in list(_live):
        process.kill_now()
    _live.clear()


os.register_at_fork(after_in_child=_live.clear)
