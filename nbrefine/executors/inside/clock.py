"""The time that a case has: when it is over, the code is interrupted, and then ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from .peer import Gone

GRACE = 1.0
"""Seconds in which code that was interrupted has to answer."""

_AGAIN = 0.05


class Overdue(BaseException):
    """The time was over; not an `Exception`, so that few handlers of tests swallow it."""


class Clock:
    """Rings in this process when the time is over, again and again until it is stopped.

    The tests at work are ended by `Overdue`. While they wait for the code it is interrupted
    first, and where it gives no answer to that, it is ended: then `Gone` is raised.

    Parameters
    ----------
    tell: sends a message to the controller, which alone can signal the code's process.
    """

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self.waiting = False
        """Whether the other process is at work, and not this one."""
        self.over = False
        self.interrupts = 0
        """How many have been asked for since the process began."""
        self._tell = tell
        self._asked = 0.0
        self._running = False

    def start(self, seconds: float) -> None:
        """Begin a case."""
        self.over, self._asked, self._running = False, 0.0, True
        signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), _AGAIN)

    def start_grace(self) -> None:
        """Begin to wait for an answer to what was asked already."""
        self.start(GRACE)
        self._asked = time.monotonic()

    def stop(self) -> None:
        """End it."""
        self._running = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, signum: int, frame: object) -> None:
        if not self._running:
            return
        self.over = True
        if not self.waiting:
            raise Overdue
        now = time.monotonic()
        if not self._asked:
            self._asked = now
            self.interrupts += 1
            self._tell({"interrupt": True})
        elif now - self._asked >= GRACE * 0.9:
            self._running = False
            self._tell({"kill": True})
            raise Gone("the code gave way to no interrupt")
