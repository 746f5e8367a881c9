from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.errors import UsageError
from nbrefine.kernel import Kernel
from nbrefine.postconditions import (
    cell_of,
    file_written,
    frame,
    holds,
    in_range,
    postcondition_of,
    told_of,
)
from nbrefine.postconditions import tests_of as source_of  # pytest would take it for a test
from nbrefine.rewards.tests import as_cell, run_tests
from nbrefine.values import CaseResult, Postcondition

SESSION = """
import pandas as pd
import polars as pl
from pathlib import Path
df = pd.DataFrame({"age": [22.0, 38.0], "fare": [7.25, 71.28]})
short = df.head(0)
fast = pl.DataFrame({"age": [22, 38], "fare": [7.25, 71.28]})
listed = [1, 2, 3]
mean = df["age"].mean()
none = float("nan")
Path("out").mkdir()
Path("out/prices.csv").write_text("a,b\\n1,2\\n")
Path("empty.csv").touch()
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with Kernel.start(cwd=tmp_path_factory.mktemp("session")) as started:
        result = started.run(SESSION).result()
        assert result.ok, result.text
        yield started


def cases(kernel: Kernel, *postconditions: Postcondition) -> tuple[CaseResult, ...]:
    return run_tests(kernel, source_of(postconditions), timeout_per_test=30).result().cases


@pytest.mark.parametrize(
    ("postcondition", "count"),
    [
        (file_written("out/prices.csv"), 1),
        (file_written("./out/prices.csv", at_least=8), 1),
        (file_written("empty.csv", at_least=0), 1),
        (frame("df"), 1),
        (frame("df", rows=2, columns=["fare", "age"]), 1),
        (frame("df", min_rows=1, columns=["fare", "age"]), 1),
        (frame("fast", rows=2, columns=["fare", "age"]), 1),
        (frame("short", rows=0, columns=["age"]), 1),
        (frame("df[df.age > 30]", columns=("age",)), 1),
        (frame("pd.concat([df,\n  df])", rows=4), 1),
        (in_range("mean", low=30, high=30), 1),
        (in_range("mean if listed else none", low=29.5), 1),
        (in_range("mean - 40", high=-10.0), 1),
        (in_range("len(\n  listed\n)", low=3, high=3), 1),
        (holds("len(df) == 2"), 1),
        (holds("len(df) == 2\nmean == 30  # years"), 2),
        (holds("assert mean == 30, 'it is not'\nassert listed"), 2),
        (holds("for age in df['age']:\n    assert age > 0"), 1),
        (holds("    import math\n    assert not math.isnan(mean)\n"), 1),
        (holds("(mean >\n  20)"), 1),
        (holds("(n := len(df)) == 2"), 1),
        (holds("(n := len(df))"), 1),
    ],
)
def test_what_holds_passes_in_a_session(
    kernel: Kernel, postcondition: Postcondition, count: int
) -> None:
    told = cases(kernel, postcondition)
    assert [case.status for case in told] == ["passed"] * count, told


@pytest.mark.parametrize(
    ("postcondition", "got", "expected", "message"),
    [
        (file_written("empty.csv"), "0", ">= 1", "empty.csv is too short"),
        (file_written("out/prices.csv", at_least=9), "8", ">= 9", "out/prices.csv is too short"),
        (frame("short", columns=["age"]), "", "", "short has 0 rows, at least 1 were expected"),
        (frame("fast", min_rows=3), "", "", "fast has 2 rows, at least 3 were expected"),
        (frame("df[df['age'] > 30]", rows=2), "", "", "df[df['age'] > 30] has 1 row, not 2"),
        (frame('df[df["age"].isin({22})]', rows=2), "", "",
         'df[df["age"].isin({22})] has 1 row, not 2'),
        (frame("df", rows=7, columns=["age", "Order ID"]), "", "",
         "df has 2 rows, not 7; columns missing: Order ID; it has: age, fare"),
        (frame("fast", columns=["cabin", "sex", "fare"]), "", "",
         "columns missing: cabin, sex; it has: age, fare"),
        (frame("pd.DataFrame()", rows=0), "", "", "pd.DataFrame() has no columns"),
        (frame("pd.DataFrame([[1, 2]])", columns=["a"]), "", "",
         "columns missing: a; it has: 0, 1"),
        (in_range("mean", low=0, high=20), "30.0", "0 <= mean <= 20", ""),
        (in_range("mean", low=31), "30.0", ">= 31", ""),
        (in_range("none", low=0), "nan", ">= 0", ""),
        (in_range("none", high=0), "nan", "<= 0", ""),
        (in_range("none", low=-1e9, high=1e9), "nan", "-1000000000.0 <= none <= 1000000000.0", ""),
        (holds("len(listed) == 4"), "3", "4", ""),
        (holds("assert not listed, 'nothing should be left'"), *("[1, 2, 3]", "a false value"),
         "nothing should be left"),
    ],
)  # fmt: skip
def test_what_fails_tells_what_was_there_and_what_was_asked_for(
    kernel: Kernel, postcondition: Postcondition, got: str, expected: str, message: str
) -> None:
    (case,) = (case for case in cases(kernel, postcondition) if not case.passed)
    shown = case.got.removeprefix("np.float64(").removesuffix(")")
    assert (case.status, shown, case.expected) == ("failed", got, expected)
    assert case.message == message


def test_a_frame_tells_the_same_wherever_its_check_runs() -> None:
    """Under Run All as elsewhere, and without a name that stays."""
    asked = frame("df", rows=2, columns=["a", "b"])

    class Table(list[int]):
        columns = ("a", 3)

    for source in (source_of([asked]), cell_of([asked]), as_cell(source_of([asked]))):
        for apart in (False, True):
            names: dict[str, Any] = {"df": Table()}
            with pytest.raises(AssertionError) as caught:
                exec(source, {} if apart else names, names)
            told = "df has 0 rows, not 2; columns missing: b; it has: a, 3"
            assert str(caught.value) == told
            assert names.keys() - {"__builtins__"} == {"df"}


@pytest.mark.parametrize(
    ("postcondition", "message"),
    [
        (file_written("gone.csv"), "FileNotFoundError: [Errno 2] No such file or directory"),
        (file_written("out"), "IsADirectoryError: [Errno 21] Is a directory: 'out'"),
        (frame("nowhere"), "NameError: name 'nowhere' is not defined"),
        (frame("nowhere", rows=2, columns=["a"]), "NameError: name 'nowhere' is not defined"),
        (frame("listed"), "AttributeError: 'list' object has no attribute 'columns'"),
        (in_range("nowhere", low=0), "NameError: name 'nowhere' is not defined"),
    ],
)
def test_what_cannot_be_looked_at_says_why(
    kernel: Kernel, postcondition: Postcondition, message: str
) -> None:
    errors = [case for case in cases(kernel, postcondition) if case.status == "error"]
    assert errors
    assert errors[-1].message.startswith(message)


def test_all_together_make_a_cell_that_reads_well() -> None:
    asked = [
        file_written("prices.csv"),
        frame("df", columns=["age", "fare"]),
        frame("rest", rows=10),
        in_range("df['age'].mean()", low=0, high=120),
        in_range("a + b", high=1.5),
        holds("total == 12", told="the total is right,\nto the cent"),
        holds("assert done"),
    ]
    assert source_of(asked) == (
        "# prices.csv is written and not empty\n"
        'assert open("prices.csv", "rb").seek(0, 2) >= 1, "prices.csv is too short"\n'
        "# df is a data frame with at least 1 row and the columns age, fare\n"
        'assert bool("age" in df.columns and "fare" in df.columns and len(df) >= 1), "; ".join(\n'
        "    told\n"
        "    for table in [df]\n"
        '    for missing in [[name for name in ["age", "fare"] if name not in table.columns]]\n'
        "    for wrong, told in [\n"
        "        (len(table) < 1, f\"df has {len(table):,} row{'s'[len(table) == 1:]},"
        ' at least 1 were expected"),\n'
        '        (missing, "columns missing: " + ", ".join(missing)),\n'
        '        (missing, "it has: " + ", ".join(f"{name}" for name in table.columns)),\n'
        "    ]\n"
        "    if wrong\n"
        ")\n"
        "# rest is a data frame with 10 rows\n"
        'assert bool(len(rest.columns) >= 1 and len(rest) == 10), "; ".join(\n'
        "    told\n"
        "    for table in [rest]\n"
        "    for wrong, told in [\n"
        "        (len(table) != 10, f\"rest has {len(table):,} row{'s'[len(table) == 1:]},"
        ' not 10"),\n'
        '        (len(table.columns) < 1, "rest has no columns"),\n'
        "    ]\n"
        "    if wrong\n"
        ")\n"
        "# df['age'].mean() is between 0 and 120\n"
        "assert 0 <= df['age'].mean() <= 120\n"
        "# a + b is at most 1.5\n"
        "assert (a + b) <= 1.5\n"
        "# the total is right,\n"
        "# to the cent\n"
        "assert total == 12\n"
        "assert done\n"
    )
    assert cell_of(asked) == source_of(asked) == as_cell(source_of(asked))
    assert source_of([]) == ""


def test_words_tell_sizes() -> None:
    assert file_written("a.csv", at_least=0).told == "a.csv is written"
    assert file_written("a.csv", at_least=2000).told == "a.csv is written with at least 2,000 bytes"
    assert frame("df", rows=2, columns=["a"]).told == (
        "df is a data frame with 2 rows and the column a"
    )


@pytest.mark.parametrize(
    "source",
    [
        "import os\nassert os.sep",
        "df = [1]\nassert df == [1]",
        "for df in [1]:\n    assert df",
        "assert (df := 3) == 3",
        "assert [(df := n) for n in [1]]",
        "def df():\n    return 1\nassert df() == 1",
        "with open('x', 'w') as df:\n    assert df",
        'df = """a\\\\b"""\nassert len(df) == 3, df',
    ],
)
def test_a_cell_of_checks_leaves_no_name_behind(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under Run All it stands between the cells of the session, and may not change their names."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"df": "kept"}
    exec(cell_of([holds(source), holds("df == 'kept'")]), names)
    names.pop("__builtins__")
    assert names == {"df": "kept"}


def test_a_cell_of_checks_fails_where_a_check_does() -> None:
    with pytest.raises(AssertionError, match=r"a\\b"):
        exec(cell_of([holds('n = "a" + chr(92) + "b"\nassert not n, n')]), {})


@given(
    st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    st.integers() | st.floats(),
)
def test_a_range_holds_its_bounds_and_never_nan(
    low: float, high: float | None, value: float
) -> None:
    if high is not None and low > high:
        low, high = high, low
    inside = not math.isnan(value) and low <= value and (high is None or value <= high)
    try:
        exec(source_of([in_range("value", low=low, high=high)]), {"value": value})
    except AssertionError:
        assert not inside
    else:
        assert inside


@given(st.text(min_size=1, max_size=20))
def test_any_name_of_a_column_is_asked_for_as_it_is(column: str) -> None:
    class Table(list[int]):
        columns = (column,)

    exec(source_of([frame("table", columns=[column])]), {"table": Table([1])})
    with pytest.raises(AssertionError):
        exec(source_of([frame("table", columns=[f"{column}s"])]), {"table": Table([1])})


@given(st.text(max_size=40), st.booleans())
def test_a_check_that_is_taken_is_python_that_asserts_something(source: str, asserts: bool) -> None:
    try:
        made = holds(f"assert {source}" if asserts else source)
    except UsageError:
        return
    tree = ast.parse(source_of([made]))
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("  \n", "A check is empty"),
        ("at least ten rows", "The check `at least ten rows` is no Python: line 1: invalid syntax"),
        ("assert x\n  y", "The check `assert x y` is no Python: line 2: unexpected indent"),
        ("total = 12", "The check `total = 12` asserts nothing"),
        ("return x", "is no Python: line 1: 'return' outside function"),
        ("def check():\n    assert x", "asserts nothing"),
        ("print(x)\nimport os", "asserts nothing"),
        ("assert True", "is always true"),
        ("'there are rows'", "is always true"),
        ("assert (x, 'there is no x')", "is always true"),
        ("x > 3, y > 3", "is always true"),
        ("1 == 1", "looks at nothing"),
        ("not False", "looks at nothing"),
        ("x > 3\nassert 'a' in 'abc'", "looks at nothing"),
        ("from __future__ import annotations\nassert x", "sets something for all code around it"),
        ("assert x\0", "is no Python"),
        ("%time x", "is no Python"),
        ("(" * 300 + ")" * 300, "is no Python"),
    ],
)
def test_a_check_that_cannot_fail_or_run_is_refused(source: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        holds(source)
    assert problem in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    ("data", "same"),
    [
        ("len(df) > 0", holds("len(df) > 0")),
        ({"assert": "assert x", "told": "x is there"}, holds("assert x", told="x is there")),
        ({"file": "a.csv"}, file_written("a.csv")),
        ({"file": "a.csv", "at_least": 10}, file_written("a.csv", at_least=10)),
        ({"frame": "df"}, frame("df")),
        ({"frame": "df", "rows": 3, "columns": ["a"]}, frame("df", rows=3, columns=["a"])),
        ({"frame": "df", "min_rows": 3}, frame("df", min_rows=3)),
        ({"frame": "df", "columns": "age"}, frame("df", columns=["age"])),
        ({"frame": "df", "columns": None}, frame("df")),
        ({"value": "x", "low": 0, "high": None}, in_range("x", low=0)),
        ({"value": "x", "high": "1e-3"}, in_range("x", high=0.001)),
    ],
)
def test_data_makes_what_the_functions_make(data: Any, same: Postcondition) -> None:
    made = postcondition_of(data, origin="model")
    assert made == replace(same, origin="model")
    assert same.origin == "task"


def test_words_of_ones_own_take_the_place_of_those_that_are_made() -> None:
    made = postcondition_of({"file": "a.csv", "told": " The table is saved. "}, origin="task")
    assert made.told == "The table is saved."


KINDS = (
    "Allowed: {file, at_least}, {frame, rows, min_rows, columns}, {value, low, high}, {assert} "
    "or a Python expression as text"
)


@pytest.mark.parametrize(
    ("data", "problem", "hint"),
    [
        (3, "A check is a text or a mapping, not `3`", KINDS),
        ({}, "is of no kind that is known", KINDS),
        ({"fil": "a"}, "is of no kind that is known", f'Did you mean "file"? {KINDS}'),
        ({"rows": 3}, "is of no kind that is known", KINDS),
        ({"file": "a", "frame": "b"}, "has the kinds file, frame", KINDS),
        ({"file": "a", "rows": 3}, 'Unknown key "rows"', "Allowed: file, at_least, told"),
        ({"file": 3}, '"file" of a check is a text, not `3`', "Put it in quotes"),
        ({"assert": True}, '"assert" of a check is a text, not `True`', "Put it in quotes"),
        ({"assert": "x", "told": 3}, '"told" of a check is a text, not `3`', "Put it in quotes"),
        ({"file": " "}, "is no file of the working folder", ""),
        ({"file": "/etc/passwd"}, "is no file of the working folder", ""),
        ({"file": "../a"}, "is no file of the working folder", ""),
        ({"file": "~/a"}, "is no file of the working folder", ""),
        ({"file": "a", "at_least": -1}, "at_least is -1, but a whole number from 0 on", ""),
        ({"file": "a", "at_least": "2 kB"}, "at_least is '2 kB'", ""),
        ({"frame": "df", "rows": 1.5}, "rows is 1.5", ""),
        ({"frame": "df", "rows": True}, "rows is True", ""),
        ({"frame": "df", "min_rows": -1}, "min_rows is -1", ""),
        ({"frame": "df", "rows": 3, "min_rows": 3}, "has rows and min_rows", "Keep one"),
        ({"frame": "df", "columns": [1]}, "The columns of a frame are a list of names", ""),
        ({"frame": "df", "columns": 3}, "The columns of a frame are a list of names", ""),
        ({"frame": "df = 3"}, '"frame" of a check is `df = 3`, which is no Python expr', ""),
        ({"frame": "the table"}, "which is no Python expression", ""),
        ({"value": "x; y", "low": 1}, "which is no Python expression", ""),
        ({"value": "x"}, "The range of 'x' has no bound", "Give low, high or both"),
        ({"value": "x", "low": "much"}, "low is 'much', but a bound is a finite number", ""),
        ({"value": "x", "low": math.inf}, "low is inf, but a bound is a finite number", ""),
        ({"value": "x", "high": True}, "high is True, but a bound is a finite number", ""),
        ({"value": "x", "low": 2, "high": 1}, "low is 2 and above high, 1", "Exchange the two"),
        ("x = 3", "asserts nothing", ""),
    ],
)
def test_data_that_is_no_check_is_told_with_what_is_allowed(
    data: Any, problem: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        postcondition_of(data, origin="task")
    assert problem in refused.value.message
    assert hint in refused.value.hint


def test_a_long_check_is_cited_in_part() -> None:
    with pytest.raises(UsageError) as refused:
        holds("x = " + "1 + " * 100 + "1")
    assert len(refused.value.message) < 160
    assert "…`" in refused.value.message


def test_a_bound_of_numpy_is_written_as_a_number() -> None:
    np = pytest.importorskip("numpy")
    assert in_range("x", low=np.float64(0.5)).source == "assert x >= 0.5"


def test_a_cell_of_checks_runs_in_a_notebook(kernel: Kernel) -> None:
    asked = [holds("import json\nmean = json.loads('30')\nassert mean == 30"), frame("df")]
    ran = kernel.run(cell_of(asked)).result()
    assert ran.ok, ran.text
    assert ran.outputs == ()
    after = kernel.run("'json' in globals(), type(mean).__name__").result()
    assert after.text.strip() == "(False, 'float64')"


@pytest.mark.parametrize(
    "source",
    [
        "assert await ready()",
        "[x async for x in rows()]",
        "async with lock() as held:\n assert held",
    ],
)
def test_checks_that_wait_stay_as_they_are(source: str) -> None:
    made = holds(source)
    assert cell_of([made]) == source_of([made])


@pytest.mark.parametrize(
    ("check", "told"),
    [
        (holds("df['a'].max() > 0"), ("df['a'].max() > 0",)),
        (holds('"a" in df'), ('"a" in df',)),
        (holds("assert a == 1\nassert (b >\n  2), 'too few'"), ("a == 1", "b > 2  # too few")),
        (holds("assert a, f'{a} is left'"), ("a",)),
        (holds("assert a", told="a is there"), ("a is there",)),
        (holds("for x in xs:\n    assert x"), ("for x in xs:\n    assert x",)),
        (in_range("x", low=0), ("x is at least 0",)),
        (Postcondition("x ="), ("x =",)),
    ],
)
def test_a_check_is_told_in_its_words_or_without_the_word_assert(
    check: Postcondition, told: tuple[str, ...]
) -> None:
    assert told_of(check) == told
