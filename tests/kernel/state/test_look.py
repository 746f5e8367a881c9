"""One variable looked at closely, and its value as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nbrefine._portal import Run
from nbrefine.errors import UsageError
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.namespace import Look, Plain, look, plain

VALUES = """\
import datetime, decimal, enum, pathlib
import numpy as np
import pandas as pd
import polars as pl

class Level(enum.IntEnum):
    LOW = 1

class Slow:
    def __repr__(self):
        while True: pass

def double(x):
    '''Twice.'''
    return 2 * x

frame = pd.DataFrame({"n": range(100), "word": ["w"] * 100})
small = pd.DataFrame({"n": [1.5, None]})
wide = pd.DataFrame([range(50)])
series = pd.Series([1, 2], index=["a", "b"])
polar = pl.DataFrame({"n": [1, 2]})
array = np.arange(1000.0)
nested = {"a": [1, (2, 3)], 5: {"x": None}, "f": frame}
numbers = list(range(100))
words = "one\\ntwo"
level, slow = Level.LOW, Slow()
moment = datetime.date(2026, 3, 1)
money, place = decimal.Decimal("1.20"), pathlib.Path("a/b")
count, share, flag, nothing, nan = np.int64(7), np.float64(0.5), np.bool_(True), None, float("nan")
stamp, missing = pd.Timestamp("2026-03-01"), pd.NA
loop = []
loop.append(loop)
_private = 1
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel.start() as kernel:
        assert kernel.run(VALUES).result().ok
        yield kernel


def looked(kernel: Kernel, name: str, **options: Any) -> Look:
    found = Run(look(kernel.core, name, **options)).result()
    assert found is not None
    return found


def read(kernel: Kernel, name: str) -> Plain:
    found = Run(plain(kernel.core, name)).result()
    assert found is not None
    return found


def test_both_ends_of_a_table_are_shown_and_the_rest_is_counted(kernel: Kernel) -> None:
    found = looked(kernel, "frame")
    assert found.variable.shape == (100, 2)
    assert "n (int64)" in found.variable.detail
    lines = found.text.splitlines()
    assert lines[1].split() == ["0", "0", "w"]
    assert "… 89 more rows …" in lines
    assert lines[-1].split() == ["99", "99", "w"]
    assert looked(kernel, "wide").text.endswith("… 26 more columns")
    assert looked(kernel, "small").text.splitlines()[-1].split() == ["1", "NaN"]
    assert "(2,)" in looked(kernel, "polar").text


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("array", "min 0.0, mean 499.5, max 999.0"),
        ("numbers", "[19] 19\n… 80 more"),
        ("nested", "'f': DataFrame of shape (100, 2)"),
        ("words", "one\ntwo"),
        ("double", "return 2 * x"),
        ("np", "numpy "),
        ("series", "a    1"),
        ("slow", "took over"),
        ("nothing", "None"),
    ],
)
def test_a_look_shows_what_a_kind_of_value_is_about(kernel: Kernel, name: str, told: str) -> None:
    assert told in looked(kernel, name).text


def test_a_look_is_as_long_as_it_may_be_and_finds_public_names_only(kernel: Kernel) -> None:
    assert len(looked(kernel, "frame", room=100).text) < 150
    for name in ("_private", "nowhere", "In", "__name__"):
        assert Run(look(kernel.core, name)).result() is None
        assert Run(plain(kernel.core, name)).result() is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", 7),
        ("share", 0.5),
        ("flag", True),
        ("nothing", None),
        ("nan", None),
        ("missing", None),
        ("words", "one\ntwo"),
        ("level", 1),
        ("moment", "2026-03-01"),
        ("stamp", "2026-03-01T00:00:00"),
        ("money", "1.20"),
        ("place", "a/b"),
        ("series", {"a": 1, "b": 2}),
        ("small", [{"n": 1.5}, {"n": None}]),
        ("numbers", list(range(100))),
    ],
)
def test_a_value_is_given_as_plain_data(kernel: Kernel, name: str, value: object) -> None:
    found = read(kernel, name)
    assert (found.value, found.problem) == (value, "")
    assert type(found.value) is type(value)


def test_keys_become_text_and_tuples_lists(kernel: Kernel) -> None:
    assert kernel.run("keyed = {5: (1, {2}), None: 'x'}").result().ok
    assert read(kernel, "keyed").value == {"5": [1, [2]], "None": "x"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("double", "function"),
        ("slow", "Slow"),
        ("loop", "nested too deeply"),
        ("big", "10,000 parts"),
        ("digits", "too long to write"),
    ],
)
def test_what_is_no_plain_data_says_why(kernel: Kernel, name: str, why: str) -> None:
    assert kernel.run("big = np.zeros(20_000); digits = [10**5_000]").result().ok
    found = read(kernel, name)
    assert (found.value, why in found.problem) == (None, True)


def test_a_look_binds_no_name(kernel: Kernel) -> None:
    names = "print(sorted(name for name in globals() if not name.startswith('_')))"
    before = kernel.run(names).result().text
    looked(kernel, "frame")
    read(kernel, "frame")
    assert kernel.run(names).result().text == before


def test_other_languages_are_refused(bash_kernel: str) -> None:
    async def asked() -> None:
        async with Kernel.start(bash_kernel) as other:
            await look(other.core, "x")

    with pytest.raises(UsageError, match="Python"):
        Run(asked()).result()
