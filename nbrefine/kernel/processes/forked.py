"""A kernel's process that was forked: afresh from a keeper, or as a branch from a checkpoint."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from nbrefine.errors import KernelError, KernelStartError
from nbrefine.kernel.inside.branching import wire
from nbrefine.kernel.processes.forking import Forked, Nursery, forked_pids, nurseries
from nbrefine.kernel.processes.keeper import Keeper
from nbrefine.kernel.processes.launch import Launch
from nbrefine.kernel.processes.lifetime import Lifetime
from nbrefine.kernel.processes.runtime import Family, brood, kill

_FORK = 2.0  # seconds in which a nursery that works has forked
_KILL = 10.0  # seconds in which SIGKILL must have worked
_ROUNDS = 5  # in which a kernel's descendants have stopped making more
_CHANNELS = 5  # sockets of a kernel


class ForkedKernel(Lifetime):
    """One kernel of a session, until its process has ended and nothing is left of it.

    Parameters
    ----------
    keeper: the session; it is held until the kernel is closed.
    nursery: what the kernel is forked from.
    """

    unbranchable = ""
    interrupts_by_message = False

    def __init__(self, keeper: Keeper, nursery: Nursery, *, name: str, display_name: str) -> None:
        super().__init__()
        number = keeper.number()
        self.keeper = keeper
        self.display_name = display_name
        self.nonce = uuid4().hex
        """Marks what the kernel says to its controller alone."""
        self.introduction: dict[str, Any] | None = None
        """What it would reply to `kernel_info_request`; {} for a branch, whose origin has told."""
        self.shared: tuple[dict[str, Any], ...] = ()
        """Hazards: open files by which it reaches its working folder itself, not its view of it."""
        self.connection: dict[str, Any] = {
            "transport": "ipc",
            "ip": str(keeper.folder / f"k{number}"),
            **{
                f"{channel}_port": port
                for port, channel in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)
            },
            "key": uuid4().hex,
            "signature_scheme": "hmac-sha256",
            "kernel_name": name,
        }
        self.connection_file = str(keeper.folder / f"kernel-{number}.json")
        self._crash = keeper.folder / f"crash-{number}"
        self._number = number
        self._nursery = nursery
        self._forked: Forked | None = None
        self.direct: socket.socket | None = None
        """Our end of its only connection, where it has no sockets, until a reader takes it."""
        self._watch: asyncio.Task[None] | None = None
        self._released = False
        keeper.acquire()

    @property
    def line(self) -> socket.socket | None:
        """Our end of the kernel's line; what it says once it is ready is the reader's."""
        return self._forked.line if self._forked else None

    async def _come_up(self, limit: float, settings: Mapping[str, Any]) -> None:
        """Fork it and wait until its sockets are there; otherwise nothing is left of it."""
        try:
            await self._fork(settings)
            assert self._forked is not None
            ready = await self._forked.ready(limit)
            self.introduction = ready["introduction"]
            self.shared = tuple(ready["shared"])
        except BaseException as error:
            self._hear()
            words = self._last_words()
            await asyncio.shield(asyncio.ensure_future(self.close()))
            if isinstance(error, KernelStartError) and words:
                error.hint = f"It wrote last:\n{words}"
            raise

    async def _fork(self, settings: Mapping[str, Any]) -> None:
        spawn = {
            "connection": self.connection,
            "connection_file": self.connection_file,
            "environ": None,
            "variables": self.keeper.variables(self._number),
            "cwd": None,
            "nonce": self.nonce,
            "crash": str(self._crash),
            **settings,
        }
        forking = asyncio.ensure_future(self._ask(spawn))
        try:
            done, _ = await asyncio.wait({forking}, timeout=_FORK)
            if not done and not await self._nursery.answers(_FORK) and not forking.done():
                forking.cancel()
                await asyncio.wait({forking})
                raise KernelStartError("The process to fork from does not react")
            await asyncio.shield(forking)
        except asyncio.CancelledError:
            # It is forked all the same, and what it leaves can be removed only when it has ended.
            await asyncio.wait({forking}, timeout=_FORK)
            forking.cancel()
            raise

    async def _ask(self, spawn: dict[str, Any]) -> None:
        mouth = self._listen()
        nothing = os.open(os.devnull, os.O_RDWR)
        source = nothing
        if spawn.get("direct"):
            self.direct, far = wire.pair()
            source = far.detach()
        try:
            self._forked = await self._nursery.fork(
                "kernel", spawn, (source, nothing, mouth), heirs=self._heirs()
            )
        finally:
            wire.close(sorted({source, nothing, mouth}))
        self.pid = self._forked.pid
        self._watch = asyncio.ensure_future(self._attend(self._forked))

    def _heirs(self) -> tuple[Nursery, ...]:
        """Give the other nurseries of the session: the next one above adopts it."""
        return tuple(each for each in self.keeper.nurseries() if each is not self._nursery)

    async def _attend(self, forked: Forked) -> None:
        await forked.ended()
        told = forked.exit
        status = told.status if told else None
        self._end(status, told.peak_memory if told else None, self._crash)

    async def interrupt(self) -> None:
        """Send SIGINT to the process group."""
        if self._forked is not None:
            self._forked.send_group_signal(signal.SIGINT)

    async def kill(self) -> None:
        """End the process and its descendants at once.

        Raises
        ------
        KernelError: it is there all the same, as a process that waits for a disk may be.
        """
        await self._kill(self._brood())

    async def _kill(self, known: Family) -> None:
        forked = self._forked
        if forked is None or self.exited.done():
            return
        forked.send_group_signal(signal.SIGKILL)
        forked.kill()
        kill(known)
        await self._gone()

    async def _gone(self) -> None:
        await asyncio.wait({self.exited}, timeout=_KILL)
        if not self.exited.done():
            raise KernelError(
                f"The kernel's process {self.pid} is there {_KILL:g} s after SIGKILL",
                hint="See what it waits for, for example a network drive",
            )

    def _brood(self) -> Family:
        if self._forked is None:
            return {}
        pid = 0 if self.exited.done() else self._forked.pid
        reapers = {each.pid for each in nurseries}
        return brood(
            pid, self.keeper.mark(self._number), others=forked_pids | reapers, reapers=reapers
        )

    async def close(self, *, grace: float = 0.0, leave: bool = False) -> None:
        """Wait for the process to end, end it, and remove all that it and we have left.

        Parameters
        ----------
        grace: seconds the process gets to end by itself.
        leave: end this process only; what its cells have started stays until the session ends.
        """
        try:
            if self._forked is not None and leave:
                self._forked.kill()
                await self._gone()
            elif self._forked is not None:
                known = {} if self.keeper.ends_all else self._brood()
                if grace and not self.exited.done():
                    await asyncio.wait({self.exited}, timeout=grace)
                await self._kill(known)
                kill(known)
                for _ in range(_ROUNDS):
                    if self.keeper.ends_all or not kill(self._brood()):
                        break
        finally:
            await self._release()

    async def part(self) -> None:
        """Let go of a process that lives on as a nursery, and of the session for it."""
        await self._release()

    async def _release(self) -> None:
        if self._released:
            return
        self._released = True
        if self._watch is not None:
            self._watch.cancel()
        if self._forked is not None:
            self._forked.close()
        self._stop_listening()
        files = [self._crash]
        if self.direct is not None:
            self.direct.close()
        else:
            folder = self.connection["ip"]
            files += [Path(f"{folder}-{port}") for port in range(1, _CHANNELS + 1)]
            files.append(Path(self.connection_file))
        for each in files:
            with contextlib.suppress(OSError):
                each.unlink()
        self.keeper.release()
        await self.keeper.ended()


class Fresh(ForkedKernel):
    """A kernel with an empty namespace, forked from its session's keeper."""

    @classmethod
    async def start(
        cls,
        keeper: Keeper,
        launch: Launch,
        *,
        display_name: str,
        arguments: tuple[str, ...],
        limit: float,
    ) -> Fresh:
        """Fork a kernel and wait until its sockets are there.

        Parameters
        ----------
        arguments: of ipykernel.
        limit: seconds until it must be ready.

        Raises
        ------
        KernelStartError: it could not be forked, or ended; its last words are quoted.
        """
        kernel = cls(keeper, keeper.nursery, name=launch.name, display_name=display_name)
        settings = {"arguments": list(arguments), "overlay": None, "reseed": True}
        await kernel._come_up(limit, settings)
        return kernel


class Branch(ForkedKernel):
    """A kernel with the state that a checkpoint of another one has kept."""

    @classmethod
    async def start(
        cls,
        keeper: Keeper,
        checkpoint: Nursery,
        launch: Launch | None,
        *,
        overlay: Mapping[str, Any] | None = None,
        direct: bool = False,
        limit: float = 30.0,
    ) -> Branch:
        """Fork a branch and wait until its sockets are there.

        Parameters
        ----------
        keeper: the session's.
        launch: how the first kernel of the session was started; None if not by us.
        overlay: what it sees instead of its working folder.
        direct: have it speak over one socket with us, and to nobody else.
        limit: seconds until it must be ready.

        Raises
        ------
        KernelStartError: it could not be forked, or ended; its last words are quoted.
        """
        keeper.add(checkpoint)
        name = launch.name if launch else ""
        branch = cls(keeper, checkpoint, name=name, display_name=name)
        settings = {"arguments": (), "overlay": overlay, "reseed": False, "direct": direct}
        if direct:
            branch.unbranchable, branch.connection_file = "it was branched for one run", ""
        await branch._come_up(limit, settings)
        return branch
