from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.answers import fields_form, fields_of, only_fields, problem


def test_fields_are_read_wherever_they_stand() -> None:
    text = "The result:\n@mean[34.65], @sd [1.2]\n**@note[a b]** done"
    assert fields_of(text) == {"mean": "34.65", "sd": "1.2", "note": "a b"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("@x[[1, 2], [3]]", "[1, 2], [3]"),
        ("@x[{'a': [1]}]", "{'a': [1]}"),
        ("@x[]", ""),
        ("@x[array([1,\n       2])] end", "array([1,\n       2])"),
        ("@x[[0, 1)] and more", "[0, 1)"),
        ("@x[a] @x[b]", "b"),
        ("@größe[3]", "3"),
    ],
)
def test_a_value_may_hold_brackets(text: str, value: str) -> None:
    assert list(fields_of(text).values()) == [value]


@pytest.mark.parametrize("text", ["@x[3.5", "x[3]", "a@b.c", "@[3]", "@1x[3]"])
def test_what_is_no_whole_field_is_none(text: str) -> None:
    assert fields_of(text) == {}


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("@x[1]", True),
        (" @x[1], @y[[2]]\n", True),
        ("x = 1\n@x[1]", False),
        ("@x[1", False),
        ("", False),
    ],
)
def test_fields_alone_are_told_from_fields_among_words(text: str, only: bool) -> None:
    assert only_fields(text) is only


@given(
    st.dictionaries(
        st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True),
        st.text(alphabet=st.characters(exclude_characters="@[]", exclude_categories=["Cs"])),
        max_size=5,
    )
)
def test_fields_that_are_written_are_read_again(fields: dict[str, str]) -> None:
    text = " ".join(f"@{name}[{value}]" for name, value in fields.items())
    assert fields_of(text) == {name: value.strip() for name, value in fields.items()}


def test_a_wording_gives_the_form_and_is_told_as_it_stands() -> None:
    wording = '@mean[mean_value] @sd[sd], where "mean_value" and "sd" are numbers.'
    form = fields_form(wording)
    assert form is not None
    assert (form.kind, form.fields, form.told) == ("fields", ("mean", "sd"), wording)


def test_a_brace_that_is_never_closed_is_left_out() -> None:
    form = fields_form("{\n@a[x]\n@b[y]\nwhere x is a number.")
    assert form is not None
    assert form.told.startswith("@a[x]")


def test_a_field_for_one_case_only_may_be_left_out() -> None:
    form = fields_form('@count[n] where n is an integer. If there is none, print @status["None"]')
    assert form is not None
    assert form.fields == ("count",)


def test_a_field_that_every_case_has_may_not_be_left_out() -> None:
    form = fields_form("@p[p]. If it is low, output @normal[no], else output @normal[yes].")
    assert form is not None
    assert form.fields == ("p", "normal")


def test_words_without_a_field_give_no_form() -> None:
    assert fields_form("Say which country it is (mail me@home.org).") is None


def test_the_labels_of_a_benchmark_are_in_the_forms_of_its_wordings(shared_data: Path) -> None:
    """Every one of 122 wordings can be read, and no right answer is refused, a "nan" among them."""
    refused = []
    for line in (shared_data / "dabench" / "questions.jsonl").read_text().splitlines():
        row = json.loads(line)
        form = fields_form(row["format"])
        assert form is not None, row["id"]
        labels = dict(row["common_answers"])
        assert set(labels) <= set(form.fields), row["id"]
        said = problem(" ".join(f"@{name}[{value}]" for name, value in labels.items()), form)
        if said and not said.startswith("The answer lacks"):
            refused.append((row["id"], said))
    assert refused == []
