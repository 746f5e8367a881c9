"""What the session's namespace holds, and the few lines of it that a prompt shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nbrefine.kernel.helper import ask

if TYPE_CHECKING:
    from nbrefine.kernel.core import Core

TIMEOUT = 15.0
"""Seconds a listing may take; it limits itself to a few, unless a `__repr__` defies its alarm."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One name that the user bound."""

    name: str
    type: str
    """Name of the value's class."""
    kind: Literal["data", "function", "class", "module"] = "data"
    shape: tuple[int, ...] | None = None
    """Rows and columns of a table, extents of an array, length of a container."""
    size: int | None = None
    """Bytes, as far as they can be had cheaply; a container's without its items."""
    preview: str = ""
    """The value in short, a table's first two rows, or a function's parameters."""
    detail: str = ""
    """A table's columns, a dict's keys, an array's dtype, the types in a list."""
    keys: tuple[str, ...] = ()
    """The columns of a table or the keys of a dict that are text, as they are; the first 200."""


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


def variable(told: dict[str, Any]) -> Variable:
    """Make a variable of the fields that a kernel told of it."""
    for field in ("shape", "keys"):
        if told.get(field) is not None:
            told[field] = tuple(told[field])
    return Variable(**told)


def describe(variables: Sequence[Variable], *, limit: int = 1200) -> str:
    """Describe variables in a few lines, the most useful first; "" where there are none.

    Parameters
    ----------
    limit: characters; what does not fit is named or counted in a last line.
    """
    data = [variable for variable in variables if variable.kind == "data"]
    data.sort(key=_rank)  # stable: else in the order of binding
    lines = [(variable.name, _line(variable)) for variable in data]
    for kind, title in (("function", "functions"), ("class", "classes"), ("module", "modules")):
        named = [_named(variable) for variable in variables if variable.kind == kind]
        if named:
            lines.append((title, f"{title}: {', '.join(named)}"))
    kept: list[str] = []
    room = limit
    for index, (_, line) in enumerate(lines):
        fair = max(room // 2, 120) if index < len(lines) - 1 else room
        shown = _shortened(line, fair)
        if len(shown) + 1 > room:
            break
        kept.append(shown)
        room -= len(shown) + 1
    note = _left_out([name for name, _ in lines[len(kept) :]])
    while kept and len(note) > room:
        room += len(kept.pop()) + 1
        note = _left_out([name for name, _ in lines[len(kept) :]])
    return "\n".join([*_with_rows(kept, data, room - len(note)), *([note] if note else [])])


def _rank(variable: Variable) -> int:
    dimensions = len(variable.shape or ())
    if dimensions >= 2 or variable.type == "Series":
        return 0
    return 1 if dimensions == 1 else 2


def _line(variable: Variable) -> str:
    told = f"{variable.name}: {variable.type}"
    shape = variable.shape
    if shape is not None and len(shape) == 2 and variable.type.endswith("Frame"):
        return f"{told} {shape[0]:,} rows x {shape[1]:,} columns; {variable.detail}"
    if shape is not None and len(shape) != 1:
        told += f" of shape {shape}"
    elif shape is not None:
        told += f" of length {shape[0]:,}"
    told += f", {variable.detail}" if variable.detail else ""
    return f"{told} = {variable.preview}" if variable.preview else told


def _named(variable: Variable) -> str:
    if variable.kind == "module":
        same = variable.preview in ("", variable.name)
        return variable.name if same else f"{variable.name} ({variable.preview})"
    return f"{variable.name}{variable.preview}"


def _shortened(line: str, limit: int) -> str:
    """Cut a line at a comma, so that no column name is cut in two."""
    if len(line) <= limit:
        return line
    head = line[: limit - 3]
    whole, comma, _ = head.rpartition(", ")
    return f"{whole if comma else head}, …"


def _with_rows(lines: list[str], data: Iterable[Variable], room: int) -> list[str]:
    """Add the first rows of tables below their lines, as far as there is room."""
    rows = {
        f"{variable.name}: ": f"  first rows: {variable.preview}"
        for variable in data
        if variable.type.endswith("Frame") and variable.preview
    }
    told: list[str] = []
    for line in lines:
        told.append(line)
        extra = next((text for start, text in rows.items() if line.startswith(start)), "")
        if extra and len(extra) < room:
            told.append(extra)
            room -= len(extra) + 1
    return told


def _left_out(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"not shown: {', '.join(names[:5])}{more}"
