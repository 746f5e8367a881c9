"""One attempt: its cell, its tests, what it leaves, and whether it becomes the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from nbrefine.bindings import StateChange
from nbrefine.env.folder import FolderWatch
from nbrefine.env.points import Place, Point
from nbrefine.env.session import Session
from nbrefine.errors import KernelError
from nbrefine.files import FileChanges
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.changes import changes
from nbrefine.kernel.state.digest import Snapshot, snapshot
from nbrefine.outputs import CellResult
from nbrefine.rewards.tests import NONE_FOUND, parse_tests, run_tests
from nbrefine.values import Isolation, Task, TestReport


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of an attempt."""

    result: CellResult
    tests: TestReport | None
    accepted: bool
    isolation: Isolation
    reason: str
    shared: tuple[str, ...]
    """What its branch had in common with the session."""
    left: Snapshot | None
    """What its namespace held after the cell; None where that is gone or does not answer."""
    change: StateChange | None
    files: FileChanges | None
    point: Point
    """Where the next attempt begins."""
    onward: Snapshot | None
    """What the namespace holds there, if the attempt is rejected; None where nobody knows."""


async def attempt(
    session: Session,
    point: Point,
    source: str,
    task: Task,
    *,
    timeout: float | None,  # noqa: ASYNC109 - the cell's own limit
    test_timeout: float,
    on_tests: Callable[[bool], object],
    tentative: bool = False,
) -> Attempt:
    """Run a cell from a point of the session, test it, and keep it or throw it away.

    Parameters
    ----------
    timeout: seconds the cell may run; None for no limit.
    test_timeout: seconds one test may run.
    on_tests: called with True as the tests begin and with False as they end.
    tentative: whether it waits in its branch until the session settles on it.
    """
    place = await session.begin(point)
    kept = False
    try:
        watch = await FolderWatch.begin(place.kernel)
        result = await place.kernel.run(source, timeout=timeout)
        report, unbranched = None, ""
        if task.tests and result.ok:
            on_tests(True)
            try:
                report, unbranched, left, files = await _judge(
                    session, place, watch, task, test_timeout
                )
            finally:
                on_tests(False)
        else:
            report = _not_run(task) if task.tests else None
            left, files = await _look(place.kernel), await watch.end()
        if place.kernel.alive:
            result = replace(result, outputs=result.outputs + await place.kernel.late())
        isolation, note = place.isolation, ""
        if not place.intact:
            left = None  # at best there is an empty kernel by now
            ended_before = result.death is not None or result.lost
            note = "" if ended_before else "the kernel ended when the attempt was tested"
        accepted = (report.solved if report else result.ok) and not result.exited
        onward = place.seen if not place.kept else left if place.intact else point.seen
        if accepted and place.intact and left is not None:
            tested = report is not None and (place.isolation != "fork" or unbranched != "")
            acceptance = await session.accept(
                place, point, result, left, tested=tested, timeout=timeout, tentative=tentative
            )
            kept, before, note = acceptance.failed is None, point, acceptance.note
            files, point = acceptance.files or files, acceptance.point
            if kept:
                point.goes_on_from(before, files)
            if acceptance.failed is not None:
                isolation, result = "none", acceptance.failed
                report = _not_run(task) if task.tests else None
                left = onward = await _look(session.kernel)
                files = None
    finally:
        if not kept:
            session.reject(place)
    return Attempt(
        result=result,
        tests=report,
        accepted=kept,
        isolation=isolation,
        reason="; ".join(part for part in (place.reason, unbranched, note) if part),
        shared=place.shared,
        left=left,
        change=changes(place.seen, left) if left else None,
        files=files,
        point=point,
        onward=onward,
    )


async def _look(kernel: Kernel) -> Snapshot | None:
    try:
        return await snapshot(kernel.core)
    except KernelError:
        return None


def _not_run(task: Task) -> TestReport:
    cases = parse_tests(task.tests, task.entry_point)
    cases = tuple(replace(case, message="the cell failed") for case in cases)
    return TestReport(cases, problem="" if cases else NONE_FOUND)


async def _judge(
    session: Session, place: Place, watch: FolderWatch, task: Task, limit: float
) -> tuple[TestReport, str, Snapshot | None, FileChanges | None]:
    """Run the visible tests in a branch of the attempt, and look meanwhile at what it has left.

    Gives the report, why there was no branch where one was to be, and what was seen.
    """
    bench, why = None, ""
    if place.isolation == "fork":
        try:
            bench = await place.kernel.branch()
        except KernelError as refused:
            why = f"its tests ran in the attempt itself: {refused.message}"
    if bench is None:
        left, files = await _look(place.kernel), await watch.end()
        return await tested(place.kernel, task, limit), why, left, files
    beside: list[asyncio.Future[Any]] = []
    try:
        # Without an overlay the tests' files would be taken for the attempt's.
        files = None if watch.held_back else await watch.end()
        looking = asyncio.ensure_future(_look(place.kernel))
        beside.append(looking)
        if watch.held_back:
            beside.append(asyncio.ensure_future(watch.end()))
        report = await tested(bench, task, limit)
        left = await looking
        return report, "", left, await beside[-1] if watch.held_back else files
    finally:
        session.part(bench)
        for each in beside:
            each.cancel()
        await asyncio.gather(*beside, return_exceptions=True)  # or nobody asks what they raised


async def tested(kernel: Kernel, task: Task, limit: float) -> TestReport:
    """Run a task's visible tests; what broke the kernel before is the problem they report."""
    try:
        return await run_tests(
            kernel, task.tests, entry_point=task.entry_point, timeout_per_test=limit
        )
    except KernelError as error:
        # It answered before the attempt, so the attempt has broken it.
        if not kernel.owned:
            raise
        cases = parse_tests(task.tests, task.entry_point)
        return TestReport(cases, problem=f"the code broke the session: {error.message}")
