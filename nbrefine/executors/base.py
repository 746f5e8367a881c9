"""What an executor of code with tests is, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from nbrefine.values import TestReport, Verdict

Tier = Literal["grade", "feedback"]
"""`grade`: tests and code ran in separate processes, and the comparison was made where the code
could not reach; `feedback`: in one process, which code that means to cheat can fool."""


@dataclass(frozen=True, slots=True)
class CodeExecutionResult:
    """What came of running code with its tests."""

    passed: int = 0
    total: int = 0
    errors: tuple[str, ...] = ()
    """"NAME: message" for each test that did not pass."""
    compilation_error: str | None = None
    """Why the code itself did not run to its end; None where it did."""
    stdout: str = ""
    """What the code printed, its head and tail where that was much, with the cut told."""
    stderr: str = ""
    report: TestReport = TestReport()
    """The tests, one by one."""
    verdict: Verdict = "failed"
    tier: Tier = "feedback"
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Run time of each test that ran, by its name."""
    isolation: tuple[str, ...] = ()
    """What held the code back from the rest of the machine."""

    @property
    def score(self) -> float:
        """The share of tests that passed; 0.0 where there are none."""
        return self.passed / self.total if self.total else 0.0

    @property
    def all_passed(self) -> bool:
        """Whether there are tests and all of them passed."""
        return 0 < self.total == self.passed


class CodeExecutor(Protocol):
    """Runs code with its tests."""

    def execute(self, code: str, test_code: str, *, timeout: float = 30.0) -> CodeExecutionResult:
        """Run the code, then its tests, and block until all is known.

        Parameters
        ----------
        timeout: seconds for all of it.
        """
