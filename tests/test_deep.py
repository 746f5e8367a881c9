"""The comparison that other tests rest on sees what it must see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbrefine.kernel import Kernel
from tests.deep import compare

SETUP = """
import decimal, random
import numpy as np
import pandas as pd
random.seed(1)
np.random.seed(1)
items = [1, 2]
same = items
nested = {'items': items, 'set': {'a', 'b', 'c'}, 'n': 0.5}
array = np.arange(6.0)
view = array[1:4]
odd = np.array([items, None], dtype=object)
own, rng = random.Random(3), np.random.default_rng(5)
table = pd.DataFrame({'a': [1, 2], 'b': ['x', None]})
money = decimal.Decimal('1.50')
def numbers():
    n = 0
    while True:
        yield (n := n + 1)
stream = numbers()
def counter():
    count = 0
    def step():
        nonlocal count
        count += 1
        return count
    return step
bump = counter()
class Box:
    size = 1
    def area(self): return self.size
class Heap(list):
    __slots__ = ('top',)
box = Box()
heap = Heap([1])
"""

CHANGES = [
    "items.append(3)",
    "same = [1, 2]",
    "nested['items'] = [1, 2]",
    "nested['set'].add('d')",
    "nested['n'] = 0.25",
    "nested['n'] = nested.pop('n'); nested['set'] = nested.pop('set')",
    "array[5] = 0",
    "view = view.copy()",
    "view = array[2:5] - 1",
    "odd[0] = [1, 2]",
    "own.random()",
    "rng.random()",
    "random.random()",
    "np.random.rand()",
    "table.loc[0, 'a'] = 3",
    "table['b'] = table['b'].fillna('')",
    "money += 1",
    "next(stream)",
    "stream.close()",
    "bump()",
    "Box.size = 2",
    "Box.area = lambda self: 2",
    "class Box:\n    size = 1\n    def area(self): return self.size",
    "box.side = 1",
    "heap.top = 1",
    "heap.append(2)",
    "del money",
    "more = 1",
    "def counter(): pass",
]


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Kernel, Kernel]]:
    with Kernel.start(seed=0) as first, Kernel.start(seed=0) as second:
        yield first, second


def build(kernel: Kernel, more: str = "") -> None:
    result = kernel.run(f"%reset -f\n{SETUP}\n{more}").result()
    assert result.ok, result.text


def test_the_same_cells_give_no_difference_and_looking_disturbs_nothing(
    two: tuple[Kernel, Kernel],
) -> None:
    for kernel in two:
        build(kernel)
    assert compare(*two) == []
    assert compare(*two) == []
    after = "next(stream), bump(), own.random(), rng.random(), random.random(), np.random.rand()"
    build(two[1])
    assert two[0].run(after).result().text == two[1].run(after).result().text


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_one_of_them_is_seen(two: tuple[Kernel, Kernel], change: str) -> None:
    build(two[0])
    build(two[1], change)
    assert compare(*two) != []
