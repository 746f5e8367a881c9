"""Numbers as jupyter_client's `Session.msg_id` writes them: session, process, count."""

from __future__ import annotations

from typing import Any

from nbrefine.kernel.messages.sequence import Sequence


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


def test_every_run_of_numbers_that_did_not_come_is_missing() -> None:
    # 6, 7 and 9, 10, 11
    assert missing((5, "busy", True), (8, "", True), (12, "idle", True)) == 5


def test_a_single_number_is_nothing_that_was_ever_sent() -> None:
    assert missing((5, "busy", True), (7, "", True), (9, "idle", True)) == 0


def test_a_reply_may_come_after_idle_or_before_busy() -> None:
    assert missing((5, "busy", True), (7, "idle", True), (6, "", True)) == 0
    assert missing((6, "", True), (5, "busy", True), (7, "idle", True)) == 0
    assert missing((7, "", True), (5, "busy", True), (9, "idle", True)) == 0


def test_a_reply_may_overtake_a_backlog_of_output() -> None:
    backlog = [(number, "", True) for number in range(6, 99)]
    assert missing((5, "busy", True), (99, "", True), *backlog, (100, "idle", True)) == 0
    # of 6 to 98 all but 6, 7, 50 and 98 came
    holes = [each for each in backlog if each[0] not in (6, 7, 50, 98)]
    assert missing((5, "busy", True), (99, "", True), *holes, (100, "idle", True)) == 2


def test_replies_that_only_another_client_gets_are_not_missed() -> None:
    theirs = ((6, "busy", False), (8, "idle", False))  # 7 is the reply to them
    assert missing((5, "busy", True), *theirs, (9, "idle", True)) == 0


def test_what_came_before_and_after_the_cell_does_not_count() -> None:
    assert missing((1, "", True), (5, "busy", True), (8, "idle", True), (20, "", True)) == 2


def test_what_was_lost_with_idle_counts_up_to_the_reply() -> None:
    assert missing((5, "busy", True), (6, "", True), (20, "", True)) == 13


def test_a_number_that_is_made_up_costs_nothing() -> None:
    assert missing((5, "busy", True), (10**18, "", True), (6, "", True), (7, "idle", True)) == 0


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
