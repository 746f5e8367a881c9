"""What a session's names are bound to at one moment, and what a cell changed in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class NameDigest:
    """What was seen of one of the user's names."""

    name: str
    type: str
    """Name of the value's class."""
    hash: str = ""
    """Hash of all that was seen of the value: equal values give equal hashes in any process."""
    shape: tuple[int, ...] | None = None
    """Rows and columns of a table, extents of an array, length of a container."""
    sampled: bool = False
    """Whether only head, tail and evenly spaced parts of something large count."""
    opaque: tuple[str, ...] = ()
    """Classes of the parts that cannot be looked into, and count by their class alone."""
    unseen: str = ""
    """Why nothing was seen but the type, or ""."""
    dtypes: str = ""
    """The dtype of an array, or of the first 40 columns of a table, a line for each, behind its
    name and a tab; "" where none is known, as in earlier records."""

    @property
    def whole(self) -> bool:
        """Whether a change of any part would have given another hash."""
        return not (self.sampled or self.opaque or self.unseen)


@dataclass(frozen=True, slots=True)
class StateDigest:
    """What a session's state was: equal states give equal digests, whatever process they are in.

    A change that the digest cannot see is possible in the names that are not `whole`, in what
    modules hold, and outside of the namespace.
    """

    hash: str
    """Hash of all names, of what they share, and of the random states."""
    names: tuple[NameDigest, ...] = ()
    """The user's, private ones too, in the order in which they were bound."""
    random: tuple[str, ...] = ()
    """Hashes of the global states of `random` and of `numpy.random`, "" where it is not loaded."""
    shared: tuple[tuple[str, ...], ...] = ()
    """Names that reach the same mutable object: a change through one is seen in the others."""

    @property
    def partly(self) -> tuple[str, ...]:
        """The names that were not seen whole."""
        return tuple(told.name for told in self.names if not told.whole)


@dataclass(frozen=True, slots=True)
class Binding:
    """What a name stood for, as a reader needs it."""

    type: str
    kind: Literal["data", "function", "class", "module"] = "data"
    shape: tuple[int, ...] | None = None
    preview: str = ""


@dataclass(frozen=True, slots=True)
class NameChange:
    """One name that a cell bound, changed or deleted."""

    name: str
    before: Binding | None = None
    """None where the cell bound it."""
    after: Binding | None = None
    """None where the cell deleted it."""
    dtypes: tuple[str, ...] = ()
    """Columns that have another dtype now, such as "weight float64, was int64", or the array's own
    without a name; () too where a dtype is not known."""

    def __post_init__(self) -> None:
        if self.before is None and self.after is None:
            raise ValueError(f"{self.name} was bound neither before nor after its change")

    @property
    def kind(self) -> Literal["new", "changed", "deleted"]:
        if self.before is None:
            return "new"
        return "changed" if self.after else "deleted"


@dataclass(frozen=True, slots=True)
class StateChange:
    """What a cell did to the names of its session; binding one to an equal value is no change."""

    names: tuple[NameChange, ...] = ()
    """New and changed ones in the order in which they were bound, then the deleted ones."""
    random: bool = False
    """Whether the random generators' states changed."""
    sharing: bool = False
    """Whether it changed which names share an object."""
    partly: tuple[str, ...] = ()
    """Names that seem unchanged and were not seen whole."""

    @property
    def new(self) -> tuple[str, ...]:
        return self._of("new")

    @property
    def changed(self) -> tuple[str, ...]:
        return self._of("changed")

    @property
    def deleted(self) -> tuple[str, ...]:
        return self._of("deleted")

    def _of(self, kind: str) -> tuple[str, ...]:
        return tuple(change.name for change in self.names if change.kind == kind)
