"""One name of the session's, as a kernel tells of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


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


def variable(told: dict[str, Any]) -> Variable:
    """Make a variable of the fields that a kernel told of it."""
    for field in ("shape", "keys"):
        if told.get(field) is not None:
            told[field] = tuple(told[field])
    return Variable(**told)
