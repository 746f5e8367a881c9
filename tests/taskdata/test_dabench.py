"""Questions of DABench as tasks, and answers in awkward forms judged by two rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nbrefine.errors import InvalidTaskError
from nbrefine.taskdata import answers_match, dabench_task, exactly, rounded
from nbrefine.values import Answer, Task

LABELS = {"mean_fare": "34.65", "normal": "no"}


@pytest.fixture(scope="module")
def tasks(shared_data: Path) -> list[Task]:
    folder = shared_data / "dabench"
    lines = (folder / "questions.jsonl").read_text().splitlines()
    return [dabench_task(json.loads(line), tables=folder / "tables") for line in lines]


def test_every_question_has_its_table_and_a_form_that_its_label_fits(tasks: list[Task]) -> None:
    assert len(tasks) == 122
    assert all(Path(path).is_file() for task in tasks for path in task.files)
    for task in tasks:
        assert task.answer is not None
        assert set(task.metadata["labels"]) <= set(task.answer.fields), task.id


def test_the_labels_themselves_are_right_by_both_rules(tasks: list[Task]) -> None:
    for task in tasks:
        labels = task.metadata["labels"]
        said = " ".join(f"@{name}[{value}]" for name, value in labels.items())
        assert answers_match(said, labels).right, task.id
        assert answers_match(said, labels, alike=rounded).right, task.id


def test_no_label_reaches_the_prompt(tasks: list[Task]) -> None:
    first = tasks[0]
    assert first.id == "9"
    assert first.metadata["labels"] == {"mean_close_price": "570.68"}
    assert "570.68" not in first.prompt
    assert first.prompt.startswith("Calculate the mean value of the")
    assert "should not be rounded" in first.prompt  # of the constraints


@pytest.mark.parametrize(
    ("said", "by_upstream", "by_rounding"),
    [
        ("@mean_fare[34.65] @normal[no]", 1.0, 1.0),
        ("@normal[no]\n@mean_fare[34.650]", 1.0, 1.0),
        ("@mean_fare[34.6500001] @normal[no]", 1.0, 1.0),
        ("@mean_fare[34.6512] @normal[no]", 0.5, 1.0),
        ("@mean_fare[34.65] @normal[No]", 0.5, 1.0),
        ("@mean_fare[34.65] @normal[ 'no' ]", 0.5, 1.0),
        ("@mean_fare[34.66] @normal[no]", 0.5, 0.5),
        ("@mean_fare[34.6] @normal[yes]", 0.0, 0.0),
        ("@mean_fare[about 34.65] @normal[no]", 0.5, 0.5),
        ("@mean_fare[nan] @normal[no]", 0.5, 0.5),
        ("@mean_fare[inf] @normal[no]", 0.5, 0.5),
        ("mean_fare = 34.65, normal = no", 0.0, 0.0),
        ("@mean_fare[1] @mean_fare[34.65] @normal[no]", 1.0, 1.0),
        ("", 0.0, 0.0),
    ],
)
def test_an_answer_is_judged_field_by_field(
    said: str, by_upstream: float, by_rounding: float
) -> None:
    assert answers_match(said, LABELS).share == by_upstream
    marks = answers_match(said, LABELS, alike=rounded)
    assert marks.share == by_rounding
    assert marks.right == (by_rounding == 1.0)


def test_an_episodes_answer_is_judged_and_none_is_wrong() -> None:
    assert answers_match(Answer("@normal[no] @mean_fare[34.65]"), LABELS).right
    assert answers_match(None, LABELS).fields == {"mean_fare": False, "normal": False}


def test_numbers_are_rounded_to_the_labels_own_decimals() -> None:
    assert rounded("0.9876", "0.99")
    assert rounded("16.0", "16")
    assert not rounded("0.9", "0.99")
    assert not exactly("0.9876", "0.99")
    assert exactly("1e3", "1000")


def test_a_row_without_a_form_is_refused() -> None:
    with pytest.raises(InvalidTaskError, match="Row 7 has no field such as @name"):
        dabench_task({"id": 7, "question": "How many?", "format": "a number", "file_name": "x"})
