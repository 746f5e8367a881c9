"""What a cell changed in the session: two digests compared, and the few lines that tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nbrefine.bindings import Binding, NameChange, NameDigest, StateChange, StateDigest
from nbrefine.kernel.state.digest import Snapshot
from nbrefine.kernel.state.namespace import Variable

PREVIEW = 60
"""Characters of a value that are shown where it is told with others."""

DTYPES = 3
"""Columns of other dtypes that are told of one name."""

OTHER_RANDOM = "the random generators are in another state"
"""What differs between any two sessions that were not seeded."""


def changes(before: Snapshot | StateDigest, after: Snapshot | StateDigest) -> StateChange:
    """Compare two moments of a session.

    Parameters
    ----------
    before, after: snapshots; bare digests give a change without previews.
    """
    old, new = _digest(before), _digest(after)
    were = {told.name: told for told in old.names}
    shown_before, shown_after = _shown(before), _shown(after)
    names = []
    partly = []
    for told in new.names:
        was = were.pop(told.name, None)
        if was is None:
            names.append(NameChange(told.name, None, _binding(told, shown_after)))
        elif _differs(was, told):
            both = _binding(was, shown_before), _binding(told, shown_after)
            names.append(NameChange(told.name, *both, _dtypes(was, told)))
        elif not (was.whole and told.whole):
            partly.append(told.name)
    names += (NameChange(told.name, _binding(told, shown_before)) for told in were.values())
    # What an unseen name reaches is not known, so it cannot have come to share anything.
    kept = _seen(old) & _seen(new)
    return StateChange(
        tuple(names),
        # A module that has just been loaded drew its state by chance.
        random=any(a != b for a, b in zip(old.random, new.random, strict=False) if a and b),
        sharing=_shared(old, kept) != _shared(new, kept),
        partly=tuple(partly),
    )


def differences(wanted: StateDigest, found: StateDigest) -> tuple[str, ...]:
    """Say how a state differs from another, one sentence each; () where nothing was seen."""
    change = changes(wanted, found)
    told = []
    for name in change.names:
        if name.kind == "new":
            told.append(f"{name.name} should not be there")
        elif name.kind == "deleted":
            told.append(f"{name.name} is missing")
        else:
            told.append(_other(name))
    if change.random:
        told.append(OTHER_RANDOM)
    if change.sharing:
        told.append("other names share an object")
    unseen = any(name.unseen for digest in (wanted, found) for name in digest.names)
    if not (told or unseen) and wanted.hash != found.hash and wanted.random == found.random:
        told.append("other parts of the names are shared")
    return tuple(told)


def moves(change: StateChange) -> tuple[str, ...]:
    """Say what has become of a state that nobody had to leave alone, one sentence each."""
    words = {"new": "is new", "deleted": "is gone"}
    told = [
        f"{name.name} {words[name.kind]}" if name.kind in words else _other(name)
        for name in change.names
    ]
    told += [OTHER_RANDOM] if change.random else []
    told += ["other names share an object"] if change.sharing else []
    return tuple(told)


def _other(name: NameChange) -> str:
    assert name.before is not None
    assert name.after is not None
    first, second = _extent(name.before), _extent(name.after)
    other = f"is {second}, not {first}" if first != second else "has another value"
    return f"{name.name} {other}{_recast(name)}"


def describe(change: StateChange, *, limit: int = 600) -> str:
    """Describe a change in a few lines; "" where there is none.

    Parameters
    ----------
    limit: characters; what does not fit is counted.
    """
    lines = []
    for kind, tell in (("new", _new), ("changed", _changed), ("deleted", _deleted)):
        told = [tell(name) for name in change.names if name.kind == kind]
        if told:
            lines.append(_fitted(f"{kind}: ", told, max(limit // 3, 80)))
    if change.random:
        lines.append("the random generators' states changed")
    return "\n".join(lines)


def lately(changes: Iterable[StateChange | None]) -> tuple[str, ...]:
    """Name what was bound or changed, the newest first.

    Parameters
    ----------
    changes: of cells that have run, the newest cell's first.
    """
    names = (name for change in changes if change for name in (*change.changed, *change.new[::-1]))
    return tuple(dict.fromkeys(names))


def _digest(moment: Snapshot | StateDigest) -> StateDigest:
    return moment.digest if isinstance(moment, Snapshot) else moment


def _shown(moment: Snapshot | StateDigest) -> dict[str, Variable]:
    shown = moment.variables if isinstance(moment, Snapshot) else ()
    return {variable.name: variable for variable in shown}


def _differs(was: NameDigest, told: NameDigest) -> bool:
    if was.unseen or told.unseen:
        return was.type != told.type
    return (was.type, was.shape, was.hash) != (told.type, told.shape, told.hash)


def _seen(digest: StateDigest) -> set[str]:
    return {told.name for told in digest.names if not told.unseen}


def _binding(told: NameDigest, shown: dict[str, Variable]) -> Binding:
    variable = shown.get(told.name)
    if variable is None:
        return Binding(told.type, shape=told.shape)
    return Binding(told.type, variable.kind, told.shape, variable.preview)


def _dtypes(was: NameDigest, told: NameDigest) -> tuple[str, ...]:
    """Say which columns of a table have another dtype, or of which an array is now."""
    before, after = _by_column(was), _by_column(told)
    return tuple(
        f"{column} {dtype}, was {before[column]}".lstrip()
        for column, dtype in after.items()
        if before.get(column, dtype) != dtype
    )


def _by_column(told: NameDigest) -> dict[str, str]:
    """Give dtypes by the names of columns; an array's by ""."""
    parted = (line.rpartition("\t") for line in told.dtypes.split("\n"))
    return {column: dtype for column, _, dtype in parted if dtype}


def _shared(digest: StateDigest, kept: set[str]) -> set[tuple[str, ...]]:
    groups = (tuple(name for name in group if name in kept) for group in digest.shared)
    return {group for group in groups if len(group) > 1}


def _new(change: NameChange) -> str:
    assert change.after is not None
    return f"{change.name} {_told(change.after)}"


def _deleted(change: NameChange) -> str:
    return change.name


def _changed(change: NameChange) -> str:
    before, after = change.before, change.after
    assert before is not None
    assert after is not None
    if before.type != after.type:
        return f"{change.name} {_told(before)} -> {_told(after)}"
    if before.shape != after.shape:
        new = _size(after)
        if before.shape is not None and len(before.shape) == 1:
            new = new.removeprefix("of length ")
        return f"{change.name} {_extent(before)} -> {new}{_recast(change)}"
    if change.dtypes:
        return f"{change.name} {_extent(after)}{_recast(change)}"
    first, second = _cut(before.preview), _cut(after.preview)
    if first != second and not _is_table(after):
        return f"{change.name} {_extent(before)} {first} -> {second}"
    return f"{change.name} {_extent(after)}, other content"


def _recast(change: NameChange) -> str:
    """Tell of other dtypes, behind what else is told of a name."""
    if not change.dtypes:
        return ""
    more = len(change.dtypes) - DTYPES
    told = [*change.dtypes[:DTYPES], *([f"{more} more with other dtypes"] if more > 0 else [])]
    return f": {', and '.join(told)}"


def _told(binding: Binding) -> str:
    extent = _extent(binding)
    if binding.type == "str":
        return f"str {_cut(binding.preview)}".rstrip()
    known = binding.kind == "data" and binding.shape is not None
    return extent if known else f"{extent} {_cut(binding.preview)}".rstrip()


def _extent(binding: Binding) -> str:
    return f"{binding.type} {_size(binding)}".rstrip()


def _size(binding: Binding) -> str:
    shape = binding.shape
    if shape is None:
        return ""
    if _is_table(binding):
        return f"{shape[0]:,} rows x {shape[1]:,} columns"
    return f"of length {shape[0]:,}" if len(shape) == 1 else f"of shape {shape}"


def _is_table(binding: Binding) -> bool:
    shape = binding.shape
    return shape is not None and len(shape) == 2 and binding.type.endswith("Frame")


def _cut(preview: str) -> str:
    return preview if len(preview) <= PREVIEW else f"{preview[: PREVIEW - 1]}…"


def _fitted(title: str, told: Sequence[str], room: int) -> str:
    kept: list[str] = []
    for index, text in enumerate(told):
        more = f" and {len(told) - index} more"
        if kept and len(title + "; ".join([*kept, text]) + more) > room:
            return f"{title}{'; '.join(kept)}{more}"
        kept.append(text)
    return title + "; ".join(kept)
