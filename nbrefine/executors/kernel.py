"""Code and its tests in one fresh Jupyter kernel, in whatever language that speaks."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import itertools
import os
import shutil
import time
import weakref
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

from nbrefine._portal import Closing, Run
from nbrefine.errors import ExecutorError, InvalidTaskError, KernelError, UsageError
from nbrefine.executors.account import why, with_message
from nbrefine.executors.base import CodeExecutionResult
from nbrefine.executors.live import NONE_FOUND, ending, planned, run_behind, run_steps_behind
from nbrefine.executors.tally import Tally
from nbrefine.kernel.branching import branch
from nbrefine.kernel.helper import ask
from nbrefine.kernel.inside.cases import Plan
from nbrefine.kernel.inside.units import Program
from nbrefine.kernel.live import Kernel
from nbrefine.kernel.pool import KernelPool
from nbrefine.kernel.processes.runtime import RuntimeFolder
from nbrefine.outputs import Output, Stream
from nbrefine.source import warnings_of_compiler
from nbrefine.values import CaseResult, TestReport, Verdict

PRINTED = 65_536
"""Characters kept of what code and tests print, to stdout and to stderr."""

_PLANS = 256  # sources of tests whose plans are kept


class KernelCodeExecutor(Closing):
    """Runs code as a cell of a fresh kernel, and its tests in the same one.

    As they share a process, code that means to cheat can, and what the tests say is feedback and
    no grade. In a kernel that speaks Python each test is told by itself; in any other, all tests
    are one cell, which passes if it ends well. Nothing holds code back from what its user may do;
    but `input()` finds nobody to ask.

    Nothing is started before the first code is run; it ends with `close` or the `with` block.

    Parameters
    ----------
    kernel: a kernelspec's name, as `jupyter kernelspec list` shows it.
    size: how many may run at a time; None: as many as there are processors.
    preload: packages that are imported once, beforehand; for kernels that speak Python.

    Raises
    ------
    UsageError: there is no such kernelspec, or `size` is too small.
    """

    def __init__(
        self, kernel: str = "python3", *, size: int | None = None, preload: tuple[str, ...] = ()
    ) -> None:
        try:
            spec = KernelSpecManager().get_kernel_spec(kernel)
        except NoSuchKernel:
            raise UsageError(
                f'There is no kernelspec "{kernel}"', hint="See `jupyter kernelspec list`"
            ) from None
        self.kernel = kernel
        self.language = str(spec.language).lower()
        self.size = len(os.sched_getaffinity(0)) if size is None else size
        if self.size < 1:
            raise UsageError(f"{size} kernels run at a time", hint="Give 1 or more")
        self._kernels = _FreshKernels(kernel, self.language, self.size, preload)
        self._slots = asyncio.Semaphore(self.size)
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False
        # The loop knows the kernels and not the executor, so that a forgotten one goes away.
        weakref.finalize(self, _end_later, self._kernels, os.getpid()).atexit = False
        _executors.add(self)

    def __repr__(self) -> str:
        return f"KernelCodeExecutor({self.kernel!r}, size={self.size})"

    def execute(
        self,
        code: str,
        test_code: str,
        *,
        timeout: float = 30.0,
        entry_point: str = "",
        setup: str = "",
    ) -> CodeExecutionResult:
        """Run the code, then its tests, and block until all is known; see `aexecute`."""
        return self.aexecute(
            code, test_code, timeout=timeout, entry_point=entry_point, setup=setup
        ).result()

    def aexecute(
        self,
        code: str,
        test_code: str,
        *,
        timeout: float = 30.0,
        entry_point: str = "",
        setup: str = "",
    ) -> Run[CodeExecutionResult]:
        """Run the code, then its tests.

        Parameters
        ----------
        test_code: in Python asserts, a `check(candidate)` function, or pytest-style functions; in
            another language anything that fails by an error.
        timeout: seconds for all of it, without the wait for a kernel.
        entry_point: name of the function that `check(candidate)` is given.
        setup: code that runs before `code`, in the same cell.

        Raises
        ------
        UsageError: the time is not positive, or the executor is closed.
        ExecutorError: no kernel comes up.
        """
        if not timeout > 0:
            raise UsageError(f"A check is given {timeout:g} s")
        before = f"{setup.rstrip()}\n\n" if setup.strip() else ""
        return Run(self._execute(before + code, test_code, entry_point, timeout))

    async def _execute(
        self, code: str, tests: str, entry_point: str, limit: float
    ) -> CodeExecutionResult:
        if self._closed:
            raise UsageError("The executor is closed", hint="Make a new one")
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            async with self._slots:
                if self.language == "python":
                    return await self._python(code, tests, entry_point, limit)
                return await self._other(code, tests, limit)
        finally:
            self._running.discard(task)

    async def _python(
        self, code: str, tests: str, entry_point: str, limit: float
    ) -> CodeExecutionResult:
        try:
            plan, program = _prepared(tests, entry_point)
        except InvalidTaskError as error:
            return _invalid(error.message)
        if not plan.cases:
            return _invalid(NONE_FOUND)
        tally = Tally(plan, limit, max_timeouts=1)
        async with self._kernels.one() as (kernel, folder):
            ran = await run_behind(kernel, folder, code, (tests, entry_point, program), tally)
        if ran.status == "died":
            tally = Tally(plan, limit, max_timeouts=1)
            async with self._kernels.one() as (kernel, folder):
                ran = await run_steps_behind(kernel, folder, code, (tests, entry_point), tally)
        return _result(ran.report, ran.outputs, ran.status, trouble=ran.trouble)

    async def _other(self, code: str, tests: str, limit: float) -> CodeExecutionResult:
        if not tests.strip():
            return _invalid("there are no tests")
        async with self._kernels.one() as (kernel, _):
            started = time.monotonic()
            result = await kernel.core.execute(code, timeout=limit)
            outputs, trouble = result.outputs, "" if result.ok else ending(result, limit)
            case = CaseResult("test_1", "not-run")
            if result.ok:
                left = max(0.1, limit - (time.monotonic() - started))
                result = await kernel.core.execute(tests, timeout=left)
                outputs += result.outputs
                status = {"ok": "passed", "timeout": "timeout"}.get(result.status, "error")
                message = "" if result.ok else ending(result, limit)
                case = CaseResult("test_1", status, message=message)  # type: ignore[arg-type]
            report = TestReport((case,), trouble, seconds=time.monotonic() - started)
        return _result(report, outputs, result.status, trouble=trouble)

    async def _close(self) -> None:
        self._closed = True
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._kernels.close()


class _FreshKernels:
    """Kernels in which nothing has run, each for one check."""

    def __init__(self, name: str, language: str, size: int, preload: tuple[str, ...]) -> None:
        self._name, self._language, self._size = name, language, size
        self._preload = preload
        self._lock = asyncio.Lock()
        self._folder: RuntimeFolder | None = None
        self._base: Kernel | None = None
        self._pool: KernelPool | None = None
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[tuple[Kernel, str]]:
        """Give a kernel, and an empty folder, which are gone afterwards.

        Raises
        ------
        ExecutorError: it does not come up.
        """
        try:
            kernel = await self._take()
        except KernelError as error:
            raise ExecutorError(
                f"No kernel {self._name} came up for a check: {error.message}", hint=error.hint
            ) from error
        try:
            assert self._folder is not None
            folder = self._folder.path / "work" / str(next(self._numbers))
            folder.mkdir()
            try:
                yield kernel, str(folder)
            finally:
                await kernel.aclose()  # first, as its code may write to the folder still
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            await kernel.aclose()

    async def _take(self) -> Kernel:
        async with self._lock:
            if self._folder is None:
                self._folder = RuntimeFolder()
                (self._folder.path / "work").mkdir()
            work = self._folder.path / "work"
            if self._base is not None and not self._base.alive:
                await self._base.aclose()
                self._base = None
            if self._language == "python" and self._pool is None and self._base is None:
                await self._start_base(work)
            if self._base is None and self._pool is None:
                self._pool = KernelPool(
                    self._name, preload=self._preload, size=self._size, cwd=work
                )
        if self._base is not None:
            return Kernel(await branch(self._base.core, direct=True))
        assert self._pool is not None
        return await self._pool.take()

    async def _start_base(self, work: Path) -> None:
        """Start a kernel to branch from, in which no check ever runs.

        A branch of it that speaks to us alone is there much sooner than a kernel from a fork
        server, and has the tests' own machinery in it.
        """
        base = await Kernel.start(
            self._name, cwd=work, preload=self._preload or None, workspace="report"
        )
        try:
            await ask(base.core, "trial", "close", "")  # which brings the machinery in
            async with Kernel(await branch(base.core, direct=True)) as first:
                await ask(first.core, "trial", "close", "")  # which shows that cells run there
                self._base = base
        except KernelError:
            pass  # kernels that are started will do, or tell why not
        finally:
            if self._base is not base:
                await base.aclose()

    async def close(self) -> None:
        async with self._lock:
            holders, self._base, self._pool = (self._base, self._pool), None, None
            for each in holders:
                if each is not None:
                    await each.aclose()
            if self._folder is not None:
                self._folder.remove()
                self._folder = None


@functools.lru_cache(_PLANS)
def _prepared(tests: str, entry_point: str) -> tuple[Plan, str]:
    """Plan and compile tests once for all code that is to pass them.

    Gives the plan, which nothing here uses up, and the program for kernels; "" where the compiler
    refuses a part of it or warns of one, which is told where that part runs.
    """
    program = Program(planned(tests, entry_point))
    try:
        with warnings_of_compiler("error"):
            packed = program.packed()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return planned(tests, entry_point), ""
    return program.plan, packed


def _invalid(why: str) -> CodeExecutionResult:
    return CodeExecutionResult(report=TestReport(problem=why), verdict="invalid-task")


def _result(
    report: TestReport, outputs: Iterable[Output], status: str, *, trouble: str
) -> CodeExecutionResult:
    cases = tuple(with_message(case, trouble) for case in report.cases)
    missed = [case for case in cases if not case.passed]
    return CodeExecutionResult(
        passed=len(cases) - len(missed),
        total=len(cases),
        errors=tuple(f"{case.name}: {why(case)}" for case in missed),
        compilation_error=trouble or None,
        stdout=_printed(outputs, "stdout"),
        stderr=_printed(outputs, "stderr"),
        report=TestReport(cases, trouble or report.problem, seconds=report.seconds),
        verdict=_verdict(cases, status, missed=bool(missed)),
    )


def _verdict(cases: Iterable[CaseResult], status: str, *, missed: bool) -> Verdict:
    if not missed:
        return "solved"
    if status == "died":
        return "crashed"
    if status == "timeout" or any(case.status == "timeout" for case in cases):
        return "timeout"
    return "failed"


def _printed(outputs: Iterable[Output], name: str) -> str:
    text = "".join(each.text for each in outputs if isinstance(each, Stream) and each.name == name)
    cut = len(text) - PRINTED
    if cut <= 0:
        return text
    half = PRINTED // 2
    return f"{text[:half]}\n… {cut:,} characters cut …\n{text[-half:]}"


def _end_later(kernels: _FreshKernels, owner: int) -> None:
    if os.getpid() == owner:  # and no fork of the controller
        Run(kernels.close())


_executors: weakref.WeakSet[KernelCodeExecutor] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for executor in list(_executors):
        with contextlib.suppress(Exception):
            executor.close()


# A fork of the controller must not remove what its parent goes on to use.
os.register_at_fork(after_in_child=_executors.clear)
