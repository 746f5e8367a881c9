"""What is known of each test while they run, told as soon as the unit it stands in has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbrefine.kernel.inside import cases

MAX_TIMEOUTS = 3
"""After so many cases that ran too long the others are not run."""


class Results:
    """What is known of each case; told as soon as the unit it stands in has ended."""

    def __init__(
        self,
        planned: list[cases.Case],
        tell: Callable[[dict[str, Any]], None],
        max_timeouts: int = MAX_TIMEOUTS,
    ) -> None:
        self.over = False
        """Whether nothing more is to be run."""
        self._planned = planned
        self._tell = tell
        self._known: dict[int, dict[str, Any]] = {}
        self._begun: set[int] = set()
        self._timeouts = 0
        self._max_timeouts = max_timeouts
        for index, case in enumerate(planned):
            if case.unsupported:
                self._know(index, {"status": "not-run", "message": case.unsupported})
        self._told: set[int] = set()

    def hear(self, message: dict[str, Any]) -> None:
        """Take in what the recorder says of a case."""
        if "begin" in message:
            self._begun.add(message["begin"])
        else:
            fields = dict(message)
            self._know(fields.pop("case"), fields)

    def settle(self, here: list[int], ending: dict[str, Any] | None, seconds: float = 0.0) -> None:
        """Settle the cases of a unit; without cases, all others build on it."""
        if ending is not None:
            concerned = here or list(range(len(self._planned)))
            self._blame(concerned, ending)
            self.over = self.over or not here
            self._timeouts += ending["status"] == "timeout"
        for case in here:
            if case not in self._known:
                message = "" if case in self._begun else "never reached"
                self._know(case, {"status": "passed", "message": message})
        for case in here:
            self._known[case].setdefault("seconds", seconds)
        self._tell_known()
        if self._timeouts >= self._max_timeouts:
            self.leave(f"{self._timeouts} test{'s' * (self._timeouts > 1)} ran too long")

    def leave(self, why: str) -> None:
        """Leave the cases that have not been run."""
        self.over = True
        for case in range(len(self._planned)):
            if case not in self._known:
                self._know(case, {"status": "not-run", "message": why})
        self._tell_known()

    def _blame(self, concerned: list[int], ending: dict[str, Any]) -> None:
        """Put an ending on the cases that were at work, or else on the next one."""
        unknown = [case for case in concerned if case not in self._known]
        at_work = [case for case in unknown if case in self._begun] or unknown[:1]
        for case in unknown:
            left = {"status": "not-run", "message": "what comes before it did not end"}
            self._know(case, ending if case in at_work else left)

    def _know(self, case: int, fields: dict[str, Any]) -> None:
        self._known[case] = dict(fields)

    def _tell_known(self) -> None:
        for case in sorted(self._known.keys() - self._told):
            self._told.add(case)
            empty = {"expression": "", "got": "", "expected": "", "message": "", "seconds": 0.0}
            fields = {**empty, **self._known[case]}
            fields["expression"] = fields["expression"] or self._planned[case].expression
            self._tell({"case": case, **fields})
