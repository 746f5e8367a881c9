"""Text of values is bounded, told with counts, and survives any class."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from nbrefine.kernel.inside.guard import SECONDS, Overdue, clean, show, time_limit


@pytest.mark.parametrize(
    "value",
    [1, -2.5, "a'b", b"x", None, [1, [2]], (1,), (), {"a": {1}}, frozenset({3}), set(), {1: "x"}],
)
def test_small_values_look_as_python_writes_them(value: object) -> None:
    assert show(value) == repr(value)


def test_what_is_cut_is_counted() -> None:
    assert show("x" * 1000, 10) == "'xxxxxxxxxx'… (990 more characters)"
    assert show(list(range(1000)), 10) == "[0, 1, 2, 3, … 996 more]"
    assert show({i: i for i in range(100)}, 10) == "{0: 0, 1: 1, … 98 more}"


def test_huge_values_cost_what_is_shown_of_them() -> None:
    huge: list[Any] = ["x" * 50_000_000, 10**5000, [0] * 10_000_000, {"k": "y" * 50_000_000}]
    started = time.perf_counter()
    assert max(len(show(value)) for value in huge) < 500
    assert time.perf_counter() - started < 5


def test_a_list_that_holds_itself_ends() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert show(endless) == "[[[[[… 1 items]]]]]"


def test_a_repr_may_raise_loop_lie_or_print_nothing_sensible() -> None:
    class Raising:
        def __repr__(self) -> str:
            raise KeyError("no")

    class Looping:
        def __repr__(self) -> str:
            while True:
                pass

    class Shouting(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return Shouting("\ud800 loud")

    assert show(Raising()) == "<Raising, whose repr raised KeyError>"
    assert show(Looping()) == "<Looping, whose repr took over 0.5 s>"
    assert show(Shouting()) == "\\ud800 loud"
    assert show([Raising()]).startswith("<list, whose repr raised KeyError")


def test_an_alarm_is_set_once_and_only_where_code_of_the_session_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Setting one takes longer than showing most values, and there may be thousands of names."""
    alarms: list[float] = []
    real = signal.setitimer

    def counted(which: int, seconds: float, interval: float = 0.0) -> tuple[float, float]:
        if seconds == SECONDS:  # and not what is left of a timer from before
            alarms.append(seconds)
        return real(which, seconds, interval)

    monkeypatch.setattr(signal, "setitimer", counted)

    class Own: ...

    show({"a": [1, 2.5, None, ("b", b"c", {3})], 4: frozenset("d"), 5j: {}})
    assert alarms == []
    show([1, [Own(), Own()], {2: Own()}])
    assert len(alarms) == 1


def test_no_metaclass_is_asked() -> None:
    class Meta(type):
        def __hash__(cls) -> int:
            raise AssertionError

    class Own(metaclass=Meta):
        def __repr__(self) -> str:
            return "own"

    assert show([Own()]) == "[own]"


def test_a_time_limit_ends_a_loop_and_leaves_no_alarm() -> None:
    def endless() -> None:
        with time_limit(0.05):
            while True:
                pass

    with pytest.raises(Overdue):
        endless()
    ends = time.monotonic() + 0.2
    with time_limit(60):
        while time.monotonic() < ends:
            pass


def test_addresses_are_left_out_because_a_replay_has_others() -> None:
    class Plain: ...

    assert show(Plain()).endswith("<locals>.Plain object>")
    assert show([len, "at 0x12"]) == "[<built-in function len>, 'at 0x12']"


def test_lone_surrogates_are_escaped() -> None:
    assert clean("a\ud800b") == "a\\ud800b"
