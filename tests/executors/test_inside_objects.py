"""Objects of the code's classes and of the tests' are to either side what they are.

Each source of tests is first run by Python in one process with the code.
"""

from __future__ import annotations

from tests.executors.agreement import agree
from tests.executors.bare import Bare

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
