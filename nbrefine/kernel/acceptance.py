"""An accepted cell run once in a kernel that its branch cannot replace, and the two compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nbrefine.errors import KernelError
from nbrefine.kernel.messages.execution import Ticket
from nbrefine.kernel.state.changes import differences
from nbrefine.kernel.state.digest import digest
from nbrefine.outputs import CellResult, Output

if TYPE_CHECKING:
    from nbrefine.kernel.core import Core


@dataclass(frozen=True, slots=True)
class Commit:
    """What came of an accepted cell in the kernel itself."""

    result: CellResult
    differences: tuple[str, ...] = ()
    """How the kernel's state differs from that of the branch, a sentence each, names first."""

    @property
    def same(self) -> bool:
        """Whether the cell ran to its end and left the state that the branch has."""
        return self.result.ok and not self.differences


async def commit(
    core: Core,
    trial: Core,
    source: str,
    *,
    timeout: float | None,  # noqa: ASYNC109 - seconds until the cell is interrupted
    on_output: Callable[[Output], object] | None = None,
    ticket: Ticket | None = None,
) -> Commit:
    """Run a cell in a kernel and compare its state with that of the branch that tried it.

    A cell that fails here is a value too: what it had changed before stays changed.  Where the
    kernel cannot tell afterwards what it holds, that is a difference.

    Parameters
    ----------
    trial: the branch, in which the cell has run and nothing else since.
    source: the cell.
    timeout: seconds until the cell is interrupted.

    Raises
    ------
    KernelDeadError: the kernel or the branch has ended.
    KernelError: the kernel runs another cell that reacts to no interrupt.
    """
    wanted = await digest(trial)
    result = await core.run(source, timeout=timeout, on_output=on_output, ticket=ticket or Ticket())
    if result.death is not None:
        return Commit(result)
    try:
        return Commit(result, differences(wanted, await digest(core)))
    except KernelError as error:  # the cell has run all the same, and must not be forgotten
        return Commit(result, (f"what it holds now could not be read: {error.message}",))
