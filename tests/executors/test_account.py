"""From a tester's messages to a result."""

from __future__ import annotations

from typing import Any

import pytest

from nbrefine.executors.account import Account
from nbrefine.executors.base import CodeExecutionResult


def told(*messages: dict[str, Any]) -> Account:
    account = Account()
    for message in messages:
        account.take(message)
    return account


def result(account: Account) -> CodeExecutionResult:
    return account.result(stdout="", stderr="", isolation=(), seconds=0.5)


CASES = {
    "cases": [
        {"name": "test_1", "expression": "f(1) == 2"},
        {"name": "test_2", "expression": "f(2) == 3"},
        {"name": "test_3", "expression": "f(3) == 4"},
    ]
}
RAN = {"code": {"status": "ok", "message": "", "seconds": 0.01}}


def case(number: int, status: str, message: str = "", **values: str) -> dict[str, Any]:
    given = {"got": "", "expected": "", **values}
    return {"case": number, "status": status, "message": message, "seconds": 0.25, **given}


def test_all_tests_that_passed_are_a_solution_with_the_time_of_each() -> None:
    given = result(told(CASES, RAN, *(case(number, "passed") for number in range(3))))
    assert (given.verdict, given.passed, given.total, given.errors) == ("solved", 3, 3, ())
    assert given.all_passed
    assert given.score == 1.0
    assert given.tier == "grade"
    assert given.seconds == {"test_1": 0.25, "test_2": 0.25, "test_3": 0.25}
    assert given.report.seconds == 0.5
    assert given.compilation_error is None


def test_what_did_not_pass_is_told_in_order_and_never_without_words() -> None:
    messages = [
        case(0, "failed", got="3", expected="2"),
        case(1, "failed"),
        case(2, "error", "ZeroDivisionError: division by zero"),
    ]
    given = result(told(CASES, RAN, *messages))
    assert given.verdict == "failed"
    assert given.score == 0.0
    assert given.errors == (
        "test_1: got 3, expected 2",
        "test_2: f(2) == 3 does not hold",
        "test_3: ZeroDivisionError: division by zero",
    )


def test_code_that_did_not_run_leaves_every_test_undone_and_says_why() -> None:
    message = "NameError: name 'y' is not defined"
    given = result(told(CASES, {"code": {"status": "error", "message": message, "seconds": 0.0}}))
    assert given.compilation_error == message
    assert given.report.problem == message
    assert {each.status for each in given.report.cases} == {"not-run"}
    assert (given.verdict, len(given.errors), given.seconds) == ("failed", 3, {})


@pytest.mark.parametrize(
    ("status", "verdict"),
    [("error", "failed"), ("exited", "failed"), ("timeout", "timeout"), ("died", "crashed")],
)
def test_how_the_code_ended_decides_the_verdict(status: str, verdict: str) -> None:
    account = told(CASES, {"code": {"status": status, "message": "m", "seconds": 0.0}})
    assert result(account).verdict == verdict


def test_no_tests_are_the_fault_of_the_task() -> None:
    given = result(told({"problem": "no tests were found"}))
    assert (given.verdict, given.total, given.score) == ("invalid-task", 0, 0.0)
    assert not given.all_passed
    assert given.report.problem == "no tests were found"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "killed by SIGKILL"),
        (-11, "killed by SIGSEGV"),
        (-40, "killed by signal 40"),
    ],
)
def test_the_end_of_a_process_is_explained_where_it_was_met(status: int, words: str) -> None:
    account = told(CASES, RAN, case(0, "passed"), case(1, "error", "the code's process ended"))
    assert account.lost_candidate
    account.explain_end(status)
    given = result(account)
    assert given.verdict == "crashed"
    assert given.errors[0] == f"test_2: the code's process ended: {words}"
    assert given.report.cases[2].status == "not-run"


def test_a_process_that_ends_while_the_code_runs_is_explained_too() -> None:
    died = {"status": "died", "message": "the connection has ended", "seconds": 0.0}
    account = told(CASES, {"code": died})
    account.explain_end(-6)
    assert result(account).compilation_error == "the code's process ended: killed by SIGABRT"


def test_an_error_of_the_code_itself_is_no_end_of_its_process() -> None:
    account = told(CASES, RAN, case(0, "error", "RuntimeError: the code's process ended"))
    assert not account.lost_candidate


def test_the_test_at_work_has_run_out_of_time_and_those_after_it_did_not_run() -> None:
    account = told(CASES, RAN, case(0, "passed"))
    account.run_out(1.5)
    given = result(account)
    assert [each.status for each in given.report.cases] == ["passed", "timeout", "not-run"]
    assert "1.5 s" in given.report.cases[1].message
    assert (given.verdict, given.passed) == ("timeout", 1)


def test_code_that_has_run_out_of_time_is_told_so() -> None:
    account = told(CASES)
    account.run_out(2)
    given = result(account)
    assert (given.verdict, given.compilation_error) == ("timeout", "it ran over 2 s")
