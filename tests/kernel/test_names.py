from __future__ import annotations

import pytest

from nbrefine.kernel.names import bind


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x = 1\ny, (z, *w) = f()", ["x", "y", "z", "w"]),
        ("def f(a): inner = 1\nclass C: attribute = 2", ["f", "C"]),
        ("async def g(): pass", ["g"]),
        ("import os.path, numpy as np\nfrom a import b as c, d", ["os", "np", "c", "d"]),
        ("from a import *", []),
        ("for i in range(3):\n    total = i", ["i", "total"]),
        ("with open('f') as handle: pass", ["handle"]),
        ("if (n := 3): pass", ["n"]),
        ("squares = [k * k for k in range(3)]", ["squares"]),
        ("f = lambda q: (r := q)", ["f"]),
        ("%matplotlib inline\n!ls\nx = 1", ["x"]),
        ("x: int = 1\nx += 1", ["x"]),
        ("obj.attribute = 1\nitems[0] = 2", []),
        ("_private = 1", []),
        ("match v:\n    case [first, *rest]: pass", ["first", "rest"]),
        ("this is no python", []),
        ("", []),
    ],
)
def test_names_bound_at_top_level_are_found(source: str, names: list[str]) -> None:
    known: dict[str, None] = {}
    bind(known, source)
    assert sorted(known) == sorted(names)


def test_a_deleted_name_is_forgotten() -> None:
    known: dict[str, None] = {}
    bind(known, "a = b = 1")
    bind(known, "del a")
    assert list(known) == ["b"]
