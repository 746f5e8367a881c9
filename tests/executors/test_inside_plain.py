"""Plain values come out as they went in, with their exact classes; all else is refused."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import math
import pathlib
import socket
import threading
import uuid
from typing import Any

import numpy as np
import pytest

from nbrefine.executors.inside import frames
from nbrefine.executors.inside.kinds import Malformed, Unsendable
from nbrefine.executors.inside.plain import DEPTH, Packer, Unpacker


def refused(packer: Packer, value: Any) -> Any:
    raise Unsendable(f"no {type(value).__name__}")


def unknown(unpacker: Unpacker, data: Any) -> Any:
    raise Malformed(f"no {data[0]!r}")


def through(value: Any) -> Any:
    """Send a value through a connection between two sockets."""
    near, far = socket.socketpair()
    with near, far:
        data = frames.pack([Packer(refused).pack(value)])
        sender = threading.Thread(target=frames.write, args=(near, data))
        sender.start()
        (packed,) = frames.receive(far)
        sender.join()
    return Unpacker(unknown).unpack(packed)


class Mine(int):
    pass


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        2**63 - 1,
        2**63,
        -(2**63),
        -(10**6000),
        1.5,
        1e-320,
        math.inf,
        -math.inf,
        1 + 2j,
        complex(math.inf, -0.0),
        "",
        "aé€😀\x00",
        "\ud800",
        "\ud83d\ude00",
        b"\x00\xff",
        bytearray(b"ab"),
        [],
        [1, [2, [None]]],
        (),
        (1, ("a",)),
        {"a": 1, 2: "b", (1, 2): [3], None: {}},
        {3, "a"},
        frozenset({1, frozenset({2})}),
        range(5, -3, -2),
        slice(1, None, 2),
        ...,
        NotImplemented,
        collections.OrderedDict([("b", 1), ("a", 2)]),
        collections.Counter("abca"),
        collections.deque([1, 2], maxlen=2),
        collections.deque([[1]]),
        collections.defaultdict(list, {"a": [1]}),
        collections.defaultdict(None, {"a": [1]}),
        fractions.Fraction(-1, 3),
        decimal.Decimal("1.500"),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4),  # noqa: DTZ001
        dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
        dt.datetime(2024, 10, 27, 2, 30, fold=1),  # noqa: DTZ001
        dt.date(1, 1, 1),
        dt.time(23, 59, 59, 999999, tzinfo=dt.timezone(dt.timedelta(hours=-3))),
        dt.timedelta(days=-1, microseconds=7),
        uuid.UUID(int=7),
        pathlib.PurePosixPath("a/b"),
        pathlib.Path("/x/é"),
        int,
        ValueError,
        len,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_plain_value_comes_out_as_it_went_in(value: Any) -> None:
    found = through(value)
    assert type(found) is type(value)
    assert found == value
    if not isinstance(value, (set, frozenset, int)):  # whose text may differ, or be too long
        assert repr(found) == repr(value)


def test_the_order_of_a_dictionary_its_factory_and_the_bound_of_a_deque_are_kept() -> None:
    assert list(through({"b": 1, "a": 2})) == ["b", "a"]
    assert list(through(collections.OrderedDict([("b", 1), ("a", 2)]))) == ["b", "a"]
    assert through(collections.defaultdict(int)).default_factory is int
    assert through(collections.defaultdict(lambda: 1)).default_factory is None
    assert through(collections.deque(maxlen=3)).maxlen == 3


def test_a_set_is_walked_in_the_order_of_its_literal() -> None:
    """MBPP 341 asks for the tuple of a set."""
    assert tuple(through({12, 13, 14, 15, 16})) == tuple({12, 13, 14, 15, 16})


def test_numbers_that_are_equal_to_others_stay_what_they_are() -> None:
    found = through([True, 1, 1.0, -0.0, math.nan])
    assert [type(item) for item in found] == [bool, int, float, float, float]
    assert math.copysign(1, found[3]) == -1
    assert math.isnan(found[4])


def test_what_is_held_twice_is_one_object_again() -> None:
    inner: list[Any] = [1]
    pair = (2,)
    found = through([inner, inner, {"a": inner}, pair, pair])
    assert found[0] is found[1] is found[2]["a"]
    assert found[3] is found[4]


def test_what_holds_itself_does_so_again() -> None:
    ring: list[Any] = []
    ring.append({"ring": ring})
    found = through(ring)
    assert found[0]["ring"] is found


def test_a_tuple_that_holds_itself_is_refused() -> None:
    ring: tuple[list[Any]] = ([],)
    ring[0].append(ring)
    with pytest.raises(Unsendable, match="a tuple that holds itself"):
        through(ring)


def test_views_of_a_dictionary_are_views_again() -> None:
    table = {"a": 1, "b": 2}
    assert through(table.keys()) == {"a", "b"}
    assert list(through(table.values())) == [1, 2]
    assert list(through(table.items())) == [("a", 1), ("b", 2)]
    assert type(through(table.keys())) is type(table.keys())


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)).T,
        np.array([], dtype="float32"),
        np.array(5, dtype=">i2"),
        np.array([True, False]),
        np.array(["a", "äöü"]),
        np.array(["2024-01-01"], dtype="M8[D]"),
    ],
    ids=lambda array: array.dtype.str,
)
def test_arrays_come_out_with_their_numbers_and_types(array: Any) -> None:
    found = through(array)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert np.array_equal(found, array)
    found[...] = found  # it can be written to


def test_scalars_of_numpy_keep_their_class() -> None:
    for scalar in (np.float64(0.1), np.int8(-3), np.bool_(True), np.str_("ä")):
        found = through(scalar)
        assert type(found) is type(scalar)
        assert found == scalar


@pytest.mark.parametrize(
    "value",
    [Mine(5), type("S", (str,), {})("a"), type("L", (list,), {})(), object(), lambda: 1, iter([])],
    ids=lambda value: type(value).__name__,
)
def test_a_subclass_is_not_plain_whatever_it_is_equal_to(value: Any) -> None:
    with pytest.raises(Unsendable):
        through(value)


def test_an_array_of_objects_is_not_plain() -> None:
    with pytest.raises(Unsendable):
        through(np.array([object()]))


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_depth_and_size_have_a_bound_that_is_told() -> None:
    assert through(nested(DEPTH)) == nested(DEPTH)
    with pytest.raises(Unsendable, match=r"too deep to be judged \(over 150 levels\)"):
        through(nested(DEPTH + 1))
    with pytest.raises(Unsendable, match=r"too large to be judged \(over 2,000,000 parts\)"):
        through([None] * 2_000_001)


@pytest.mark.parametrize("kind", [tuple, list])
def test_the_deepest_value_fits_on_a_stack_of_1000(kind: Any) -> None:
    value: Any = kind()
    for _ in range(DEPTH - 1):
        value = kind([value])
    assert repr(through(value)) == repr(value)


@pytest.mark.parametrize(
    "data",
    [
        {},
        [{}],
        ["l", [{}]],
        ["?"],
        [],
        ["r", 0],
        ["r", -1],
        ["a", 0],
        ["t", [["r", 0]]],
        ["d", [1]],
        ["d", [["l", []], 1]],
        ["i", "zz"],
        ["g", "eval"],
        ["g", "open"],
        ["Q", [1.5, 2]],
        ["N", "|O", [1], ""],
        ["N", "<f8", [1000000000], ""],
        ["R", [["l", []]]],
        [["l"]],
        [None],
    ],
    ids=repr,
)
def test_what_no_packer_makes_is_no_value(data: Any) -> None:
    with pytest.raises(Exception, match=r"."):
        Unpacker(unknown).unpack(data)


def test_a_list_takes_a_new_content_and_stays_the_same_list() -> None:
    mine: list[Any] = [1, 2]
    new = [3, {"a": 4}]
    Unpacker(unknown).refill(mine, Packer(refused).content(new))
    assert mine == new


def test_content_of_another_kind_is_refused() -> None:
    with pytest.raises(Malformed):
        Unpacker(unknown).refill([1], Packer(refused).content({1}))
