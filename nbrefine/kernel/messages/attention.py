"""Whether a kernel has heard what it was asked on shell, and what wakes it where it has not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_FIRST = 1.0  # seconds until a kernel that has said nothing of a request is woken
_LONGEST = 60.0  # seconds between two wake-ups of one that is busy with somebody else's cell


class Attention:
    """Wakes a kernel that says nothing of a request, again and again, ever more seldom.

    An idle kernel that answers nothing may have overlooked the request (ipykernel #1554), and
    would wait for ever.  One that is busy is only asked something more, behind its cell.

    Parameters
    ----------
    wake: sends something that the kernel hears even so.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._unheard: set[str] = set()
        self._wait = _FIRST
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def asked(self, request: str) -> str:
        """Note that a request was sent, and give its id back."""
        if self._closed:
            return request
        if self._timer is not None and self._wait > _FIRST and not self._unheard:
            self._timer.cancel()  # it was to look after an earlier one, and that much later
            self._timer = None
        self._unheard.add(request)
        if self._timer is None:
            self._wait = _FIRST
            self._timer = self._loop.call_later(self._wait, self._look)
        return request

    def heard(self, request: str) -> None:
        """Note that the kernel has said something of a request, or that nobody waits for it."""
        self._unheard.discard(request)

    def close(self) -> None:
        """Wake nobody any more."""
        self._closed = True
        self._unheard.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if not self._unheard:
            return
        self._wake()
        self._wait = min(2 * self._wait, _LONGEST)
        self._timer = self._loop.call_later(self._wait, self._look)
