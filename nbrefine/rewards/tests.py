"""Visible tests as feedback: run against the live namespace, each failure with what it saw.

They share a process with the code they test, so what they say is feedback and never a grade: an
object that calls itself equal to everything passes. They do survive accidents, such as an exit,
an endless loop, a crash or a test that replaces a builtin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nbrefine._portal import Run
from nbrefine.executors.live import NONE_FOUND, planned, run_planned
from nbrefine.executors.tally import Tally
from nbrefine.rewards.cell import cell
from nbrefine.values import CaseResult, RewardType, Signal, TestReport

if TYPE_CHECKING:
    from nbrefine.kernel import Kernel

__all__ = ["NONE_FOUND", "as_cell", "parse_tests", "run_tests", "signal"]

_SHOWN = 300  # characters of a value in the feedback


def parse_tests(source: str, entry_point: str = "") -> tuple[CaseResult, ...]:
    """Find the tests in a source and give them as cases that have not been run.

    One `assert` statement is one test, also in a loop, at the top level and in
    `check(candidate)`; and so is each `test_…` function, each method of a `Test…` class, each row
    of a literal `parametrize`, each call of a function that checks, and each `with raises(…)`.

    Raises
    ------
    InvalidTaskError: the source does not parse.
    """
    return tuple(
        CaseResult(case.name, "not-run", case.expression, message=case.unsupported)
        for case in planned(source, entry_point).cases
    )


def run_tests(
    kernel: Kernel,
    tests: str,
    *,
    entry_point: str = "",
    timeout_per_test: float = 10.0,
    max_timeouts: int = 3,
) -> Run[TestReport]:
    """Run tests against a kernel's live namespace, in a copy of it.

    Names that the tests bind stay out of the session; objects they change in place are changed.
    A test that ends the kernel is an error, and those after it are not run.

    Parameters
    ----------
    tests: see `parse_tests`.
    entry_point: the function that `check(candidate)` is given; by default the only one there is.
    timeout_per_test: seconds until a test, or a loop with all tests in it, is interrupted.
    max_timeouts: after so many tests that ran too long, the others are not run.

    Raises
    ------
    InvalidTaskError: the tests do not parse; nothing was run.
    UsageError: it is not a Python kernel.
    KernelDeadError: the kernel had ended before.
    KernelError: a kernel that is not ours reacted to no interrupt.
    """
    tally = Tally(planned(tests, entry_point), timeout_per_test, max_timeouts)
    return Run(run_planned(kernel, tests, entry_point, tally))


def as_cell(tests: str, entry_point: str = "") -> str:
    """Give the tests as a notebook's cell that runs them in any Jupyter.

    The calls that a source leaves to a test runner, such as `check(add)` and `test_add()`, are
    added; a name that `check` needs is `entry_point`.

    Raises
    ------
    InvalidTaskError: the tests do not parse.
    """
    return cell(tests, planned(tests, entry_point))


def signal(report: TestReport) -> Signal:
    """Turn a report into the signal "tests": the share that passed, and each failure in words.

    Without a single test there is no reward: that is nobody's success and nobody's failure.
    """
    reward = report.passed / report.total if report.total else None
    return Signal("tests", RewardType.OUTCOME, reward, feedback=_feedback(report))


def _feedback(report: TestReport) -> str:
    lines = [f"{report.passed}/{report.total} tests passed."] if report.total else []
    if report.problem:
        lines.append(f"{report.problem[0].upper()}{report.problem[1:]}.")
    failures = [case for case in report.cases if not case.passed]
    if failures:
        lines.append("Failures:")
    for case in failures:
        told = f"{case.name} ({case.status})"
        lines.append(f"- {told}: {_line(case.expression)}" if case.expression else f"- {told}")
        for label, text in (("got", case.got), ("expected", case.expected), ("", case.message)):
            if text:
                lines.append(f"    {label}: {_line(text)}" if label else f"    {_line(text)}")
    return "\n".join(lines)


def _line(text: str) -> str:
    text = "\\n".join(text.splitlines())
    more = len(text) - _SHOWN
    return f"{text[:_SHOWN]}… ({more:,} more characters)" if more > 0 else text
