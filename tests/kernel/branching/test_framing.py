"""Messages of several frames in packets: whole again, whoever sends in between."""

from __future__ import annotations

import os

import pytest

from nbrefine.kernel.inside.branching.framing import IOPUB, PACKET, SHELL, Assembler, packets


@pytest.mark.parametrize(
    "frames", [[b""], [b"a", b"", b"bc"], [b"x" * (PACKET - 100), b"y" * (3 * PACKET), b"z"]]
)
def test_a_message_comes_whole(frames: list[bytes]) -> None:
    assembler = Assembler()
    *first, last = packets(SHELL, frames)
    assert all(len(each) <= PACKET for each in (*first, last))
    assert [assembler.take(each) for each in first] == [None] * len(first)
    assert assembler.take(last) == (SHELL, frames)


def test_packets_of_two_senders_may_come_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = list(packets(SHELL, [b"m" * (2 * PACKET)]))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    theirs = list(packets(IOPUB, [b"t" * (2 * PACKET)]))
    assembler = Assembler()
    turns = [each for both in zip(mine, theirs, strict=True) for each in both]
    taken = [assembler.take(each) for each in turns]
    assert taken[:-2] == [None] * 4
    assert taken[-2:] == [(SHELL, [b"m" * (2 * PACKET)]), (IOPUB, [b"t" * (2 * PACKET)])]


def test_a_message_that_was_broken_off_does_not_spoil_the_next_one() -> None:
    assembler = Assembler()
    first, *_ = packets(SHELL, [b"x" * (3 * PACKET)])
    assert assembler.take(first) is None
    (whole,) = packets(IOPUB, [b"y"])
    assert assembler.take(whole) == (IOPUB, [b"y"])
