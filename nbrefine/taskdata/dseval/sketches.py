"""Values of a branch as plain data, called sketches: what they are, and what two of them share.

`inside` makes them; the rules of comparison and their tolerances are DSEval's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
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
