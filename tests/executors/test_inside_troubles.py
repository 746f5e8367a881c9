"""Code that fails, ends its process or goes on for ever costs no more than the tests it is in."""

from __future__ import annotations

import pytest

from tests.executors.bare import Bare


@pytest.mark.parametrize(
    ("act", "message"),
    [
        ("sys.exit(0)", "the code called sys.exit(0) (line 3: sys.exit(0))"),
        ("exit()", "the code called sys.exit(None) (line 3: exit())"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt (line 3: raise KeyboardInterrupt)"),
        ("raise GeneratorExit", "GeneratorExit (line 3: raise GeneratorExit)"),
        ("raise StopIteration", "StopIteration (line 3: raise StopIteration)"),
        ("raise BaseException('odd')", "BaseException: odd (line 3: raise BaseException('odd'))"),
        ("assert x == 2", "AssertionError (line 3: assert x == 2)"),
        ("raise MemoryError", "MemoryError (line 3: raise MemoryError)"),
        (
            "return f(x)",
            "RecursionError: maximum recursion depth exceeded (line 3: return f(x))",
        ),
        ("input()", "EOFError: EOF when reading a line (line 3: input())"),
        (
            "raise type('Skipped', (Exception,), {})('no')",
            "Skipped: no (line 3: raise type('Skipped', (Exception,), {})('no'))",
        ),
    ],
)
def test_whatever_a_function_raises_is_an_error_of_its_test_only(
    bare: Bare, act: str, message: str
) -> None:
    code = f"import sys\ndef f(x):\n    {act}\n    return 1\ndef g(): return 2\n"
    told = bare.check(code, "assert f(1) == 1\nassert g() == 2\n")
    assert told.statuses == ["error", "passed"], told
    assert told.messages_of_cases[0] == message


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("def f(x:\n", "error", "SyntaxError: '(' was never closed (line 1: def f(x:)"),
        ("x = 1\n1 / 0\n", "error", "ZeroDivisionError: division by zero (line 2: 1 / 0)"),
        (
            "import sys\nsys.exit(0)\n",
            "exited",
            "the code called sys.exit(0) (line 2: sys.exit(0))",
        ),
        ("import os\nos._exit(0)\n", "died", "the code's process ended"),
        ("while True: pass\n", "timeout", "ran over 0.3 s"),
        ("import nothing_of_that_name\n", "error", "ModuleNotFoundError: No module named"),
        ("raise KeyboardInterrupt\n", "error", "KeyboardInterrupt (line 1: raise Keyboard"),
        ("\x00", "error", ""),
    ],
)
def test_code_that_does_not_run_to_its_end_runs_no_test(
    bare: Bare, code: str, status: str, message: str
) -> None:
    told = bare.check(code, "assert f(1) == 5\nassert True\n", code_timeout=0.3)
    assert told.code["status"] == status
    assert told.code["message"].startswith(message)
    assert told.statuses == ["not-run", "not-run"]


def test_an_endless_call_is_interrupted_and_the_next_test_runs(bare: Bare) -> None:
    code = "def f(x):\n    while x: pass\n    return 1\n"
    told = bare.check(code, "assert f(1) == 1\nassert f(0) == 1\n", test_timeout=0.2)
    assert told.statuses == ["timeout", "passed"]
    assert told.messages_of_cases[0] == "ran over 0.2 s"
    assert [message for message in told.messages if "kill" in message] == []


def test_after_three_endless_calls_the_rest_is_left(bare: Bare) -> None:
    code = "def f(x):\n    while x: pass\n    return 1\n"
    told = bare.check(code, "assert f(1)\n" * 4 + "assert f(0) == 1\n", test_timeout=0.1)
    assert told.statuses == ["timeout"] * 3 + ["not-run"] * 2
    assert told.messages_of_cases[3] == "3 tests ran too long"


@pytest.mark.parametrize(
    "prelude",
    ["", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"],
    ids=["eats", "ignores"],
)
def test_code_that_gives_way_to_no_interrupt_is_ended(bare: Bare, prelude: str) -> None:
    body = (
        "    import time\n    while True:\n        try: time.sleep(60)\n"
        "        except BaseException: pass\n"
    )
    if prelude:
        body = "    import signal\n    signal.signal(signal.SIGINT, signal.SIG_IGN)\n" + body
    told = bare.check(
        f"{prelude}def f(x):\n{body}",
        "assert 1 == 1\nassert f(1)\nassert 1 == 1\n",
        test_timeout=0.2,
    )
    assert told.statuses == ["passed", "timeout", "not-run"]
    assert told.messages_of_cases[2] == "the code gave way to no interrupt"
    assert {"kill": True} in told.messages
    assert told.ended["code"] == -9


def test_an_answer_that_comes_as_the_time_is_over_costs_no_later_test(bare: Bare) -> None:
    code = "import time\ndef f(x):\n    time.sleep(x)\n    return 1\n"
    tests = "assert f(0.1) == 1\nassert f(0) == 1\n" * 2
    told = bare.check(code, tests, test_timeout=0.1)
    assert told.statuses[1::2] == ["passed", "passed"]
    assert "kill" not in str(told.messages)


def test_a_loop_of_the_tests_is_one_case_with_one_time(bare: Bare) -> None:
    tests = "while True:\n    assert f(1) == 1\nassert f(1) == 1\n"
    told = bare.check("def f(x): return 1\n", tests, test_timeout=0.3)
    assert told.statuses == ["timeout", "passed"]


def test_an_endless_loop_in_a_function_of_the_tests_that_the_code_calls_ends(bare: Bare) -> None:
    tests = "def spin():\n    while True: pass\nassert f(spin)\nassert f(lambda: 1) == 1\n"
    told = bare.check("def f(x): return x()\n", tests, test_timeout=0.3)
    assert told.statuses == ["timeout", "passed"], told


def test_code_that_calls_a_slow_function_of_the_tests_again_and_again_is_ended(bare: Bare) -> None:
    code = """
def f(function):
    while True:
        try: function()
        except BaseException: pass
"""
    tests = "def slow():\n    while True: pass\nassert f(slow) == 1\nassert True\n"
    told = bare.check(code, tests, test_timeout=0.2)
    assert told.statuses == ["timeout", "not-run"]
    assert {"kill": True} in told.messages


def test_an_endless_repr_or_hash_costs_its_test_and_no_other(bare: Bare) -> None:
    code = """
class Slow:
    def __repr__(self):
        while True: pass
    def __hash__(self):
        while True: pass
def f(x): return Slow() if x else 1
"""
    told = bare.check(code, "assert f(1) == 5\nassert {f(1)}\nassert f(0) == 1\n", test_timeout=0.3)
    assert told.statuses == ["failed", "timeout", "passed"]
    assert told.cases[0]["got"] == "<Slow object>"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("deep", "ValueError: the value is too deep to be judged (over 150 levels)"),
        (
            "[0] * 3_000_000",
            "ValueError: the value is too large to be judged (over 2,000,000 parts)",
        ),
        ("'x' * (70 << 20)", "ValueError: the value is too large to be judged"),
    ],
)
def test_a_value_that_cannot_be_judged_says_why(bare: Bare, value: str, message: str) -> None:
    code = f"""
def f(x):
    deep = []
    for _ in range(100_000): deep = [deep]
    return {value}
def g(): return 1
"""
    told = bare.check(code, "assert f(1) == 5\nassert g() == 1\n")
    assert told.statuses == ["error", "passed"], told
    assert told.messages_of_cases[0].startswith(message)
