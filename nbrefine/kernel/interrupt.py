"""The ladder that ends a cell: each rung is tried, recorded, and waited for."""

from __future__ import annotations

from nbrefine.errors import KernelError
from nbrefine.kernel.link import Link
from nbrefine.kernel.messages.execution import Execution

PATIENCE = 5.0
"""Seconds an interrupted cell gets to end before its kernel is killed."""

_POKE = 0.1  # seconds from the signal to the message: sooner, and it may be handled before it
_AGAIN = 0.4  # seconds until the next one, for a signal that came late all the same


async def climb(execution: Execution, link: Link) -> None:
    """Interrupt a cell until it has ended.

    SIGINT alone does not reach an idle `await` (ipykernel #881): its handler waits for the event
    loop to wake, which a message on shell does.  A second round is for code that catches the
    first.  Code that catches all, or is deep in C, is ended with its kernel.

    Raises
    ------
    KernelError: it reacted to nothing, and the kernel is not ours to kill.
    """
    for _ in range(2):
        execution.rungs.append("SIGINT")
        await link.interrupt()
        if await execution.ended(_POKE):
            return
        execution.rungs.append("shell poke")
        for seconds in (_AGAIN, PATIENCE / 2 - _AGAIN):
            link.poke()
            if await execution.ended(seconds):
                return
    if link.process is None:
        raise KernelError(
            f"The cell reacted to no interrupt within {PATIENCE:g} s, and the kernel belongs to "
            "somebody else",
            hint="Wait for it, or restart the kernel where it was started",
        )
    execution.rungs.append("SIGKILL")
    await link.process.kill()
    await execution.ended(None)
