"""What a forked kernel is asked and answers over its line, beside the Jupyter protocol."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

from nbrefine.errors import KernelDeadError, KernelError
from nbrefine.kernel.inside.branching import wire
from nbrefine.kernel.readable import readable

_LEAVE = 10.0  # seconds in which a kernel must have left its overlay


async def answer(line: socket.socket, name: str, limit: float) -> tuple[dict[str, Any], list[int]]:
    """Wait for a message and give its content and its descriptors; others are passed over.

    Parameters
    ----------
    limit: seconds to wait.

    Raises
    ------
    KernelDeadError: the kernel ended before.
    KernelError: nothing came in time.
    """
    deadline = time.monotonic() + limit
    while await readable(deadline - time.monotonic(), line.fileno()):
        with contextlib.suppress(BlockingIOError):
            message, fds = wire.receive(line)
            if message is None:
                raise KernelDeadError("The kernel ended before it had answered")
            if name in message:
                return message[name], fds
            wire.close(fds)
    raise KernelError(f"The kernel did not answer within {limit:g} s")


async def leave_overlay(line: socket.socket, settings: dict[str, Any]) -> list[dict[str, str]]:
    """Have a branch go on in its working folder itself, and give what still does not.

    Raises
    ------
    KernelError: it did not do so.
    """
    wire.send(line, {"op": "leave_overlay", "overlay": settings})
    told, _ = await answer(line, "left_overlay", _LEAVE)
    if why := told.get("failed"):
        raise KernelError(f"The branch did not leave its view of the working folder: {why}")
    hazards: list[dict[str, str]] = told["hazards"]
    return hazards


def tell_to_quit(line: socket.socket) -> None:
    """Tell a kernel to end in order: children, exit functions, and what was said last."""
    with contextlib.suppress(OSError):  # it has ended already
        wire.send(line, {"op": "quit"})


def tell_adopted(line: socket.socket) -> None:
    """Tell a branch that it is the session now, so that its garbage is collected again."""
    with contextlib.suppress(OSError):  # it has ended, which is noticed elsewhere
        wire.send(line, {"op": "adopted"})
