"""A kernel's process: forked from a keeper where that is possible, so that it can branch."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Protocol

from nbrefine.errors import KernelStartError, UsageError
from nbrefine.kernel.processes.building import Unbuildable
from nbrefine.kernel.processes.environment import kernel_environment
from nbrefine.kernel.processes.evidence import record, recorded
from nbrefine.kernel.processes.forked import Branch, Fresh
from nbrefine.kernel.processes.forking import Unattachable
from nbrefine.kernel.processes.keeper import Keeper
from nbrefine.kernel.processes.launch import (
    QUIET,
    Launch,
    PythonCommand,
    Unforkable,
    find_spec,
    preloads,
    python_command,
    spec_environment,
)
from nbrefine.kernel.processes.provisioned import Provisioned
from nbrefine.outputs import Death

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec

__all__ = ["Branch", "KernelProcess", "Launch", "start_process"]


class KernelProcess(Protocol):
    """One run of a kernel's process, as the link to the kernel sees it."""

    pid: int | None
    exited: asyncio.Future[Death]
    """Done as soon as the process has ended."""
    connection: dict[str, Any]
    """What its connection file says."""
    nonce: str
    """Marks what the kernel says to us alone; "" where it has yet to be prepared for that."""
    introduction: dict[str, Any] | None
    """What it says about itself; None where it has yet to be asked."""
    unbranchable: str
    """Why it cannot branch; "" where it can."""

    @property
    def keeper(self) -> Keeper | None:
        """The session it belongs to, where it can branch."""

    @property
    def line(self) -> socket.socket | None:
        """Our end of its line, where it can branch."""

    @property
    def connection_file(self) -> str:
        """What other clients connect with."""

    @property
    def display_name(self) -> str: ...

    @property
    def interrupts_by_message(self) -> bool: ...

    async def interrupt(self) -> None:
        """Send SIGINT to the process group."""

    async def kill(self) -> None:
        """End the process and its descendants at once."""

    async def close(self, *, grace: float = 0.0, leave: bool = False) -> None:
        """Wait for the process to end, end it, and remove all that it and we have left.

        Parameters
        ----------
        grace: seconds the process gets to end by itself.
        leave: end this process only, since a branch has taken its place.
        """


async def start_process(
    launch: Launch, limit: float, keeper: Keeper | None = None
) -> KernelProcess:
    """Start a kernel's process; it may not answer yet.

    Parameters
    ----------
    limit: seconds in which it must have come up, where that can be told.
    keeper: of the session's earlier kernel; a new one is started where that has ended.

    Raises
    ------
    UsageError: no such kernelspec, working folder, seed, or package to import beforehand.
    KernelStartError: the command could not be started.
    """
    spec = find_spec(launch)
    try:
        command = python_command(launch, spec)
        return await _fork(launch, spec, command, limit, keeper)
    except Unforkable as error:
        process = Provisioned(launch, spec, unbranchable=str(error))
    try:
        await process.start()
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(process.close()))
        raise
    return process


async def _fork(
    launch: Launch, spec: KernelSpec, command: PythonCommand, limit: float, keeper: Keeper | None
) -> Fresh:
    if keeper is None or not keeper.alive:
        keeper = await _new_keeper(launch, spec, command)
    try:
        return await Fresh.start(
            keeper,
            launch,
            display_name=spec.display_name,
            arguments=(*QUIET, *command.arguments, *launch.arguments),
            limit=limit,
        )
    except Unattachable as error:
        wrong = f"a fork of ipykernel {keeper.ipykernel} could not be set up: {error.reason}"
        if error.unsuitable:
            record(keeper, wrong, lasting=False)
        raise Unforkable(wrong) from error


async def _new_keeper(launch: Launch, spec: KernelSpec, command: PythonCommand) -> Keeper:
    environment = spec_environment(spec, kernel_environment(launch.env, seed=launch.seed))
    by_default = preloads(spec)
    try:
        if launch.preload is None and by_default is not None:
            keeper = await Keeper.start_without_missing(
                command.python,
                environment,
                cwd=launch.cwd,
                preload=by_default,
                on_missing=lambda _: None,
            )
        else:
            keeper = await Keeper.start(
                command.python, environment, cwd=launch.cwd, preload=launch.preload
            )
    except KernelStartError as error:
        if isinstance(error, Unbuildable) and error.package:
            raise UsageError(error.message, hint="Install it there, or leave it out") from error
        raise Unforkable(str(error)) from error
    if wrong := recorded(keeper):
        await keeper.close()
        raise Unforkable(wrong)
    return keeper
