"""The live kernel: start or connect, run cells, interrupt, restart, shut down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nbrefine._portal import Closing, Run
from nbrefine.kernel.collect import OutputLimits
from nbrefine.kernel.core import Core, Ticket
from nbrefine.outputs import CellResult, Death, Output
from nbrefine.values import KernelInfo

if TYPE_CHECKING:
    from nbrefine.kernel.namespace import Variable


class Kernel(Closing):
    """A live Jupyter kernel: a process and its namespace.

    Made by `start` or `connect`.  Cells run one at a time, in the order they were asked for;
    every method may be called from any thread and any event loop.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        """What does the work, for code that runs on the portal's loop."""

    @classmethod
    def start(
        cls,
        name: str = "python3",
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        seed: int | None = 0,
        timeout: float = 60.0,
        limits: OutputLimits = OutputLimits(),  # noqa: B008 - frozen
        arguments: tuple[str, ...] = (),
    ) -> Run[Kernel]:
        """Start a kernel that this process owns.

        Parameters
        ----------
        name: kernelspec name, as `jupyter kernelspec list` shows it.
        cwd: its working folder; the controller's own by default.
        env: variables added to its environment.  Keys, tokens and passwords of the
            controller's environment reach it only from here.
        seed: PYTHONHASHSEED of the process; None leaves the order of sets to chance.
        timeout: seconds until it must answer.
        limits: how much of a cell's output is kept, and where all of it goes.
        arguments: added to the kernel's command line.

        Raises
        ------
        UsageError: there is no such kernelspec or folder.
        KernelStartError: it ended or did not answer; its last words are quoted.
        """

        async def work() -> Kernel:
            from nbrefine.kernel.process import Launch

            folder = None if cwd is None else str(cwd)
            core = Core(Launch(name, folder, env, seed, arguments), limits)
            await core.start(timeout)
            return cls(core)

        return Run(work())

    @classmethod
    def connect(
        cls,
        connection_file: str | Path,
        *,
        timeout: float = 60.0,
        limits: OutputLimits = OutputLimits(),  # noqa: B008 - frozen
    ) -> Run[Kernel]:
        """Connect to a kernel that somebody else owns; it is never killed nor restarted.

        Parameters
        ----------
        connection_file: the JSON file the kernel was started with.
        timeout: seconds until it must answer; while it runs a cell it cannot.
        limits: how much of a cell's output is kept, and where all of it goes.

        Raises
        ------
        UsageError: the file is missing or is no connection file.
        KernelStartError: nothing answered.
        """

        async def work() -> Kernel:
            core = Core(None, limits)
            await core.connect(Path(connection_file), timeout)
            return cls(core)

        return Run(work())

    @property
    def owned(self) -> bool:
        """Whether nbrefine started the process; only such a kernel is killed or restarted."""
        return self.core.launch is not None

    @property
    def info(self) -> KernelInfo:
        return self.core.info

    @property
    def epoch(self) -> int:
        """Counts the namespaces this object has had: 1, and one more with every restart."""
        return self.core.epoch

    @property
    def alive(self) -> bool:
        """Whether cells can run."""
        return not self.core.closed and not self.core.link.died.done()

    @property
    def death(self) -> Death | None:
        """Why the process ended by itself, if it did."""
        died = self.core.link.died
        return died.result() if died.done() and not self.core.closed else None

    @property
    def connection_file(self) -> str:
        """Path of the file other clients connect with; "" where the kernel is not ours."""
        process = self.core.link.process
        return process.connection_file if process else ""

    def run(
        self,
        source: str,
        *,
        timeout: float | None = 120.0,
        on_output: Callable[[Output], object] | None = None,
    ) -> Run[CellResult]:
        """Run a cell; its error, time-out or death is part of the result.

        Output that came after an earlier cell had ended stands first in the result, marked
        `late`.  Stopping the run interrupts the cell and gives the result it has by then; a run
        that still waits for its turn is taken back.

        Parameters
        ----------
        source: the cell; lone surrogates, which no message can carry, become U+FFFD.
        timeout: seconds until the cell is interrupted; None lets it run.
        on_output: called in a worker thread with each output as it arrives, raw and in order;
            text that came since the last call arrives as one.

        Raises
        ------
        KernelDeadError: the kernel had ended before.
        KernelError: a kernel that is not ours reacted to no interrupt.
        """
        ticket = Ticket()
        work = self.core.run(source, timeout=timeout, on_output=on_output, ticket=ticket)
        return Run(work, on_stop=ticket.stop)

    def interrupt(self) -> Run[tuple[str, ...]]:
        """Interrupt the running cell and give the rungs it took, () where none was running.

        A cell of an owned kernel that reacts to nothing for `interrupt.PATIENCE` seconds is
        ended by killing and restarting the kernel, and the cell's result names what was lost.
        """
        return Run(self.core.interrupt())

    def restart(self) -> Run[tuple[str, ...]]:
        """Start the kernel anew and give the names that were lost, as the cells bound them.

        A running cell ends with it.

        Raises
        ------
        KernelError: the kernel is not ours to restart.
        KernelStartError: it did not come up again.
        KernelDeadError: it was shut down.
        """
        return Run(self.core.restart())

    def shutdown(self) -> Run[None]:
        """End the kernel and everything it left running; let go of one that is not ours.

        A running cell is interrupted.  A second call does nothing.
        """
        return Run(self.core.close())

    def variables(self) -> Run[tuple[Variable, ...]]:
        """List what the namespace holds, with types, sizes and previews."""
        from nbrefine.kernel.namespace import variables

        return Run(variables(self.core))

    def late(self) -> Run[tuple[Output, ...]]:
        """Take the outputs that came after their cells had ended and are in no result yet."""

        async def work() -> tuple[Output, ...]:
            return self.core.late.take()[0]

        return Run(work())

    async def _close(self) -> None:
        await self.core.close()
