"""The cell that waits for work: it shows how that goes, and passes an interrupt on."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbrefine.magics.work import Work

BEAT = 0.1
"""Seconds between two looks at the work."""

SOON = 0.02
"""Seconds between two looks at work that is about to end."""

PATIENCE = 15.0
"""Seconds that work which was stopped gets to close its record and its kernel."""


async def followed(work: Work) -> bool:
    """Show how the work goes until it has ended, and tell whether a person interrupted it."""
    loop = asyncio.get_running_loop()
    deadline = math.inf
    while not work.ended and loop.time() < deadline:
        try:
            await asyncio.sleep(SOON if work.run.stopping else BEAT)
            work.show()
        except asyncio.CancelledError:
            if deadline < math.inf:
                raise  # asked a second time
            deadline = loop.time() + PATIENCE
            work.run.stop()
    return deadline < math.inf


async def gone(work: Work) -> None:
    """Wait until all that was taken for work that has ended is let go of."""
    while not work.gone:  # noqa: ASYNC110 - it ends on another loop
        await asyncio.sleep(SOON)


@contextlib.contextmanager
def cancelled_by_signal() -> Iterator[None]:
    """Have an interrupt cancel the cell at once.

    ipykernel's own handler asks a loop for it that it does not wake, and plain IPython's would
    leave the work behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    before = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(task.cancel))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
