"""DSEval's verdicts: what the checks of one answer come to (`dseval/validator.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nbrefine.taskdata.dseval.sketches import Difference

Verdict = Literal[
    "CORRECT",
    "INTACT_VIOLATION",
    "PRESENTATION_ERROR",
    "WRONG_OUTPUT",
    "WRONG_VARIABLES",
    "UNIT_TEST_FAILURE",
    "BAD_MODEL",
    "TIMEOUT",
    "CRASH",
    "SYNTAX_ERROR",
]
"""`INTACT_VIOLATION`: it changed a variable that it should not have; `PRESENTATION_ERROR`: it is
right but for its form."""

Check = Literal["crash", "namespace_intact", "namespace_check", "result", "model", "table_test"]
Flaw = Literal["", "partial-match", "missing-return", "non-code", "syntax", "timeout"]

_DIFFERENCES: dict[Difference, str] = {
    "shape": "SHAPE_MISMATCH",
    "dtype": "DTYPE_MISMATCH",
    "columns": "COLUMNS_MISMATCH",
    "value": "VALUE_MISMATCH",
    "index": "VALUE_MISMATCH",
    "type": "UNEXPECTED_TYPE",
}
_ERRORS = {
    "ModuleNotFoundError": "MODULE_NOT_FOUND",
    "KeyError": "KEY_ERROR",
    "TypeError": "TYPE_ERROR",
    "ValueError": "VALUE_ERROR",
    "NameError": "NAME_ERROR",
    "AttributeError": "ATTRIBUTE_ERROR",
}
_FLAWS = {
    "partial-match": "PARTIAL_MATCH",
    "missing-return": "MISSING_RETURN",
    "non-code": "NON_CODE",
}


@dataclass(frozen=True, slots=True)
class Remark:
    """What one check says."""

    check: Check
    correct: Literal["yes", "partial", "no"] = "yes"
    told: str = ""
    difference: Difference = ""
    flaw: Flaw = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an answer is worth."""

    verdict: Verdict
    category: str = ""
    """Upstream's subverdict, such as SHAPE_MISMATCH or KEY_ERROR; "" where it has none."""
    detail: str = ""
    """Why it is not correct."""
    remarks: tuple[Remark, ...] = ()

    @property
    def correct(self) -> bool:
        return self.verdict == "CORRECT"


def judgement_of(remarks: Sequence[Remark]) -> Judgement:
    """Sum up what the checks say, the gravest first, in upstream's order."""
    wrong = [remark for remark in remarks if remark.correct == "no"]
    partial = [remark for remark in remarks if remark.correct == "partial"]
    told = tuple(remarks)
    if not (wrong or partial):
        return Judgement("CORRECT", remarks=told)
    if crashed := next((remark for remark in wrong if remark.check == "crash"), None):
        return Judgement(_crash(crashed), _error(crashed), crashed.told, told)
    if {remark.check for remark in wrong} == {"namespace_intact"}:
        return Judgement("INTACT_VIOLATION", "", wrong[0].told, told)
    if not wrong:
        # Upstream looks for a flaw it can name before it calls one a matter of the index.
        named = next((remark for remark in partial if remark.flaw), partial[0])
        category = _FLAWS.get(named.flaw, "INDEX_MISMATCH")
        return Judgement("PRESENTATION_ERROR", category, named.told, told)
    order: tuple[tuple[Check, Verdict], ...] = (
        ("namespace_check", "WRONG_VARIABLES"),
        ("result", "WRONG_OUTPUT"),
        ("model", "BAD_MODEL"),
        ("table_test", "UNIT_TEST_FAILURE"),
    )
    for check, verdict in order:
        found = [remark for remark in (*wrong, *partial) if remark.check == check]
        if found:
            detail = "; ".join(remark.told for remark in found)
            return Judgement(verdict, _DIFFERENCES.get(found[0].difference, ""), detail, told)
    raise AssertionError("a check that no verdict is for")


def _crash(remark: Remark) -> Verdict:
    if remark.flaw == "timeout":
        return "TIMEOUT"
    return "SYNTAX_ERROR" if remark.flaw == "syntax" else "CRASH"


def _error(remark: Remark) -> str:
    return _ERRORS.get(remark.told.partition(":")[0], "")
