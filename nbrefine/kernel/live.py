"""The live kernel: start or connect, run cells, interrupt, restart, shut down."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nbrefine._portal import Closing, Run
from nbrefine.kernel.core import Core
from nbrefine.kernel.lineage import Lineage
from nbrefine.kernel.messages.collect import OutputLimits
from nbrefine.kernel.messages.execution import Ticket
from nbrefine.kernel.workspace.overlays import WorkspaceMode
from nbrefine.outputs import CellResult, Death, Hazard, Memory, Output
from nbrefine.values import KernelInfo

if TYPE_CHECKING:
    from nbrefine.files import FileChanges
    from nbrefine.kernel.acceptance import Commit
    from nbrefine.kernel.branching import Copy
    from nbrefine.kernel.state.namespace import Variable
    from nbrefine.kernel.state.transfer import Copied


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
        preload: tuple[str, ...] | None = None,
        plain: bool = False,
        workspace: WorkspaceMode = "auto",
        ignore: Collection[str] = (),
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
        preload: packages that a fork server of this process has imported already; the first such
            kernel starts it, and every other is there in some 30 ms.  None starts a process of
            its own.
        plain: start the command of the kernelspec as it is; such a kernel cannot branch.
        workspace: whether what branches do to files in `cwd` is held back until they are adopted:
            `auto` where the host allows it, `overlay` for that or an error, `report` for never.
        ignore: paths relative to `cwd` that stand outside of that, such as a record.

        Raises
        ------
        UsageError: there is no such kernelspec or folder.
        KernelStartError: it ended or did not answer; its last words are quoted.
        """
        lineage = Lineage(Path(cwd or "").resolve(), mode=workspace, ignore=ignore)

        async def work() -> Kernel:
            from nbrefine.kernel.processes.process import Launch

            folder = None if cwd is None else str(cwd)
            core = Core(Launch(name, folder, env, seed, arguments, preload, plain), limits)
            core.lineage = lineage
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
        return self.core.owned

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
        """List the user's names, without private ones, with types, sizes and previews."""
        from nbrefine.kernel.state.namespace import variables

        return Run(variables(self.core))

    def branch(self) -> Run[Kernel]:
        """Give an independent copy of the live kernel, a whole Jupyter kernel with its state.

        Branches taken while nothing runs in between come from one copy, and are there side by
        side.  Closing one leaves no trace of it in the kernel.

        Raises
        ------
        BranchRefused: a copy would not be true or safe, or this kernel cannot branch; its
            `hazards` say why, and the kernel is unharmed.
        KernelDeadError: the kernel had ended.
        KernelError: too many branches live already.
        """

        async def work() -> Kernel:
            from nbrefine.kernel.branching import branch

            return Kernel(await branch(self.core))

        return Run(work())

    def adopt(self, branch: Kernel) -> Run[FileChanges | None]:
        """Let a branch become the session; its process takes this kernel's place, which ends.

        What cells have started as processes goes on; threads and tasks of the old process are
        gone, as `checkpoint().hazards` tells.  Closing the branch afterwards does nothing.

        Gives what that changes in the working folder; None where files were not held back.  A
        branch that grew before another one was adopted brings its own variables back, while what
        the other did to files stays.

        Raises
        ------
        BranchRefused: the kernel is somebody else's; use `commit`.
        KernelError: it is no branch of this kernel.
        KernelDeadError: the branch or the kernel has ended.
        """
        from nbrefine.kernel.branching import adopt

        return Run(adopt(self.core, branch.core))

    def commit(self, branch: Kernel, source: str, *, timeout: float | None = 120.0) -> Run[Commit]:
        """Run a cell that proved itself in a branch once here, and compare the two states.

        For kernels whose place a branch cannot take.  Stopping the run interrupts the cell.

        Parameters
        ----------
        branch: in which the cell has run, and nothing else since.
        timeout: seconds until the cell is interrupted; None lets it run.

        Raises
        ------
        KernelDeadError: the kernel or the branch has ended.
        KernelError: a kernel that is not ours reacted to no interrupt.
        """
        from nbrefine.kernel.acceptance import commit

        ticket = Ticket()
        work = commit(self.core, branch.core, source, timeout=timeout, ticket=ticket)
        return Run(work, on_stop=ticket.stop)

    def checkpoint(self) -> Run[Checkpoint]:
        """Keep a dormant copy of the present state, to branch from it or roll back to it.

        Raises
        ------
        BranchRefused: see `branch`.
        """

        async def work() -> Checkpoint:
            from nbrefine.kernel.branching import copy

            return Checkpoint(await copy(self.core))

        return Run(work())

    def rollback(self, checkpoint: Checkpoint) -> Run[None]:
        """Bring the session back to a checkpoint's state, also where its process has died.

        Files stay as they are.

        Raises
        ------
        BranchRefused: the kernel is somebody else's.
        KernelError: it is no checkpoint of this kernel.
        KernelDeadError: the checkpoint was closed, or the kernel shut down.
        """

        async def work() -> None:
            from nbrefine.kernel.branching import rollback

            await rollback(self.core, checkpoint.copy)

        return Run(work())

    def copy_variables(
        self, names: Sequence[str], to: Kernel, *, every: bool = False
    ) -> Run[Copied]:
        """Copy variables by value into another kernel, where a branch cannot be had.

        Parameters
        ----------
        names: what to copy; what cannot be copied is named in the result with its reason.
        every: whether nothing is copied where one of them cannot be.

        Raises
        ------
        KernelError: a kernel is not on this host, or did not do it in time.
        KernelDeadError: a kernel has ended.
        UsageError: a kernel is not a Python kernel.
        """
        from nbrefine.kernel.state.transfer import copy_variables

        return Run(copy_variables(self.core, to.core, names, every=every))

    def files(self) -> Run[FileChanges | None]:
        """Tell what a branch has done to the working folder and holds back; None otherwise.

        Raises
        ------
        KernelDeadError: the branch was closed or adopted.
        """
        from nbrefine.kernel.branching import files

        return Run(files(self.core))

    def memory(self) -> Run[Memory]:
        """Tell how much memory the kernel's process has.

        Raises
        ------
        KernelError: the host does not tell, or it is another host's process.
        """

        async def work() -> Memory:
            from nbrefine.kernel.processes.memory import memory

            return memory(self.info.pid)

        return Run(work())

    def late(self) -> Run[tuple[Output, ...]]:
        """Take the outputs that came after their cells had ended and are in no result yet."""

        async def work() -> tuple[Output, ...]:
            return self.core.take_late()

        return Run(work())

    async def _close(self) -> None:
        await self.core.close()


class Checkpoint(Closing):
    """A kept state of a kernel, from which branches grow; `close` it to let its memory go.

    The last one that is open is also what a kernel is brought back to when a cell had to be
    ended with its process.

    Parameters
    ----------
    copy: held for this.
    """

    def __init__(self, copy: Copy) -> None:
        self.copy = copy
        """What it is, for code that runs on the portal's loop."""
        copy.core.restore = restore = partial(copy.branch, overlaid=False)
        self._release = weakref.finalize(self, _release_soon, copy, restore)
        self._release.atexit = False  # its process ends with this one anyway

    @property
    def hazards(self) -> tuple[Hazard, ...]:
        """What the kernel had that a copy does not simply take along."""
        return self.copy.hazards

    def branch(self) -> Run[Kernel]:
        """Give a branch with the state that is kept.

        Raises
        ------
        KernelDeadError: the checkpoint was closed.
        KernelError: too many branches live already.
        """

        async def work() -> Kernel:
            return Kernel(await self.copy.branch())

        return Run(work())

    def memory(self) -> Run[Memory]:
        """Tell how much memory the dormant copy has."""

        async def work() -> Memory:
            from nbrefine.kernel.processes.memory import memory

            return memory(self.copy.pid)

        return Run(work())

    async def _close(self) -> None:
        if (left := self._release.detach()) is not None:
            _, _, (copy, restore), _ = left
            _let_go(copy, restore)


def _let_go(copy: Copy, restore: object) -> None:
    if copy.core.restore is restore:
        copy.core.restore = None
    copy.release()


def _release_soon(copy: Copy, restore: object) -> None:
    async def release() -> None:
        _let_go(copy, restore)

    Run(release())  # a finalizer may run in any thread
