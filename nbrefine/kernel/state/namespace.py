"""What the session's namespace holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nbrefine.kernel.helper import ask
from nbrefine.kernel.state.summary import describe
from nbrefine.kernel.state.variable import Variable, variable

if TYPE_CHECKING:
    from nbrefine.kernel.core import Core

__all__ = ("Look", "Plain", "Variable", "describe", "look", "plain", "variable", "variables")

TIMEOUT = 15.0
"""Seconds a listing may take; it limits itself to a few, unless a `__repr__` defies its alarm."""


async def variables(core: Core) -> tuple[Variable, ...]:
    """List the user's names in a Python kernel; () for kernels of other languages.

    Names with a leading underscore and IPython's own are left out. Values are looked at under
    guards of time and exceptions, and lazy ones are not computed.

    Raises
    ------
    KernelDeadError: the kernel had ended, or ended meanwhile.
    KernelError: it did not answer in time.
    """
    if core.info.language != "python":
        return ()
    listed = await ask(core, "listing", "variables", timeout=TIMEOUT)
    return tuple(map(variable, listed))


@dataclass(frozen=True, slots=True)
class Look:
    """One name, looked at closely."""

    variable: Variable
    text: str
    """What the variable's own fields leave out: rows, entries, a function's source."""


@dataclass(frozen=True, slots=True)
class Plain:
    """What a name is bound to, as data that a record can hold."""

    value: Any
    """Plain JSON data: tables as rows, what is not a number as None."""
    shown: str
    """The value as Python shows it, in up to some 2,000 characters."""
    problem: str = ""
    """Why there is no plain data of it, or ""."""


async def look(core: Core, name: str, *, room: int = 3000) -> Look | None:
    """Look closely at a public name of a Python kernel; None where it is not bound.

    Code of the user's may run, such as a `__repr__`, so that a branch is the place for it.

    Parameters
    ----------
    room: characters of the text.

    Raises
    ------
    UsageError: it is not a Python kernel.
    KernelDeadError: the kernel had ended, or ended meanwhile.
    KernelError: it did not answer in time.
    """
    told = await ask(core, "look", "look", name, room, timeout=TIMEOUT)
    return None if told is None else Look(variable(told["variable"]), told["text"])


async def plain(core: Core, name: str) -> Plain | None:
    """Give what a public name of a Python kernel is bound to; None where it is not bound.

    Raises
    ------
    UsageError, KernelDeadError, KernelError: see `look`.
    """
    told = await ask(core, "look", "plain", name, timeout=TIMEOUT)
    return None if told is None else Plain(**told)
