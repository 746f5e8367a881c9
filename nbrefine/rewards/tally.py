"""What is known of each test while they run, whatever happens to the process they run in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nbrefine.kernel.helper import Answer
from nbrefine.kernel.inside.cases import Plan
from nbrefine.outputs import Stream
from nbrefine.values import CaseResult, TestReport

PRINTED = 4_000
"""Characters kept of what the tests print."""


@dataclass(slots=True)
class Tally:
    """Collects results by case; a case in a loop has passed only when the loop is done.

    Parameters
    ----------
    plan: the cases and units.
    timeout: seconds that a unit is given.
    max_timeouts: how many units may run too long before the rest is left.
    """

    plan: Plan
    timeout: float
    max_timeouts: int
    unit: int = 0
    """The unit at work, or else the next."""
    problem: str = ""
    known: dict[int, CaseResult] = field(default_factory=dict)
    _begun: set[int] = field(default_factory=set)
    _since: float = field(default_factory=time.monotonic)
    _timeouts: int = 0
    _printed: str = ""

    def __post_init__(self) -> None:
        for index, case in enumerate(self.plan.cases):
            if case.unsupported:
                self._know(index, status="not-run", message=case.unsupported)

    @property
    def finished(self) -> bool:
        """Whether no unit is left that could tell anything new."""
        return len(self.known) == len(self.plan.cases) or self.unit >= len(self.plan.units)

    def hear(self, message: dict[str, Any]) -> None:
        """Take in what the kernel says of a case or of a unit's end as it happens."""
        if "begin" in message:
            self._begun.add(message["begin"])
        elif "unit" in message:
            self._settle(message["raised"])
        else:
            self._know(message.pop("case"), **message)

    def end(self, answer: Answer) -> None:
        """Take in how a call has ended that ran units, and settle the one it ended in."""
        result = answer.result
        for output in result.outputs:
            if isinstance(output, Stream):
                self._printed += output.text
        ending = self._ending(answer)
        hasty = result.status == "timeout" and time.monotonic() - self._since < self.timeout
        if ending is not None and (not hasty or result.death is not None):
            # Else the unit that took too long had ended just before its interrupt came, which
            # hit the next one; that is run again.
            self._settle(ending)
        if result.death is not None:
            self.stop(str(result.death))
        elif result.status == "interrupted":
            self.stop("the tests were interrupted")
        elif result.status == "timeout" and not hasty:
            self._timeouts += 1
            if self._timeouts >= self.max_timeouts and not self.finished:
                self.stop(f"{self._timeouts} tests ran too long")
        self._since = time.monotonic()

    def fail(self, message: str) -> None:
        """Note that no test can run, and why."""
        self._blame(range(len(self.plan.cases)), {"status": "error", "message": message})

    def stop(self, why: str) -> None:
        """Note that no more tests can run, by no fault of theirs."""
        left = [case for case in range(len(self.plan.cases)) if case not in self.known]
        rest = "1 test was" if len(left) == 1 else f"{len(left)} tests were"
        self.problem = f"{why}; {rest} not run" if left else why
        for case in left:
            self._know(case, status="not-run")

    def report(self, seconds: float) -> TestReport:
        """Give the report, with the cases in the order of the source."""
        more = len(self._printed) - PRINTED
        printed = self._printed[:PRINTED]
        return TestReport(
            tuple(self.known[case] for case in range(len(self.plan.cases))),
            problem=self.problem,
            output=printed + (f"… ({more:,} more characters)" if more > 0 else ""),
            seconds=seconds,
        )

    def _ending(self, answer: Answer) -> dict[str, Any] | None:
        """Tell how a unit ended that did not come to its end, as the fields of a result."""
        result = answer.result
        if result.status == "timeout":
            told = f"ran over {self.timeout:g} s"
            if result.death is not None:
                told += f" and gave way to no interrupt, so {result.death}"
            return {"status": "timeout", "message": told}
        if result.death is not None:
            return {"status": "error", "message": str(result.death)}
        if result.status == "interrupted":
            return {"status": "not-run", "message": "interrupted"}
        if answer.answered and not answer.raised:
            return None
        message = answer.raised or str(result.error or "the kernel gave no answer")
        return {"status": "error", "message": message}

    def _settle(self, ending: dict[str, Any] | None) -> None:
        """Settle the cases of the unit at work, and all others where nothing can follow it."""
        here = self.plan.of(self.unit) if self.unit < len(self.plan.units) else []
        if ending is not None:
            self._blame(here or range(len(self.plan.cases)), ending)
        for case in here:
            if case not in self.known:
                message = "" if case in self._begun else "never reached"
                self._know(case, status="passed", message=message)
        self.unit += 1
        self._since = time.monotonic()

    def _blame(self, cases: Sequence[int], ending: dict[str, Any]) -> None:
        """Put an ending on the cases that were at work, or else on the next one."""
        unknown = [case for case in cases if case not in self.known]
        at_work = [case for case in unknown if case in self._begun] or unknown[:1]
        for case in unknown:
            if case in at_work:
                self._know(case, **ending)
            else:
                self._know(case, status="not-run", message="what comes before it did not end")

    def _know(self, case: int, **fields: Any) -> None:
        planned = self.plan.cases[case]
        fields["expression"] = fields.get("expression") or planned.expression
        self.known[case] = CaseResult(name=planned.name, **fields)
