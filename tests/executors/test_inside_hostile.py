"""Code that lies to its tests is not believed, and ends nothing but its own check."""

from __future__ import annotations

import pytest

from tests.executors.bare import Bare

AGREEABLE = """
class Yes:
    def __eq__(self, other): return True
    def __ne__(self, other): return True
    def __hash__(self): return 5
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __instancecheck__ = __lt__
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
    def __add__(self, other): return 5
    __radd__ = __mul__ = __rmul__ = __add__
    def __abs__(self): return 0.0
    def __getattr__(self, name): return lambda *a, **k: True
    __class__ = list
def f(x): return Yes()
"""


def subclass(kind: str, value: str) -> str:
    return f"""
class Sub({kind}):
    def __eq__(self, other): return True
    def __hash__(self): return hash({value})
    def __sub__(self, other): return 0.0
    def __lt__(self, other): return True
    def startswith(self, *a): return True
def f(x): return Sub({value.replace("5", "7")})
"""


@pytest.mark.parametrize(
    "code",
    [
        AGREEABLE,
        subclass("int", "5"),
        subclass("float", "5.0"),
        subclass("str", "'5'"),
        AGREEABLE.replace("return Yes()", "return [Yes()][0]"),
        AGREEABLE.replace("class Yes:", "class abs:").replace("Yes()", "abs()"),
        AGREEABLE.replace(
            "def f(x): return Yes()", "class f(Yes):\n    def __init__(self, x): ..."
        ),
    ],
)
def test_an_object_that_agrees_with_everything_passes_nothing(bare: Bare, code: str) -> None:
    tests = """
import pytest
assert f(1) == 5
assert 5 == f(1)
assert [f(1)] == [5]
assert {'a': f(1)} == {'a': 5}
assert f(1) in [5, 6]
assert {f(1)} == {5}
assert abs(f(1) - 5.0) < 1e-6
assert abs(5.0 - f(1)) < 1e-6
assert 4 < f(1) < 6
assert 5 in f(1)
assert f(1).startswith('5')
assert f(1).issuperset({5})
assert f(1) == pytest.approx(5)
assert isinstance(f(1), (list, tuple)) and f(1)
assert max(f(1), 3) == 5
assert sum([f(1), 0]) == 5
assert not f(1) != 5
"""
    told = bare.check(code, tests)
    assert len(told.cases) == 17
    assert set(told.statuses) <= {"failed", "error"}, told


def test_an_object_cannot_be_made_equal_to_one_that_is_made_later(bare: Bare) -> None:
    setup = """
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def __eq__(self, other): return (self.a, self.b) == (other.a, other.b)
"""
    code = """
last = None
def later(self, a, b):
    self.a, self.b = a, b
    if last is not None:
        last.a, last.b = a, b
        self.last = last
        del self.last
Pair.__init__ = later
def f(x):
    global last
    last = Pair(0, 0)
    return last
"""
    tests = "assert f(1) == Pair(5, 24)\nassert f(1) == Pair(0, 0)\n"
    told = bare.check(code, tests, setup=setup)
    assert told.statuses == ["failed", "passed"]
    assert told.cases[0]["got"] == "Pair(a=0, b=0)"


def test_names_with_which_tests_judge_are_not_the_codes(bare: Bare) -> None:
    code = """
import math, cmath
def isclose(*a, **k): return True
math.isclose = isclose
class AssertionError(Exception): pass
def len(x): return 5
def abs(x): return 0
def sorted(x): return 5
def all(x): return True
def set(x): return 5
def isinstance(*a): return True
def check(c): return True
def f(x): return [7]
"""
    tests = """
assert len(f(1)) == 5
assert abs(f(1)[0]) == 0
assert sorted(f(1)) == 5
assert all(f(1)[1:] or [0])
assert set(f(1)) == 5
assert isinstance(f(1), str)
assert math.isclose(f(1)[0], 5)
def check(candidate):
    assert candidate(1) == 5
"""
    told = bare.check(code, tests, entry_point="f")
    assert told.statuses == ["failed"] * 8


def test_what_the_code_does_to_its_process_changes_no_judgement(bare: Bare) -> None:
    code = """
import atexit, builtins, gc, json, os, socket, sys, threading
builtins.len = builtins.zip = builtins.any = builtins.id = builtins.type = None
builtins.print = lambda *a: None
json.dumps = json.loads = json.JSONEncoder.default = lambda *a, **k: None
socket.socket.send = None
atexit.register(lambda: os._exit(0))
gc.callbacks.append(lambda *a: None)
threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
for name in list(sys.modules):
    if name.startswith("_nbrefine"):
        sys.modules[name] = None
def f(x): return 4
"""
    told = bare.check(code, "assert f(1) == 5\nassert f(1) == 4\nassert len([1]) == 1\n")
    assert told.statuses == ["failed", "passed", "passed"]


FORGED = """
import json, os, struct
def write(text):
    for number in range(3, 40):
        try:
            os.write(number, struct.pack(">I", len(text)) + text)
        except OSError:
            pass
def answer(value, changed):
    for n in range(30):
        write(json.dumps(["ok", n, value, changed, [], [], None]).encode())
"""


@pytest.mark.parametrize(
    "act",
    [
        "write(b'[1, 2]')",
        "write(b'not json')",
        "write(b'[' * 90000)",
        "answer(['object', 99, 98], [])",
        "answer(['callable', 0], [])",
        "answer(5, [[0, ['l', []]]])",
        "write(json.dumps(['ask', 1, 'call', [[0], [[], []]], []]).encode())",
        "write(json.dumps(['ask', 1, 'get', [[0, '__globals__'], [[], []]], []]).encode())",
        "os.closerange(3, 40)",
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
    ],
)
def test_a_forged_or_broken_connection_ends_the_check(bare: Bare, act: str) -> None:
    code = f"{FORGED}\ndef f(x):\n    {act}\n    return 7\n"
    told = bare.check(code, "assert f(1) == 5\nassert True\n")
    assert told.statuses == ["error", "not-run"], told
    assert told.cases[0]["message"] in (
        "the code broke the connection it is asked over",
        "the code's process ended",
    )
    assert told.ended["tests"] == 0


PEER = """
import sys
def peer():
    frame = sys._getframe()
    while type(frame.f_locals.get("self")).__name__ != "Candidate":
        frame = frame.f_back
    return frame.f_locals["self"]
def refuse(*arguments): raise SystemExit
"""


ODD = "from subprocess import CalledProcessError\nclass Odd:\n    "


@pytest.mark.parametrize(
    ("code", "tests", "status"),
    [
        ("peer()._own['names'] = refuse\ndef f(x): return x", "assert f(1) == 1", "not-run"),
        (
            "peer()._own['names'] = lambda *n: n and refuse()\ndef f(x): return x",
            "def check(candidate):\n    assert candidate(1) == 1\n",
            "error",
        ),
        (
            "own = peer()._own\nv = 1\ndef f(x):\n    own['names'] = refuse\n    return 1",
            "assert f(1)\nassert v == 1",
            "error",
        ),
        (
            "peer()._own['settle'] = refuse\ndef f(x):\n    while True: pass",
            "assert f(1) == 1\nassert f(1) == 1",
            "not-run",
        ),
        (
            "async def f(x): raise SystemExit(3)",
            "import asyncio\nasync def test_f():\n    assert await asyncio.gather(f(1)) == [1]",
            "error",
        ),
        (
            "peer()._exports.names = lambda: [['f', 'import', 'unittest.__main__', 'f']]",
            "assert f(1) == 1",
            "not-run",
        ),
        (
            f"{ODD}def __str__(self): refuse()\nraise ValueError(Odd())",
            "assert f(1) == 1",
            "not-run",
        ),
        (
            f"{ODD}def __len__(self): refuse()\nraise SyntaxError(Odd())",
            "assert f(1) == 1",
            "not-run",
        ),
        (
            f"{ODD}def __lt__(self, other): refuse()\nraise CalledProcessError(Odd(), 1)",
            "assert f(1) == 1",
            "not-run",
        ),
        (
            f"{ODD}def __repr__(self): refuse()\nraise SystemExit(Odd())",
            "assert f(1) == 1",
            "not-run",
        ),
        (
            "import math\npeer()._exports.names = lambda: [['f', 'import', '__main__', 'f']]",
            "assert f(1) == 1",
            "not-run",
        ),
    ],
)
def test_no_answer_of_the_code_ends_the_process_of_the_tests(
    bare: Bare, code: str, tests: str, status: str
) -> None:
    """A check without an end is the host's trouble, which counts for nothing."""
    told = bare.check(f"{PEER}{code}\n", tests, test_timeout=0.5)
    assert told.ended["tests"] == 0, told
    assert told.statuses[-1] == status, told
    assert "passed" not in told.statuses[1:], told


@pytest.mark.parametrize(
    "method",
    [
        "def __array_function__(self, *a): return True",
        "def __array_ufunc__(self, *a, **k): return np.array([True])",
        "__array_interface__ = {'data': (64, 0), 'shape': (1,), 'typestr': '<f8', 'version': 3}",
        "__array_struct__ = 64",
    ],
)
def test_numpy_of_the_tests_hands_no_comparison_to_the_code(bare: Bare, method: str) -> None:
    code = f"import numpy as np\nclass Yes:\n    {method}\ndef f(x): return Yes()\n"
    tests = """
import numpy as np
assert np.allclose(f(1), [5.0])
assert np.array_equal(f(1), [5.0])
assert (np.array([5.0]) == f(1)).all()
assert np.all(np.abs(np.array([5.0]) - f(1)) < 1e-9)
"""
    told = bare.check(code, tests)
    assert told.ended["tests"] == 0
    assert "passed" not in told.statuses, told


def test_an_object_is_not_told_what_it_should_hold(bare: Bare) -> None:
    code = """
class Text:
    def find(self, what): return 0
    def index(self, what): return 0
    def count(self, what="of its own"): return 1 if what != "of its own" else 2
def f(x): return Text()
"""
    tests = (
        "assert f(1).find('a') != -1\nassert f(1).index('a') == 0\nassert f(1).count('a') == 1\n"
    )
    told = bare.check(code, f"{tests}assert f(1).count() == 2\n")
    assert told.statuses == ["error", "error", "error", "passed"]


def test_a_class_named_as_one_that_the_tests_have_is_not_known_to_them(bare: Bare) -> None:
    code = """
class Counter:
    def __sub__(self, other): return self
    def __abs__(self): return self
    def __lt__(self, other): return True
Close = Counter
from collections import Counter
def f(x): return Close()
"""
    told = bare.check(code, "assert abs(f(1) - 5) < 1e-9\nassert Counter('a') == {'a': 1}\n")
    assert told.statuses == ["error", "passed"]


def test_what_cannot_be_passed_to_the_code_is_no_error_of_the_codes(bare: Bare) -> None:
    tests = """
import pytest
with pytest.raises(TypeError):
    f(open("/dev/null"))
"""
    told = bare.check("def f(x): return None\n", tests)
    assert told.statuses == ["error"]


def test_a_forged_answer_is_no_more_than_an_answer(bare: Bare) -> None:
    """It may say early what it could have said in time; the test still compares."""
    code = f"{FORGED}\ndef f(x):\n    answer(6, [])\n    return 7\n"
    told = bare.check(code, "assert f(1) == 5\n")
    assert told.statuses != ["passed"]


def test_a_function_of_the_tests_gives_no_way_into_them(bare: Bare) -> None:
    code = """
import gc
def f(function, node):
    for name in ("__globals__", "__code__", "__closure__", "__self__"):
        for each in (function, node.method, node):
            found = getattr(each, name, None)
            if found is not None and "SECRET" in repr(found):
                return "found"
    for each in gc.get_objects():
        if type(each) is str and "SECRET" in each and "SEC" + "RET" != each and len(each) < 50:
            return each
    return function(1), node.value
"""
    tests = """
expected = "SECRET" + "9"
class Node:
    value = 3
    _private = expected
    def method(self): return expected
assert f(lambda x: x + 1, Node()) == (2, 3)
"""
    told = bare.check(code, tests)
    assert told.statuses == ["passed"], told


def test_what_the_code_prints_is_its_own_matter(bare: Bare) -> None:
    code = "import sys\ndef f(x):\n    print('out'); print('err', file=sys.stderr); return 5\n"
    told = bare.check(code, "assert f(1) == 5\n")
    assert told.statuses == ["passed"]
    assert sorted(told.printed.split()) == ["err", "out"]
