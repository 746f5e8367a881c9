from __future__ import annotations

import pytest

from nbrefine.answers import described, problem, reminder, spoken
from nbrefine.values import AnswerForm

TEXT = AnswerForm("text")
FIELDS = AnswerForm("fields", fields=("mean", "sd"))


def fields(told: str, *names: str) -> AnswerForm:
    return AnswerForm("fields", told=told, fields=names or ("a",))


def test_the_fields_are_asked_for_as_a_line_to_print() -> None:
    told = "@mean[m] @sd[s], rounded to two places."
    assert described(AnswerForm("fields", told=told, fields=("mean", "sd"))) == (
        "The code must print the answer in this form: @mean[m] @sd[s], rounded to two places.\n\n"
        "Let it end like this, with the values it has computed:\n"
        '```python\nprint(f"@mean[{mean}] @sd[{sd}]")\n```'
    )


def test_words_that_do_not_name_the_fields_are_told_besides() -> None:
    asked = described(AnswerForm("fields", told="Two places.", fields=("mean",)), language="r")
    assert asked == "The code must print the answer in this form: @mean[{mean}]\nTwo places."


def test_the_choices_of_a_field_are_told_as_code() -> None:
    form = fields('@a[x] where "x" is either "yes" or "no".')
    assert "\na = 'yes' if CONDITION else 'no'\nprint(f\"@a[{a}]\")\n```" in described(form)
    several = fields("@a[low/mid/high]")
    assert "\n# a is 'low' or 'mid' or 'high'\nprint(" in described(several)


@pytest.mark.parametrize("form", [FIELDS, AnswerForm("fields", fields=("mean-2", "sd"))])
def test_no_python_is_told_where_it_is_not_spoken_or_not_possible(form: AnswerForm) -> None:
    language = "r" if form is FIELDS else "python"
    assert "print(f" not in described(form, language=language)
    assert f"@{form.fields[0]}[" in described(form, language=language)


def test_every_kind_says_where_the_answer_goes() -> None:
    assert '"ANSWER:"' in described(TEXT)
    assert "`total`" in described(AnswerForm("value", variable="total"))
    assert "a.csv, b.png" in described(AnswerForm("files", files=("a.csv", "b.png")))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("ANSWER: 42", "42"),
        ("some rows\nANSWER: first\nANSWER: the last one \nmore", "the last one"),
        ("**ANSWER:** 42", "42"),
        ("**ANSWER: 42**", "42"),
        ("> ANSWER: a * b", "a * b"),
        ("  ANSWER:\nline one\nline two\n", "line one\nline two"),
        ("ANSWER: 3 * x**", "3 * x**"),
    ],
)
def test_the_last_answer_line_is_the_answer(text: str, answer: str) -> None:
    assert spoken(text, TEXT) == answer


@pytest.mark.parametrize("text", ["", "The answer: 42", "NO ANSWER: 42", 'print("ANSWER: 42")'])
def test_other_words_are_no_answer(text: str) -> None:
    assert spoken(text, TEXT) is None


def test_all_fields_make_an_answer_in_their_own_order() -> None:
    assert spoken("@sd[2]\nrows\n@mean[1] @more[3]", FIELDS) == "@mean[1] @sd[2]"
    assert spoken("@mean[1]", FIELDS) is None


def test_values_and_files_are_not_spoken() -> None:
    assert spoken("ANSWER: 4", AnswerForm("value")) is None
    assert spoken("ANSWER: 4", AnswerForm("files", files=("a",))) is None


def test_missing_fields_are_named() -> None:
    assert problem("@sd[1]", FIELDS) == "The answer lacks @mean[…]."
    assert problem("", FIELDS) == "The answer lacks @mean[…] @sd[…]."


def test_an_answer_in_its_form_has_no_problem() -> None:
    assert problem("@mean[1] @sd[2]", FIELDS) == ""
    assert problem("any words", TEXT) == ""
    assert problem("", AnswerForm("files", files=("a",))) == ""


@pytest.mark.parametrize("kind", ["text", "value"])
def test_a_blank_answer_is_none(kind: str) -> None:
    assert problem(" \n", AnswerForm(kind)) == "The answer is blank."  # type: ignore[arg-type]


def test_a_pattern_must_match_the_whole_text_but_for_blanks() -> None:
    form = AnswerForm("text", pattern=r"\d+ km")
    assert problem(" 12 km\n", form) == ""
    assert problem("about 12 km", form) == r"The answer does not match the pattern \d+ km"


@pytest.mark.parametrize("value", ["{mean}", "{mean:.2f}", "{round(df['a'].mean(), 2)}", "{x!r}"])
def test_a_place_that_was_not_filled_is_no_value(value: str) -> None:
    assert "put an f before the quotes" in problem(f"@a[{value}]", fields(""))


@pytest.mark.parametrize("value", ["{'a': 1}", "{1, 2}", "{}", "{", "{a b}", "3"])
def test_braces_in_a_value_are_no_such_place(value: str) -> None:
    assert problem(f"@a[{value}]", fields("")) == ""


def test_a_value_that_is_none_of_the_choices_is_refused_with_them() -> None:
    form = fields('@a[x] where "x" is either "yes" or "no".')
    assert problem("@a[3]", form) == "`a` is '3', but must be 'yes' or 'no'."
    assert problem("@a[True]", form) == (
        "`a` is 'True', but must be 'yes' or 'no'. Choose it: a = 'yes' if CONDITION else 'no'"
    )
    assert problem('@a["Yes"]', form) == ""


def test_blanks_are_read_once() -> None:
    """A pattern that can share them out in many ways would try all of them."""
    assert spoken(" " * 300_000, AnswerForm("text")) is None
    assert spoken("  **ANSWER:** 4 **", AnswerForm("text")) == "4"


def test_a_word_is_refused_where_a_number_is_asked_for() -> None:
    form = fields('@a[x] where "x" is a number.')
    assert problem("@a[high]", form) == "`a` is 'high', but must be a number."
    for value in ("-1,234.5", "1e-9", "0"):
        assert problem(f"@a[{value}]", form) == ""
    assert problem("@a[inf]", form) == "`a` is 'inf', but must be a number."
    assert problem("@a[nan]", form) == ""  # it may be what is right
    assert "must be a number" in problem("@a[inf]", form)


def test_what_only_stands_for_the_value_is_refused() -> None:
    told = problem("@a[mean_value]", fields("@a[mean_value]"))
    assert told == "`a` is 'mean_value', which only stands for the value. Put the value there."


def test_an_example_may_be_the_answer() -> None:
    assert problem("@a[Paris]", fields("Such as @a[Paris]")) == ""


def test_every_problem_of_the_fields_is_told() -> None:
    form = fields('@a[x] @b[y] where "x" and "y" are numbers.', "a", "b")
    assert len(problem("@a[one] @b[two]", form).splitlines()) == 2


def test_a_long_value_is_told_in_short() -> None:
    form = fields('@a[x] where "x" is a number.')
    assert len(problem(f"@a[{'word ' * 200}]", form)) < 200


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (
            FIELDS,
            "The answer must look like this:\n```answer\n@mean[{mean}] @sd[{sd}]\n```",
        ),
        (
            AnswerForm(told="a number\nwith one place"),
            "The answer must look like this: a number with one place\n```answer\nthe answer\n```",
        ),
        (TEXT, "The answer must look like this:\n```answer\nthe answer\n```"),
        (
            AnswerForm("value", variable="mean"),
            (
                "The answer must be in the variable `mean`, put there by a cell:\n"
                "```python\nmean = …\n```"
            ),
        ),
        (AnswerForm("files", files=("a.csv", "b.csv")), ""),
    ],
)
def test_who_answers_in_another_form_is_shown_it(form: AnswerForm, told: str) -> None:
    assert reminder(form) == told


def test_the_example_of_fields_is_no_answer_itself() -> None:
    shown = spoken(reminder(FIELDS), FIELDS)
    assert shown is not None
    assert "not a value" in problem(shown, FIELDS)
