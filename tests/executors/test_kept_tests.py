"""Tests that are compiled once, in the process that testers are forked from."""

from __future__ import annotations

from nbrefine.executors import Bench


def statuses(bench: Bench, code: str, tests: str) -> list[str]:
    result = bench.check(code, tests).result(60)
    return [case.status for case in result.report.cases]


def test_each_check_of_the_same_tests_starts_from_what_they_say(bench: Bench) -> None:
    tests = "seen = []\nseen.append(f())\nassert seen == [1]\nassert len(seen) == 1\n"
    assert statuses(bench, "def f(): return 1", tests) == ["passed", "passed"]
    assert statuses(bench, "def f(): return 2", tests) == ["failed", "passed"]
    assert statuses(bench, "def f(): return 1", tests) == ["passed", "passed"]


def test_tests_await_what_only_the_code_makes_a_coroutine(bench: Bench) -> None:
    tests = "assert f(1) == 2\nassert f(2) == 3\n"
    assert statuses(bench, "def f(x): return x + 1", tests) == ["passed", "passed"]
    assert statuses(bench, "async def f(x): return x + 1", tests) == ["passed", "passed"]
    assert statuses(bench, "async def f(x): return 2", tests) == ["passed", "failed"]


def test_tests_that_cannot_be_compiled_are_told_each_time_and_end_nothing(bench: Bench) -> None:
    for broken in ("assert f( == 1", "return 1", f"assert {'(' * 500}f(){')' * 500} == 1"):
        for _ in range(2):
            result = bench.check("def f(): return 1", broken).result(60)
            assert result.verdict == "invalid-task"
            assert "do not parse" in result.report.problem
    assert statuses(bench, "def f(): return 1", "assert f() == 1") == ["passed"]


def test_tests_too_long_to_be_kept_are_run(bench: Bench) -> None:
    tests = f"assert f(1) == 1\n# {'-' * 100_000}\nassert f(2) == 1\n"
    assert statuses(bench, "def f(x): return 1", tests) == ["passed", "passed"]
    assert statuses(bench, "def f(x): return x", tests) == ["passed", "failed"]
