"""What is known of each test while they run, whatever happens to the process they run in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from nbrefine.kernel.helper import Answer
from nbrefine.kernel.inside.cases import Plan
from nbrefine.outputs import Display, Output, Stream
from nbrefine.values import CaseResult, TestReport

PRINTED = 100_000
"""Characters kept of what the tests put out."""


class Printed:
    """Collects what units put out as if they had been one cell.

    A kernel sends what a cell has written to stdout, then stderr, whenever an object is
    displayed and when the cell ends; so the record of the tests agrees with a run of their cell.
    """

    def __init__(self) -> None:
        self._shown: list[Output] = []
        self._written = {"stdout": "", "stderr": ""}
        self._room = PRINTED
        self._dropped = 0

    def add(self, outputs: Sequence[Output]) -> None:
        """Take in what one unit has put out; its errors are told by its cases."""
        for output in outputs:
            if isinstance(output, Stream):
                self._written[output.name] += self._fitting(output.text)
            elif isinstance(output, Display):
                size = sum(len(str(value)) for value in output.data.values())
                if size > self._room:
                    self._dropped += size
                    continue
                self._room -= size
                self._shown += [*self._streams(), output]
                self._written = {"stdout": "", "stderr": ""}

    def outputs(self) -> tuple[Output, ...]:
        """Give all of it, and last how much was left out."""
        told = [*self._shown, *self._streams()]
        if self._dropped:
            told.append(Stream("stderr", f"… ({self._dropped:,} more characters)\n"))
        return tuple(told)

    def _fitting(self, text: str) -> str:
        kept = text[: self._room]
        self._room -= len(kept)
        self._dropped += len(text) - len(kept)
        return kept

    def _streams(self) -> list[Output]:
        stdout, stderr = self._written["stdout"], self._written["stderr"]
        told: list[Output] = [Stream("stdout", stdout)] if stdout else []
        return [*told, Stream("stderr", stderr)] if stderr else told


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
    problem: str = ""
    over: bool = False
    """Whether nothing more is to be run."""
    candidate: str = ""
    """The function that `check` is for, as the session told it."""
    known: dict[int, CaseResult] = field(default_factory=dict)
    _begun: set[int] = field(default_factory=set)
    _timeouts: int = 0
    _printed: Printed = field(default_factory=Printed)

    def __post_init__(self) -> None:
        for index, case in enumerate(self.plan.cases):
            if case.unsupported:
                self._know(index, status="not-run", message=case.unsupported)

    def hear(self, message: dict[str, Any]) -> None:
        """Take in what the kernel says of a case as it happens."""
        if "begin" in message:
            self._begun.add(message["begin"])
        else:
            self._know(message.pop("case"), **message)

    def settle(self, unit: int, answer: Answer) -> None:
        """Settle the cases of a unit that has ended, and all others if nothing can follow it."""
        result = answer.result
        self._printed.add(result.outputs)
        here = self.plan.of(unit)
        ending = self._ending(answer)
        if ending is not None and here:
            self._blame(here, ending)
        elif ending is not None:  # all else builds on it
            if len(self.known) == len(self.plan.cases):
                self.problem = f"what follows the last test ended with {ending['message']}"
            self._blame(range(len(self.plan.cases)), ending)
            self.over = True
        for case in here:
            if case not in self.known:
                message = "" if case in self._begun else "never reached"
                self._know(case, status="passed", message=message)
        self._timeouts += result.status == "timeout"
        if result.death is not None:
            self.stop(str(result.death))
        elif "SIGKILL" in result.rungs:
            self.stop("the kernel gave way to no interrupt and was killed")
        elif result.status == "interrupted":
            self.stop("the tests were interrupted")
        elif self._timeouts >= self.max_timeouts and len(self.known) < len(self.plan.cases):
            self.stop(f"{self._timeouts} tests ran too long")

    def fail(self, message: str) -> None:
        """Note that no test can run, and why."""
        self._blame(range(len(self.plan.cases)), {"status": "error", "message": message})
        self.over = True

    def stop(self, why: str) -> None:
        """Note that no more tests can run, by no fault of theirs."""
        left = [case for case in range(len(self.plan.cases)) if case not in self.known]
        rest = "1 test was" if len(left) == 1 else f"{len(left)} tests were"
        self.problem = f"{why}; {rest} not run" if left else why
        self.over = True
        for case in left:
            self._know(case, status="not-run")

    def report(self, seconds: float) -> TestReport:
        """Give the report, with the cases in the order of the source."""
        return TestReport(
            tuple(self.known[case] for case in range(len(self.plan.cases))),
            problem=self.problem,
            outputs=self._printed.outputs(),
            entry_point=self.candidate,
            seconds=seconds,
        )

    def _ending(self, answer: Answer) -> dict[str, Any] | None:
        """Tell how a unit ended that did not come to its end, as the fields of a result."""
        result = answer.result
        if result.status == "timeout":
            return {"status": "timeout", "message": f"ran over {self.timeout:g} s"}
        if result.death is not None:
            return {"status": "error", "message": str(result.death)}
        if result.status == "interrupted":
            return {"status": "not-run", "message": "interrupted"}
        if answer.answered and not answer.raised:
            raised: dict[str, Any] | None = answer.value["raised"]
            return raised
        message = answer.raised or str(result.error or "the kernel gave no answer")
        return {"status": "error", "message": message}

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
