"""Tests see the code through the connection as they would see it in their own process.

Each source of tests here is first run by Python in one process with the code.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest

from tests.executors.bare import Bare, Told


@pytest.fixture(scope="module")
def bare() -> Iterator[Bare]:
    with Bare() as started:
        yield started


def agree(bare: Bare, code: str, tests: str) -> Told:
    """Run tests in one process, then in two: all must hold in both."""
    module = sys.modules["solution"] = types.ModuleType("solution")
    try:
        exec(code, module.__dict__)
        exec(tests, dict(module.__dict__))
    finally:
        del sys.modules["solution"]
    told = bare.check(code, tests)
    missed = [case for case in told.cases if case["status"] != "passed"]
    assert told.cases, told
    assert not missed, missed
    return told


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


CLASSES = """
import collections, dataclasses, enum, re, typing
class Stack:
    limit = 3
    def __init__(self): self.items = []
    def push(self, x):
        self.items.append(x)
        return self
    def pop(self): return self.items.pop()
    def __len__(self): return len(self.items)
    def __contains__(self, x): return x in self.items
    def __iter__(self): return iter(self.items)
    def __getitem__(self, i): return self.items[i]
    def __setitem__(self, i, v): self.items[i] = v
    def __delitem__(self, i): del self.items[i]
    def __enter__(self): return self
    def __exit__(self, kind, error, trace):
        self.items.append(kind and kind.__name__)
        return True
    @classmethod
    def of(cls, *items):
        made = cls()
        made.items = list(items)
        return made
    @staticmethod
    def two(): return 2
    @property
    def top(self): return self.items[-1]
class Vector:
    def __init__(self, x): self.x = x
    def __add__(self, other): return Vector(self.x + getattr(other, "x", other))
    __radd__ = __add__
    def __mul__(self, n): return Vector(self.x * n)
    def __iadd__(self, n):
        self.x += n
        return self
    def __neg__(self): return Vector(-self.x)
    def __abs__(self): return abs(self.x)
    def __lt__(self, other): return self.x < getattr(other, "x", other)
    def __eq__(self, other): return self.x == other.x
    def __hash__(self): return hash(self.x)
    def __repr__(self): return f"Vector<{self.x}>"
    def __call__(self, y): return self.x + y
    def __float__(self): return float(self.x)
class Node:
    def __init__(self, value): self.value, self.left = value, None
class Leaf(Node): pass
class Empty: pass
@dataclasses.dataclass
class Data:
    x: int
    y: list = dataclasses.field(default_factory=list)
@dataclasses.dataclass(frozen=True)
class Slotted:
    __slots__ = ("x",)
    x: int
class Color(enum.Enum):
    RED = 1
    BLUE = 2
Point = collections.namedtuple("Point", "x y")
class Named(typing.NamedTuple):
    a: int
    b: int = 2
    def total(self): return self.a + self.b
class Number(int): pass
def points(): return [Point(1, 2), Named(3)]
def first(p): return p.x
def data(x): return Data(x)
def red(): return Color.RED
def match(p, s): return re.match(p, s)
def number(x): return Number(x)
def count(nodes): return sum(1 for node in nodes if isinstance(node, Node))
"""


def test_objects_of_the_codes_classes_do_as_they_are_told(bare: Bare) -> None:
    tests = """
import copy
s = Stack()
assert s.push(1) is s
assert len(s) == 1 and s and 1 in s and 2 not in s and list(s) == [1] and s[0] == 1 and s.top == 1
s[0] = 5
assert s.pop() == 5 and not s
with s as entered:
    assert entered is s
    raise ValueError
assert s.items == ["ValueError"]
assert Stack.of(1, 2).items == [1, 2] and Stack.two() == 2 and Stack.limit == 3
assert isinstance(s, Stack) and not isinstance(s, Vector) and type(s) is Stack
assert type(s).__name__ == "Stack" and s.__class__ is Stack and Stack.__name__ == "Stack"
del s[0]
assert len(s) == 0
s.items = [4, 2]
assert sorted(s) == [2, 4] and max(s) == 4 and [x for x in s] == [4, 2]
assert not hasattr(s, "nothing") and getattr(s, "nothing", 3) == 3
v = Vector(2)
assert (v + Vector(3)).x == 5 and (v + 1).x == 3 and (1 + v).x == 3 and (v * 4).x == 8
assert (-v).x == -2 and abs(Vector(-3)) == 3 and float(v) == 2.0 and v(5) == 7
w = v
w += 5
assert v.x == 7 and w is v
assert Vector(1) + Vector(2) == Vector(3) and Vector(1) != Vector(2)
assert [x.x for x in sorted([Vector(3), Vector(1)])] == [1, 3] and Vector(1) < 2
assert repr(v) == "Vector<7>" == str(v) and f"{v}" == "Vector<7>" and [v] == [v]
assert {Vector(1), Vector(1)} == {Vector(1)} and {Vector(1): "a"}[Vector(1)] == "a"
n = Leaf(1)
n.left = Node(2)
assert isinstance(n, Node) and n.left.value == 2 and n.left is n.left and issubclass(Leaf, Node)
assert n.__dict__["value"] == 1 and vars(n)["left"] is n.left
twin = copy.deepcopy(n)
assert twin is not n and twin.left.value == 2 and twin.left is not n.left
assert count([n, n.left, 5]) == 2
assert Empty() and callable(Empty) and not callable(Empty())
try:
    len(Empty())
    assert False
except TypeError as error:
    assert "has no len()" in str(error)
"""
    agree(bare, CLASSES, tests)


def test_an_object_of_a_subclass_is_what_it_is_a_list_number_or_text_of(bare: Bare) -> None:
    code = """
import enum
class Row(list): pass
class Table(dict):
    def __missing__(self, key): return 0
class Length(float): pass
class Size(enum.IntEnum): ONE = 1
class Color(str, enum.Enum): RED = "red"
def row(): return Row([1, 2, 3])
def table(): return Table(a=1)
def length(): return Length(0.3)
def size(): return Size.ONE
def color(): return Color.RED
def unique(): return frozenset.__new__(type("Unique", (frozenset,), {}), [1, 2])
"""
    tests = """
import pytest
assert row() == [1, 2, 3] and [1, 2, 3] == row() and row() != [1] and row() in ([1, 2, 3], 5)
assert isinstance(row(), list) and not isinstance(row(), tuple) and sorted(row()) == [1, 2, 3]
assert row() + [4] == [1, 2, 3, 4] and row() * 2 == [1, 2, 3, 1, 2, 3] and 2 in row()
assert row().count(2) == 1 and row().index(3) == 2 and row() < [2] and row()[1:] == [2, 3]
assert table() == {"a": 1} and table()["b"] == 0 and dict(table()) == {"a": 1} and "a" in table()
assert abs(length() - 0.3) < 1e-9 and 2 * length() > 0.5 and length() == pytest.approx(0.3)
assert size() == 1 and size() in {1, 2} and {1: "x"}[size()] == "x" and size() + 1 == 2
assert 0 < size() < 2 and isinstance(size(), int) and [5, 6][size()] == 6 and sum([size()]) == 1
assert color() == "red" and color() + "s" == "reds" and color().startswith("r") and "e" in color()
assert unique() == {1, 2} and unique() | {3} == {1, 2, 3} and unique() == frozenset([2, 1])
assert row() == row() and length() == length() and size() != color()
"""
    agree(bare, code, tests)


def test_objects_are_equal_as_their_class_says(bare: Bare) -> None:
    code = """
class Bare:
    def __init__(self, x): self.x = x
class Version:
    def __init__(self, text): self.text = text
    def key(self): return self.text.rstrip(".0")
    def __eq__(self, other): return isinstance(other, Version) and self.key() == other.key()
    def __lt__(self, other): return self.key() < other.key()
    def __hash__(self): return hash(self.key())
"""
    tests = """
b = Bare(1)
assert Bare(1) != Bare(1) and b == b and len({Bare(1), Bare(1), b, b}) == 3 and Bare(1) not in [b]
assert Version("1") == Version("1.0.0") and Version("1") != Version("1.1")
assert len({Version("1"), Version("1.0")}) == 1 and Version("1") in [Version("2"), Version("1.0")]
assert max(Version("1"), Version("2")) == Version("2.0") and Version("1") != 1
"""
    agree(bare, code, tests)


def test_what_an_object_holds_can_be_changed_by_the_tests(bare: Bare) -> None:
    code = """
class Tree:
    def __init__(self): self.children, self.named, self.table = [], {}, [[0], [1]]
    def size(self): return 1 + sum(child.size() for child in self.children)
    def add(self, child): self.children.append(child)
    def __getitem__(self, i): return self.table[i]
"""
    tests = """
t = Tree()
t.children.append(Tree())
t.children[0].children.append(Tree())
assert t.size() == 3 and len(t.children) == 1
assert t.children is t.children
children = t.children
t.add(Tree())
assert t.size() == 4 and len(t.children) == 2 and children is t.children
t.named["a"] = 1
t[0].append(5)
assert t.named == {"a": 1} and t[0] == [0, 5] and t[1] == [1]
del t.children[0]
assert t.size() == 2
"""
    agree(bare, code, tests)


def test_records_enumerations_and_tuples_with_names(bare: Bare) -> None:
    tests = """
assert data(3) == Data(3) and data(3) != Data(4) and data(3).y == []
assert repr(data(3)) == "Data(x=3, y=[])"
assert Slotted(1) == Slotted(1) and Slotted(1) != Slotted(2)
assert red() is Color.RED and red() == Color.RED != Color.BLUE and red().value == 1
assert Color(2) is Color.BLUE and [c.name for c in Color] == ["RED", "BLUE"] and len(Color) == 2
assert Color["RED"] in Color and {Color.RED: 1}[red()] == 1
assert points() == [(1, 2), (3, 2)] and points()[0].y == 2 and points()[0] == Point(1, 2)
assert isinstance(points()[0], Point) and isinstance(points()[0], tuple)
assert points()[0]._fields == ("x", "y")
assert first(Point(4, 5)) == 4 and first(points()[0]._replace(x=9)) == 9
assert Named(1).b == 2 and Named(1).total() == 3 and points()[1].total() == 5
a, b = Point(1, 2)
assert (a, b) == (1, 2)
assert match("a(.)", "ab").group(1) == "b" and match("a", "b") is None and match("a", "ab")
assert match("(.)(.)", "xy").groups() == ("x", "y") and match("a", "ab").span() == (0, 1)
"""
    agree(bare, CLASSES, tests)


def test_objects_of_the_tests_can_be_used_and_changed_by_the_code(bare: Bare) -> None:
    """QuixBugs defines its linked lists in the tests."""
    code = """
def reverse(node):
    last = None
    while node:
        node.after, last, node = last, node, node.after
    return last
def total(node, table):
    return node.value + table[node]
def longest(items): return max(items, key=len)
def larger(a, b): return a if a > b else b
def first(items, default): return items[0] if items else default
def make(kind): return kind(7)
def unknown(x): return x.nothing
"""
    tests = """
class Node:
    def __init__(self, value, after=None): self.value, self.after = value, after
class Sized:
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __gt__(self, other): return self.n > other.n
c = Node(3)
a = Node(1, Node(2, c))
assert reverse(a) is c
assert c.after.value == 2 and c.after.after is a and a.after is None
assert total(a, {a: 10, c: 20}) == 11
one, two = Sized(1), Sized(2)
assert longest([one, two]) is two and larger(two, one) is two
assert make(Node).value == 7
missing = object()
assert first([], missing) is missing and first([missing], None) is missing
assert first([missing], None) is not object() and first([], [missing]) == [missing]
try:
    unknown(a)
    assert False
except AttributeError:
    pass
"""
    agree(bare, code, tests)


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
