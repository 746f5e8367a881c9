"""The live session of an environment: a kernel, and what its state is the work of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from nbrefine.errors import InvalidTaskError, KernelDeadError, KernelError
from nbrefine.kernel import Kernel, OutputLimits
from nbrefine.kernel.namespace import Variable
from nbrefine.kernel.packages import packages
from nbrefine.outputs import CellResult, Output
from nbrefine.rewards.tests import parse_tests, run_tests
from nbrefine.values import Isolation, KernelInfo, Task, TestReport, Turn

IsolationPolicy = Literal["auto", "none"]

_TESTS = "(tests)"


class Session:
    """A kernel, and what its state is the work of."""

    def __init__(self, kernel: Kernel, *, ours: bool) -> None:
        self.kernel = kernel
        self._ours = ours
        self._setup: CellResult | None = None
        self._ran: list[str] = []
        """What ran since the setup: cells by their source, tests as `_TESTS`."""
        self._lost = False
        """Whether the state went with a process that ended."""

    @classmethod
    async def open(
        cls,
        kernel: Kernel | str,
        *,
        seed: int | None,
        cwd: str | Path | None,
        limits: OutputLimits,
    ) -> Session:
        if isinstance(kernel, str):
            started = await Kernel.start(kernel, seed=seed, cwd=cwd, limits=limits)
            return cls(started, ours=True)
        return cls(kernel, ours=False)

    @property
    def language(self) -> str:
        return self.kernel.info.language

    async def described(self) -> KernelInfo:
        """Tell which kernel it is and which packages it has."""
        return replace(self.kernel.info, packages=await packages(self.kernel.core))

    async def setup(self, source: str) -> CellResult | None:
        """Run the setup cell, where there is one.

        Raises
        ------
        InvalidTaskError: the cell failed.
        """
        if not source:
            return None
        result = await self.kernel.run(source, timeout=None)
        if not result.ok:
            raise InvalidTaskError(
                f"The task's setup ended with {result.error or result.death or result.status}",
                hint="Run the setup by itself and mend it",
            )
        self._setup = result
        return result

    async def prepare(
        self, wanted: Sequence[Turn], policy: IsolationPolicy, limit: float
    ) -> tuple[Isolation, str]:
        """Bring the session to setup plus the wanted cells, where that can be done.

        Gives the isolation of the attempt that follows and the reason for it.
        """
        sources = [turn.code for turn in wanted]
        seconds = sum(turn.result.timing.seconds for turn in wanted if turn.result)
        seconds += self._setup.timing.seconds if self._setup else 0.0
        told: tuple[Isolation, str]
        if policy == "none":
            told = "none", "asked for"
        elif not self._ours:
            told = "none", "the kernel was handed in with a state that cannot be rebuilt"
        elif seconds > limit:
            told = "none", f"setup and accepted cells ran {seconds:.1f} s, over {limit:g} s"
        else:
            told = "rebuild", f"setup and accepted cells ran {seconds:.2f} s"
        if self._lost or (told[0] == "rebuild" and self._ran != sources):
            await self._rebuild(sources)
        return told

    async def _rebuild(self, sources: Sequence[str]) -> None:
        if not self.kernel.owned:
            raise KernelDeadError(
                "The kernel that was handed in has died", hint="Start it again and attach anew"
            )
        await self.kernel.restart()
        self._ran, self._lost = [], False
        if self._setup is not None:
            await self.setup(self._setup.source)
        for source in sources:
            await self.run(source, None)

    async def run(self, source: str, limit: float | None) -> CellResult:
        """Run a cell and remember that it ran."""
        epoch = self.kernel.epoch
        try:
            return await self.kernel.run(source, timeout=limit)
        finally:
            self._remember(source, epoch)

    async def test(self, task: Task, limit: float) -> TestReport:
        """Run the visible tests, which may leave traces in the session."""
        epoch = self.kernel.epoch
        lost = False
        try:
            return await run_tests(
                self.kernel, task.tests, entry_point=task.entry_point, timeout_per_test=limit
            )
        except KernelError as error:
            # It answered before the attempt, so the attempt has broken it.
            if not self.kernel.owned:
                raise
            lost = True
            cases = parse_tests(task.tests, task.entry_point)
            return TestReport(cases, problem=f"the code broke the session: {error.message}")
        finally:
            self._remember(_TESTS, epoch)
            self._lost = self._lost or lost

    def _remember(self, what: str, epoch: int) -> None:
        self._ran.append(what)
        self._lost = not self.kernel.alive or self.kernel.epoch != epoch

    async def variables(self) -> tuple[Variable, ...]:
        return await self.kernel.variables()

    async def variables_left(self) -> tuple[Variable, ...]:
        """List what an attempt has left; () where it left nothing that answers."""
        try:
            return await self.variables()
        except KernelError:
            self._lost = self._lost or self.kernel.owned
            return ()

    async def late(self) -> tuple[Output, ...]:
        """Take what threads and processes have put out after their cell had ended."""
        return await self.kernel.late()

    async def close(self) -> None:
        if self._ours:
            await self.kernel.shutdown()
