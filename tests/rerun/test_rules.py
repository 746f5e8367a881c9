"""The named rules: what each takes for equal, what none does, and that none is slow."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from nbrefine.rerun.clock import Ran
from nbrefine.rerun.rules import MARK, RULES, liken

THEN = datetime(2026, 3, 1, 10, 0, 3, tzinfo=UTC)
NOW = datetime(2026, 7, 9, 22, 30, 0, tzinfo=UTC)
MOMENTS = (Ran(THEN, 2.0), Ran(NOW, 3.0))


def after(was: str, now: str, rtol: float = 1e-6) -> tuple[str, ...] | None:
    """Give the rules after which two texts are the same; None where they are not."""
    likened = liken(was, now, RULES, ran=MOMENTS, rtol=rtol)
    return likened.after if likened.same else None


@pytest.mark.parametrize(
    ("rule", "was", "now"),
    [
        ("address", "<Box object at 0x7f3a1c2b3d40>", "<Box object at 0x55d0a8c0>"),
        ("address", "pointer 0x7f3a1c2b3d40", "pointer 0x7ffd00000010"),
        ("time", "made 2026-03-01T10:00:03.123Z", "made 2026-07-09T22:30:00Z"),
        ("time", "2026-03-01 10:00:03,120 INFO go", "2026-07-09 22:30:00,001 INFO go"),
        ("time", "datetime.datetime(2026, 3, 1, 10, 0)", "datetime.datetime(2026, 7, 9, 22, 30)"),
        ("time", "Sun Mar  1 10:00:03 2026", "Thu Jul  9 22:30:00 2026"),
        ("time", "on 01.03.2026", "on 9.7.2026"),
        ("time", "at 10:00:03", "at 22:30:01"),
        ("time", "stamp 1772359203.25", "stamp 1783636200.5"),
        ("duration", "Ran 3 tests in 0.001s", "Ran 3 tests in 0.104s"),
        ("duration", "Wall time: 1.2 s", "Wall time: 812 ms"),
        ("duration", "CPU times: user 1 ms, sys: 0 ns", "CPU times: user 3 µs, sys: 1 µs"),
        ("duration", "elapsed: 0.51", "elapsed: 1.02"),
        (
            "duration",
            "1.2 µs ± 3 ns per loop (mean ± std. dev. of 7 runs, 1,000,000 loops each)",
            "998 ns ± 12.1 ns per loop (mean ± std. dev. of 7 runs, 100,000 loops each)",
        ),
        (
            "duration",
            "100%|████| 3/3 [00:01<00:00, 2.50it/s]",
            "100%|████| 3/3 [00:00<00:00, 312.20it/s]",
        ),
        (
            "path",
            "File ~/venv/lib/python3.11/site-packages/pandas/core.py:12",
            "File /opt/lib/python3.13/site-packages/pandas/core.py:12",
        ),
        ("path", "open('/tmp/tmpab12cd_9/x.csv')", "open('/tmp/tmpzz00zz00/x.csv')"),
        ("path", "/home/ada/data/x.csv", "/Users/grace/data/x.csv"),
        ("path", "/tmp/ipykernel_12/345.py", "/tmp/ipykernel_7/8.py"),
        ("count", "Cell In[7], line 1", "Cell In[12], line 1"),
        ("progress", "10%\r50%\r100%\ndone", "33%\r100%\ndone"),
        ("colour", "\x1b[31mKeyError\x1b[39m: 1", "KeyError: 1"),
        (
            "warning place",
            "/a/b.py:12: UserWarning: careful",
            "/elsewhere/c/b.py:99: UserWarning: careful",
        ),
        ("set order", "{'b', 'a', frozenset({2, 1})}", "{frozenset({1, 2}), 'a', 'b'}"),
        (
            "hint",
            "name 'pirnt' is not defined. Did you mean: 'print'?",
            "name 'pirnt' is not defined",
        ),
        (
            "id",
            'id="0a1b2c3d-0000-4000-8000-0123456789ab"',
            'id="ffffffff-1111-4111-9111-ba9876543210"',
        ),
        ("float", "mean 0.30000000000000004", "mean 0.3"),
        ("float", "a   1.50000\nb  -2.0e-3", "a 1.5000001\nb -0.002"),
    ],
)
def test_each_rule_excuses_its_own_kind_and_is_named(rule: str, was: str, now: str) -> None:
    assert after(was, now) == (rule,)
    assert after(now.replace("done", "DONE"), now + "x") is None


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("mean 3.14", "mean 3.15"),
        ("n = 10", "n = 11"),
        ("n = 1000000", "n = 1000001"),  # a whole number is no float, however near
        ("rest 0.0", "rest 1e-17"),
        ("version 1.2.3", "version 1.2.4"),
        ("hex 0xff", "hex 0xfe"),
        ("first day 2020-01-05", "first day 2020-01-06"),  # data: not the day of the run
        ("opens 06:15:00", "opens 07:15:00"),
        ("id 1234567890", "id 1234567891"),  # seconds since 1970, but of 2009
        ("mean trip duration: 14.2 min", "mean trip duration: 14.3 min"),  # the cell took 2 s
        ("arrives in 45 s", "arrives in 50 s"),
        ("[1, 2]", "[2, 1]"),
        ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}"),
        ("{1, 2}", "{1, 3}"),
        ("/home/ada/x.csv", "/home/ada/y.csv"),
        ("UserWarning: careful", "UserWarning: carefree"),
        ("0.1 0.2", "0.1"),
        ("nan", "0.5"),
        ("id 12345678.0", "id 12345679.0"),  # a column of whole numbers with a gap in it
        ("1e400", "1e500"),  # which are both infinite as floats
        ("1e-400", "3e-400"),  # and these zero
        ("at 12:30:15.123456", "at 12:30:15.123457"),
        ("ran for 50:15:00", "ran for 60:15:00"),  # no time of a day has such hours
        ("jump at 0x10", "jump at 0x20"),
        ("key 0x0a1b2c3d4e5f", "key 0x0a1b2c3d4e60"),
        ("0a1b2c3d-0000-5000-8000-0123456789ab", "0a1b2c3d-0000-5000-8000-0123456789ac"),
    ],
)
def test_what_really_changed_is_never_excused(was: str, now: str) -> None:
    assert after(was, now) is None
    assert after(now, was) is None


def test_only_the_rules_that_it_takes_are_named() -> None:
    was = "In[1] at 0x7f00aa {2, 1} 2026-03-01 x 0.1"
    now = "In[2] at 0x7f00bb {2, 1} 2026-07-09 x 0.10000000001"
    assert after(was, now) == ("address", "time", "count", "float")
    assert after(was, now, rtol=0) is None
    assert after(was, was) == ()


def test_a_date_is_the_clocks_only_where_it_is_known_when_the_cell_ran() -> None:
    was, now = "2026-03-01", "2026-07-09"
    assert not liken(was, now, RULES).same
    edge = Ran(THEN + timedelta(days=1)), Ran(NOW - timedelta(days=1))
    assert liken(was, now, RULES, ran=edge).same
    late = Ran(THEN + timedelta(days=3)), Ran(NOW)
    assert not liken(was, now, RULES, ran=late).same


def test_the_mark_of_a_fence_follows_from_what_it_holds() -> None:
    was, now = "<output 0123abcd>\nat 0x7f00aa\n", "<output fedc4321>\nat 0x7f00bb\n"
    assert liken(was, now, (*RULES, MARK)).after == ("address", "mark")


AWKWARD = (
    "{",
    "}{",
    "({[",
    "'",
    "{'",
    "a,",
    "{a, ",
    "1",
    "1.",
    "1,1",
    "1e",
    "-",
    "+1.",
    "/",
    "/a",
    "/tmp/",
    "~/site-packages",
    "x:1: ",
    "\x1b[",
    "\x1b]",
    "\x1bP",
    "0x",
    " at 0x",
    "abcdef01-",
    "10:00:00",
    "2026-03-",
    "in 1",
    "time time",
    "took: ",
    "1 s ± ",
    "Did you mean: ",
    "In [",
    "\r",
    "W" * 70,
    " ",
    "datetime.datetime(2026, 1",
    "[00:00<",
)
"""What patterns stumble over when there is much of it."""


def test_no_text_makes_a_rule_slow() -> None:
    """Time that grows with the square of a text would be some thousand times what these take."""
    for piece in AWKWARD:
        taken = seconds_for(piece * (30_000 // len(piece)))
        assert taken < 5, (piece, taken)
    everything = "".join(piece * (1_000_000 // len(AWKWARD) // len(piece)) for piece in AWKWARD)
    assert len(everything) > 900_000
    assert seconds_for(everything) < 60


def seconds_for(text: str) -> float:
    start = time.process_time()
    liken(text + "a", text + "b", RULES, ran=MOMENTS, rtol=1e-6)
    return time.process_time() - start
