"""The known sets: every row a task whose reference holds, and two tiers of tests where asked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbrefine.errors import UsageError
from nbrefine.rewards.tests import parse_tests
from nbrefine.taskdata import humaneval_task, humanevalpack_task, mbpp_task, quixbugs_task
from nbrefine.values import Task

Make = Callable[..., Task]


def rows(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [json.loads(line) for line in text.splitlines()]


def holds(task: Task, code: str, tests: str) -> bool:
    """Run trusted programs of a set in this process, as its authors do."""
    names: dict[str, Any] = {"__name__": "task"}
    called = "\ncheck(" in tests or "def check(" not in tests
    calls = "" if called else f"\ncheck({task.entry_point})"
    try:
        for source in (task.setup, code, tests + calls):
            exec(source, names)
    except AssertionError:
        return False
    return True


SETS = [
    pytest.param("humaneval/test.jsonl", humaneval_task, 68, id="HumanEval"),
    pytest.param("humanevalpack/python/test.jsonl", humanevalpack_task, 95, id="HumanEvalPack"),
    pytest.param("mbpp/full/test.jsonl", mbpp_task, 500, id="MBPP"),
    pytest.param("mbpp/sanitized/test.jsonl", mbpp_task, 257, id="MBPP-sanitized"),
    pytest.param("quixbugs/test.jsonl", quixbugs_task, 20, id="QuixBugs"),
]
"""Each with the number of tasks that have an example, counted in the data with doctest or by hand
(68 of HumanEval's docstrings hold examples with a literal result, one more a wrong one; three of
HumanEvalPack's example_test are blank or no program)."""


SLOW = {"123", "levenshtein"}
"""Whose references take some four seconds; the grader's own tests run them."""


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("file", "make", "examples"), SETS)
def test_every_reference_passes_both_tiers_and_every_case_can_be_run(
    shared_data: Path, file: str, make: Make, examples: int
) -> None:
    shown = 0
    for row in rows(shared_data / file):
        task, split = make(row), make(row, split=True)
        assert task.hidden_tests == ""
        assert task.entry_point
        if task.id not in SLOW:
            assert holds(split, split.reference, split.tests), task.id
            assert holds(split, split.reference, split.hidden_tests), task.id
        for tests in filter(None, (task.tests, split.tests, split.hidden_tests)):
            cases = parse_tests(tests, task.entry_point)
            assert cases
            assert not any(case.message for case in cases), task.id
        shown += bool(split.tests)
        assert split.prompt.find(split.hidden_tests) == -1
    assert shown == examples


def humaneval(number: int, shared_data: Path) -> dict[str, Any]:
    return rows(shared_data / "humaneval" / "test.jsonl")[number]


def test_a_function_alone_runs_after_the_setup_of_humaneval(shared_data: Path) -> None:
    row = humaneval(38, shared_data)  # decode_cyclic, after an encode_cyclic that it may call
    task = humaneval_task(row)
    assert task.setup.startswith("def encode_cyclic(s: str):")
    assert "decode_cyclic" not in task.setup
    alone = task.reference[task.reference.index("def decode_cyclic") :]
    assert holds(task, alone, task.tests)
    assert not holds(task, "def decode_cyclic(s):\n    return None", task.tests)


def test_examples_of_a_docstring_are_asserts_and_a_wrong_one_is_left_out(
    shared_data: Path,
) -> None:
    task = humaneval_task(humaneval(3, shared_data), split=True)
    assert task.tests == (
        "assert below_zero([1, 2, 3]) == False\nassert below_zero([1, 2, -4, 5]) == True"
    )
    assert humaneval_task(humaneval(47, shared_data), split=True).tests == ""


def test_examples_that_are_no_doctests_are_no_tests(shared_data: Path) -> None:
    """HumanEval/51 breaks a result over lines, HumanEval/128 writes `>>> f(x) == y`."""
    for number in (51, 128):
        task = humaneval_task(humaneval(number, shared_data), split=True)
        assert ">>>" in task.prompt
        assert task.tests == ""


def test_stronger_tests_are_hidden_and_must_be_those_of_the_task(shared_data: Path) -> None:
    stronger = rows(shared_data / "humanevalplus" / "test.jsonl.gz")
    plus = next(row for row in stronger if row["task_id"] == "HumanEval/6")
    row = humaneval(6, shared_data)
    task = humaneval_task(row, plus=plus)
    assert (task.tests, task.hidden_tests) == (row["test"], plus["test"])
    task = humaneval_task(row, plus=plus, split=True)
    assert task.tests.startswith("assert parse_nested_parens(")
    assert task.hidden_tests == plus["test"]
    with pytest.raises(UsageError, match="The tests of HumanEval/6 are no tests of HumanEval/7"):
        humaneval_task(humaneval(7, shared_data), plus=plus)


MBPP: dict[str, Any] = {
    "task_id": 0,
    "text": "Write a function to double a number.",
    "code": "def helper(x):\r\n    return x\r\ndef twice(x):\r\n    return 2 * helper(x)",
    "test_list": ["assert twice(2) == 4", "assert twice(0) == zero", "assert twice(-1) == -2"],
    "test_setup_code": "zero = 0",
    "challenge_test_list": ["assert twice('a') == 'aa'"],
}


def test_the_prompt_of_mbpp_shows_the_tests_as_the_paper_does() -> None:
    task = mbpp_task(MBPP)
    assert task.prompt == (
        "Write a function to double a number.\n\nYour code should pass these tests:\n\n"
        "assert twice(2) == 4\nassert twice(0) == zero\nassert twice(-1) == -2"
    )
    assert task.tests == (
        "zero = 0\nassert twice(2) == 4\nassert twice(0) == zero\nassert twice(-1) == -2"
    )
    assert task.reference == MBPP["code"].replace("\r", "")
    assert (task.entry_point, task.hidden_tests) == ("twice", "")


def test_mbpp_shows_its_first_test_alone_where_it_is_split() -> None:
    task = mbpp_task(MBPP, split=True)
    assert task.prompt.endswith("\n\nassert twice(2) == 4")
    assert task.tests == "zero = 0\nassert twice(2) == 4"
    assert task.hidden_tests == "zero = 0\nassert twice(0) == zero\nassert twice(-1) == -2"
    task = mbpp_task(MBPP, split=True, challenge=True)
    assert task.hidden_tests.endswith("assert twice(-1) == -2\nassert twice('a') == 'aa'")
    assert "'aa'" not in task.prompt + task.tests


def test_the_tests_of_mbpp_plus_take_the_place_of_the_others(shared_data: Path) -> None:
    plus = rows(shared_data / "mbppplus" / "test.jsonl.gz")[0]
    row = {**MBPP, "task_id": plus["task_id"]}
    task = mbpp_task(row, split=True, plus=plus)
    assert task.tests == "zero = 0\nassert twice(2) == 4"
    assert task.hidden_tests == f"zero = 0\n{plus['test']}"
    assert mbpp_task(row, plus=plus).tests == mbpp_task(row).tests


def test_a_bug_of_humanevalpack_is_shown_to_be_mended_and_fails(shared_data: Path) -> None:
    for row in rows(shared_data / "humanevalpack" / "python" / "test.jsonl")[:3]:
        buggy = row["declaration"] + row["buggy_solution"]
        task = humanevalpack_task(row, repair=True)
        assert buggy.strip("\n") in task.prompt
        assert not holds(task, buggy, task.tests)
        assert buggy.strip("\n") not in humanevalpack_task(row).prompt


def test_a_program_of_quixbugs_is_shown_to_be_mended_and_fails(shared_data: Path) -> None:
    by_name = {row["name"]: row for row in rows(shared_data / "quixbugs" / "test.jsonl")}
    for name in ("kth", "to_base"):
        row = by_name[name]
        task = quixbugs_task(row)
        assert row["buggy_program"].strip("\n") in task.prompt
        assert task.entry_point == name


def test_each_row_of_a_loop_over_json_in_quixbugs_is_an_assert(shared_data: Path) -> None:
    by_name = {row["name"]: row for row in rows(shared_data / "quixbugs" / "test.jsonl")}
    task = quixbugs_task(by_name["bitcount"], split=True)
    assert task.tests == "assert bitcount(127) == 7"
    assert task.hidden_tests.splitlines()[:2] == [task.tests, "assert bitcount(128) == 1"]
    assert len(task.hidden_tests.splitlines()) == len(by_name["bitcount"]["testcases"].splitlines())
    slow = "donoteidissentafastneverpreventsafatnessidietoncod"
    assert slow not in quixbugs_task(by_name["levenshtein"]).tests
    graph = quixbugs_task(by_name["detect_cycle"], split=True)
    assert "def test1" in graph.tests
    assert "def test2" not in graph.tests
    assert "class Node" in graph.tests
