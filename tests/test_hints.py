"""Hints: a key that was looked up in vain stands beside the one that may have been meant."""

from __future__ import annotations

from nbrefine.hints import did_you_mean
from nbrefine.outputs import Failure

COLUMNS = {"df": ("Island", "Body Mass (g)", "Culmen Length (mm)", "Sex")}


def test_letters_and_digits_alone_decide_first() -> None:
    code = "df.groupby('island')['body_mass_g'].max()"
    told = did_you_mean(code, Failure("KeyError", "'island'"), COLUMNS)
    assert told.splitlines() == [
        "There is no 'island'. Use 'Island', as it stands in df.",
        "There is no 'body_mass_g'. Use 'Body Mass (g)', as it stands in df.",
    ]


def test_a_name_the_error_gives_is_compared_by_likeness_too() -> None:
    code = "df['bill_length_mm'].mean()"
    told = did_you_mean(code, Failure("KeyError", "'bill_length_mm'"), COLUMNS)
    assert told == "There is no 'bill_length_mm'. Use 'Culmen Length (mm)', as it stands in df."


def test_pandas_own_words_around_the_name_do_not_hide_it() -> None:
    failure = Failure("KeyError", "'Column not found: body_mass_g'")
    assert did_you_mean("df['body_mass_g']", failure, COLUMNS) == (
        "There is no 'body_mass_g'. Use 'Body Mass (g)', as it stands in df."
    )
    failure = Failure("KeyError", "\"['sex'] not in index\"")
    assert did_you_mean("df[['sex']]", failure, COLUMNS) == (
        "There is no 'sex'. Use 'Sex', as it stands in df."
    )


def test_attributes_count_as_names() -> None:
    failure = Failure("AttributeError", "'DataFrame' object has no attribute 'island'")
    assert "Use 'Island'" in did_you_mean("df.island.unique()", failure, COLUMNS)


def test_where_none_comes_near_the_names_that_there_are_are_listed() -> None:
    told = did_you_mean("d['zzz']", Failure("KeyError", "'zzz'"), {"d": ("alpha", "beta")})
    assert told == "There is no 'zzz'. d has 'alpha', 'beta'."


def test_other_errors_and_right_names_say_nothing() -> None:
    assert did_you_mean("1 / 0", Failure("ZeroDivisionError", "division by zero"), COLUMNS) == ""
    assert did_you_mean("df['Sex']", Failure("KeyError", "'Sex'"), COLUMNS) == ""
    assert did_you_mean("d['x']", Failure("KeyError", "'x'"), {}) == ""
    assert did_you_mean("def (", Failure("SyntaxError", "invalid syntax"), COLUMNS) == ""


def test_a_new_name_that_only_resembles_a_column_is_left_alone() -> None:
    code = "df['culmen_ratio'] = df['island']"
    told = did_you_mean(code, Failure("KeyError", "'island'"), COLUMNS)
    assert told == "There is no 'island'. Use 'Island', as it stands in df."
