from __future__ import annotations

import pytest

from nbrefine.answers.asked import Asked

CHOICES = [
    ('@a[x] where "x" is a string that can be either "yes" or "no".', ("yes", "no")),
    ('@a[x], where "x" takes the value "yes" if it is so, and "no" if not.', ("yes", "no")),
    ('@a[x] where "x" must be one of the words: "low", "mid", "high".', ("low", "mid", "high")),
    ("@a[x] where 'x' is 'good fit' or 'poor fit'.", ("good fit", "poor fit")),
    ("@a[up/down]", ("up", "down")),
    ('@a[x] where "x" is a boolean value.', ("True", "False")),
    ("@a[x] where x is True or False.", ("True", "False")),
]


@pytest.mark.parametrize(("told", "choices"), CHOICES)
def test_choices_are_read_where_a_wording_lists_them(told: str, choices: tuple[str, ...]) -> None:
    assert Asked.of("a", told).choices == choices


@pytest.mark.parametrize(
    "told",
    [
        '@a[x] where "x" is the name of a column, such as "age" or "fare".',
        "@a[x] where \"x\" is the mean of the 'age' and the 'fare' column.",
        '@a[x] where "x" can be "none".',
        '@a[x] @b[y] where "x" is a word, "y" is either "yes" or "no".',
        "@a[x]",
        "",
    ],
)
def test_no_choices_are_read_into_other_words(told: str) -> None:
    assert Asked.of("a", told).choices == ()


@pytest.mark.parametrize(
    "told",
    [
        '@a[x] where "x" is a float number rounded to two places, below "Close Price".',
        '@a[x] @b[y] where "x" and "y" are non-negative integers.',
        '@a[x] where "x" represents a number.',
        "@a[x] where x is a positive decimal.",
    ],
)
def test_a_number_is_read_where_it_is_asked_for(told: str) -> None:
    assert Asked.of("a", told).number


@pytest.mark.parametrize(
    "told",
    [
        '@a[x] where "x" is a list of numbers.',
        '@a[x] where "x" is the name with the highest number.',
        '@a[x] where "x" is a number or the string "none at all".',
    ],
)
def test_no_number_is_asked_of_other_things(told: str) -> None:
    assert not Asked.of("a", told).number
