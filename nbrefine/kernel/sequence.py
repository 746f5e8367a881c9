"""Notices messages that got lost on the way, by the numbers Jupyter sessions give them."""

from __future__ import annotations

from typing import Any


class Sequence:
    """Counts what arrives of one kernel between a cell's busy and its idle.

    A session numbers all its messages, on whatever channel (`<session>_<pid>_<number>`, as
    jupyter_client writes them).  ZeroMQ drops output silently where a reader falls behind.
    """

    def __init__(self) -> None:
        self._prefix = ""
        self._first = self._last = -1
        self._early: list[int] = []  # a reply may overtake the busy that came before it
        self._arrived = 0
        self._elsewhere = 0

    def count(self, message: dict[str, Any], *, ours: bool) -> None:
        """Take a message of any channel in.

        Parameters
        ----------
        ours: whether it belongs to this client; another one's idle tells of a reply that only
            the other one gets.
        """
        prefix, _, digits = str(message["header"].get("msg_id", "")).rpartition("_")
        if not digits.isdigit():
            return
        number, state = int(digits), message["content"].get("execution_state")
        if self._first < 0:
            if not (ours and state == "busy"):
                self._early = [*self._early[-9:], number]
                return
            self._prefix, self._first = prefix, number
            self._arrived = sum(early > number for early in self._early)
        if prefix != self._prefix or number < self._first or 0 <= self._last < number:
            return
        self._arrived += 1
        if state == "idle" and ours:
            self._last = number
        elif state == "idle":
            self._elsewhere += 1

    @property
    def missing(self) -> int:
        """How many messages did not arrive, as far as the numbers tell."""
        if self._first < 0 or self._last < 0:
            return 0
        return max(0, self._last - self._first + 1 - self._arrived - self._elsewhere)
