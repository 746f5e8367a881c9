"""The summary of a session tells what is most useful first, in no more room than it is given."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nbrefine._portal import Run
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.digest import snapshot
from nbrefine.kernel.state.namespace import Variable, describe, variables
from nbrefine.kernel.state.summary import LIMIT

FRAME = Variable(
    "df", "DataFrame", shape=(344, 2), detail="species (str), mass (float64)", preview="('A', 1)"
)
ARRAY = Variable("xs", "ndarray", shape=(6, 7), detail="float64", preview="(0.5, 1.5)")


def test_the_description_tells_tables_first_and_adds_rows_where_there_is_room() -> None:
    variables = [
        Variable("np", "module", kind="module", preview="numpy"),
        Variable("n", "int", preview="3"),
        Variable("f", "function", kind="function", preview="(a, b)"),
        FRAME,
        ARRAY,
        Variable("names", "list", shape=(2,), detail="of str", preview="['a', 'b']"),
    ]
    lines = [
        "df: DataFrame 344 rows x 2 columns; species (str), mass (float64)",
        "  first rows: ('A', 1)",
        "xs: ndarray of shape (6, 7), float64 = (0.5, 1.5)",
        "names: list of length 2, of str = ['a', 'b']",
        "n: int = 3",
        "functions: f(a, b)",
        "modules: np (numpy)",
    ]
    assert describe(variables) == "\n".join(lines)
    without_rows = describe(variables, limit=len("\n".join(lines)) - 5)
    assert without_rows == "\n".join(lines[:1] + lines[2:])


def test_what_was_bound_or_changed_last_comes_first_among_its_like() -> None:
    frames = [replace(FRAME, name=name) for name in ("old", "older", "new")]
    told = describe([*frames, Variable("n", "int", preview="3")], recent=("old",))
    assert [line.partition(":")[0] for line in told.splitlines() if line[0] != " "] == [
        "old",
        "new",
        "older",
        "n",
    ]


def test_what_was_changed_last_is_told_even_where_tables_take_all_the_room() -> None:
    frames = [replace(FRAME, name=f"frame_{letter}") for letter in "abcdefghijklmnopqrstuvwxyz"]
    scalars = [Variable(f"n_{letter}", "int", preview="7") for letter in "abcdefghij"]
    told = describe([*scalars, *frames], limit=600, recent=("n_c",))
    assert "n_c: int = 7" in told.splitlines()
    assert len(told) <= 600


def test_names_that_differ_by_a_number_share_a_line_where_their_values_are_alike() -> None:
    ints = [Variable(f"x_{at}", "int", preview=str(at)) for at in range(1, 301)]
    years = [
        replace(FRAME, name=f"sales_{at}", shape=(100 + at, 2), detail="mass (float64)")
        for at in range(5)
    ]
    lists = [Variable(f"w{at}", "list", shape=(3,), detail="of str") for at in range(4)]
    few = [Variable(f"few_{at}", "str", shape=(1,), preview="'a'") for at in range(3)]
    odd = Variable("x_x", "int", preview="0")
    assert describe([*ints, odd, *years, *lists, *few]).splitlines() == [
        "sales_0 … sales_4: 5 DataFrames of 100 to 104 rows x 2 columns; mass (float64)",
        "  first rows: sales_0: ('A', 1)",
        "few_2: str of length 1 = 'a'",
        "few_1: str of length 1 = 'a'",
        "few_0: str of length 1 = 'a'",
        "w0 … w3: 4 lists of length 3, of str",
        "x_x: int = 0",
        "x_1 … x_300: 300 ints = 1, 2, …, 300",
    ]


def test_one_of_many_that_was_changed_is_told_by_itself() -> None:
    ints = [Variable(f"x_{at}", "int", preview=str(at)) for at in range(10)]
    assert describe(ints, recent=("x_3",)).splitlines() == [
        "x_3: int = 3",
        "x_0 … x_9: 9 ints = 0, 1, …, 9",
    ]


def test_the_description_keeps_its_limit_and_names_what_it_leaves_out() -> None:
    many = [Variable(f"value_{chr(97 + at)}", "int", preview="1" * 50) for at in range(26)]
    text = describe(many, limit=300)
    assert len(text) <= 300
    assert re.search(r"\nnot shown: value_\w, .* and \d+ more$", text)


def test_a_wide_table_is_cut_between_two_columns() -> None:
    wide = Variable(
        "df", "DataFrame", shape=(1, 99), detail=", ".join(f"c{i} (int64)" for i in range(99))
    )
    assert describe([wide], limit=100) == (
        "df: DataFrame 1 rows x 99 columns; c0 (int64), c1 (int64), c2 (int64), c3 (int64), "
        "c4 (int64), …"
    )


def test_nothing_is_described_as_nothing() -> None:
    assert describe([]) == ""


TEXTS = st.text(max_size=40) | st.sampled_from(["\x1b[31mred\x1b[0m", "a\nb", "\ud83d", "\u2028"])
KINDS: st.SearchStrategy[Any] = st.one_of(
    st.tuples(st.just("data"), st.just("DataFrame"), st.tuples(st.integers(0, 10**9), st.just(3))),
    st.tuples(st.just("data"), st.just("ndarray"), st.tuples(st.integers(0, 99))),
    st.tuples(st.just("data"), st.just("list"), st.tuples(st.integers(0, 99))),
    st.tuples(st.just("data"), st.sampled_from(["int", "str", "x\ny"]), st.none()),
    st.tuples(st.sampled_from(["function", "class", "module"]), st.just("type"), st.none()),
)


@st.composite
def sessions(draw: st.DrawFn) -> list[Variable]:
    stems = draw(st.lists(st.sampled_from(["qa", "qb", "qc"]), max_size=60))
    return [
        Variable(
            f"{stem}{at}q" if draw(st.booleans()) else f"{stem}{'zyxwvutsrp'[at % 10] * (at + 1)}q",
            kind,
            what,
            shape,
            preview=f"({draw(TEXTS)})".replace("q", ""),
            detail=draw(TEXTS).replace("q", ""),
        )
        for at, stem in enumerate(stems)
        for what, kind, shape in [draw(KINDS)]
    ]


@settings(max_examples=150, deadline=None)
@given(sessions(), st.integers(40, 3000), st.data())
def test_any_session_fits_in_is_plain_text_and_every_name_is_told_or_counted(
    session: list[Variable], limit: int, data: st.DataObject
) -> None:
    names = [variable.name for variable in session]
    recent = data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    text = describe(session, limit=limit, recent=recent)
    assert len(text) <= limit
    assert all(line.isprintable() for line in text.split("\n"))
    told = set(re.findall(r"q[abc]\w*q\b", text))
    assert told <= set(names)
    counted = sum(int(n.replace(",", "")) for n in re.findall(r"and ([\d,]+) more", text))
    counted += sum(int(n.replace(",", "")) for n in re.findall(r": ([\d,]+) names?", text))
    counted += sum(
        int(n.replace(",", ""))
        for n in re.findall(r"([\d,]+) (?:functions?|class|classes|modules?)\b", text)
    )
    # What shares a line names two and counts all of them.
    folded = [int(n.replace(",", "")) - 2 for n in re.findall(r"q: ([\d,]+) \S", text)]
    assert len(told) + counted + sum(folded) >= len(names)


def test_a_thousand_variables_are_told_in_a_few_lines(shared_kernel: Kernel) -> None:
    shared_kernel.run("%reset -f").result()
    source = (
        "import numpy as np, pandas as pd\n"
        "for i in range(100): globals()[f'frame_{i}'] = pd.DataFrame({'a': [i, 2], 'b': 'x'})\n"
        "for i in range(100): globals()[f'array_{i}'] = np.zeros((3, i))\n"
        "for i in range(500): globals()[f'n_{chr(97 + i % 26)}' * (1 + i // 26)] = i\n"
        "for i in range(297): globals()[f'words_{i}'] = ['a'] * i\n"
    )
    assert shared_kernel.run(source).result().ok
    found = Run(variables(shared_kernel.core)).result()
    assert len(found) == 1000  # with `np`, `pd` and `i`
    text = describe(found)
    assert len(text) <= LIMIT
    lines = text.splitlines()
    assert lines[:2] == [
        "frame_0 … frame_99: 100 DataFrames of 2 rows x 2 columns; a (int64), b (str)",
        "  first rows: frame_0: (0, 'x'), (2, 'x')",
    ]
    assert "array_0 … array_99: 100 ndarrays of shapes (3, 0) to (3, 99), float64" in lines
    assert "words_0 … words_296: 297 lists of length 0 to 296" in lines
    assert re.search(r" and \d+ more$", lines[-1])


def test_a_snapshot_describes_anew_what_has_changed_since_the_last_one(
    shared_kernel: Kernel,
) -> None:
    shared_kernel.run("%reset -f").result()

    def seen(source: str) -> dict[str, Variable]:
        assert shared_kernel.run(source).result().ok
        found = Run(snapshot(shared_kernel.core)).result().variables
        listed = Run(variables(shared_kernel.core)).result()
        assert found == listed
        return {variable.name: variable for variable in found}

    first = seen(
        "import numpy as np, pandas as pd\n"
        "df = pd.DataFrame({'a': [1.5, 2.5]})\nother = df.copy()\ns = pd.Series([1, 2])\n"
        "big = pd.DataFrame(np.zeros((400_000, 4)))"
    )
    assert seen("pass") == first
    second = seen("df.iloc[0, 0] = np.nan\nbig.iloc[200_001, 1] = np.nan\ns.name = 'total'")
    assert second["df"].detail == "a (float64, 1 missing)"
    assert second["big"].detail == "0 (float64), 1 (float64, 1 missing), 2 (float64), 3 (float64)"
    assert second["s"].detail == "int64, name total"
    assert second["other"] == first["other"]
    third = seen("df, other = other, df\ndel s")
    assert (third["df"].detail, third["other"].detail) == (
        "a (float64)",
        "a (float64, 1 missing)",
    )
