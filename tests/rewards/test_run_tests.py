"""Visible tests run one by one against a live session, and tell what they saw."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbrefine.errors import InvalidTaskError, KernelDeadError, RunStopped
from nbrefine.kernel import Kernel
from nbrefine.outputs import Display, Stream
from nbrefine.rewards.tests import NONE_FOUND, parse_tests, run_tests, signal
from nbrefine.values import CaseResult, RewardType, TestReport


@pytest.fixture(scope="module")
def shared_kernel() -> Iterator[Kernel]:
    with Kernel.start() as started:
        yield started


@pytest.fixture
def kernel(shared_kernel: Kernel) -> Kernel:
    if not shared_kernel.alive:
        shared_kernel.restart().result()
    shared_kernel.run("%reset -f").result()
    return shared_kernel


def report(
    kernel: Kernel, code: str, tests: str, entry_point: str = "", seconds: float = 20.0
) -> TestReport:
    result = kernel.run(code).result()
    assert result.ok, result.text
    return run_tests(kernel, tests, entry_point=entry_point, timeout_per_test=seconds).result()


def statuses(given: TestReport) -> list[str]:
    return [case.status for case in given.cases]


ADD = "def add(a, b):\n    return a + b\n"


@pytest.mark.parametrize(
    ("test", "got", "expected"),
    [
        ("assert add(1, 1) == 3", "2", "3"),
        ("assert 3 == add(1, 1)", "2", "3"),
        ("assert add(1, 1) != 2", "2", "!= 2"),
        ("assert add(1, 1) > add(1, 2)", "2", "> 3"),
        ("assert 5 < add(1, 1)", "2", "> 5"),
        ("assert add(1, 1) is None", "2", "is None"),
        ("assert add(1, 1) in [3, 4]", "2", "in [3, 4]"),
        ("assert add(1, 1) not in (2,)", "2", "not in (2,)"),
        ("assert not add(1, 1)", "2", "a false value"),
        ("assert add(0, 0)", "0", "a true value"),
        ("assert isinstance(add(1, 1), str)", "2 (int)", "an instance of str"),
        ("assert abs(add(1, 1) - 2.5) < 1e-3", "2", "2.5 (< 1e-3 away)"),
        ("import math\nassert math.isclose(add(1, 1), 2.1)", "2", "close to 2.1"),
        ("assert 5 < add(1, 1) < 9", "2", "5 < add(1, 1) < 9"),
        ("assert add(1, 1) == 2 and add(2, 2) == 5", "4", "5"),
        ("assert not add(1, 1) == 2", "2", "not == 2"),
        ("assert add(1, 1) == 2.0 and add('1', '') == 1", "'1'", "1"),
        (
            "class One:\n    def __repr__(self): return '2'\nassert add(1, 1) == One()",
            "2 (int)",
            "2 (One)",
        ),
    ],
)
def test_a_failure_shows_what_was_there_and_what_was_asked_for(
    kernel: Kernel, test: str, got: str, expected: str
) -> None:
    (case,) = report(kernel, ADD, test).cases
    assert (case.status, case.got, case.expected) == ("failed", got, expected)
    assert case.expression == test.rpartition("assert ")[2]


def test_a_failure_keeps_the_tests_own_message(kernel: Kernel) -> None:
    (case,) = report(kernel, ADD, "assert add(1, 1) == 3, f'sum of {1} and 1'").cases
    assert (case.got, case.message) == ("2", "sum of 1 and 1")


def test_an_error_tells_its_line_in_the_candidates_code(kernel: Kernel) -> None:
    code = "def ratio(a, b):\n    part = a\n    return part / b\n"
    (case,) = report(kernel, code, "assert ratio(1, 0) == 1").cases
    assert case.status == "error"
    assert case.message == "ZeroDivisionError: division by zero (line 3: return part / b)"
    assert (case.got, case.expected) == ("", "1")


def test_every_test_runs_whatever_the_others_say(kernel: Kernel) -> None:
    tests = (
        "assert add(1, 1) == 2\nassert add(1, 1) == 3\nassert add(None, 1)\nassert add(2, 2) == 4\n"
    )
    given = report(kernel, ADD, tests)
    assert statuses(given) == ["passed", "failed", "error", "passed"]
    assert (given.passed, given.total, given.solved) == (2, 4, False)


def test_a_loop_is_one_test_that_fails_in_its_first_bad_round(kernel: Kernel) -> None:
    tests = "for n in range(4):\n    assert add(n, n) == 2 * n\n    assert add(n, n) < 3\n"
    first, second = report(kernel, ADD, tests).cases
    assert first.status == "passed"
    assert (second.status, second.got, second.expected) == ("failed", "4", "< 3")


def test_a_check_function_is_given_the_entry_point(kernel: Kernel) -> None:
    tests = (
        "METADATA = {}\ndef check(candidate):\n    values = [1, 2]\n"
        "    assert candidate(*values) == 3\n    assert candidate(0, 0) == 1\n"
    )
    given = report(kernel, ADD, tests, "add")
    assert [case.name for case in given.cases] == ["check[1]", "check[2]"]
    assert [(case.got, case.expected) for case in given.cases] == [("", ""), ("0", "1")]


def test_a_check_function_finds_the_only_function_there_is(kernel: Kernel) -> None:
    tests = "def check(candidate):\n    assert candidate(1, 1) == 2\n"
    assert report(kernel, ADD, tests).solved


def test_a_check_function_is_not_given_a_guess(kernel: Kernel) -> None:
    tests = "def check(candidate):\n    assert candidate(1, 1) == 2\n    assert candidate(1, 2)\n"
    given = report(kernel, f"{ADD}\ndef other(): ...", tests)
    assert statuses(given) == ["error", "not-run"]
    assert "the session has add, other" in given.cases[0].message


def test_a_missing_entry_point_fails_the_tests(kernel: Kernel) -> None:
    tests = "def check(candidate):\n    assert candidate(1, 1) == 2\n    assert candidate(1, 2)\n"
    given = report(kernel, "x = 1", tests, "add")
    assert statuses(given) == ["error", "not-run"]
    assert given.cases[0].message == "NameError: name 'add' is not defined"


def test_functions_classes_and_parametrized_rows_run(kernel: Kernel) -> None:
    tests = """
import unittest
import pytest

def test_plain():
    assert add(1, 1) == 3

@pytest.mark.parametrize("a, b, total", [(1, 1, 2), pytest.param(1, 2, 4)])
def test_rows(a, b, total):
    assert add(a, b) == total

class TestAdd:
    def setup_method(self):
        self.one = 1
    def test_one(self):
        assert add(self.one, 1) == 2

class Case(unittest.TestCase):
    def setUp(self):
        self.two = 2
    def test_two(self):
        self.assertEqual(add(self.two, 2), 5)

def test_raises():
    with pytest.raises(TypeError):
        add(1, 1)

def test_close():
    assert add(0.1, 0.2) == pytest.approx(0.3)

def test_tmp(tmp_path):
    assert tmp_path
"""
    given = report(kernel, ADD, tests)
    assert {case.name: case.status for case in given.cases} == {
        "test_plain": "failed",
        "test_rows[1]": "passed",
        "test_rows[2]": "failed",
        "TestAdd.test_one": "passed",
        "Case.test_two": "failed",
        "test_raises": "failed",
        "test_close": "passed",
        "test_tmp": "not-run",
    }
    by_name = {case.name: case for case in given.cases}
    assert (by_name["test_plain"].got, by_name["test_plain"].expression) == ("2", "add(1, 1) == 3")
    assert by_name["Case.test_two"].message == "4 != 5"
    assert "DID NOT RAISE" in by_name["test_raises"].message
    assert "fixtures are not supported" in by_name["test_tmp"].message


def test_functions_that_check_tell_the_values_inside(kernel: Kernel) -> None:
    tests = "def same(a, b):\n    assert a == b\nsame(add(1, 1), 2)\nsame(add(1, 1), 3)\n"
    first, second = report(kernel, ADD, tests).cases
    assert (first.status, first.expression) == ("passed", "same(add(1, 1), 2)")
    assert (second.status, second.got, second.expected) == ("failed", "2", "3")


def test_coroutines_are_awaited_in_every_style(kernel: Kernel) -> None:
    code = "import asyncio\nasync def later(x):\n    await asyncio.sleep(0)\n    return x + 1\n"
    tests = """
import asyncio
assert later(1) == 2
assert await later(1) == 3
assert asyncio.run(later(1)) == 2
def check(candidate):
    assert candidate(2) == 3
async def test_async():
    assert await later(2) == 4
def test_run():
    assert asyncio.run(later(3)) == 4
"""
    given = report(kernel, code, tests, "later")
    assert {case.name: (case.status, case.got) for case in given.cases} == {
        "test_1": ("passed", ""),
        "test_2": ("failed", "2"),
        "test_3": ("passed", ""),
        "check[1]": ("passed", ""),
        "test_async": ("failed", "3"),
        "test_run": ("passed", ""),
    }


def test_a_blocked_await_is_ended_and_the_next_test_runs(kernel: Kernel) -> None:
    code = f"{ADD}\nimport asyncio"
    holds = "assert add(1, 1) == 2"
    given = report(kernel, code, f"{holds}\nassert await asyncio.sleep(600)\n{holds}", "", 1.0)
    assert statuses(given) == ["passed", "timeout", "passed"]
    assert given.cases[1].message == "ran over 1 s"
    given = report(kernel, code, f"assert await asyncio.sleep(600)\n{holds}", "", 1.0)
    assert statuses(given) == ["timeout", "passed"]


def test_endless_loops_end_and_after_three_the_rest_is_left(kernel: Kernel) -> None:
    code = f"{ADD}\ndef spin():\n    while True: pass\n"
    tests = "assert add(1, 1) == 2\n" + "assert spin()\n" * 4 + "assert add(1, 1) == 2\n"
    given = report(kernel, code, tests, "", 0.5)
    assert statuses(given) == ["passed", "timeout", "timeout", "timeout", "not-run", "not-run"]
    assert given.problem == "3 tests ran too long; 2 tests were not run"
    assert kernel.run("add(2, 2)").result().text == "4\n"


def test_a_time_limit_belongs_to_one_test_and_not_to_all(kernel: Kernel) -> None:
    code = "import time\ndef nap(): return time.sleep(0.4)\n"
    given = report(kernel, code, "assert nap() is None\n" * 6, "", 2.0)
    assert given.solved
    assert given.seconds > 2.0


def test_a_loop_before_the_first_test_is_told_as_what_it_is(kernel: Kernel) -> None:
    tests = "while True: pass\nassert add(1, 1) == 2\nassert add(1, 2) == 3\n"
    given = report(kernel, ADD, tests, "", 0.5)
    assert statuses(given) == ["timeout", "not-run"]


@pytest.mark.parametrize(
    "call",
    [
        "sys.exit(0)",
        "exit()",
        "quit()",
        "raise SystemExit",
        "raise BaseException('odd')",
        "input()",
    ],
)
def test_a_candidate_that_wants_to_end_it_all_fails_its_test_only(
    kernel: Kernel, call: str
) -> None:
    code = f"import sys\ndef leave():\n    {call}\n    return 1\n"
    given = report(kernel, code, "assert leave() == 1\nassert 1 == 1\n")
    assert statuses(given) == ["error", "passed"]
    assert kernel.run("1 + 1").result().text == "2\n"


def test_a_crash_keeps_what_is_known_and_names_what_was_not_run(kernel: Kernel) -> None:
    code = f"import os\n{ADD}\ndef crash():\n    os._exit(7)\n"
    tests = "assert add(1, 1) == 2\nassert crash()\nassert add(2, 2) == 4\ndef test_z(): assert 1\n"
    given = report(kernel, code, tests)
    assert [(case.name, case.status) for case in given.cases] == [
        ("test_1", "passed"),
        ("test_2", "error"),
        ("test_3", "not-run"),
        ("test_z", "not-run"),
    ]
    assert given.problem == "the kernel died (exit code 7); 2 tests were not run"
    assert kernel.death is not None


def test_a_candidate_that_eats_interrupts_costs_the_kernel_and_no_known_result(
    kernel: Kernel,
) -> None:
    code = (
        "import time\ndef stubborn():\n    while True:\n        try: time.sleep(60)\n"
        "        except BaseException: pass\n"
    )
    given = report(kernel, code, "assert 1 == 1\nassert stubborn()\nassert 2 == 2\n", "", 0.5)
    assert statuses(given) == ["passed", "timeout", "not-run"]
    assert given.problem == (
        "the kernel gave way to no interrupt and was killed; 1 test was not run"
    )


def test_names_builtins_streams_seeds_and_folder_of_the_session_stay(kernel: Kernel) -> None:
    code = f"import builtins, os, random, sys\n{ADD}\nrandom.seed(1)\nfolder = os.getcwd()\nx = 1\n"
    tests = """
x = 99
def helper(): ...
assert x == 99
builtins.len = lambda value: 0
builtins.extra = 1
sys.stdout = None
sys.setrecursionlimit(5000)
os.chdir("/")
os.environ["NBREFINE_LEFT"] = "1"
random.seed(7)
signal_ = __import__("signal")
signal_.signal(signal_.SIGINT, signal_.SIG_IGN)
assert len("abc") == 0
assert os.getcwd() == "/"
assert add(1, 1) == 2
"""
    given = report(kernel, code, tests)
    assert given.solved, signal(given).feedback
    told = kernel.run(
        "print('helper' in globals(), x, len('abc'), hasattr(builtins, 'extra'), "
        "os.getcwd() == folder, 'NBREFINE_LEFT' in os.environ, sys.getrecursionlimit() == 5000)\n"
        "a = random.random(); random.seed(1); print(a == random.random())\n"
    ).result()
    assert told.text == "False 1 3 False True False False\nTrue\n"
    ended = kernel.run("while True: pass", timeout=0.5).result()
    assert "SIGKILL" not in ended.rungs


def test_a_reseeded_generator_holds_from_test_to_test(kernel: Kernel) -> None:
    code = "import random\nrandom.seed(1)\n"
    seeded = "random.seed(5)\n{} random.random()\n"
    tests = seeded.format("a =") + "assert a\n" + seeded.format("assert a ==")
    assert report(kernel, code, tests).solved


def test_prints_stay_out_of_the_session_and_in_the_report(kernel: Kernel) -> None:
    code = (
        "import sys\ndef loud():\n    print('out'); print('err', file=sys.stderr)\n    return 1\n"
    )
    given = report(kernel, code, "assert loud() == 1\nassert loud() == 1\n")
    assert given.solved
    assert given.outputs == (Stream("stdout", "out\nout\n"), Stream("stderr", "err\nerr\n"))
    assert given.output == "out\nout\nerr\nerr\n"
    assert kernel.run("None").result().outputs == ()
    assert kernel.late().result() == ()


def test_objects_that_tests_display_stand_between_what_was_printed(kernel: Kernel) -> None:
    tests = "print(1)\nassert True\ndisplay(2)\nprint(3)\nassert True\nprint(4)\n"
    given = report(kernel, "", tests)
    assert given.outputs == (
        Stream("stdout", "1\n"),
        Display({"text/plain": "2"}),
        Stream("stdout", "3\n4\n"),
    )


def test_what_follows_the_last_test_runs_too_and_its_error_is_told(kernel: Kernel) -> None:
    given = report(kernel, "", "assert True\nprint('all passed')\n")
    assert (given.solved, given.problem, given.output) == (True, "", "all passed\n")
    given = report(kernel, "", "assert True\n1 / 0\n")
    assert given.solved
    assert given.problem.startswith("what follows the last test ended with ZeroDivisionError")


def test_a_flood_from_the_tests_is_cut_and_counted(kernel: Kernel) -> None:
    given = report(kernel, "", "print('x' * 99_998)\nassert True\nprint('yyyy')\nassert True\n")
    assert given.outputs == (
        Stream("stdout", "x" * 99_998 + "\ny"),
        Stream("stderr", "… (4 more characters)\n"),
    )


def test_hostile_objects_are_told_and_survived(kernel: Kernel) -> None:
    code = """
class Bad:
    def __eq__(self, other): raise RuntimeError("no comparing")
    def __repr__(self): raise RuntimeError("no looking")
    def __bool__(self): raise RuntimeError("no asking")
class Yes:
    def __eq__(self, other): return True
class Rude(Exception):
    def __str__(self): raise RuntimeError("no text")
def bad(): return Bad()
def yes(): return Yes()
def rude(): raise Rude
def deep(n): return deep(n + 1)
"""
    tests = "assert bad() == 1\nassert bad()\nassert yes() == 1\nassert rude()\nassert deep(0)\n"
    given = report(kernel, code, tests)
    assert statuses(given) == ["error", "error", "passed", "error", "error"]
    assert given.cases[0].got == "<Bad, whose repr raised RuntimeError>"
    assert "no comparing" in given.cases[0].message
    assert "the text of this Rude could not be had" in given.cases[3].message
    assert "RecursionError" in given.cases[4].message


def test_long_values_are_cut_with_a_count_and_their_difference_told(kernel: Kernel) -> None:
    code = "def long(n):\n    out = list(range(n))\n    out[700] = -1\n    return out\n"
    (case,) = report(kernel, code, "assert long(1000) == list(range(1000))\n").cases
    assert "more]" in case.got
    assert len(case.got) < 700
    assert case.message == "first different at index 700: -1, not 700"


def test_a_setup_line_of_check_that_raises_is_blamed_and_the_rest_named(kernel: Kernel) -> None:
    tests = (
        "def check(c):\n    assert c(1, 1) == 2\n    x = c(None, 1)\n"
        "    assert x\n    assert c(1, 2)\n"
    )
    given = report(kernel, ADD, tests, "add")
    assert statuses(given) == ["passed", "error", "not-run"]
    assert "TypeError" in given.cases[1].message


def test_a_test_never_reached_in_a_branch_passes_and_says_so(kernel: Kernel) -> None:
    (case,) = report(kernel, ADD, "if add(1, 1) == 3:\n    assert add(2, 2) == 4\n").cases
    assert (case.status, case.message) == ("passed", "never reached")


def test_no_tests_is_no_success(kernel: Kernel) -> None:
    given = report(kernel, ADD, "import math\nx = 1\n")
    assert (given.problem, given.total, given.solved) == (NONE_FOUND, 0, False)
    assert signal(given).reward is None


def test_tests_that_do_not_parse_are_refused_before_anything_runs(kernel: Kernel) -> None:
    with pytest.raises(InvalidTaskError, match=r"line 2"):
        run_tests(kernel, "print('ran')\nassert (\n")
    with pytest.raises(InvalidTaskError):
        parse_tests("def f(:\n")
    assert kernel.late().result() == ()


def test_a_dead_kernel_is_the_hosts_trouble(kernel: Kernel) -> None:
    kernel.run("import os\nos._exit(1)").result()
    with pytest.raises(KernelDeadError):
        run_tests(kernel, "assert 1\n").result()


def test_an_interrupt_from_outside_ends_the_tests_and_says_so(kernel: Kernel) -> None:
    kernel.run(ADD).result()
    tests = "assert add(1, 1) == 2\nimport time\ntime.sleep(600)\nassert add(1, 1) == 2\n"
    run = run_tests(kernel, tests, timeout_per_test=100.0)
    while not kernel.interrupt().result():
        pass
    given = run.result()
    assert given.cases[-1].status == "not-run"
    assert "interrupted" in given.problem


def test_a_stopped_run_leaves_a_kernel_that_works(kernel: Kernel) -> None:
    kernel.run(ADD).result()
    run = run_tests(kernel, "while True: pass\nassert 1\n", timeout_per_test=100.0)
    run.stop()
    with pytest.raises(RunStopped):
        run.result()
    assert kernel.run("add(1, 1)", timeout=30).result().text == "2\n"


def test_the_signal_tells_the_share_and_every_failure() -> None:
    given = TestReport(
        (
            CaseResult("test_1", "passed", "f(1) == 1"),
            CaseResult("test_2", "failed", "f(2) == 4", "x" * 400, "4", "a\nb"),
            CaseResult("test_3", "not-run"),
            CaseResult("test_4", "error", message="ValueError: no"),
        )
    )
    told = signal(given)
    assert (told.name, told.reward_type, told.reward) == ("tests", RewardType.OUTCOME, 0.25)
    assert told.feedback == "\n".join(
        [
            "1/4 tests passed.",
            "Failures:",
            "- test_2 (failed): f(2) == 4",
            f"    got: {'x' * 300}… (100 more characters)",
            "    expected: 4",
            "    a\\nb",
            "- test_3 (not-run)",
            "- test_4 (error)",
            "    ValueError: no",
        ]
    )


def test_cases_are_known_by_name_before_they_run() -> None:
    cases = parse_tests("def check(c):\n    assert c(1) == 2\nassert 1\n", "f")
    assert [(case.name, case.status, case.expression) for case in cases] == [
        ("test_1", "not-run", "1"),
        ("check[1]", "not-run", "c(1) == 2"),
    ]
