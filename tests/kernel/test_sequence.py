"""Numbers as jupyter_client's `Session.msg_id` writes them: session, process, count."""

from __future__ import annotations

from typing import Any

from nbrefine.kernel.sequence import Sequence


def message(number: int, state: str = "", *, prefix: str = "abc_77") -> dict[str, Any]:
    content = {"execution_state": state} if state else {}
    return {"header": {"msg_id": f"{prefix}_{number}"}, "content": content}


def missing(*messages: tuple[int, str, bool]) -> int:
    sequence = Sequence()
    for number, state, ours in messages:
        sequence.count(message(number, state), ours=ours)
    return sequence.missing


def test_a_complete_cell_misses_nothing() -> None:
    assert missing((5, "busy", True), (6, "", True), (7, "", True), (8, "idle", True)) == 0


def test_every_number_that_did_not_come_is_missing() -> None:
    assert missing((5, "busy", True), (8, "", True), (10, "idle", True)) == 3


def test_a_reply_may_come_after_idle_or_before_busy() -> None:
    assert missing((5, "busy", True), (7, "idle", True), (6, "", True)) == 0
    assert missing((6, "", True), (5, "busy", True), (7, "idle", True)) == 0


def test_replies_that_only_another_client_gets_are_not_missed() -> None:
    theirs = ((6, "busy", False), (8, "idle", False))  # 7 is the reply to them
    assert missing((5, "busy", True), *theirs, (9, "idle", True)) == 0


def test_what_came_before_and_after_the_cell_does_not_count() -> None:
    assert missing((1, "", True), (5, "busy", True), (7, "idle", True), (9, "", True)) == 1


def test_a_forked_childs_numbers_are_its_own() -> None:
    sequence = Sequence()
    sequence.count(message(5, "busy"), ours=True)
    sequence.count(message(900, prefix="abc_78"), ours=True)
    sequence.count(message(6, "idle"), ours=True)
    assert sequence.missing == 0


def test_kernels_that_do_not_number_their_messages_are_left_alone() -> None:
    sequence = Sequence()
    for state in ("busy", "idle"):
        sequence.count(
            {"header": {"msg_id": "a-b-c"}, "content": {"execution_state": state}}, ours=True
        )
    assert sequence.missing == 0
