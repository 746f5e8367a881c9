"""Branches of kernels that somebody else has started, and what is accepted there.

Such a kernel cannot be replaced by a branch: its server would start it anew, empty.  It can be
copied all the same, from inside a cell, and a cell that proved itself in a branch then runs once
in the kernel itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import platform
import socket
import sys
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from nbrefine.errors import BranchRefused, KernelError
from nbrefine.kernel.core import Core
from nbrefine.kernel.helper import ask, install_here
from nbrefine.kernel.inside.branching import wire
from nbrefine.kernel.inside.checkpoint import load
from nbrefine.kernel.lineage import Lineage
from nbrefine.kernel.link import Link
from nbrefine.kernel.messages.collect import OutputLimits
from nbrefine.kernel.messages.execution import Execution
from nbrefine.kernel.processes.forking import Nursery
from nbrefine.kernel.processes.keeper import Keeper
from nbrefine.kernel.processes.runtime import RuntimeFolder
from nbrefine.outputs import Death, Hazard
from nbrefine.values import KernelInfo

Post = Callable[[Callable[[], None]], object]
"""Has the main thread call a function, soon and once."""

Tell = Callable[[str, dict[str, Any]], object]
"""Takes kind and content of a message."""


class Host(Protocol):
    """The main thread of this process while a cell awaits: it runs other cells meanwhile.

    Every method may be called from any thread, and returns at once.
    """

    def post(self, job: Callable[[], None]) -> None:
        """Have the main thread call a function, soon and once."""
        ...

    def run(self, source: str, tell: Tell) -> None:
        """Run a cell, which enters no history.

        Parameters
        ----------
        tell: called with what the cell shows, which nobody else sees, and at last with
            "execute_reply"; in any thread.
        """
        ...

    def interrupt(self) -> None:
        """Interrupt the cell that `run` has begun."""
        ...


_FOLDER = str(Path(__file__).parent / "inside" / "branching")
_FORK = 10.0  # seconds in which a kernel must have made a copy of itself


async def checkpoint(core: Core) -> tuple[Nursery, Keeper, tuple[Hazard, ...]]:
    """Have a dormant copy forked of a kernel that is not ours.

    Gives the way to it, what the processes of its branches belong to, and what the copy does not
    simply take along.

    Raises
    ------
    BranchRefused: a copy would not be true or safe, or this kernel cannot be copied.
    KernelError: it did not come back from its fork.
    """
    if core.info.language != "python":
        detail = f"only Python kernels can be copied, and it speaks {core.info.language}"
        raise refusal((Hazard("kernel", "refuse", detail),))
    if sys.platform != "linux":
        raise refusal((Hazard("kernel", "refuse", "only Linux can copy a running kernel"),))
    folder = RuntimeFolder()
    with contextlib.ExitStack() as undo:
        undo.callback(folder.remove)
        if isinstance(core.link, Here):
            connection, told = await core.link.checkpoint(folder.path)
        else:
            connection, told = await _call(core, folder.path)
        hazards = tuple(Hazard(**each) for each in told["hazards"])
        if connection is None:
            raise refusal(hazards)
        undo.pop_all()
    core.lineage.folder = Path(told["cwd"]) if told["cwd"] else None
    nursery = Nursery(connection, told["pid"])
    return nursery, Keeper(nursery, folder, None), hazards


def refusal(hazards: tuple[Hazard, ...]) -> BranchRefused:
    """Make the error that says why there is no copy."""
    reasons = [hazard.detail for hazard in hazards if hazard.verdict == "refuse"]
    return BranchRefused(
        f"The kernel cannot be branched: {'; '.join(reasons)}",
        hint="End what is named there, or run the cell in the kernel itself",
        hazards=hazards,
    )


async def _call(core: Core, folder: Path) -> tuple[socket.socket | None, dict[str, Any]]:
    """Have a helper cell in the kernel do it, and take the way to the copy from our socket."""
    address = str(folder / "c")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(1)
        listener.setblocking(False)
        told: dict[str, Any] = await ask(
            core, "checkpoint", "take", _FOLDER, address, str(folder), timeout=_FORK
        )
        if told["status"] != "ok":
            return None, told
        dialled, _ = listener.accept()  # it has been dialled before the answer
        with dialled:
            _, fds = wire.receive(dialled)
        return socket.socket(fileno=fds[0]), told


class Here(Link):
    """The kernel that this very process is: its own main thread copies it.

    A request to its shell would wait for the cell that asks.  So cells run on the main thread
    while that cell awaits; where it blocks, they are refused.

    Parameters
    ----------
    post: has the main thread, which runs a cell or its event loop, call a function.
    host: runs cells; None where the cell blocks.
    """

    def __init__(self, post: Post, host: Host | None = None) -> None:
        self.process = None
        self.died: asyncio.Future[Death] = asyncio.get_running_loop().create_future()
        self.info = KernelInfo(
            language="python",
            language_version=sys.version.split()[0],
            implementation="ipython",
            pid=os.getpid(),
            owned=False,
            platform=platform.platform(),
        )
        self._post = post
        self._host = host
        self._execution: Execution | None = None

    async def checkpoint(self, folder: Path) -> tuple[socket.socket | None, dict[str, Any]]:
        """Have this process forked, and give the way to the copy, and what there is to tell.

        Parameters
        ----------
        folder: what the copy removes at its end.
        """
        near, far = wire.pair()
        _inherited.add(near)
        answer: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()

        def fork() -> None:
            try:
                install_here()
                answer.set_result(load(_FOLDER, "incell").checkpoint(far, folder=str(folder)))
            except BaseException as error:  # noqa: BLE001 - it is the portal's to handle
                answer.set_exception(error)

        self._post(fork)
        try:
            told = await asyncio.wrap_future(answer)
        except BaseException:
            near.close()
            raise
        if told["status"] != "ok":
            near.close()
            return None, told
        return near, told

    def execute(self, execution: Execution, *, store_history: bool) -> None:
        """Have the main thread run a cell.

        Raises
        ------
        KernelError: it waits for the cell that asks.
        """
        if self._host is None:
            raise KernelError(
                "This kernel runs the cell that asks for another one", hint="Run it in a branch"
            )
        self._execution = execution
        loop = asyncio.get_running_loop()
        execution.on_iopub(_message("status", {"execution_state": "busy"}))
        self._host.run(
            execution.source,
            lambda kind, content: loop.call_soon_threadsafe(_hear, execution, kind, content),
        )

    @property
    def occupied(self) -> bool:
        return self._execution is not None and not self._execution.done

    def poke(self) -> None:
        """Do nothing: an interrupt wakes the loop by itself."""

    async def interrupt(self) -> None:
        """Interrupt the cell that runs for us."""
        assert self._host is not None
        self._host.interrupt()

    async def close(self, *, grace: float = 0.0, leave: bool = False) -> None:
        """Do nothing: there is no connection."""


def _hear(execution: Execution, kind: str, content: dict[str, Any]) -> None:
    """Take in what the host tells of a cell, as if it had come as messages."""
    if kind == "execute_reply":
        execution.on_reply(_message(kind, content))
        execution.on_iopub(_message("status", {"execution_state": "idle"}))
    else:
        execution.on_iopub(_message(kind, content))


def _message(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    date = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {"msg_type": kind, "content": content, "header": {"date": date}}


async def here(
    post: Post,
    limits: OutputLimits = OutputLimits(),  # noqa: B008 - frozen
    *,
    host: Host | None = None,
) -> Core:
    """Give the kernel that this process is, to be branched from within a cell of its own.

    Parameters
    ----------
    post: has the main thread call a function.  In a cell that awaits, it is the running loop's
        `call_soon_threadsafe`, in the context of the cell.
    limits: how much of the output of its branches is kept.
    host: runs cells in it, in a cell that awaits; without one, only its branches do.
    """
    core = Core(None, limits)
    core.link = Here(post, host)
    core.lineage = Lineage(mode="auto")
    core.epoch = 1
    return core


_inherited: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close our end in a copy, which would keep itself alive by it."""
    for each in list(_inherited):
        each.close()
    _inherited.clear()


os.register_at_fork(after_in_child=_close_in_child)
