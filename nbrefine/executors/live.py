"""Planned tests in a live kernel: against what its session holds, or behind code that it runs."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nbrefine.errors import InvalidTaskError, KernelDeadError, KernelError
from nbrefine.executors.tally import Tally
from nbrefine.kernel.helper import Answer, ask, call, value_of
from nbrefine.kernel.inside.cases import Plan, plan
from nbrefine.outputs import CellResult, Output, Status
from nbrefine.source import warnings_of_compiler
from nbrefine.values import TestReport

if TYPE_CHECKING:
    from nbrefine.kernel import Kernel

NONE_FOUND = "no tests were found: write asserts, check(candidate) or functions called test_…"

_LOAD = 30.0  # seconds in which a kernel must take the tests in; none of their code runs then
_CLOSE = 5.0


def planned(source: str, entry_point: str = "") -> Plan:
    """Find the tests of a source.

    Raises
    ------
    InvalidTaskError: it does not parse.
    """
    try:
        with warnings_of_compiler("ignore"):  # as `plan` does, but not in two threads at once
            return plan(source, entry_point)
    except SyntaxError as error:
        raise InvalidTaskError(
            f"The tests do not parse: line {error.lineno}: {error.msg}", hint="Mend the tests"
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InvalidTaskError(f"The tests do not parse: {error}", hint="Mend the tests") from None


async def run_planned(kernel: Kernel, tests: str, entry_point: str, tally: Tally) -> TestReport:
    """Run tests against what a session holds, unit by unit.

    Parameters
    ----------
    tally: was made of their plan.

    Raises
    ------
    UsageError: it is not a Python kernel.
    KernelDeadError: the kernel had ended before.
    KernelError: a kernel that is not ours reacted to no interrupt.
    """
    if not tally.plan.cases:
        return TestReport(problem=NONE_FOUND)
    started = time.monotonic()
    token = secrets.token_hex(8)
    loaded = await call(kernel.core, "trial", "load", token, tests, entry_point, timeout=_LOAD)
    if loaded.result.status == "interrupted":
        tally.stop("the tests were interrupted")
    elif problem := value_of(loaded)["problem"]:
        tally.fail(problem)
    else:
        tally.candidate = loaded.value["candidate"]
    try:
        for unit in range(len(tally.plan.units)):
            if tally.over:
                break
            await _run_unit(kernel, token, unit, tally)
    finally:
        if kernel.alive:
            with suppress(KernelError):
                await ask(kernel.core, "trial", "close", token, timeout=_CLOSE)
    return tally.report(time.monotonic() - started)


@dataclass(frozen=True, slots=True)
class Ran:
    """How code ran, and its tests after it."""

    trouble: str
    """Why the code did not run to its end, or ""."""
    status: Status
    """How it, or else the last of its tests, ended."""
    report: TestReport
    outputs: tuple[Output, ...]
    """What code and tests have put out."""


async def run_behind(
    kernel: Kernel, folder: str, code: str, tests: tuple[str, str, str], tally: Tally
) -> Ran:
    """Run code as a cell in a fresh kernel, and its tests there, in a single call.

    That takes half the time of a call for each unit; but of a kernel that died meanwhile it is not
    known in which of them, as what it said last may be lost.

    Parameters
    ----------
    folder: where they run.
    tests: their source, the entry point, and their packed program or "".
    tally: was made of their plan; its `timeout` is the limit of all.

    Raises
    ------
    KernelDeadError: the kernel had ended before.
    """
    progress = _Progress(tally, secrets.token_hex(8))
    answer = await call(
        kernel.core,
        *("trial", "check", progress.token, folder, code, list(tests)),
        timeout=tally.timeout,
        on_message=progress.hear,
    )
    if "awaits" in (answer.value or {}):
        return await _step_by_step(kernel, code, tests[:2], tally)
    trouble = progress.code
    if trouble is None:
        ended_well = answer.result.ok
        trouble = answer.raised if ended_well else ending(answer.result, tally.timeout)
    if trouble:
        tally.stop(trouble)
    else:
        await _run_rest(kernel, answer, progress)
    report = tally.report(time.monotonic() - progress.started)
    return Ran(trouble, answer.result.status, report, (*answer.result.outputs, *report.outputs))


async def run_steps_behind(
    kernel: Kernel, folder: str, code: str, tests: tuple[str, str], tally: Tally
) -> Ran:
    """Do the same as `run_behind`, one by one."""
    await ask(kernel.core, "trial", "enter", folder)
    return await _step_by_step(kernel, code, tests, tally)


async def _step_by_step(kernel: Kernel, code: str, tests: tuple[str, str], tally: Tally) -> Ran:
    started, limit = time.monotonic(), tally.timeout
    result = await kernel.core.execute(code, timeout=limit)
    if not result.ok:
        trouble = ending(result, limit)
        tally.stop(trouble)
        report = tally.report(time.monotonic() - started)
        return Ran(trouble, result.status, report, result.outputs)
    tally.timeout = _left(tally, started)
    report = await run_planned(kernel, *tests, tally)
    status: Status = "ok" if kernel.alive else "died"
    return Ran("", status, report, (*result.outputs, *report.outputs))


@dataclass(slots=True)
class _Progress:
    """What a call that does everything has told so far."""

    tally: Tally
    token: str
    started: float = field(default_factory=time.monotonic)
    code: str | None = None
    """Why the code did not run to its end, "" where it did; None: it has not ended yet."""
    units: int = 0
    """How many have ended."""

    def hear(self, message: dict[str, Any]) -> None:
        for each in message["told"]:
            self._take(each)

    def _take(self, message: dict[str, Any]) -> None:
        if "code" in message:
            self.code = message["code"]
        elif "unit" in message:
            self.units += 1
            ended = Answer(CellResult("", "ok"), {"raised": message["raised"]}, answered=True)
            self.tally.settle(message["unit"], ended)
        else:
            self.tally.hear(message)


async def _run_rest(kernel: Kernel, answer: Answer, progress: _Progress) -> None:
    """Settle what a call that does everything has left over."""
    tally = progress.tally
    if not answer.answered or answer.raised:  # this unit was at work when it ended
        tally.settle(progress.units, answer)
        if not tally.over:
            tally.stop("the time for all tests was over")
    elif answer.value["problem"]:
        tally.fail(answer.value["problem"])
    else:
        tally.candidate = answer.value["candidate"]
        for unit in range(answer.value["done"], len(tally.plan.units)):
            if not tally.over:
                tally.timeout = _left(tally, progress.started)
                await _run_unit(kernel, progress.token, unit, tally)


def _left(tally: Tally, started: float) -> float:
    return max(0.1, tally.timeout - (time.monotonic() - started))


def ending(result: CellResult, limit: float) -> str:
    """Tell how a cell ended that did not end well.

    Parameters
    ----------
    limit: seconds that it was given.
    """
    if result.status == "timeout":
        return f"it ran over {limit:g} s"
    return str(result.death or result.error or result.status)


async def _run_unit(kernel: Kernel, token: str, unit: int, tally: Tally) -> None:
    """Run one unit in a call of its own: what it says is lost with a process that crashes."""
    try:
        for function in ("run", "run_async"):
            answer = await call(
                kernel.core,
                "trial",
                function,
                token,
                unit,
                timeout=tally.timeout,
                on_message=tally.hear,
                awaits=function == "run_async",
            )
            if answer.value != {"awaits": True}:
                break
    except KernelDeadError as error:  # something a test left behind ended it in between
        tally.stop(error.message)
    else:
        tally.settle(unit, answer)
