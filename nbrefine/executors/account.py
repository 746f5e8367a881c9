"""What the tester of a check reports, message by message, and the result that this makes."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace
from typing import Any

from nbrefine.executors.base import CodeExecutionResult
from nbrefine.values import CaseResult, TestReport, Verdict

ENDED = "the code's process ended"
"""How a reader is told that the candidate's process is gone; how it went is added to it."""

_TOLD = (ENDED, "the connection has ended")  # how the tester tells it

_NOT_RUN = "the code did not run to its end"


@dataclass(slots=True)
class Account:
    """All that is known of one check so far."""

    cases: list[CaseResult] = field(default_factory=list)
    problem: str = ""
    """Why there are no tests to run."""
    planned: bool = False
    """Whether it is known which tests there are."""
    code: str | None = None
    """How running the code itself went: ok, error, timeout, exited, died; None: not yet known."""
    trouble: str = ""
    """Why the code did not run to its end."""
    seconds: dict[str, float] = field(default_factory=dict)
    done: bool = False
    """Whether the tester has told all."""
    broken: bool = False
    """Whether the process of the tests broke down under what the code gave it."""

    def take(self, message: dict[str, Any]) -> None:
        """Take one message of the tester in."""
        if "done" in message:
            self.done = True
        elif "problem" in message:
            self.planned, self.problem = True, message["problem"]
        elif "cases" in message:
            self.planned = True
            self.cases = [
                CaseResult(case["name"], "not-run", case["expression"]) for case in message["cases"]
            ]
        elif "code" in message:
            self.code = message["code"]["status"]
            if self.code != "ok":
                self.trouble = message["code"]["message"] or _NOT_RUN
        elif "case" in message:
            self._take_case(message)

    def _take_case(self, message: dict[str, Any]) -> None:
        number = message["case"]
        case = self.cases[number]
        self.cases[number] = replace(
            case,
            status=message["status"],
            expression=message.get("expression") or case.expression,
            got=message["got"],
            expected=message["expected"],
            message=message["message"],
        )
        if message["status"] != "not-run":
            self.seconds[case.name] = message["seconds"]

    @property
    def lost_candidate(self) -> bool:
        """Whether the candidate's process is told to have ended by itself."""
        return any(map(_tells_end, (self.trouble, *(case.message for case in self.cases))))

    def explain_end(self, status: int) -> None:
        """Add to what is told of the candidate's end how it went.

        Parameters
        ----------
        status: exit code, or minus the signal.
        """
        how = f"{ENDED}: {named(status)}"
        if _tells_end(self.trouble):
            self.trouble = how
        self.cases = [
            replace(case, message=how) if _tells_end(case.message) else case for case in self.cases
        ]

    def run_out(self, limit: float) -> None:
        """Tell that the time for all of the check was over before its end."""
        if self.code is None:
            self.code, self.trouble = "timeout", f"it ran over {limit:g} s"
            return
        for number, case in enumerate(self.cases):
            if case.status == "not-run" and not case.message:
                message = f"it was not done when the {limit:g} s for all tests were over"
                self.cases[number] = replace(case, status="timeout", message=message)
                return

    def fail(self, why: str) -> None:
        """Tell that the process of the tests broke down under what the code gave it."""
        self.broken = True
        for number, case in enumerate(self.cases):
            if case.status == "not-run" and not case.message:
                self.cases[number] = replace(case, status="error", message=why)
                return

    @property
    def verdict(self) -> Verdict:
        statuses = [case.status for case in self.cases]
        if self.problem or not self.cases:
            return "invalid-task"
        if all(status == "passed" for status in statuses):
            return "solved"
        if self.lost_candidate or self.broken or self.code == "died":
            return "crashed"
        if self.code == "timeout" or "timeout" in statuses:
            return "timeout"
        return "failed"

    def result(
        self, *, stdout: str, stderr: str, isolation: tuple[str, ...], seconds: float
    ) -> CodeExecutionResult:
        """Give the result.

        Parameters
        ----------
        seconds: that the check took.
        """
        cases = tuple(with_message(case, self.trouble) for case in self.cases)
        missed = [case for case in cases if not case.passed]
        return CodeExecutionResult(
            passed=len(cases) - len(missed),
            total=len(cases),
            errors=tuple(f"{case.name}: {why(case)}" for case in missed),
            compilation_error=self.trouble or None,
            stdout=stdout,
            stderr=stderr,
            report=TestReport(cases, self.problem or self.trouble, seconds=seconds),
            verdict=self.verdict,
            tier="grade",
            seconds=self.seconds,
            isolation=isolation,
        )


def with_message(case: CaseResult, trouble: str) -> CaseResult:
    """Give a case that did not pass words that say why."""
    if case.passed or case.message:
        return case
    if case.status == "not-run":
        return replace(case, message=_NOT_RUN if trouble else "an earlier test was the last to run")
    if case.status == "timeout":
        return replace(case, message="it ran too long")
    if case.got or case.expected:
        return case  # which says it
    return replace(case, message=f"{case.expression or case.name} does not hold")


def why(case: CaseResult) -> str:
    """Say in words why a case did not pass."""
    return case.message or f"got {case.got}, expected {case.expected}"


def _tells_end(message: str) -> bool:
    return message.startswith(_TOLD)


def named(status: int) -> str:
    """Tell how a process ended, by its exit code or minus the signal."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-status}"
