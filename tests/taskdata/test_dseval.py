"""DSEval without kernels: its rows as sets, values compared as plain data, and its verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nbrefine.errors import UsageError
from nbrefine.taskdata import dseval_sets
from nbrefine.taskdata.dseval import ProblemSet, Remark, inside
from nbrefine.taskdata.dseval.likeness import match
from nbrefine.taskdata.dseval.sketches import Match, Rules, Seen
from nbrefine.taskdata.dseval.verdicts import judgement_of


@pytest.fixture(scope="module")
def sets(shared_data: Path) -> dict[str, ProblemSet]:
    folder = shared_data / "dseval"
    names = ("exercise", "kaggle", "so")
    lines = [line for name in names for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    found = dseval_sets(map(json.loads, lines), inputs=folder / "inputs")
    return {each.id: each for each in found}


def seen(value: Any) -> Seen:
    """Sketch a value as a kernel does, and send it as JSON."""
    return Seen(**json.loads(json.dumps(inside._seen(value))))


def compared(wanted: Any, found: Any, **rules: Any) -> Match:
    return match(seen(wanted), seen(found), Rules(**rules))


FRAME = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, None, 1.5]}, index=["x", "y", "z"])


def test_the_rows_make_121_sets_with_316_questions(sets: dict[str, ProblemSet]) -> None:
    assert len(sets) == 121
    assert sum(len(each.rows) for each in sets.values()) == 437
    assert sum(len(each.questions) for each in sets.values()) == 316
    assert all(Path(file).is_file() for each in sets.values() for file in each.files)


def test_a_question_has_the_checks_of_its_template_and_its_own(
    sets: dict[str, ProblemSet],
) -> None:
    rows = sets["kaggle/super-market-sales"].rows
    assert not rows[0].asked
    assert rows[0].checks == {}
    plain = next(row for row in sets["so/numpyeval-004"].rows if row.asked)
    assert list(plain.checks) == ["crash", "namespace_intact", "result"]
    model = rows[10]
    assert list(model.checks) == ["crash", "namespace_intact", "namespace_check", "model"]
    assert model.checks["namespace_check"] == {"knn": {"type_only": True}}
    assert model.forbidden == ("X_test", "y_test", "X", "y")


def test_a_set_is_one_task_of_many_steps_and_a_question_is_one_of_its_own(
    sets: dict[str, ProblemSet],
) -> None:
    users = sets["exercise/01-getting-knowing-your-data-occupation"]
    task = users.task()
    assert task.setup == "import pandas as pd"
    assert len(task.subtasks) == len(users.questions) == 16
    assert task.subtasks[1].goal == "See the first 25 entries"
    assert [Path(file).name for file in task.files] == ["u.user"]
    asked = users.task_of(users.questions[1])
    assert asked.prompt == "See the first 25 entries"
    assert asked.setup == "\n".join(row.code for row in users.rows[:2])
    assert asked.reference == users.rows[2].code


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, 2.5, "text", (1, [2, {"k": "v"}]), {1, 2},
        np.int64(3), np.array([[1, 2], [3, 4]]), np.array([1.0, np.nan]),
        FRAME, FRAME["b"], FRAME.index, FRAME.dtypes, pd.Timestamp("2024-01-02"),
        np.datetime64("2024-01-02"),
        FRAME.set_index(["a", "b"]), pd.Series(pd.date_range("2024-01-01", periods=3)),
        pd.Series(["a", "b"], dtype="category"), 1 + 2j,
    ],
)  # fmt: skip
def test_a_value_is_the_same_as_itself(value: Any) -> None:
    assert compared(value, value).ok


@pytest.mark.parametrize(
    ("wanted", "found", "difference"),
    [
        (1, 1.1, "value"),
        (1, True, "type"),
        (float("nan"), float("nan"), "value"),  # as numpy has it
        (1, "1", "type"),
        ("a", "b", "value"),
        ([1, 2], [2, 1], "value"),
        ([1, 2], [1, 2, 3], "value"),
        ([1, 2], {1, 2}, "type"),
        ({"a": 1}, {"b": 1}, "value"),
        ({1, 2}, {1, 3}, "value"),
        (np.array([1, 2]), np.array([[1, 2]]), "shape"),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), "value"),
        (np.array([1, 2]), [1, 2], "type"),
        (FRAME, FRAME["a"], "type"),
        (FRAME, FRAME[["a"]], "shape"),
        (FRAME, FRAME.rename(columns={"a": "c"}), "columns"),
        (FRAME, FRAME[["b", "a"]], "columns"),
        (FRAME, FRAME.astype({"a": "float64"}), "dtype"),
        (FRAME, FRAME.fillna(0), "value"),
        (FRAME, FRAME.reset_index(drop=True), "type"),
        (FRAME, FRAME.iloc[::-1], "value"),
        (FRAME, FRAME.rename_axis("row"), "index"),
        (FRAME["a"], FRAME["a"].rename("c"), "index"),
        (object(), object(), "value"),
    ],
)
def test_what_differs_is_told(wanted: Any, found: Any, difference: str) -> None:
    told = compared(wanted, found)
    assert (told.ok, told.difference) == (False, difference), told
    assert told.told


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (1, 1.000001),
        (1, np.float64(1)),
        ([1, 2], (1, 2)),
        ({"a": [1.0]}, {"a": [1]}),
        (FRAME, FRAME.assign(b=FRAME["b"] + 1e-9)),
        (pd.Series([1.0]), pd.Series([1.0 + 1e-7])),
        (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [1]}, index=pd.Index([0]))),
    ],
)
def test_what_is_close_enough_is_the_same(wanted: Any, found: Any) -> None:
    assert compared(wanted, found).ok


@pytest.mark.parametrize(
    ("wanted", "found", "rules"),
    [
        ([1, "a", 2], [2, 1, "a"], {"ignore_order": True}),
        (FRAME, FRAME.iloc[[2, 0, 1]], {"ignore_order": True}),
        (FRAME, FRAME.reset_index(drop=True), {"ignore_index": True}),
        ({"a": 1, "b": 2}, {"x": 1, "y": 2}, {"ignore_index": True}),
        (FRAME, FRAME.set_axis(["c", "d"], axis=1).rename_axis("r"), {"ignore_names": True}),
        (FRAME, FRAME.astype({"a": "float64"}), {"ignore_dtypes": True}),
        (pd.Series([1, 2]), pd.Series(["1", "2"]), {"ignore_dtypes": True}),
        ((1, 2), np.array([[1, 2]]), {"value_only": True}),
        (5, pd.DataFrame({"n": [5]}), {"value_only": True}),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]], {"value_only": True}),
        ([3], [4], {"type_only": True}),
        (0.5, 0.499, {"metrictol": 0.99}),
        (0.5, 0.9, {"metrictol": 0.99}),
        (1.0, 1.4, {"atol": 0.5}),
    ],
)
def test_rules_leave_differences_out(wanted: Any, found: Any, rules: dict[str, Any]) -> None:
    assert not compared(wanted, found).ok
    assert compared(wanted, found, **rules).ok


@pytest.mark.parametrize(
    ("wanted", "found", "told"),
    [
        (FRAME[["b"]].reset_index(drop=True), FRAME, "columns b"),
        (FRAME["a"], FRAME, "column a"),
        ([1, 2, 3], FRAME, "column a"),
        (["x", "y", "z"], FRAME, "index"),
        ([1, 2, 3], FRAME["a"], "values"),
        (FRAME[["a"]], FRAME["a"], "the series as a table"),
    ],
)
def test_an_answer_that_holds_more_is_partly_right(wanted: Any, found: Any, told: str) -> None:
    strict = Rules()
    assert not match(seen(wanted), seen(found), strict).ok
    assert match(seen(wanted), seen(found), strict.loose).told == f"Partial match on {told}"


def test_what_is_wrong_is_not_even_partly_right() -> None:
    assert not match(seen([1, 2, 4]), seen(FRAME), Rules().loose).ok
    assert not match(seen(FRAME), seen(FRAME["b"]), Rules().loose).ok
    assert not match(seen(0.5), seen(0.49), Rules(metrictol=0.99)).ok


def test_sparse_matrices_are_compared_by_their_parts() -> None:
    matrix = pytest.importorskip("scipy.sparse").csr_matrix
    assert compared(matrix([[0, 1], [2, 0]]), matrix([[0, 1.0], [2, 0]])).ok
    assert compared(matrix([[0, 1]]), matrix([[1, 0]])).difference == "value"
    assert compared(matrix([[0, 1]]), matrix([[0], [1]])).difference == "shape"
    assert compared(matrix([[0, 1]]), np.array([[0, 1]])).difference == "type"


def test_a_rule_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="There is no rule 'ignore_case'"):
        Rules.of({"ignore_case": True})


CRASH = Remark("crash", "no", "KeyError: 'x'")
INTACT = Remark("namespace_intact", "no", "df should not have been changed")
WRONG = Remark("result", "no", "Wrong value: 1 and 2", "value")
PART = Remark("result", "partial", "Partial match on index", flaw="partial-match")


@pytest.mark.parametrize(
    ("remarks", "verdict", "category"),
    [
        ([Remark("crash"), Remark("result")], "CORRECT", ""),
        ([CRASH, INTACT, WRONG], "CRASH", "KEY_ERROR"),
        ([Remark("crash", "no", "SyntaxError: bad", flaw="syntax")], "SYNTAX_ERROR", ""),
        ([Remark("crash", "no", "It was stopped", flaw="timeout")], "TIMEOUT", ""),
        ([INTACT, Remark("result")], "INTACT_VIOLATION", ""),
        ([INTACT, PART], "INTACT_VIOLATION", ""),
        ([INTACT, WRONG], "WRONG_OUTPUT", "VALUE_MISMATCH"),
        ([PART], "PRESENTATION_ERROR", "PARTIAL_MATCH"),
        ([Remark("namespace_check", "partial", "x")], "PRESENTATION_ERROR", "INDEX_MISMATCH"),
        ([WRONG, Remark("namespace_check", "no", "x", "shape")], "WRONG_VARIABLES",
         "SHAPE_MISMATCH"),
        ([Remark("model", "no", "r2 is 0.1")], "BAD_MODEL", ""),
        ([Remark("table_test", "no", "case 2", "type")], "UNIT_TEST_FAILURE", "UNEXPECTED_TYPE"),
    ],
)  # fmt: skip
def test_the_gravest_remark_is_the_verdict(
    remarks: list[Remark], verdict: str, category: str
) -> None:
    judged = judgement_of(remarks)
    assert (judged.verdict, judged.category) == (verdict, category)
    assert judged.correct == (verdict == "CORRECT") == (judged.detail == "")
