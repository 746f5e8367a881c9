"""The bench: checks code with tests, each in two fresh processes that share nothing.

The tester runs the trusted tests, the candidate the untrusted code; a call of the code crosses
between them as plain data, and the comparison is made by the tester.  Both are forked from
nurseries, which hold nothing of any task.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import weakref
from typing import Any

from nbrefine._portal import Closing, Run
from nbrefine.errors import ExecutorError, UsageError
from nbrefine.executors.base import CodeExecutionResult
from nbrefine.executors.check import Job, TesterFault, check
from nbrefine.executors.inside import frames
from nbrefine.executors.nursery import CandidateHost, Limits, LocalHost, Nursery, NurseryLost

MEMORY = 4 << 30
"""Bytes of address space that each process of a candidate has."""

CODE = 10.0
"""Seconds that the code itself may take, with its imports, where nothing else is said."""

_PROCESSES = 256
_FILE_SIZE = 256 << 20
_LEAST_MEMORY = 256 << 20
_KEPT = 80_000  # characters of tests that are compiled once, where all others wait for it


class Bench(Closing):
    """Checks code with tests; its two nurseries start with the first check.

    Parameters
    ----------
    workers: checks at a time; None: as many as there are processors.
    python: the interpreter that code and tests run on.
    preload: packages that are imported before any check.
    host: where the code runs; None: on this machine.
    memory: bytes of address space for each process of the code; None: no limit.

    Raises
    ------
    UsageError: `workers` or `memory` is too small.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        python: str = sys.executable,
        preload: tuple[str, ...] = (),
        host: CandidateHost | None = None,
        memory: int | None = MEMORY,
    ) -> None:
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        if self.workers < 1:
            raise UsageError(f"There are {workers} workers", hint="Give 1 or more")
        if memory is not None and memory < _LEAST_MEMORY:
            raise UsageError(
                f"memory is {memory:,} bytes, in which Python does little",
                hint=f"Give {_LEAST_MEMORY:,} or more",
            )
        self._limits = Limits(memory=memory, processes=_PROCESSES, file_size=_FILE_SIZE)
        self._nurseries = _Nurseries(
            LocalHost("tester", python=python, preload=preload),
            host or LocalHost("candidate", python=python, preload=preload),
        )
        self._slots = asyncio.Semaphore(self.workers)
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False
        # The loop knows the nurseries and not the bench, so that a forgotten one goes away.
        weakref.finalize(self, _end_later, self._nurseries).atexit = False
        _benches.add(self)

    def check(
        self,
        code: str,
        tests: str,
        *,
        entry_point: str = "",
        setup: str = "",
        timeout: float = 30.0,
        test_timeout: float | None = None,
        code_timeout: float | None = None,
        max_timeouts: int = 3,
    ) -> Run[CodeExecutionResult]:
        """Run the code, and each of its tests.

        Parameters
        ----------
        tests: asserts, a `check(candidate)` function, or pytest-style functions.
        entry_point: name of the function that `check(candidate)` is given.
        setup: code that runs before `code`, in the same module.
        timeout: seconds for all of it, from when it begins to run.
        test_timeout: seconds for one test; None: as `timeout`.
        code_timeout: seconds for the code itself; None: as for a test, but no less than `CODE`.
        max_timeouts: after so many tests that ran too long, the others are not run.

        Raises
        ------
        UsageError: a time is not positive, the code is too long, or it is closed.
        ExecutorError: its processes do not come up, or ended twice in the middle of this check.
        """
        each = timeout if test_timeout is None else test_timeout
        own = max(each, CODE) if code_timeout is None else code_timeout
        if not (timeout > 0 and each > 0 and own > 0):
            raise UsageError(f"A check is given {timeout:g} s, {each:g} s for each of its tests")
        task = {"tests": tests, "setup": setup, "entry_point": entry_point}
        kept = sum(map(len, task.values())) <= _KEPT
        limits = {
            "test_timeout": each,
            "code_timeout": min(timeout, own),
            "max_timeouts": max_timeouts,
        }
        try:
            message = frames.pack({"code": code, **limits, **({} if kept else task)})
        except ValueError as error:
            raise UsageError(f"Code and tests are too long: {error}") from error
        return Run(self._check(Job(message, timeout, tuple(task.values()) if kept else ())))

    async def _check(self, job: Job) -> CodeExecutionResult:
        if self._closed:
            raise UsageError("The executor is closed", hint="Make a new one")
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with self._slots:
                return await self._at_most_twice(job)
        finally:
            self._running.discard(task)

    async def _at_most_twice(self, job: Job) -> CodeExecutionResult:
        lost: list[NurseryLost] = []
        while len(lost) < 2:
            testers, candidates = await self._nurseries.ready()
            try:
                return await check(job, testers, candidates, self._limits)
            except NurseryLost as error:
                lost.append(error)
            except OSError as error:  # of descriptors, as there are too many open files
                raise ExecutorError(f"A check could not begin: {error}") from error
        faults = [error.account for error in lost if isinstance(error, TesterFault)]
        if len(faults) == len(lost):  # or a value at which a library breaks down would never count
            return faults[0].result(
                stdout="", stderr="", isolation=candidates.isolation, seconds=0.0
            )
        raise ExecutorError(
            f"A check could not be done, twice: {'; '.join(dict.fromkeys(map(str, lost)))}",
            hint="See whether this machine is out of memory",
        )

    async def _close(self) -> None:
        self._closed = True
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._nurseries.close()

    def _forget(self) -> None:
        """Begin anew in a process forked from the one whose nurseries these were."""
        self._nurseries.forget()
        self._slots = asyncio.Semaphore(self.workers)
        self._running = set()


class _Nurseries:
    """A nursery of testers and one of candidates, started when they are needed."""

    def __init__(self, testers: CandidateHost, candidates: CandidateHost) -> None:
        self._hosts = testers, candidates
        self.forget()

    def forget(self) -> None:
        self._starting = asyncio.Lock()
        self._started: list[Nursery | None] = [None, None]

    async def ready(self) -> tuple[Nursery, Nursery]:
        """Give both; one that has ended is started anew.

        Raises
        ------
        ExecutorError: one did not come up.
        """
        async with self._starting:
            starts = [self._ready(number) for number in (0, 1)]
            for trouble in await asyncio.gather(*starts, return_exceptions=True):
                if trouble is not None:
                    raise trouble
            testers, candidates = self._started
            assert testers is not None
            assert candidates is not None
            return testers, candidates

    async def _ready(self, number: int) -> None:
        nursery = self._started[number]
        if nursery is not None and nursery.lost:
            self._started[number] = None
            await nursery.stop()
        if self._started[number] is None:
            self._started[number] = await Nursery.start(self._hosts[number])

    async def close(self) -> None:
        """End both with all that they have forked."""
        async with self._starting:
            started, self._started = self._started, [None, None]
            await asyncio.gather(*(each.stop() for each in started if each is not None))


def _end_later(nurseries: _Nurseries) -> None:
    Run(nurseries.close())


_benches: weakref.WeakSet[Bench] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for bench in list(_benches):
        with contextlib.suppress(Exception):
            bench.close()


def _forget_in_child() -> None:
    for bench in list(_benches):
        bench._forget()  # noqa: SLF001 - of this module


os.register_at_fork(after_in_child=_forget_in_child)
