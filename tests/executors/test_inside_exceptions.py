"""Exceptions pass the connection with their classes, in both directions.

Each source of tests is first run by Python in one process with the code.
"""

from __future__ import annotations

from tests.executors.agreement import agree
from tests.executors.bare import Bare


def test_exceptions_are_of_the_class_that_tests_wait_for(bare: Bare) -> None:
    code = """
import decimal, json
class Mine(ValueError):
    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code
class Sub(Mine): pass
def mine(n): raise Mine(n)
def sub(): raise Sub([1])
def key(): return {}["a"]
def parse(): json.loads("{")
def divide(): return decimal.Decimal(1) / 0
def open_nothing(): open("/nonexistent/file")
def decode(): return b"\\xff".decode()
def leave(): raise SystemExit(3)
def group(): raise ExceptionGroup("two", [ValueError(1), KeyError("k")])
def returned(): return ValueError("v")
def recurse(n): return recurse(n + 1)
"""
    tests = """
import decimal, json
import pytest
with pytest.raises(Mine) as info:
    mine(7)
assert info.value.code == 7 and str(info.value) == "code 7" and info.value.args == ("code 7",)
with pytest.raises(ValueError, match="code 3"):
    mine(3)
with pytest.raises(Mine):
    sub()
assert issubclass(Sub, Mine) and issubclass(Mine, ValueError) and not issubclass(Mine, KeyError)
with pytest.raises(KeyError) as info:
    key()
assert str(info.value) == "'a'"
with pytest.raises(json.JSONDecodeError):
    parse()
with pytest.raises(decimal.DivisionByZero):
    divide()
with pytest.raises(FileNotFoundError) as info:
    open_nothing()
assert info.value.errno == 2
with pytest.raises(UnicodeDecodeError):
    decode()
with pytest.raises(SystemExit) as info:
    leave()
assert info.value.code == 3
with pytest.raises(ExceptionGroup) as info:
    group()
assert [type(e) for e in info.value.exceptions] == [ValueError, KeyError]
assert isinstance(returned(), ValueError) and returned().args == ("v",)
with pytest.raises(RecursionError):
    recurse(0)
assert True
"""
    agree(bare, code, tests)


def test_exceptions_of_the_tests_are_caught_by_the_classes_that_they_pass(bare: Bare) -> None:
    code = """
def retry(function, times, errors=(Exception,)):
    for left in reversed(range(times)):
        try:
            return function()
        except errors:
            if not left:
                raise
def fail(kind, *arguments): raise kind(*arguments)
def name(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error), error.args
"""
    tests = """
import pytest
class Flaky(Exception):
    pass
class Coded(ValueError):
    def __init__(self, code, *, more=0):
        super().__init__(f"code {code}")
        self.code = code
calls = []
def work():
    calls.append(1)
    if len(calls) % 3:
        raise Flaky("not yet")
    return "done"
def coded(): raise Coded(3, more=1)
assert retry(work, 5) == "done" and retry(work, 5, (Flaky,)) == "done" and len(calls) == 6
with pytest.raises(Flaky, match="not yet"):
    retry(work, 1, (Flaky, Coded))
with pytest.raises(Coded) as caught:
    retry(coded, 2, Flaky)
assert caught.value.code == 3
with pytest.raises(Coded, match="code 7"):
    fail(Coded, 7)
with pytest.raises(KeyError):
    fail(KeyError, "a")
assert name(coded) == ("Coded", "code 3", ("code 3",))
assert name(work) == ("Flaky", "not yet", ("not yet",))
"""
    agree(bare, code, tests)
