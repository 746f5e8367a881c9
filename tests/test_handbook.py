"""The handbook's `iterative_refine`: its signature, its records, its ends."""

from __future__ import annotations

import pytest

from nbrefine import detect_cycle, iterative_refine, track_regression
from nbrefine.errors import InvalidTaskError, UsageError

TESTS = """
assert f(1) == 2
assert f(2) == 3
assert f(0) == 1
"""
RIGHT = "def f(x): return x + 1"


def test_iteration_one_evaluates_the_initial_code() -> None:
    def llm(prompt: str) -> str:
        raise AssertionError("nobody is to be asked")

    found = iterative_refine("Add one.", RIGHT, TESTS, llm)
    assert found["final_code"] == RIGHT
    assert found["history"] == [
        {"iteration": 1, "code": RIGHT, "passed": 3, "failed": 0, "total": 3, "success": True}
    ]


def test_the_model_s_code_runs_as_it_is_and_the_last_is_the_final_one() -> None:
    prompts: list[str] = []
    answers = iter(["def f(x): return 2", RIGHT])

    def llm(prompt: str) -> str:
        prompts.append(prompt)
        return next(answers)

    found = iterative_refine("Add one.", "def f(x): return x", TESTS, llm)
    assert [record["passed"] for record in found["history"]] == [0, 1, 3]
    assert [record["iteration"] for record in found["history"]] == [1, 2, 3]
    assert found["final_code"] == found["best_code"] == RIGHT
    assert "Task: Add one." in prompts[0]
    assert "Attempt 1 - Current code:" in prompts[0]
    assert "0/3 tests passed." in prompts[0]
    assert "Attempt 2 - Current code:" in prompts[1]


def test_every_failure_is_shown_not_the_first_three_alone() -> None:
    prompts: list[str] = []
    tests = "\n".join(f"assert f({i}) == {i + 1}" for i in range(6))

    def llm(prompt: str) -> str:
        prompts.append(prompt)
        return RIGHT

    iterative_refine("Add one.", "def f(x): return -1", tests, llm)
    for i in range(6):
        assert f"f({i}) == {i + 1}" in prompts[0]


def test_unsolved_the_final_code_is_the_last_and_the_best_is_named_beside_it() -> None:
    answers = iter(["def f(x): return 2", "def f(x): return None"])
    found = iterative_refine("Add one.", "def f(x): return 9", TESTS, lambda _: next(answers), 3)
    assert found["final_code"] == "def f(x): return None"
    assert found["best_code"] == "def f(x): return 2"
    assert len(found["history"]) == 3
    assert not found["history"][-1]["success"]
    assert track_regression(found["history"]) == [(3, 1, 0)]


def test_a_program_that_does_not_run_fails_all_tests() -> None:
    found = iterative_refine("Add one.", "def f(x) return", TESTS, lambda _: "", 1)
    record = found["history"][0]
    assert (record["passed"], record["failed"], record["total"]) == (0, 3, 3)


def test_code_that_calls_exit_is_no_success_and_the_model_hears_of_it() -> None:
    prompts: list[str] = []

    def llm(prompt: str) -> str:
        prompts.append(prompt)
        return RIGHT

    found = iterative_refine("Add one.", f"{RIGHT}\nexit()", TESTS, llm)
    assert [record["success"] for record in found["history"]] == [False, True]
    assert "exit() or quit() was called" in prompts[0]


def test_repeats_go_on_to_the_last_iteration_as_in_the_handbook() -> None:
    found = iterative_refine("t", "def f(x): return 0", TESTS, lambda _: "def f(x): return 0", 5)
    assert len(found["history"]) == 5
    assert detect_cycle(found["history"])


def test_without_tests_nothing_is_a_success() -> None:
    found = iterative_refine("t", RIGHT, "", lambda _: RIGHT, 2)
    assert [record["success"] for record in found["history"]] == [False, False]
    assert found["history"][0]["total"] == 0


def test_bad_input_is_refused() -> None:
    with pytest.raises(InvalidTaskError):
        iterative_refine("t", RIGHT, "assert (", lambda _: RIGHT)
    with pytest.raises(UsageError, match="max_turns is 0"):
        iterative_refine("t", RIGHT, TESTS, lambda _: RIGHT, 0)


def test_an_error_of_the_model_function_comes_through() -> None:
    def broken(prompt: str) -> str:
        raise ConnectionError("no network")

    with pytest.raises(ConnectionError, match="no network"):
        iterative_refine("t", "def f(x): return 0", TESTS, broken)
