"""Work that goes on while other cells run, and what waits for it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from nbrefine.magics.asking import Refusal
from nbrefine.magics.following import BEAT, cancelled_by_signal

if TYPE_CHECKING:
    from nbrefine.magics.work import Work
    from nbrefine.values import Episode


class Background:
    """Follows work on the loop of the kernel; `await` it for the episode.

    Who is interrupted while he awaits it waits no longer, and the agent works on.
    Made in the cell that asks for the work, below which all stays that comes of it.

    Parameters
    ----------
    conclude: called with the work once it has ended.
    """

    def __init__(self, work: Work, conclude: Callable[[Work], None]) -> None:
        self._work = work
        self._conclude = conclude
        self._task = asyncio.get_running_loop().create_task(
            self._follow(), context=contextvars.copy_context()
        )

    async def _follow(self) -> None:
        try:
            while not self._work.ended:
                await asyncio.sleep(BEAT)
                self._work.show()
        finally:
            self._conclude(self._work)

    def __await__(self) -> Generator[None, None, Episode]:
        return self._awaited().__await__()

    async def _awaited(self) -> Episode:
        with cancelled_by_signal():
            await asyncio.wait({self._task})
        if self._work.trouble or self._work.episode is None:
            raise Refusal(self._work.trouble or "nothing has begun")
        return self._work.episode

    def __repr__(self) -> str:
        return f"<{self._work.status}>"
