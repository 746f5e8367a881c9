"""The executor as its page has it: `execute(code, test_code, timeout=…)`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from nbrefine.errors import UsageError
from nbrefine.executors import CodeExecutionResult, CodeExecutor, SubprocessCodeExecutor

ADD = "def add(a, b):\n    return a + b"


@pytest.fixture(scope="module")
def executor() -> Iterator[SubprocessCodeExecutor]:
    with SubprocessCodeExecutor(workers=2) as executor:
        yield executor


def test_it_is_an_executor_of_code(executor: SubprocessCodeExecutor) -> None:
    seam: CodeExecutor = executor
    result = seam.execute(ADD, "assert add(1, 2) == 3", timeout=10)
    assert isinstance(result, CodeExecutionResult)
    assert (result.passed, result.total, result.all_passed, result.score) == (1, 1, True, 1.0)


def test_each_assert_is_a_test(executor: SubprocessCodeExecutor) -> None:
    result = executor.execute(ADD, "assert add(1, 2) == 3\nassert add(1, 1) == 3")
    assert (result.passed, result.total, result.score) == (1, 2, 0.5)
    assert result.errors == ("test_2: got 2, expected 3",)


def test_the_timeout_reaches_the_code(executor: SubprocessCodeExecutor) -> None:
    result = executor.execute("while True:\n    pass", "assert True", timeout=0.5)
    assert result.verdict == "timeout"
    assert "0.5 s" in (result.compilation_error or "")


def test_a_print_in_the_code_is_no_result(executor: SubprocessCodeExecutor) -> None:
    code = f'{ADD}\nprint(\'{{"results": [{{"passed": true}}]}}\')'
    result = executor.execute(code, "assert add(1, 2) == 4")
    assert (result.passed, result.verdict) == (0, "failed")
    assert result.stdout == '{"results": [{"passed": true}]}\n'


def test_an_exit_in_a_tested_function_loses_no_other_result(
    executor: SubprocessCodeExecutor,
) -> None:
    code = "import sys\ndef f(x):\n    if x == 1:\n        sys.exit(0)\n    return x"
    result = executor.execute(code, "assert f(0) == 0\nassert f(1) == 1\nassert f(2) == 2")
    assert [case.status for case in result.report.cases] == ["passed", "error", "passed"]


def test_code_of_two_hundred_thousand_bytes_runs(executor: SubprocessCodeExecutor) -> None:
    code = f"{ADD}\ntext = {'x' * 200_000!r}"
    assert executor.execute(code, "assert add(1, 2) == 3 and len(text) == 200_000").all_passed


def test_a_failed_comparison_is_told_with_both_values(executor: SubprocessCodeExecutor) -> None:
    (error,) = executor.execute("def f():\n    return 3", "assert f() == 2").errors
    assert error == "test_1: got 3, expected 2"


def test_it_can_be_awaited(executor: SubprocessCodeExecutor) -> None:
    async def both() -> list[CodeExecutionResult]:
        runs = [executor.aexecute(ADD, f"assert add(1, 2) == {given}") for given in (3, 4)]
        return [await run for run in runs]

    assert [result.verdict for result in asyncio.run(both())] == ["solved", "failed"]


def test_an_executor_that_is_closed_refuses() -> None:
    executor = SubprocessCodeExecutor(workers=1)
    executor.close()
    executor.close()
    with pytest.raises(UsageError, match="closed"):
        executor.execute(ADD, "assert True")
