"""Variables of one kernel copied into another, where its process cannot be branched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nbrefine.errors import KernelError
from nbrefine.kernel.helper import ask
from nbrefine.kernel.processes.runtime import RuntimeFolder

if TYPE_CHECKING:
    from nbrefine.kernel.core import Core

LIMIT = 2_000_000_000
"""Bytes that the copied variables may take together, unless said otherwise."""

_SECONDS = 300.0  # in which a kernel must have written or read them


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied, and what could not be."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Name -> bytes that its pickle took, what it shares with earlier names left out."""
    failed: dict[str, str] = field(default_factory=dict)
    """Name -> why it is not in the other kernel."""

    def __str__(self) -> str:
        """Say it in a sentence, as a record has it."""
        told = f"copied by value: {', '.join(self.sizes) or 'nothing'}"
        lost = "; ".join(f"{name} ({why})" for name, why in self.failed.items())
        return f"{told}; could not be copied: {lost}" if lost else told


async def copy_variables(
    source: Core,
    target: Core,
    names: Sequence[str],
    *,
    limit: int = LIMIT,
    every: bool = False,
) -> Copied:
    """Copy variables by value from one Python kernel of this host into another.

    They are pickled, by cloudpickle where the source has it, which takes functions and classes
    of the session along.  What two of them share is shared in the target too.  Names of the
    target that are copied are bound anew, all together; others stay.

    Parameters
    ----------
    names: what to copy, each name once.
    limit: bytes that all of it may take; a variable that does not fit is named in `failed`.
    every: whether nothing is copied where one of them cannot be.

    Raises
    ------
    KernelError: a kernel is not on this host, or did not do it in time.
    KernelDeadError: a kernel has ended.
    UsageError: a kernel is not a Python kernel.
    """
    folder = RuntimeFolder()
    try:
        file = folder.path / "variables"
        failed: dict[str, str] = {}
        while True:
            wanted = [name for name in names if name not in failed]
            told = await ask(
                source, "transfer", "dump", str(file), wanted, limit, every, timeout=_SECONDS
            )
            if not told:
                raise KernelError(
                    "The kernel runs on another host or in a container, so files cannot be shared",
                    hint="Run the cells that make the variables in the other kernel",
                )
            failed.update(told["failed"])
            sizes: dict[str, int] = told["sizes"]
            if every and failed:
                return Copied({}, failed)
            copied = {name: sizes[name] for name in names if name in sizes}
            unread: dict[str, str] = await ask(
                target, "transfer", "load", str(file), list(sizes), list(copied), timeout=_SECONDS
            )
            if not unread:
                return Copied(copied, {name: failed[name] for name in names if name in failed})
            failed.update(unread)
            if every:
                return Copied({}, failed)
    finally:
        folder.remove()
