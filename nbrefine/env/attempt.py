"""One attempt: its cell, its tests, what it leaves, and whether it becomes the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from nbrefine.bindings import StateChange
from nbrefine.env.folder import FolderWatch
from nbrefine.env.points import Acceptance, Place, Point
from nbrefine.env.session import Session
from nbrefine.env.written import asking
from nbrefine.errors import KernelError
from nbrefine.files import FileChanges
from nbrefine.kernel import Kernel
from nbrefine.kernel.branching import copy
from nbrefine.kernel.state.changes import changes
from nbrefine.kernel.state.digest import Snapshot, snapshot
from nbrefine.outputs import CellResult
from nbrefine.rewards.tests import NONE_FOUND, parse_tests, run_tests
from nbrefine.values import Isolation, Task, TestReport


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of an attempt."""

    result: CellResult
    isolation: Isolation
    reason: str
    point: Point
    """Where the next attempt begins."""
    tests: TestReport | None = None
    accepted: bool = False
    shared: tuple[str, ...] = ()
    """What its branch had in common with the session."""
    left: Snapshot | None = None
    """What its namespace held after the cell; None where that is gone or does not answer."""
    change: StateChange | None = None
    files: FileChanges | None = None
    onward: Snapshot | None = None
    """What the namespace holds there, if the attempt is rejected; None where nobody knows."""
    stamps: Mapping[str, int] = field(default_factory=dict)
    """What the session told of files before the cell: see `attempt`'s `lying`."""


T = TypeVar("T")

Found = tuple[TestReport, str, Snapshot | None, FileChanges | None]

Judge = Callable[[], Awaitable[Found]]


async def attempt(
    session: Session,
    point: Point,
    source: str,
    task: Task,
    *,
    timeout: float | None,  # noqa: ASYNC109 - the cell's own limit
    test_timeout: float,
    on_tests: Callable[[bool], object],
    on_changed: Callable[[Attempt], object],
    tentative: bool = False,
    tests_if: Callable[[CellResult, str], bool] | None = None,
    lying: Callable[[Kernel], Awaitable[Mapping[str, int]]] | None = None,
) -> Attempt:
    """Run a cell from a point of the session, test it, and keep it or throw it away.

    What has begun to become the session does so also where it is stopped meanwhile, and of a cell
    that is stopped in the session itself it is told how far it came.

    Parameters
    ----------
    timeout: seconds the cell may run; None for no limit.
    test_timeout: seconds one test may run.
    on_tests: called with True as the tests begin and with False as they end.
    on_changed: called with the attempt at each moment from which the session is another one: its
        cell ran in the session itself, or it was accepted, or its cell failed in a kernel that a
        branch cannot replace.
    tentative: whether it waits in its branch until the session settles on it.
    tests_if: tells of a cell that failed, and the tests, whether they run all the same.
    lying: asked before the cell, where it runs, for files that are there and since when; the tests
        ask then whether they are other ones.
    """
    place = await session.begin(point)
    kept = False
    try:
        stamps = await lying(place.kernel) if lying is not None else {}
        task = replace(task, tests=task.tests + asking(stamps))
        watch = await FolderWatch.begin(place.kernel)
        running = place.kernel.run(source, timeout=timeout)
        if place.isolation == "fork":
            result, stopped = await running, None
        else:
            result, stopped = await _outlasted(asyncio.ensure_future(running), running.stop)
        done = Attempt(result, place.isolation, place.reason, point, stamps=stamps)
        if place.isolation != "fork":
            on_changed(done)
        if stopped is not None:
            raise stopped
        judge = partial(_judge, session, place, watch, task, limit=test_timeout, on_tests=on_tests)
        runs = result.ok or (tests_if is not None and tests_if(result, task.tests))
        done, apart = await _tried(place, watch, done, task, judge if runs else None)
        good = done.result.ok and (done.tests is None or done.tests.solved)
        good = good and not done.result.exited
        if good and place.intact and done.left is not None:
            accepting = session.accept(
                place,
                point,
                result,
                done.left,
                tested=done.tests is not None and not apart,
                timeout=timeout,
                tentative=tentative,
            )
            settle = partial(_settled, done, task=task)
            told = on_changed if not tentative else None
            done = await _through(session, asyncio.ensure_future(accepting), settle, told)
            kept = done.accepted
            if not kept:
                left = await _look(session.kernel)
                change = changes(place.seen, left) if left else None
                done = replace(done, left=left, onward=left, change=change)
    finally:
        if not kept:
            session.reject(place)
    return done


async def _tried(
    place: Place, watch: FolderWatch, done: Attempt, task: Task, judge: Judge | None
) -> tuple[Attempt, bool]:
    """Test an attempt whose cell has run, and see what it has left.

    Gives also whether its tests, where there were any, ran in a branch of it.
    """
    result, report, unbranched = done.result, None, ""
    if task.tests and judge is not None:
        report, unbranched, left, files = await judge()
    else:
        report = _not_run(task) if task.tests else None
        left, files = await _look(place.kernel), await watch.end()
    if place.kernel.alive:
        result = replace(result, outputs=result.outputs + await place.kernel.late())
    note = ""
    if not place.intact:
        left = None  # at best there is an empty kernel by now
        ended_before = result.death is not None or result.lost
        note = "" if ended_before else "the kernel ended when the attempt was tested"
    there = left if place.intact else done.point.seen
    done = replace(
        done,
        result=result,
        tests=report,
        reason="; ".join(part for part in (place.reason, unbranched, note) if part),
        shared=place.shared,
        left=left,
        change=changes(place.seen, left) if left else None,
        files=files,
        onward=there if place.kept else place.seen,
    )
    return done, place.isolation == "fork" and unbranched == ""


async def _through(
    session: Session,
    accepting: asyncio.Future[Acceptance],
    settle: Callable[[Acceptance], Attempt],
    on_changed: Callable[[Attempt], object] | None,
) -> Attempt:
    """Wait until an acceptance has come to its end, whoever wants to stop that, and tell of it.

    A session that has become another one, and what is recorded of it, belong together.
    """
    acceptance, stopped = await _outlasted(accepting, session.interrupt_commit)
    done = settle(acceptance)
    if on_changed is not None:
        on_changed(done)
    if stopped is not None:
        raise stopped
    return done


async def _outlasted(
    work: asyncio.Future[T], stop: Callable[[], object]
) -> tuple[T, asyncio.CancelledError | None]:
    """Wait until something has come to its end, whoever wants to stop that.

    Gives its value, and how that was wanted; where there is no value, that alone is raised.
    """
    stopped: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            stopped = error
            stop()
    try:
        return work.result(), stopped
    except Exception as trouble:
        if stopped is not None:
            raise stopped from trouble
        raise


def _settled(done: Attempt, acceptance: Acceptance, *, task: Task) -> Attempt:
    """Give an attempt that has become the session, or whose cell has failed there."""
    reason = "; ".join(part for part in (done.reason, acceptance.note) if part)
    if acceptance.failed is not None:
        return replace(
            done,
            result=acceptance.failed,
            tests=_not_run(task) if task.tests else None,
            isolation="none",
            reason=reason,
            left=None,
            change=None,
            files=None,
            onward=None,
            point=acceptance.point,
        )
    files = acceptance.files or done.files
    acceptance.point.goes_on_from(done.point, files)
    return replace(done, accepted=True, reason=reason, files=files, point=acceptance.point)


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
    session: Session,
    place: Place,
    watch: FolderWatch,
    task: Task,
    *,
    limit: float,
    on_tests: Callable[[bool], object],
) -> Found:
    """Run the visible tests in a branch of the attempt, and look meanwhile at what it has left.

    Gives the report, why there was no branch where one was to be, and what was seen.
    """
    on_tests(True)
    try:
        return await _in_a_branch(session, place, watch, task, limit)
    finally:
        on_tests(False)


async def _in_a_branch(
    session: Session, place: Place, watch: FolderWatch, task: Task, limit: float
) -> Found:
    kept, why = None, ""
    if place.isolation == "fork":
        try:
            kept = await copy(place.kernel.core)
        except KernelError as refused:
            why = _unbranched(refused)
    if kept is None:
        left, files = await _look(place.kernel), await watch.end()
        return await tested(place.kernel, task, limit), why, left, files
    bench: Kernel | None = None
    beside: list[asyncio.Future[Any]] = []
    try:
        # Without an overlay the tests' files would be taken for the attempt's.
        files = None if watch.held_back else await watch.end()
        looking = asyncio.ensure_future(_look(place.kernel))
        beside.append(looking)
        if watch.held_back:
            beside.append(asyncio.ensure_future(watch.end()))
        try:
            bench = Kernel(await kept.branch(direct=True))
        except KernelError as refused:
            why = _unbranched(refused)
            await asyncio.wait(beside)  # or they would see what the tests do
        report = await tested(bench or place.kernel, task, limit)
        left = await looking
        return report, why, left, await beside[-1] if watch.held_back else files
    finally:
        kept.release()
        if bench is not None:
            session.part(bench)
        for each in beside:
            each.cancel()
        await asyncio.gather(*beside, return_exceptions=True)  # or nobody asks what they raised


def _unbranched(refused: KernelError) -> str:
    return f"its tests ran in the attempt itself: {refused.message}"


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
