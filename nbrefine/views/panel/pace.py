"""How often to draw anew what takes a while to draw, so that drawing slows nothing down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

REST = 30
"""How many times as long as it took to draw nothing is drawn after it: a share of 3 %."""

LONGEST = 3.0
"""Seconds after which it is drawn in any case."""


class Pace:
    """Says when to draw; the more a drawing takes, the longer it says no after it."""

    def __init__(self) -> None:
        self._next = 0.0
        self._first = True

    @property
    def due(self) -> bool:
        """Whether it may be drawn."""
        return time.monotonic() >= self._next

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Take the time of a drawing."""
        begun = time.thread_time()
        try:
            yield
        finally:
            taken = time.thread_time() - begun
            if not self._first:  # which has loaded what draws
                self._next = time.monotonic() + min(REST * taken, LONGEST)
            self._first = False
