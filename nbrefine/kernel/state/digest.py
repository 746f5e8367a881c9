"""The digest of a session's state, taken in its kernel.

It has every name of the user's, those with a leading underscore too, and none of IPython's own.
Per name, arrays and long texts of up to 10 MB together, 250,000 plain items and 20,000 other
objects are hashed in full.  Of more the head, the tail and evenly spaced parts count, beside type,
shape and size: of an array 1 MB, of a dict both ends, of a set of over 50,000 plain items or 1,000
others its size.  A change elsewhere is not seen, and the name says that it was sampled.
Generators, locks, connections, widgets and all else that hides its state count by their class,
and are named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nbrefine.bindings import NameDigest, StateDigest
from nbrefine.kernel.helper import ask
from nbrefine.kernel.state.namespace import Variable, variable

if TYPE_CHECKING:
    from nbrefine.kernel.core import Core

TIMEOUT = 30.0
"""Seconds a digest may take; it limits itself to ten, but for single long calls into C."""

EMPTY = StateDigest("")
"""Of a kernel whose language is not Python."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Digest and listing of one moment."""

    digest: StateDigest = EMPTY
    variables: tuple[Variable, ...] = ()


async def digest(core: Core) -> StateDigest:
    """Give the digest of the state; `EMPTY` for kernels of other languages.

    Raises
    ------
    KernelDeadError: the kernel had ended, or ended meanwhile.
    KernelError: it did not answer in time.
    """
    if core.info.language != "python":
        return EMPTY
    return read_digest(await ask(core, "digest", "digest", timeout=TIMEOUT))


async def snapshot(core: Core) -> Snapshot:
    """Give digest and listing in one call; an empty one for kernels of other languages.

    Raises
    ------
    KernelDeadError: the kernel had ended, or ended meanwhile.
    KernelError: it did not answer in time.
    """
    if core.info.language != "python":
        return Snapshot()
    told = await ask(core, "digest", "snapshot", timeout=TIMEOUT)
    return Snapshot(read_digest(told["digest"]), tuple(map(variable, told["variables"])))


def read_digest(told: dict[str, Any]) -> StateDigest:
    """Make a digest of what `inside.digest.digest` gives."""
    return StateDigest(
        told["hash"],
        tuple(_name(row) for row in told["names"]),
        tuple(told["random"]),
        tuple(tuple(group) for group in told["shared"]),
    )


def _name(row: list[Any]) -> NameDigest:
    name, kind, hashed, shape, sampled, opaque, unseen, dtypes = row
    extents = None if shape is None else tuple(shape)
    return NameDigest(name, kind, hashed, extents, sampled, tuple(opaque), unseen, dtypes)
