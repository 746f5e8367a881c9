"""Whether two sketches show the same value: DSEval's rules (`dseval/match.py`), on plain data.

The types and the order of their tests are upstream's, as are all tolerances.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from nbrefine.errors import UsageError

Sketch = Any
"""What `inside` makes of a value: None, a truth, a number, a text, or a mapping with its kind."""

Difference = Literal["", "shape", "dtype", "columns", "value", "type", "index"]


@dataclass(frozen=True, slots=True)
class Match:
    """Whether a value is the expected one."""

    ok: bool
    told: str = ""
    """What differs, or in which part they match."""
    difference: Difference = ""


SAME = Match(True)


@dataclass(frozen=True, slots=True)
class Rules:
    """What of two values is compared, and how closely."""

    ignore_order: bool = False
    ignore_index: bool = False
    ignore_names: bool = False
    ignore_dtypes: bool = False
    match_partial: bool = False
    """Whether it is enough that the expected value is a part of the other one."""
    value_only: bool = False
    """Whether containers and tables count as the lists of what they hold."""
    type_only: bool = False
    strict_type: bool = False
    atol: float = 1e-8
    rtol: float = 1e-5
    metrictol: float | None = None
    """Share of an expected number that must be reached; more is right too."""

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Rules:
        """Read the rules of a validator.

        Raises
        ------
        UsageError: it names one that there is not.
        """
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(given or ()) - known):
            raise UsageError(
                f"There is no rule {unknown[0]!r} for comparisons",
                hint=f"The rules are {', '.join(sorted(known))}",
            )
        return cls(**(given or {}))

    @property
    def loose(self) -> Rules:
        """Those by which an answer is right but for its form."""
        return replace(
            self, ignore_order=True, ignore_names=True, ignore_dtypes=True, match_partial=True
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """A value as it was seen in a branch."""

    type: str
    value: Sketch
    shown: str = ""
    """Its `str`, cut where it is long."""


def match(wanted: Seen, found: Seen, rules: Rules) -> Match:
    """Compare two values."""
    from nbrefine.taskdata.dseval.tables import part_of

    if rules.type_only:
        if wanted.type == found.type:
            return SAME
        return Match(False, f"Type mismatch: {wanted.type} and {found.type}", "type")
    first, second = wanted.value, found.value
    if rules.value_only:
        first, second = _stripped(first), _stripped(second)
    told = same(first, second, rules)
    if not told.ok and rules.match_partial:
        partly = part_of(first, second, rules)
        return partly if partly is not None else told
    return told


def same(wanted: Sketch, found: Sketch, rules: Rules) -> Match:
    """Compare two sketches; the first kind that one of them has decides how."""
    for applies, compare in _KINDS:
        if applies(wanted) or applies(found):
            if not (applies(wanted) and applies(found)):
                return Match(False, f"Wrong type: {kind(wanted)} and {kind(found)}", "type")
            return compare(wanted, found, rules)
    if equal(wanted, found):
        return SAME
    return Match(False, f"Expected {short(wanted)}, got {short(found)}", "value")


def kind(sketch: Sketch) -> str:
    """Give the kind of value that a sketch shows."""
    if isinstance(sketch, dict):
        return str(sketch.get("t") or sketch["k"])
    return type(sketch).__name__


def short(sketch: Sketch) -> str:
    """Show a sketch in a few words."""
    if isinstance(sketch, dict):
        sketch = sketch.get("v") or sketch.get("items") or sketch["k"]
    text = str(sketch)
    return text if len(text) <= 80 else f"{text[:79]}…"


def equal(wanted: Sketch, found: Sketch) -> bool:
    """Tell whether two values are equal as Python has it, which objects without a text are not."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        if wanted["k"] != found["k"]:
            return False
        if wanted["k"] == "other":
            return wanted["v"] is not None and (wanted["t"], wanted["v"]) == (
                found["t"],
                found["v"],
            )
        return key(wanted) == key(found)
    return bool(wanted == found)


def key(sketch: Sketch) -> str:
    """Give a text that is the same for equal labels."""
    if isinstance(sketch, float) and sketch.is_integer():
        sketch = int(sketch)
    if isinstance(sketch, dict) and "items" in sketch:
        return f"{sketch['k']}:{[key(item) for item in sketch['items']]}"
    return json.dumps(sketch, sort_keys=True)


def is_number(sketch: Sketch) -> bool:
    """Tell whether it is a number and no truth."""
    return isinstance(sketch, int | float) and not isinstance(sketch, bool)


def is_missing(sketch: Sketch) -> bool:
    """Tell whether it is None, NaN, NaT or NA."""
    if isinstance(sketch, float):
        return math.isnan(sketch)
    return sketch is None or (isinstance(sketch, dict) and sketch["k"] == "missing")


def is_close(wanted: float, found: float, *, atol: float, rtol: float) -> bool:
    """Tell whether numbers are close by numpy's asymmetric rule."""
    if wanted == found:
        return True
    if not (math.isfinite(wanted) and math.isfinite(found)):
        return False
    return abs(found - wanted) <= atol + rtol * abs(wanted)


def rank(sketch: Sketch) -> tuple[int, float, str]:
    """Order values of any kinds: numbers by size, then texts, then others, the missing last."""
    if is_missing(sketch):
        return (3, 0.0, "")
    if isinstance(sketch, bool | int | float):
        return (0, float(sketch), "")
    return (1, 0.0, sketch) if isinstance(sketch, str) else (2, 0.0, key(sketch))


def _is(*kinds: str) -> Callable[[Sketch], bool]:
    return lambda sketch: isinstance(sketch, dict) and sketch["k"] in kinds


def _stripped(sketch: Sketch) -> Sketch:
    """Take what a container or table holds out of it; one thing alone stands for itself."""
    if not isinstance(sketch, dict):
        return sketch
    items: Sequence[Sketch]
    if sketch["k"] in ("list", "tuple", "set"):
        items = sketch["items"]
    elif sketch["k"] == "frame":
        items = [{"k": "list", "items": list(row)} for row in zip(*sketch["data"], strict=True)]
    elif sketch["k"] in ("series", "index"):
        items = sketch["data"]
    elif sketch["k"] == "array":
        items = _nested(sketch["data"], sketch["shape"])
    else:
        return sketch
    stripped = [_stripped(item) for item in items]
    return stripped[0] if len(stripped) == 1 else {"k": "list", "items": stripped}


def _nested(data: Sequence[Sketch], shape: Sequence[int]) -> list[Sketch]:
    if len(shape) <= 1:
        return list(data)
    size = len(data) // shape[0] if shape[0] else 0
    rows = (data[at * size : (at + 1) * size] for at in range(shape[0]))
    return [{"k": "list", "items": _nested(row, shape[1:])} for row in rows]


def _truths(wanted: Sketch, found: Sketch, rules: Rules) -> Match:
    if wanted == found:
        return SAME
    return Match(False, f"Wrong value: {wanted} and {found}", "value")


def _numbers(wanted: Sketch, found: Sketch, rules: Rules) -> Match:
    if rules.metrictol is not None:
        if found < wanted * rules.metrictol:
            return Match(False, f"Metric too low: {found} and {wanted}", "value")
        return Match(True, f"Metric is good enough: {found} and {wanted}")
    if is_close(wanted, found, atol=rules.atol, rtol=rules.rtol):
        return SAME
    return Match(False, f"Wrong value: {wanted} and {found}", "value")


def _arrays(wanted: Sketch, found: Sketch, rules: Rules) -> Match:
    if rules.strict_type and wanted["dtype"] != found["dtype"]:
        return Match(False, f"Wrong dtype: {wanted['dtype']}, {found['dtype']}", "dtype")
    if wanted["shape"] != found["shape"]:
        return Match(False, f"Wrong shape: {wanted['shape']}, {found['shape']}", "shape")
    floats = wanted["kind"] == found["kind"] == "f"
    good = 0
    for first, second in zip(wanted["data"], found["data"], strict=True):
        if floats and is_missing(first) and is_missing(second):
            good += 1
        elif floats and not (is_missing(first) or is_missing(second)):
            good += is_close(first, second, atol=rules.atol, rtol=rules.rtol)
        else:
            good += equal(first, second) and not is_missing(first)
    if good == len(wanted["data"]):
        return SAME
    share = f"{good} of {len(wanted['data'])} values"
    return Match(False, f"Arrays are no perfect match: {share} are equal", "value")


def _sparse(wanted: Sketch, found: Sketch, rules: Rules) -> Match:
    if wanted["shape"] != found["shape"]:
        return Match(False, f"Wrong shape: {wanted['shape']}, {found['shape']}", "shape")
    places = all(wanted[part] == found[part] for part in ("indices", "indptr"))
    if places and all(
        is_close(first, second, atol=rules.atol, rtol=rules.rtol)
        for first, second in zip(wanted["data"], found["data"], strict=True)
    ):
        return SAME
    return Match(False, "Sparse matrices are not equal", "value")


def _tables(wanted: Sketch, found: Sketch, rules: Rules) -> Match:
    from nbrefine.taskdata.dseval.tables import same_tables

    return same_tables(wanted, found, rules)


def _containers(wanted: Sketch, found: Sketch, rules: Rules) -> Match:
    kinds = {wanted["k"], found["k"]}
    if kinds <= {"list", "tuple"}:
        return _lists(wanted["items"], found["items"], rules)
    if kinds == {"dict"}:
        return _mappings(wanted["items"], found["items"], rules)
    if kinds == {"set"}:
        first, second = ({key(item) for item in sketch["items"]} for sketch in (wanted, found))
        return SAME if first == second else Match(False, "Sets are not equal", "value")
    return Match(False, f"Mismatched type: {kind(wanted)}, {kind(found)}", "type")


def _lists(wanted: Sequence[Sketch], found: Sequence[Sketch], rules: Rules) -> Match:
    if len(wanted) != len(found):
        return Match(False, f"Length mismatch: {len(wanted)} and {len(found)}", "value")
    if rules.ignore_order:
        wanted, found = sorted(wanted, key=rank), sorted(found, key=rank)
    for at, (first, second) in enumerate(zip(wanted, found, strict=True)):
        told = same(first, second, rules)
        if not told.ok:
            return Match(False, f"Element {at} is not equal: {told.told}", "value")
    return SAME


def _mappings(
    wanted: Sequence[Sequence[Sketch]], found: Sequence[Sequence[Sketch]], rules: Rules
) -> Match:
    if rules.ignore_index:
        if len(wanted) != len(found):
            return Match(False, f"Length mismatch: {len(wanted)} and {len(found)}", "value")
        pairs = [(short(a[0]), a[1], b[1]) for a, b in zip(wanted, found, strict=True)]
    else:
        others = {key(name): value for name, value in found}
        if {key(name) for name, _ in wanted} != others.keys():
            names = [", ".join(short(name) for name, _ in pairs) for pairs in (wanted, found)]
            return Match(False, f"Keys mismatch: {names[0]} and {names[1]}", "value")
        pairs = [(short(name), value, others[key(name)]) for name, value in wanted]
    for name, first, second in pairs:
        told = same(first, second, rules)
        if not told.ok:
            return Match(False, f"Element {name} is not equal: {told.told}", "value")
    return SAME


_KINDS: tuple[tuple[Callable[[Sketch], bool], Callable[[Sketch, Sketch, Rules], Match]], ...] = (
    (lambda sketch: isinstance(sketch, bool), _truths),
    (is_number, _numbers),
    (_is("array"), _arrays),
    (_is("csr"), _sparse),
    (_is("frame", "series", "index"), _tables),
    (_is("list", "tuple", "dict", "set"), _containers),
)
