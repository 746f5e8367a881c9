"""The executor that runs code and its tests in separate, fresh processes."""

from __future__ import annotations

import sys

from nbrefine._portal import Closing, Run
from nbrefine.executors.base import CodeExecutionResult
from nbrefine.executors.bench import MEMORY, Bench
from nbrefine.executors.nursery import CandidateHost


class SubprocessCodeExecutor(Closing):
    """Runs code and its tests in fresh processes of their own, so that its verdict is a grade.

    Nothing is started before the first code is run; it ends with `close`, with the `with` block,
    or when nobody refers to it any more.

    Parameters
    ----------
    workers: how many may run at a time; None: as many as there are processors.
    python: the interpreter that code and tests run on.
    preload: packages that are imported once, beforehand, and not by each code anew.
    memory: bytes of address space for each process of the code; None: no limit.
    host: where the code runs; None: on this machine. Its tests always do.

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
        memory: int | None = MEMORY,
        host: CandidateHost | None = None,
    ) -> None:
        self._bench = Bench(
            workers=workers, python=python, preload=preload, memory=memory, host=host
        )

    def execute(
        self,
        code: str,
        test_code: str,
        *,
        timeout: float = 30.0,
        test_timeout: float | None = None,
        code_timeout: float | None = None,
        max_timeouts: int = 3,
        entry_point: str = "",
        setup: str = "",
    ) -> CodeExecutionResult:
        """Run the code, then its tests, and block until all is known; see `aexecute`."""
        return self.aexecute(
            code,
            test_code,
            timeout=timeout,
            test_timeout=test_timeout,
            code_timeout=code_timeout,
            max_timeouts=max_timeouts,
            entry_point=entry_point,
            setup=setup,
        ).result()

    def aexecute(
        self,
        code: str,
        test_code: str,
        *,
        timeout: float = 30.0,
        test_timeout: float | None = None,
        code_timeout: float | None = None,
        max_timeouts: int = 3,
        entry_point: str = "",
        setup: str = "",
    ) -> Run[CodeExecutionResult]:
        """Run the code, then its tests.

        Parameters
        ----------
        test_code: asserts, a `check(candidate)` function, or pytest-style functions.
        timeout: seconds for all of it, without the wait for others that run.
        test_timeout: seconds for one test; None: as `timeout`.
        code_timeout: seconds for the code itself; None: as for a test, but at least 10.
        max_timeouts: after so many tests that ran too long, the others are not run.
        entry_point: name of the function that `check(candidate)` is given.
        setup: code that runs before `code`, in the same module.

        Raises
        ------
        UsageError: a time is not positive, or the executor is closed.
        ExecutorError: its processes do not come up, or ended twice under this code.
        """
        return self._bench.check(
            code,
            test_code,
            entry_point=entry_point,
            setup=setup,
            timeout=timeout,
            test_timeout=test_timeout,
            code_timeout=code_timeout,
            max_timeouts=max_timeouts,
        )

    async def _close(self) -> None:
        await self._bench._close()  # noqa: SLF001 - on the portal already
