"""A row becomes a task by the names of its columns."""

from __future__ import annotations

from typing import Any

import pytest

from nbrefine.errors import InvalidTaskError, UsageError
from nbrefine.taskdata import Columns, to_task

PROMPT = (
    "import math\n\nLIMIT = 3\n\n\ndef helper(x):\n    return x\n\n\n"
    'def area(r: float) -> float:\n    """ The area of a disc.\n    """\n'
)
BODY = "    return math.pi * helper(r) ** 2\n"
CODE: dict[str, Any] = {
    "task_id": "own/1",
    "prompt": PROMPT,
    "canonical_solution": BODY,
    "test": "def check(candidate):\n    assert candidate(0) == 0\n",
    "entry_point": "area",
}
CODE_COLUMNS = Columns("prompt", "canonical_solution", "test", "entry_point", "task_id")


def test_a_plain_question_is_a_prompt_and_its_answer_the_reference() -> None:
    task = to_task({"question": "What is 2 + 2?", "answer": 4}, Columns())
    assert (task.prompt, task.reference) == ("What is 2 + 2?", "4")
    assert (task.tests, task.setup, task.entry_point, task.metadata) == ("", "", "", {})


def test_what_stands_before_a_begun_function_is_the_setup() -> None:
    task = to_task(CODE, CODE_COLUMNS)
    assert task.id == "own/1"
    assert task.prompt == task.metadata["prompt_code"] == PROMPT
    assert task.setup == "import math\n\nLIMIT = 3\n\n\ndef helper(x):\n    return x"
    assert task.reference == PROMPT + BODY
    assert (task.tests, task.entry_point) == (CODE["test"], "area")


def test_a_decorator_belongs_to_the_function_and_not_to_the_setup() -> None:
    prompt = 'import functools\n\n@functools.cache\ndef f(n):\n    """ n """\n'
    row = {"prompt": prompt, "canonical_solution": "    return n\n", "entry_point": "f"}
    task = to_task(row, Columns("prompt", "canonical_solution", entry_point="entry_point"))
    assert task.setup == "import functools"


def test_a_whole_program_as_answer_is_the_reference_as_it_stands() -> None:
    whole = "import math\n\ndef area(r):\n    return math.pi * r * r\n"
    task = to_task({**CODE, "canonical_solution": whole}, CODE_COLUMNS)
    assert task.reference == whole


@pytest.mark.parametrize(
    "prompt", ["Write area(r).", "def other(r):\n    ...\n", "def area(r):\n    pass\nx = 1\n"]
)
def test_a_prompt_that_does_not_end_in_the_function_has_no_setup(prompt: str) -> None:
    task = to_task({**CODE, "prompt": prompt}, CODE_COLUMNS)
    assert task.setup == ""
    assert task.metadata == {}
    assert task.reference == BODY


def test_a_list_of_asserts_runs_after_what_it_needs_with_plain_line_ends() -> None:
    row = {
        "text": "Double it.\r\n",
        "code": "def d(x):\r\n    return 2 * x",
        "test_imports": ["import math"],
        "test_setup_code": "four = 4",
        "test_list": ["assert d(2) == four", "assert d(math.inf) == math.inf"],
    }
    task = to_task(row, Columns("text", "code", "test_list"))
    assert task.prompt == "Double it.\n"
    assert task.reference == "def d(x):\n    return 2 * x"
    assert task.tests.split("\n") == [
        "import math",
        "four = 4",
        "assert d(2) == four",
        "assert d(math.inf) == math.inf",
    ]


@pytest.mark.parametrize("tests", [None, "", [], ["", "  "]])
def test_without_tests_what_they_would_need_is_none_either(tests: object) -> None:
    row = {"question": "Q?", "answer": "A", "tests": tests, "test_setup_code": "x = 1"}
    assert to_task(row, Columns(test="tests")).tests == ""


@pytest.mark.parametrize("question", [None, "", " \n"])
def test_a_row_that_asks_nothing_is_no_task_and_is_named(question: str | None) -> None:
    with pytest.raises(InvalidTaskError, match="Row 17 asks nothing: its 'question' is blank"):
        to_task({"id": 17, "question": question, "answer": "A"}, Columns(id="id"))


def test_an_answer_that_is_missing_is_an_empty_reference() -> None:
    assert to_task({"question": "Q?", "answer": None}, Columns()).reference == ""


def test_hidden_tests_have_a_column_of_their_own() -> None:
    row = {"question": "Q?", "answer": "A", "test": "assert a", "hidden_tests": ["assert b", "c"]}
    columns = Columns.among(list(row))
    assert columns.hidden_test == "hidden_tests"
    task = to_task(row, columns)
    assert (task.tests, task.hidden_tests) == ("assert a", "assert b\nc")
    assert to_task(row, Columns.among(list(row), hidden_test="")).hidden_tests == ""
    with pytest.raises(UsageError, match="'secret'") as caught:
        Columns.among(list(row), hidden_test="secret")
    assert caught.value.hint == "Name the hidden test column"


def test_a_wrong_column_is_told_with_those_there_are_and_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        Columns.among(["question", "answer", "level"], question="questoin")
    assert "'questoin'" in caught.value.message
    assert "question, answer, level" in caught.value.message
    assert caught.value.hint == "Name the question column, perhaps 'question'"


def test_usual_names_of_tests_and_entry_points_are_found_by_themselves() -> None:
    available = ["prompt", "solution", "entry_point", "test", "tests", "name"]
    columns = Columns.among(available, question="prompt", answer="solution")
    assert columns == Columns("prompt", "solution", "test", "entry_point", "name")
    columns = Columns.among(
        available, question="prompt", answer="solution", test="", entry_point=""
    )
    assert (columns.test, columns.entry_point) == ("", "")
    with pytest.raises(UsageError, match="'hidden_tests'"):
        Columns.among(available, question="prompt", answer="solution", test="hidden_tests")
