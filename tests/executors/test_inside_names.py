"""Which names of the tests are the code's, and which are theirs."""

from __future__ import annotations

import pytest

from nbrefine.executors.inside.names import Names, Told
from tests.executors.bare import Bare

FUNCTION = Told("function", "solution", "")


def of_code(tests: str, *defined: str, setup: str = "", entry_point: str = "") -> list[str]:
    names = Names(tests, setup, entry_point)
    return names.of_code(dict.fromkeys(defined, FUNCTION), names.helpers)


def test_what_the_tests_use_and_do_not_have_is_the_codes() -> None:
    assert of_code("assert f(1) == g(2)\n", "f", "g", "h") == ["f", "g"]


@pytest.mark.parametrize("name", ["len", "sorted", "set", "abs", "isinstance", "all", "print"])
def test_a_built_in_name_beside_another_is_the_tests(name: str) -> None:
    assert of_code(f"assert {name}(f(1)) == 5\n", "f", name) == ["f"]
    assert of_code(f"assert {name}(f(1)) == 5\n", "f", name, entry_point="f") == ["f"]
    assert of_code(f"assert {name}(f(1)) == 5\n", name) == []


def test_a_built_in_name_is_the_codes_where_it_is_under_test() -> None:
    """MBPP 126 asks for a function called sum."""
    assert of_code("assert sum(10, 15) == 6\n", "sum") == ["sum"]
    assert of_code("assert abs(sum(10, 15)) == 6\n", "sum") == ["sum"]
    assert of_code("assert abs(sum(10, 15)) == 6\n", "sum", "abs") == []
    assert of_code("assert abs(sum(10, 15)) == 6\n", "sum", "abs", entry_point="sum") == ["sum"]
    assert of_code("def check(c):\n    assert c(1) == max(1, 2)\n", "max", entry_point="f") == []


def test_names_of_setup_are_the_tests_own_unless_they_are_classes() -> None:
    setup = "import math\nclass Node: ...\ndef poly(x): ...\nlimit = 3\n"
    tests = "assert poly(f(Node(limit))) == math.pi\n"
    names = Names(tests, setup, "f")
    assert names.helpers == {"math", "poly", "limit"}
    assert of_code(tests, "f", "poly", "Node", "limit", setup=setup) == ["f", "Node"]


def test_a_class_that_the_tests_are_about_is_written_as_one() -> None:
    names = Names("assert Vector(1) + f(abs(2)) == Other.x and Own()\nclass Own: ...\n", "", "f")
    assert names.known_classes == {"Vector", "Other"}


def test_setups_functions_run_with_the_tests_and_its_classes_with_the_code(bare: Bare) -> None:
    setup = """
class Node:
    def __init__(self, value): self.value = value
def node(value): return Node(value)
def error(x): return abs(x - 2)
limit = 0.1
"""
    code = """
def error(x): return 0
limit = 100
def f(node): return node.value + 1, isinstance(node, Node)
"""
    tests = """
assert error(f(node(5))[0]) < limit
assert f(node(1)) == (2, True)
assert error(f(Node(1))[0]) < limit
"""
    told = bare.check(code, tests, setup=setup, entry_point="f")
    assert told.statuses == ["failed", "passed", "passed"], told


def test_what_the_code_imported_is_imported_afresh(bare: Bare) -> None:
    code = """
import math, collections as c
from fractions import Fraction
from math import isclose
math.pi = 3
def f(x): return x
"""
    tests = """
assert math.pi > 3.1
assert Fraction(1, 2) == f(Fraction(1, 2))
assert isclose(f(1), 2)
assert c.Counter("a") == f({"a": 1})
"""
    told = bare.check(code, tests)
    assert told.statuses == ["passed", "passed", "failed", "passed"], told


def test_variables_are_read_before_each_test_and_are_not_handed_out(bare: Bare) -> None:
    code = "total = 0\nitems = [1]\ndef add(n):\n    global total\n    total += n\n"
    tests = "assert total == 0\nadd(2)\nassert total == 2\nassert items == [1]\nassert missing\n"
    told = bare.check(code, tests)
    assert told.statuses == ["passed", "passed", "passed", "error"]
    assert told.messages_of_cases[3] == "NameError: name 'missing' is not defined"


def test_a_name_that_tests_set_is_theirs(bare: Bare) -> None:
    told = bare.check("x = 1\n", "assert x == 1\nx = 2\nassert x == 2\nassert x == 2\n")
    assert told.statuses == ["passed"] * 3


@pytest.mark.parametrize(
    ("code", "statuses", "message"),
    [
        ("def add(a, b): return a + b\n", ["passed", "passed"], ""),
        ("def candidate(a, b): return a + b\ndef other(): ...\n", ["passed", "passed"], ""),
        (
            "def one(a, b): ...\ndef two(a, b): ...\n",
            ["error", "not-run"],
            "check() needs one function to test, and the code has one, two",
        ),
        (
            "x = 1\n",
            ["error", "not-run"],
            "check() needs a function to test, and the code has none",
        ),
    ],
)
def test_check_finds_the_only_function_there_is(
    bare: Bare, code: str, statuses: list[str], message: str
) -> None:
    tests = "def check(candidate):\n    assert candidate(1, 1) == 2\n    assert candidate(1, 2)\n"
    told = bare.check(code, tests)
    assert told.statuses == statuses
    assert told.messages_of_cases[0] == message


def test_a_missing_entry_point_fails_the_tests(bare: Bare) -> None:
    tests = "def check(candidate):\n    assert candidate(1, 1) == 2\n    assert candidate(1, 2)\n"
    told = bare.check("x = 1\n", tests, entry_point="add")
    assert told.statuses == ["error", "not-run"]
    assert told.messages_of_cases[0] == "NameError: name 'add' is not defined"


def test_an_entry_point_may_be_a_method_of_an_object(bare: Bare) -> None:
    code = "class Solution:\n    def add(self, a, b): return a + b\n"
    tests = "def check(candidate):\n    assert candidate(1, 1) == 2\n"
    assert bare.check(code, tests, entry_point="Solution().add").statuses == ["passed"]


@pytest.mark.parametrize(
    ("tests", "problem"),
    [
        ("assert (\n", "the tests do not parse: line 1: '(' was never closed"),
        ("x = 1\n", "no tests were found: "),
        ("", "no tests were found: "),
    ],
)
def test_a_task_without_tests_is_told_before_any_code_runs(
    bare: Bare, tests: str, problem: str
) -> None:
    told = bare.check("print('ran')\n", tests)
    assert len(told.messages) == 1
    assert told.messages[0]["problem"].startswith(problem)
    assert told.printed == ""


def test_failures_tell_what_was_there_and_what_was_asked_for(bare: Bare) -> None:
    code = "def add(a, b): return a + b\ndef fail(x):\n    y = x\n    return y / 0\n"
    tests = """
assert add(1, 1) == 3
assert 5 < add(1, 1)
assert add(1, 1) in [3, 4], "a message"
def test_one():
    assert add(2, 2) == 5
assert fail(1)
assert add(1, open("/dev/null"))
"""
    told = bare.check(code, tests)
    assert [(case["status"], case["got"], case["expected"]) for case in told.cases] == [
        ("failed", "2", "3"),
        ("failed", "2", "> 5"),
        ("failed", "2", "in [3, 4]"),
        ("error", "", "a true value"),
        ("error", "", "a true value"),
        ("failed", "4", "5"),
    ]
    assert told.messages_of_cases[2:5] == [
        "a message",
        "ZeroDivisionError: division by zero (line 4: return y / 0)",
        (
            "CannotSend: the tests pass an object of class TextIOWrapper, "
            "which cannot be sent to the code's process"
        ),
    ]
    assert told.cases[5]["expression"] == "add(2, 2) == 5"


def test_tests_that_derive_from_a_class_of_the_code_are_told_so(bare: Bare) -> None:
    code = "class Animal:\n    legs = 4\nclass Dog(Animal):\n    pass\n"
    told = bare.check(
        code, "assert Dog().legs == 4\nclass Cat(Animal):\n    pass\nassert Cat().legs == 4\n"
    )
    assert [case["status"] for case in told.cases] == ["passed", "error"]
    assert told.messages_of_cases[1] == (
        "CannotSend: the tests derive class Cat from the code's class Animal"
    )


def test_results_are_told_in_the_order_of_the_seam(bare: Bare) -> None:
    told = bare.check("def f(): return 1\n", "assert f() == 1\ndef test_x(tmp_path): assert f()\n")
    assert [next(iter(message)) for message in told.messages] == ["cases", "code", "case", "case"]
    assert told.messages[0]["cases"] == [
        {"name": "test_1", "expression": "f() == 1"},
        {"name": "test_x", "expression": ""},
    ]
    by_index = {case["case"]: case for case in told.cases}
    assert by_index[0]["status"] == "passed"
    assert by_index[0]["seconds"] > 0
    assert by_index[1]["message"] == "pytest fixtures are not supported (tmp_path)"
