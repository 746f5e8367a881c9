"""Whether two sketches show the same value: DSEval's rules (`dseval/match.py`), on plain data.

The types and the order of their tests are upstream's, as are all tolerances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nbrefine.taskdata.dseval.sketches import (
    SAME,
    Match,
    Rules,
    Seen,
    Sketch,
    equal,
    is_close,
    is_missing,
    is_number,
    key,
    kind,
    rank,
    short,
)
from nbrefine.taskdata.dseval.tables import part_of, same_tables


def match(wanted: Seen, found: Seen, rules: Rules) -> Match:
    """Compare two values."""
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
    (_is("frame", "series", "index"), same_tables),
    (_is("list", "tuple", "dict", "set"), _containers),
)
