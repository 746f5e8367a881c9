from __future__ import annotations

from typing import Any

import pytest

from nbrefine.answers import form_of
from nbrefine.errors import UsageError
from nbrefine.values import AnswerForm, Postcondition

WORDING = '@mean[m], where "m" is a number.'


@pytest.mark.parametrize(
    ("data", "form"),
    [
        ("text", AnswerForm("text")),
        ("text: one word", AnswerForm("text", told="one word")),
        ("fields:mean, sd", AnswerForm("fields", fields=("mean", "sd"))),
        ("value", AnswerForm("value")),
        ("value:total", AnswerForm("value", variable="total")),
        ("files:out.csv,plots/a.png", AnswerForm("files", files=("out.csv", "plots/a.png"))),
        (WORDING, AnswerForm("fields", told=WORDING, fields=("mean",))),
        ({"told": WORDING}, AnswerForm("fields", told=WORDING, fields=("mean",))),
        ({"kind": "text", "told": WORDING}, AnswerForm("text", told=WORDING)),
        ({}, AnswerForm("text")),
        ({"fields": ["a", "b"], "told": "x"}, AnswerForm("fields", told="x", fields=("a", "b"))),
        ({"files": "a.csv"}, AnswerForm("files", files=("a.csv",))),
        ({"variable": "n"}, AnswerForm("value", variable="n")),
        ({"kind": "text", "pattern": r"\d+"}, AnswerForm("text", pattern=r"\d+")),
    ],
)
def test_a_form_is_read_in_full_and_in_short(data: Any, form: AnswerForm) -> None:
    assert form_of(data) == form


def test_checks_are_read_by_whoever_can() -> None:
    def check(told: Any) -> Postcondition:
        return Postcondition(f"assert {told}")

    one = form_of({"kind": "value", "check": "answer > 0"}, check=check)
    assert one.postconditions == (Postcondition("assert answer > 0"),)
    two = form_of({"kind": "value", "checks": ["a", "b"]}, check=check)
    assert [each.source for each in two.postconditions] == ["assert a", "assert b"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("words", "no answer of the kind 'words'"),
        ("fields", "needs fields"),
        ("files:", "needs files"),
        (3, "3 is no form"),
        (None, "None is no form"),
        ({"feilds": ["a"]}, "no 'feilds'"),
        ({"kind": "value", "variable": "a b"}, "cannot be called 'a b'"),
        ({"fields": ["a]b"]}, "cannot be called 'a]b'"),
        ({"fields": 3}, "not a list"),
        ({"fields": [3]}, "not a list"),
        ({"told": 3}, "not a text"),
        ({"pattern": "("}, "cannot be read"),
        ({"pattern": "(" * 3_000 + ")" * 3_000}, "cannot be read"),
        ({"pattern": "a{99999999999}"}, "cannot be read"),
        ({"kind": "text", "check": "x"}, "takes no checks"),
    ],
)
def test_what_is_no_form_is_refused_with_what_would_be_one(data: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told.replace("(", r"\(")) as refused:
        form_of(data)
    assert refused.value.hint
