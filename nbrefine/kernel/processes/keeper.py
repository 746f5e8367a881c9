"""A keeper: the process from which all kernels of one session are forked, and their folder.

A session is a kernel with its restarts and branches.  The keeper adopts what their processes
leave behind, and ends all of it when its connection closes, also because the controller is gone.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nbrefine.kernel.processes.building import Handle, Unbuildable, build, gone
from nbrefine.kernel.processes.forking import Forked, Nursery
from nbrefine.kernel.processes.runtime import MARK, RuntimeFolder, kill_family
from nbrefine.kernel.processes.templates import fork_keeper

_END = 6.0  # seconds in which a keeper must have ended all beneath it


class Keeper:
    """The root of one session, counted by the kernels that came out of it.

    Parameters
    ----------
    nursery: what its kernels are forked from.
    folder: where their sockets are; removed at the end.
    process: the keeper's own, None where what is forked from belongs to somebody else.
    python: the interpreter, with its own options.
    ipykernel: its version there.
    """

    def __init__(
        self,
        nursery: Nursery,
        folder: RuntimeFolder,
        process: Handle | None,
        *,
        python: Sequence[str] = ("",),
        ipykernel: str = "",
    ) -> None:
        self.nursery = nursery
        self.python = tuple(python)
        self.ipykernel = ipykernel
        self.folder = folder.path
        """Where the session's sockets and files are; only this user can enter it."""
        self._nurseries = [nursery]
        self._runtime = folder
        self._process = process
        self._numbers = itertools.count(1)
        self._holders = 0
        self._closing: asyncio.Task[None] | None = None
        _live.add(self)
        _register()

    @classmethod
    async def start(
        cls,
        python: Sequence[str],
        environment: Mapping[str, str],
        *,
        cwd: str | None = None,
        preload: tuple[str, ...] | None = None,
    ) -> Keeper:
        """Start a keeper; whoever `acquire`s it first has it.

        Parameters
        ----------
        python: the interpreter, with its own options.
        environment: of all the session's kernels.
        cwd: their working folder; the controller's own by default.
        preload: None for an interpreter of its own; otherwise it is forked from the template of
            this process that has these packages imported.

        Raises
        ------
        Unbuildable: this interpreter cannot.
        KernelStartError: it did not come up.
        """
        folder = RuntimeFolder()
        try:
            if preload is None:
                built = await build(python, environment, role="keeper", cwd=cwd, folder=folder.path)
                return cls(
                    built.nursery,
                    folder,
                    built.process,
                    python=python,
                    ipykernel=built.ipykernel,
                )
            spawn = {
                "environ": dict(environment),
                "cwd": cwd or str(Path.cwd()),
                "folder": str(folder.path),
            }
            forked, version = await fork_keeper(tuple(python), environment, preload, spawn)
            return cls(
                Nursery(forked.line, forked.pid), folder, forked, python=python, ipykernel=version
            )
        except BaseException:
            folder.remove()
            raise

    @classmethod
    async def start_without_missing(
        cls,
        python: Sequence[str],
        environment: Mapping[str, str],
        *,
        cwd: str | None,
        preload: tuple[str, ...],
        on_missing: Callable[[str], object],
    ) -> Keeper:
        """Start a keeper with those of the packages imported that can be.

        Parameters
        ----------
        on_missing: told in a sentence of each package that cannot.
        """
        while True:
            try:
                return await cls.start(python, environment, cwd=cwd, preload=preload)
            except Unbuildable as error:
                if error.package not in preload:
                    raise
                on_missing(f"{error.message}; kernels start without it")
                preload = tuple(each for each in preload if each != error.package)

    @property
    def alive(self) -> bool:
        """Whether it can fork."""
        return self.nursery.open()

    def add(self, checkpoint: Nursery) -> None:
        """Note a checkpoint from which a branch of the session is about to be forked."""
        if checkpoint not in self._nurseries:
            self._nurseries.append(checkpoint)

    def nurseries(self) -> list[Nursery]:
        """Give what may be the parent of a process of the session: itself, and the checkpoints."""
        self._nurseries = [each for each in self._nurseries if not each.closed]
        return list(self._nurseries)

    def number(self) -> int:
        """Give the next kernel of the session its number."""
        return next(self._numbers)

    def mark(self, number: int) -> str:
        """Give what tells a kernel's descendants from those of the session's other kernels."""
        return f"{self.folder}/{number}"

    def variables(self, number: int) -> dict[str, str | None]:
        """Give what a kernel has in its environment beyond what the session has; None: not at all.

        What a controller has from its own server would make a kernel wait for the end of a parent
        that is the keeper's.
        """
        return {MARK: self.mark(number), "JPY_PARENT_PID": None, "JPY_INTERRUPT_EVENT": None}

    @property
    def ends_all(self) -> bool:
        """Whether the next release ends the session, with every process beneath it."""
        return self._holders == 1 and self._process is not None and self.alive

    def acquire(self) -> None:
        """Hold it for one more kernel."""
        self._holders += 1

    def release(self) -> None:
        """Let go of it; with the last holder the session ends, at the latest a moment later."""
        self._holders -= 1
        if self._holders <= 0:
            self._begin_end()

    async def close(self) -> None:
        """End the session, whoever holds it, and wait until nothing is left of it."""
        self._begin_end()
        await self.ended()

    def _begin_end(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())

    async def ended(self) -> None:
        """Wait until nothing is left of the session, if its end has begun."""
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.nursery.close()
        if self._process is not None:
            await gone(self._process, _END)
        if self.folder.exists():  # it did not come to remove it, and much may be in it
            await asyncio.to_thread(self._bury)
        else:
            self._bury()

    def kill_now(self) -> None:
        """End everything without a loop: the interpreter is about to exit."""
        self.nursery.close()
        self._bury()

    def _bury(self) -> None:
        if self not in _live:
            return
        _live.discard(self)
        process = self._process
        if process is not None:
            try:
                status = process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
            if isinstance(process, Forked):
                process.close()
            if status != 0:  # it did not come to the end of its work
                kill_family(None, self.folder)
        self._runtime.remove()


_live: set[Keeper] = set()
_registered = False


def _register() -> None:
    global _registered  # noqa: PLW0603 - exit handlers are one list a process
    if not _registered:
        _registered = True
        atexit.register(_kill_all)


def _kill_all() -> None:
    for keeper in list(_live):
        keeper.kill_now()


os.register_at_fork(after_in_child=_live.clear)
