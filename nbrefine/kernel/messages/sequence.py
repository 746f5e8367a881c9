"""Notices messages that got lost on the way, by the numbers Jupyter sessions give them."""

from __future__ import annotations

from typing import Any


class Sequence:
    """Counts which numbers of one kernel did not arrive between a cell's busy and its idle.

    A session numbers all its messages, on whatever channel (`<session>_<pid>_<number>`, as
    jupyter_client writes them).  A single missing number tells nothing: ipykernel leaves one
    unused for each value that shows itself or fails to, and another client's reply has one.  A
    loss is a run of them, as ZeroMQ drops what does not fit into a queue until half of the queue
    has been read.
    """

    def __init__(self) -> None:
        self._prefix = ""
        self._next = self._last = -1
        self._early: list[int] = []  # a reply may overtake the busy that came before it
        self._gaps: list[list[int]] = []  # [first, end) of what did not come yet

    def count(self, message: dict[str, Any], *, ours: bool) -> None:
        """Take a message of any channel in.

        Parameters
        ----------
        ours: whether it belongs to the cell.
        """
        prefix, _, digits = str(message["header"].get("msg_id", "")).rpartition("_")
        if not digits.isdecimal():
            return
        number, state = int(digits), message["content"].get("execution_state")
        if self._next < 0:
            if not (ours and state == "busy"):
                self._early = [*self._early[-9:], number]
                return
            self._prefix, self._next = prefix, number
            for early in sorted({number, *self._early}):
                self._tick_off(early)
        elif prefix == self._prefix:
            self._tick_off(number)
        if ours and state == "idle":
            self._last = number

    def _tick_off(self, number: int) -> None:
        if number >= self._next:
            if number > self._next:
                self._gaps.append([self._next, number])
            self._next = number + 1
            return
        for place, (first, end) in enumerate(self._gaps):
            if first <= number < end:
                parts = [[first, number], [number + 1, end]]
                self._gaps[place : place + 1] = [part for part in parts if part[0] < part[1]]
                return

    @property
    def missing(self) -> int:
        """How many messages did not arrive, as far as the numbers tell."""
        last = self._next if self._last < 0 else self._last  # idle itself may be lost
        runs = (min(end, last) - first for first, end in self._gaps)
        return sum(run for run in runs if run > 1)
