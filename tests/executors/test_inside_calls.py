"""Tests call the code through the connection as they would call it in their own process.

Each source of tests that must agree is first run by Python in one process with the code.
"""

from __future__ import annotations

from tests.executors.agreement import agree
from tests.executors.bare import Bare


def test_values_come_back_with_their_classes(bare: Bare) -> None:
    code = """
import collections, datetime, decimal, fractions, math
def same(x): return x
def some(): return {"a": (1, [2.5]), "b": frozenset([1]), "c": {3}}
def odd(): return [math.nan, math.inf, -0.0, 10**30, "\\ud800", 1j]
def counted(x): return collections.Counter(x)
def grouped():
    found = collections.defaultdict(list)
    found["a"].append(1)
    return found
"""
    tests = """
import datetime, decimal, fractions, math
assert some() == {"a": (1, [2.5]), "b": frozenset([1]), "c": {3}}
assert type(some()["b"]) is frozenset
values = odd()
assert math.isnan(values[0]) and values[1] == math.inf and math.copysign(1, values[2]) == -1
assert values[3:] == [10**30, "\\ud800", 1j]
for value in [True, 1, 1.0, None, "", b"", decimal.Decimal("1.0"), fractions.Fraction(1, 2),
              datetime.date(2024, 1, 1), range(3), int, len]:
    assert same(value) == value and type(same(value)) is type(value)
assert counted("abca").most_common(1) == [("a", 2)]
assert grouped() == {"a": [1]} and grouped()["b"] == []
"""
    agree(bare, code, tests)


def test_identity_and_changes_in_place_are_kept(bare: Bare) -> None:
    code = """
def same(x): return x
def append(x, value): x.append(value)
def deep(x): x["a"][0].add(9)
def swap(a, b): a[:], b[:] = b[:], a[:]
def hang(a, b): a.append(b)
def ring():
    x = [1]
    x.append(x)
    return x
def twice():
    x = []
    return [x, x]
def new_key(d): d["k"] = d
def clear(*all):
    for each in all: each.clear()
def change_and_raise(x):
    x.append(1)
    raise ValueError
def look(x): return len(x)
"""
    tests = """
import collections
x = [1]
assert same(x) is x
assert same((1, x))[1] is x
pair = (1, x)
assert same(pair) is pair
append(x, 2)
assert x == [1, 2]
d = {"a": [{1}]}
inner = d["a"][0]
deep(d)
assert inner == {1, 9} and d["a"][0] is inner
a, b = [1], [2]
swap(a, b)
assert (a, b) == ([2], [1])
hang(a, b)
assert a[1] is b
r = ring()
assert r[1] is r
t = twice()
assert t[0] is t[1]
e = {}
new_key(e)
assert e["k"] is e
kinds = [[1], {1}, {1: 2}, bytearray(b"a"), collections.deque([1]), collections.Counter("a"),
         collections.OrderedDict(a=1), collections.defaultdict(int, a=1)]
clear(*kinds)
assert all(not each for each in kinds) and kinds[7]["b"] == 0
changed = []
try:
    change_and_raise(changed)
except ValueError:
    pass
assert changed == [1]
append(x, x)
assert x[2] is x
y = {3, 1, 2}
assert look(y) == 3 and y == {1, 2, 3}
"""
    agree(bare, code, tests)


def test_arrays_are_written_back(bare: Bare) -> None:
    code = """
import numpy
def double(a): a *= 2
def total(a): return a.sum()
def ones(n): return numpy.ones(n)
"""
    tests = """
import numpy as np
a = np.array([1, 2])
double(a)
assert a.tolist() == [2, 4] and total(a) == 6
assert np.array_equal(ones(2), [1.0, 1.0]) and np.allclose(ones(2), 1)
assert isinstance(total(a), np.integer)
"""
    agree(bare, code, tests)


def test_iterators_are_iterators(bare: Bare) -> None:
    code = """
def count(n):
    for i in range(n): yield i
def endless():
    n = 0
    while True:
        yield n
        n += 1
def in_place():
    x = [0]
    for i in range(3):
        x[0] = i
        yield x
def breaks():
    yield 1
    yield 2
    raise ValueError("over")
def echo():
    got = None
    while True: got = yield got
def gives():
    yield 1
    return 7
def texts(x): return map(str, x)
def pairs(x): return zip(x, x)
def views(d): return d.keys(), d.values(), d.items()
def nested(): return [count(2), {"a": count(1)}]
def consume(x): return list(x)
class Down:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if not self.n: raise StopIteration
        self.n -= 1
        return self.n
"""
    tests = """
import itertools, types
assert list(count(5)) == [0, 1, 2, 3, 4] and count(3) != [0, 1, 2]
assert list(itertools.islice(endless(), 50)) == list(range(50))
assert isinstance(count(1), types.GeneratorType) and not list(count(0))
assert list(in_place()) == [[2], [2], [2]]
for i, x in enumerate(in_place()):
    assert x == [i]
g = breaks()
assert next(g) == 1 and next(g) == 2
try:
    next(g)
    assert False
except ValueError as error:
    assert str(error) == "over"
e = echo()
next(e)
assert e.send(5) == 5 and e.send([6]) == [6]
def delegate():
    return (yield from gives())
d = delegate()
next(d)
try:
    next(d)
except StopIteration as end:
    assert end.value == 7
assert list(texts([1, 2])) == ["1", "2"] and list(pairs([1])) == [(1, 1)]
assert views({1: 2})[0] == {1} and list(views({1: 2})[1]) == [2]
assert dict(views({1: 2})[2]) == {1: 2}
n = nested()
assert list(n[0]) == [0, 1] and list(n[1]["a"]) == [0]
assert consume(i * i for i in range(4)) == [0, 1, 4, 9]
assert consume(iter([1, [2]])) == [1, [2]] and consume({"a": 1}.items()) == [("a", 1)]
assert consume(count(3)) == [0, 1, 2]
assert list(Down(3)) == [2, 1, 0] and sum(Down(4)) == 6
"""
    agree(bare, code, tests)


def test_functions_go_both_ways_one_call_inside_the_other(bare: Bare) -> None:
    code = """
import functools
def apply(f, *a, **k): return f(*a, **k)
def visit(items, f):
    for item in items: f(item)
def adder(a): return lambda b: a + b
def plus_one(f):
    @functools.wraps(f)
    def wrapped(*a): return f(*a) + 1
    return wrapped
def catches(f):
    try: f()
    except ZeroDivisionError as error: return f"caught {error}"
@functools.lru_cache
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
def compose(f, g): return lambda x: f(g(x))
def sort(x, key): return sorted(x, key=key)
"""
    tests = """
assert apply(lambda x, y=1: x * y, 3, y=4) == 12
seen = []
visit([1, [2]], seen.append)
assert seen == [1, [2]]
assert adder(1)(2) == 3
def base(x):
    "doc"
    return x * 2
wrapped = plus_one(base)
assert wrapped(4) == 9 and wrapped.__name__ == "base"
assert catches(lambda: 1 / 0) == "caught division by zero"
class Mine(Exception): pass
def fails(): raise Mine("x")
try:
    apply(fails)
    assert False
except Mine as error:
    assert error.args == ("x",)
assert apply(sorted, [3, 1], key=lambda v: -v) == [3, 1]
assert apply(str.upper, "a") == "A" and apply(int, "3") == 3
assert apply(apply, apply, adder(1), 5) == 6
assert apply(lambda f: f(2), adder(40)) == 42
assert fib(20) == 6765 and fib.cache_info().hits > 0
assert compose(adder(1), lambda x: x * 2)(5) == 11
assert sort(["bb", "a"], len) == ["a", "bb"]
assert list(map(adder(1), [1, 2])) == [2, 3] and sorted([3, 1], key=adder(0)) == [1, 3]
assert adder(1) != adder(1) and apply is apply
"""
    agree(bare, code, tests)


def test_coroutines_are_awaited_in_every_style(bare: Bare) -> None:
    code = """
import asyncio
async def later(x):
    await asyncio.sleep(0)
    return x + 1
class Client:
    async def get(self): return 5
    async def __aenter__(self): return 6
    async def __aexit__(self, *error): return False
async def numbers(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i
async def waits_for(f): return await f(1)
"""
    tests = """
import asyncio
assert later(1) == 2
assert await later(1) == 3
assert asyncio.run(later(1)) == 2
async def test_async():
    assert await later(2) == 4
def test_run():
    assert asyncio.run(later(3)) == 4
async def test_more():
    assert await Client().get() == 5
    assert await asyncio.gather(later(1), later(2)) == [2, 3]
    async with Client() as six:
        assert six == 6
    assert [i async for i in numbers(3)] == [0, 1, 2]
    async def own(x):
        return x + 10
    assert await waits_for(own) == 11
"""
    told = bare.check(code, tests)
    assert {case["expression"]: (case["status"], case["got"]) for case in told.cases} == {
        "later(1) == 2": ("passed", ""),
        "await later(1) == 3": ("failed", "2"),
        "asyncio.run(later(1)) == 2": ("passed", ""),
        "await later(2) == 4": ("failed", "3"),
        "": ("passed", ""),
    }, told
    assert told.statuses.count("failed") == 2


def test_both_processes_are_seeded(bare: Bare) -> None:
    tests = "import random\nassert roll() == random.random()\nassert roll() == random.random()\n"
    told = bare.check("import random\ndef roll(): return random.random()\n", tests)
    assert told.statuses == ["passed", "passed"]


def test_the_code_is_a_module_that_its_classes_find(bare: Bare) -> None:
    code = """
import dataclasses, pickle, sys, typing
@dataclasses.dataclass
class Data:
    x: "int"
def hints(): return typing.get_type_hints(Data)
def pickled(): return pickle.loads(pickle.dumps(Data(3))).x
def name(): return __name__
if __name__ == "__main__":
    raise SystemExit(1)
"""
    tests = """
assert hints() == {"x": int}
assert pickled() == 3
assert name() == "solution"
from solution import Data as Imported, pickled as also
assert Imported(1) == Data(1) and also() == 3
import solution
assert solution.pickled() == 3
"""
    agree(bare, code, tests)


def test_the_source_of_the_code_can_be_had(bare: Bare) -> None:
    code = "import inspect\ndef source():\n    return inspect.getsource(source)\n"
    tests = "assert source().splitlines()[0] == 'def source():'\n"
    assert bare.check(code, tests).statuses == ["passed"]
