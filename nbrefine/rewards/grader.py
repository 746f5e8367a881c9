"""The grade: what tests say that ran in another process than the code they judge.

Feedback and grade are two tiers. Feedback comes from tests that share a process with the code
(`rewards.tests`), is quick and survives accidents; a grade comes from here alone, is given once
an attempt is to count, and holds against code that means to cheat (tests/attacks).
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from nbrefine._portal import Closing, Run
from nbrefine.errors import UsageError
from nbrefine.executors import CodeExecutionResult, SubprocessCodeExecutor
from nbrefine.executors.bench import CODE
from nbrefine.source import parse
from nbrefine.values import CaseResult, Task, TestReport, Verdict

FLOOR, FACTOR = 4.0, 4.0
"""Seconds that any test may take, and how many times as long as with the reference: EvalPlus's
defaults (`--min-time-limit`, `--gt-time-limit-factor`). Limits near the reference's own time
give another pass rate on every run of a loaded machine."""

UNMEASURED = 10.0
"""Seconds a test may take where the task has no reference to measure."""

REFERENCE_LIMIT = 60.0
"""Seconds a test may take with the reference."""

_TIMEOUTS = 3  # tests that may run into the limit before a check leaves the others out


@dataclass(frozen=True, slots=True)
class Preflight:
    """Whether a task can be judged on this machine, and how long its tests may take."""

    problem: str = ""
    """Why it cannot be judged: there are no tests, or its reference fails them; or ""."""
    limit: float = UNMEASURED
    """Seconds that one test may take."""
    measured: bool = False
    """Whether a reference told the limit."""
    seconds: float = 0.0
    """Run time of all tests with the reference."""
    visible: TestReport | None = None
    """What the visible tests said of the reference; None where either is missing."""
    hidden: TestReport | None = None
    loading: float = CODE
    """Seconds that the code itself may take, before any test."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What the grader says of a program; of hidden tests too, so nothing for a model to read."""

    verdict: Verdict
    visible: TestReport | None = None
    """None where the task has no visible tests or was found invalid."""
    hidden: TestReport | None = None
    limit: float = UNMEASURED
    """Seconds that one test had."""
    rerun: bool = False
    """Whether a test ran out of time and the tests were run a second time before that counted."""
    isolation: tuple[str, ...] = ()
    """What held the program back from the rest of the machine."""
    detail: str = ""
    """Why it is not solved, in one sentence, or ""."""
    tier: Literal["grade"] = "grade"

    @property
    def solved(self) -> bool:
        return self.verdict == "solved"

    @property
    def passed(self) -> int:
        """Tests that passed, visible and hidden ones."""
        return sum(report.passed for report in self._reports)

    @property
    def total(self) -> int:
        """Tests there are, visible and hidden ones."""
        return sum(report.total for report in self._reports)

    @property
    def score(self) -> float:
        """The share of tests that passed; 0.0 where there are none."""
        return self.passed / self.total if self.total else 0.0

    @property
    def passing_but_wrong(self) -> bool:
        """Whether every visible test passed and a hidden one did not."""
        if self.visible is None or self.hidden is None:
            return False
        return self.visible.solved and not self.hidden.solved

    @property
    def _reports(self) -> Iterator[TestReport]:
        return (report for report in (self.visible, self.hidden) if report is not None)


class Grader(Closing):
    """Grades programs: tests in one process, the program in another, plain values in between.

    Start many grades at once; as many as there are workers run side by side.

    Parameters
    ----------
    executor: what runs them; by default one of its own, closed with this.
    workers: checks at a time of an executor of its own; by default one a processor.
    floor: seconds that any test may take at least.
    factor: a test may take this many times what the slowest test takes with the reference.
    """

    def __init__(
        self,
        *,
        executor: SubprocessCodeExecutor | None = None,
        workers: int | None = None,
        floor: float = FLOOR,
        factor: float = FACTOR,
    ) -> None:
        if not floor > 0 or not factor >= 1:
            raise UsageError(
                f"floor is {floor} and factor is {factor}",
                hint="Give a floor above 0 seconds and a factor of at least 1",
            )
        if executor is not None and workers is not None:
            raise UsageError("An executor has workers of its own", hint="Leave workers out")
        self.floor = floor
        self.factor = factor
        self._executor = executor or SubprocessCodeExecutor(workers=workers)
        self._owned = executor is None
        self._closed = False
        self._preflights: dict[tuple[str, ...], asyncio.Task[Preflight]] = {}

    def grade(self, task: Task, code: str) -> Run[Grade]:
        """Judge a program by the task's visible tests and by its hidden ones.

        It is solved only if all tests of both pass. Tests that pass what cannot be sent to a
        program make the task invalid where no other test fails. A time-out that would decide
        counts only if it happens twice.

        Parameters
        ----------
        code: the whole program; a reply without code is not the grader's matter.

        Raises
        ------
        UsageError: these are no task and no code, the grader is closed, or its executor runs
            tests and code in one process.
        NbrefineError: the host is in trouble; it says nothing about the program.
        """
        given: tuple[object, object] = (task, code)
        if not (isinstance(given[0], Task) and isinstance(given[1], str)):
            raise UsageError(
                f"Grader.grade is given {type(task).__name__} and {type(code).__name__}",
                hint='Give a Task and the code as a text, as in grade(Task("…", tests="…"), code)',
            )
        return Run(self._grade(task, code))

    def preflight(self, task: Task) -> Run[Preflight]:
        """Find out whether a task can be judged here, from its reference if it has one.

        Done once for each task, by its content, and by `grade` where nobody has asked before.

        Raises
        ------
        UsageError, NbrefineError: see `grade`.
        """
        return Run(self._preflight(task))

    async def _grade(self, task: Task, code: str) -> Grade:
        preflight = await self._preflight(task)
        if preflight.problem:
            return Grade("invalid-task", limit=preflight.limit, detail=preflight.problem)
        whole = preflight.loading + _TIMEOUTS * preflight.limit + self.factor * preflight.seconds
        limits = {
            "timeout": whole,
            "test_timeout": preflight.limit,
            "code_timeout": preflight.loading,
        }
        visible = await self._check(task, task.tests, code, limits)
        open_yet = visible is None or _solves(visible.result)
        hidden = await self._check(task, task.hidden_tests, code, limits, again=open_yet)
        checks = [check for check in (visible, hidden) if check is not None]
        if not preflight.measured and (told := await self._unsent(task, code, limits, checks)):
            return Grade("invalid-task", limit=preflight.limit, detail=told)
        decisive = next((check for check in checks if not _solves(check.result)), checks[0])
        return Grade(
            "solved" if _solves(decisive.result) else decisive.result.verdict,
            visible.result.report if visible else None,
            hidden.result.report if hidden else None,
            preflight.limit,
            any(check.rerun for check in checks),
            decisive.result.isolation,
            _reason(decisive.result, hidden=decisive is hidden) + _hint(decisive.result, code),
        )

    async def _unsent(
        self, task: Task, code: str, limits: Mapping[str, float], checks: Sequence[_Check]
    ) -> str:
        """Tell of tests that pass what no program can be sent, or give "".

        What a program says may be made up, so that one that does nothing is asked, too.
        """
        missed = [case for check in checks for case in check.result.report.cases if not case.passed]
        if not (missed and all(map(_is_unsent, missed))):
            return ""
        idle = "\n".join(_idle(code))
        again = [
            await self._check(task, tests, idle, limits, again=False)
            for tests in (task.tests, task.hidden_tests)
        ]
        said = [check for check in again if check is not None]
        if not all(
            _missed(check, unsent=True) >= _missed(own)
            for check, own in zip(said, checks, strict=True)
        ):
            return ""
        why = missed[0].message.removeprefix(_UNSENT)
        return f"no program can be graded by {missed[0].name}: {why}. {_CAN_BE_SENT}"

    async def _preflight(self, task: Task) -> Preflight:
        if self._closed:
            raise UsageError("The grader is closed", hint="Make a new one")
        key = (task.setup, task.tests, task.hidden_tests, task.entry_point, task.reference)
        known = self._preflights.get(key)
        if known is None:
            known = self._preflights[key] = asyncio.create_task(self._measure(task))
            known.add_done_callback(lambda done: self._forget(key, done))
        # Others may wait for it too, when the one who asked first is stopped.
        return await asyncio.shield(known)

    def _forget(self, key: tuple[str, ...], done: asyncio.Task[Preflight]) -> None:
        """Let a preflight that has given nothing be tried again."""
        if done.cancelled() or done.exception() is not None:
            self._preflights.pop(key, None)

    async def _measure(self, task: Task) -> Preflight:
        if not (task.tests.strip() or task.hidden_tests.strip()):
            return Preflight("the task has no tests")
        if not task.reference.strip():
            limit = max(self.floor, UNMEASURED)
            return Preflight(limit=limit, loading=max(CODE, limit))
        whole = (1 + _TIMEOUTS) * REFERENCE_LIMIT
        limits = {"timeout": whole, "test_timeout": REFERENCE_LIMIT}
        reports: list[TestReport | None] = []
        times: list[float] = []
        loading = 0.0
        for hidden, tests in ((False, task.tests), (True, task.hidden_tests)):
            check = await self._check(task, tests, task.reference, limits)
            reports.append(check.result.report if check else None)
            if check is None:
                continue
            if not _solves(check.result):
                told = _reason(check.result, hidden=hidden)
                broken = check.result.verdict == "invalid-task"
                return Preflight(told if broken else f"the reference fails here: {told}")
            tested = check.result.seconds.values()
            times.extend(tested)
            loading = max(loading, check.result.report.seconds - sum(tested))
        limit = max(self.floor, self.factor * max(times, default=0.0))
        loading = max(CODE, limit, self.factor * loading)
        return Preflight("", limit, True, sum(times), reports[0], reports[1], loading)

    async def _check(
        self,
        task: Task,
        tests: str,
        code: str,
        limits: Mapping[str, float],
        *,
        again: bool = True,
    ) -> _Check | None:
        """Run some of a task's tests, and once more where time alone has decided.

        Parameters
        ----------
        again: whether it may make a difference; the first time-out of a second run ends that.
        """
        if not tests.strip():
            return None
        results: list[CodeExecutionResult] = []
        while not results or (again and len(results) == 1 and _only_late(results[0])):
            result = await self._executor.aexecute(
                code,
                tests,
                **limits,
                max_timeouts=1 if results else _TIMEOUTS,
                entry_point=task.entry_point,
                setup=task.setup,
            )
            if result.tier != "grade":
                raise UsageError(
                    "The executor runs tests in the process of the code they judge, which is "
                    "feedback and no grade",
                    hint="Give the grader a SubprocessCodeExecutor",
                )
            results.append(result)
        # One that ended in time is what counts; of two that did not, the one that got further.
        said = max(results, key=lambda result: (not _timed_out(result), result.passed))
        return _Check(said, len(results) > 1)

    async def _close(self) -> None:
        self._closed = True
        pending = [each for each in self._preflights.values() if not each.done()]
        for each in pending:
            each.cancel()
        for each in pending:
            with suppress(asyncio.CancelledError):
                await each
        if self._owned:
            await self._executor.aclose()


@dataclass(frozen=True, slots=True)
class _Check:
    """What one of a task's two groups of tests said, and whether it had to run twice."""

    result: CodeExecutionResult
    rerun: bool


_UNSENT = "CannotSend: "
_CAN_BE_SENT = (
    "Pass numbers, texts, containers of them, arrays, functions or instances of the tests' own "
    "classes, and make objects of the code's classes where these would be derived from"
)


def _is_unsent(case: CaseResult) -> bool:
    return case.status == "error" and case.message.startswith(_UNSENT)


def _missed(check: _Check, *, unsent: bool = False) -> set[str]:
    cases = (case for case in check.result.report.cases if not case.passed)
    return {case.name for case in cases if _is_unsent(case) or not unsent}


def _idle(code: str) -> Iterator[str]:
    """Give a program's functions and classes without what they do."""
    tree = parse(code)
    for node in tree.body if tree else []:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"def {node.name}(*_, **__): pass"
        elif isinstance(node, ast.ClassDef):
            yield f"class {node.name}:\n    def __init__(self, *_, **__): pass"
            yield "    def __getattr__(self, name): return lambda *_, **__: None"


def _solves(result: CodeExecutionResult) -> bool:
    return result.verdict == "solved" and result.all_passed


def _timed_out(result: CodeExecutionResult) -> bool:
    return result.verdict == "timeout" or any(
        case.status == "timeout" for case in result.report.cases
    )


def _only_late(result: CodeExecutionResult) -> bool:
    """Tell whether more time might have made it right."""
    if not _timed_out(result):
        return False
    return all(case.status in ("passed", "timeout", "not-run") for case in result.report.cases)


def _reason(result: CodeExecutionResult, *, hidden: bool) -> str:
    """Say why a check is not solved: the code did not run, or the first test that failed."""
    if _solves(result):
        return ""
    if result.compilation_error is not None:
        return f"the code does not run: {result.compilation_error}"
    missed = next((case for case in result.report.cases if not case.passed), None)
    if missed is None:
        return result.report.problem or "the tests hold no case"
    return f"hidden {_told(missed)}" if hidden else _told(missed)


def _hint(result: CodeExecutionResult, code: str) -> str:
    """Tell of a reply that was given where its code is due."""
    if result.compilation_error is None or not code.lstrip().startswith(("```", "~~~")):
        return ""
    return ". Give bare code; nbrefine.extraction.extract takes it out of a reply"


def _told(case: CaseResult) -> str:
    told = f"{case.name} ({case.status})"
    if case.expression:
        told += f": {case.expression}"
    for label, text in (("got", case.got), ("expected", case.expected)):
        if text:
            told += f", {label} {text}"
    return f"{told}: {case.message}" if case.message else told
