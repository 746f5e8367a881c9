from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine import history
from nbrefine.errors import UsageError
from nbrefine.history import History, HistoryEntry, PromptBudget, estimate_tokens
from nbrefine.outputs import CellResult
from nbrefine.values import CaseResult, Extraction, Message, Reply, TestReport, Turn

OPENING = (Message("system", "Be brief."), Message("user", "TASK"))


def turn(n: int, *, passed: int = 0, code: bool = True, replied: bool = True) -> Turn:
    cases = [CaseResult(f"t{i}", "passed" if i < passed else "failed") for i in range(5)]
    return Turn(
        n,
        reply=Reply(f"REPLY{n}") if replied else None,
        extraction=Extraction("found", f"code{n}()", "py") if code else Extraction("no-code"),
        result=CellResult(f"code{n}()", "ok") if code else None,
        tests=TestReport(tuple(cases)) if code else None,
        feedback=f"FEEDBACK{n}",
    )


TURNS = [turn(1, passed=2), turn(2, passed=3), turn(3, passed=3), turn(4)]

STRATEGIES = ["full", "current", "best", "last:1", "last:2", "window:40", "window:1"]


def text(messages: Sequence[Message]) -> str:
    return "\n".join(message.content for message in messages)


def said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_turns_every_strategy_sends_the_opening(name: str) -> None:
    assert history.by_name(name)(OPENING, []) == OPENING


def test_full_shows_every_turn_in_order() -> None:
    assert said(history.full()(OPENING, TURNS[:2])) == [
        ("system", "Be brief."),
        ("user", "TASK"),
        ("assistant", "REPLY1"),
        ("user", "FEEDBACK1"),
        ("assistant", "REPLY2"),
        ("user", "FEEDBACK2"),
    ]


def test_given_code_stands_as_the_model_s_reply_in_a_chat() -> None:
    messages = history.full()(OPENING, [turn(1, replied=False)])
    assert messages[2] == Message("assistant", "```py\ncode1()\n```")


def test_last_shows_only_the_last_turns() -> None:
    assert said(history.last(2)(OPENING, TURNS))[2:] == [
        ("assistant", "REPLY3"),
        ("user", "FEEDBACK3"),
        ("assistant", "REPLY4"),
        ("user", "FEEDBACK4"),
    ]


def test_current_is_one_message_of_task_code_and_last_feedback() -> None:
    assert said(history.current()(OPENING, TURNS)) == [
        ("system", "Be brief."),
        ("user", "TASK\n\nYour current code:\n```py\ncode4()\n```\n\nFEEDBACK4"),
    ]


def test_current_keeps_the_code_and_its_feedback_after_replies_without_code() -> None:
    turns = [turn(1), turn(2, code=False), turn(3, code=False)]
    shown = text(history.current()(OPENING, turns))
    assert [word in shown for word in ("code1()", "FEEDBACK1", "FEEDBACK2", "FEEDBACK3")] == [
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("name", ["current", "best"])
def test_without_any_code_the_task_and_the_last_feedback_are_left(name: str) -> None:
    messages = history.by_name(name)(OPENING, [turn(1, code=False), turn(2, code=False)])
    assert said(messages)[1:] == [("user", "TASK\n\nFEEDBACK2")]


def test_best_starts_over_from_the_best_attempt_and_its_own_feedback() -> None:
    shown = text(history.best()(OPENING, TURNS))
    assert "code2()" in shown  # as good as the third, and earlier
    assert "FEEDBACK2" in shown
    assert "code4()" not in shown
    assert "FEEDBACK4" not in shown


def test_code_with_fences_in_it_cannot_end_its_own_block() -> None:
    code = 's = """\n```\n"""'
    it = Turn(1, extraction=Extraction("found", code, "python"), feedback="F")
    assert f"````python\n{code}\n````" in text(history.current()(OPENING, [it]))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("turns", [TURNS, TURNS[:1], [turn(1, code=False)], []])
def test_roles_alternate_and_the_note_ends_the_last_user_message(
    name: str, turns: list[Turn]
) -> None:
    messages = history.by_name(name)(OPENING, turns, note="NOTE")
    assert [m.role for m in messages[:2]] == ["system", "user"]
    assert all(one.role != other.role for one, other in pairwise(messages))
    assert messages[-1].role == "user"
    assert messages[-1].content.endswith("\n\nNOTE")


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_attempt_is_sent_twice(name: str) -> None:
    shown = text(history.by_name(name)(OPENING, TURNS))
    for n in range(1, 5):
        assert shown.count(f"code{n}()") + shown.count(f"REPLY{n}") <= 1
        assert shown.count(f"FEEDBACK{n}") <= 1


def test_a_turn_without_feedback_still_has_an_answer() -> None:
    silent = Turn(1, reply=Reply("R"), extraction=Extraction("found", "x"))
    assert history.full()(OPENING, [silent])[-1].content == "No specific feedback available."


def test_an_empty_reply_leaves_no_empty_message() -> None:
    empty = Turn(1, reply=Reply(""), feedback="F")
    assert said(history.full()(OPENING, [empty]))[1:] == [("user", "TASK\n\nF")]


def words(text: str) -> int:
    return len(text.split())


def size(messages: Sequence[Message]) -> int:
    return sum(words(message.content) for message in messages)


@given(
    limit=st.integers(1, 60),
    lengths=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=6),
)
def test_a_window_drops_the_oldest_turns_and_no_more_than_it_must(
    limit: int, lengths: list[tuple[int, int]]
) -> None:
    turns = [
        Turn(n, reply=Reply(f"r{n} " * reply), feedback=f"f{n} " * feedback)
        for n, (reply, feedback) in enumerate(lengths)
    ]
    messages = history.window(limit, words)(OPENING, turns)
    shown = [n for n in range(len(turns)) if f"r{n} " in text(messages)]
    assert messages[:1] == OPENING[:1]
    assert "TASK" in text(messages)
    if shown:
        assert shown == list(range(shown[0], len(turns)))
        assert size(messages) <= limit
        more = history.last(len(shown) + 1)(OPENING, turns)
        assert shown[0] == 0 or size(more) > limit
    else:
        assert size(history.last(1)(OPENING, turns)) > limit


def test_a_window_cuts_the_middle_of_feedback_that_is_too_long_and_says_how_much() -> None:
    feedback = "START " + "x" * 6000 + " END"
    turns = [Turn(1, reply=Reply("REPLY"), feedback=feedback)]
    messages = history.window(500)(OPENING, turns)
    assert messages[2].content == "REPLY"
    assert messages[3].content.startswith("START")
    assert messages[3].content.endswith("END")
    assert "characters left out" in messages[3].content
    left = sum(estimate_tokens(m.content) for m in messages)
    assert 495 <= left <= 500  # as much as fits


@pytest.mark.parametrize("feedback", ["F", "F" * 500])
def test_a_window_gives_up_the_last_reply_before_the_last_feedback(feedback: str) -> None:
    turns = [Turn(1, reply=Reply("REPLY " * 300), feedback=feedback)]
    assert said(history.window(250)(OPENING, turns))[1:] == [("user", f"TASK\n\n{feedback}")]


def test_a_window_with_no_feedback_to_cut_still_fits() -> None:
    messages = history.window(50)(OPENING, [Turn(1, reply=Reply("REPLY " * 300))])
    assert said(messages)[1:] == [("user", "TASK\n\nNo specific feedback available.")]


def test_an_opening_that_does_not_fit_is_sent_whole() -> None:
    opening = (Message("user", "long " * 100),)
    shown = text(history.window(10)(opening, [turn(1)]))
    assert shown.startswith("long " * 100)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_is_found_by_its_name(name: str) -> None:
    it: History = history.by_name(name)
    assert it(OPENING, TURNS)[0] == OPENING[0]


def test_names_with_numbers_set_them() -> None:
    assert history.by_name("last:3")(OPENING, TURNS) == history.last(3)(OPENING, TURNS)
    assert history.by_name("window:20")(OPENING, TURNS) == history.window(20)(OPENING, TURNS)


@pytest.mark.parametrize(
    "name", ["", "nothing", "last", "last:", "last:x", "last:0", "window:0", "full:1", "last:-1"]
)
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        history.by_name(name)


def test_tokens_are_estimated_from_bytes() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("abcd") == 2
    assert estimate_tokens("éé") == 2


ENTRIES = tuple(
    HistoryEntry(f"ACTION{n}", f"OBSERVATION{n}" if n < 4 else "", step=n) for n in range(1, 5)
)


def test_full_history_is_a_chat_of_all_steps_but_the_newest_observation() -> None:
    assert said(history.full_history(ENTRIES[-2:])) == [
        ("assistant", "ACTION3"),
        ("user", "OBSERVATION3"),
        ("assistant", "ACTION4"),
    ]


def test_no_history_shows_nothing() -> None:
    assert history.no_history(ENTRIES) == ()


def test_last_n_history_shows_the_last_steps() -> None:
    assert history.last_n_history(2)(ENTRIES) == history.full_history(ENTRIES[-2:])
    assert history.last_n_history(9)(ENTRIES) == history.full_history(ENTRIES)
    with pytest.raises(UsageError, match="no_history"):
        history.last_n_history(0)


@pytest.mark.parametrize(("room", "shown"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (7, 4)])
def test_a_sliding_window_shows_the_newest_steps_that_fit(room: int, shown: int) -> None:
    """The newest step is one word here, every earlier one two."""
    assert history.sliding_window_history(room, words)(ENTRIES) == history.full_history(
        ENTRIES[-shown:]
    )


def test_a_sliding_window_too_small_for_the_newest_step_shows_none() -> None:
    assert history.sliding_window_history(1)(ENTRIES) == ()
    with pytest.raises(UsageError):
        history.sliding_window_history(0)


def test_entries_are_the_turns_without_the_newest_observation() -> None:
    assert history.entries_of([turn(1), turn(2)]) == (
        HistoryEntry("REPLY1", "FEEDBACK1", step=1),
        HistoryEntry("REPLY2", "", step=2),
    )
    silent = Turn(1, reply=Reply("R"))
    assert history.entries_of([silent, turn(2)])[0].observation_text == history.NO_FEEDBACK


def test_given_code_stands_as_the_action_of_its_step() -> None:
    (entry,) = history.entries_of([turn(1, replied=False)])
    assert entry.action_text == "```py\ncode1()\n```"


def test_reasoning_is_in_the_entries_only_where_it_is_asked_for() -> None:
    apart = Turn(1, reply=Reply("ANSWER", reasoning="Hm."))
    within = Turn(1, reply=Reply("<think>Hm.</think>\nANSWER"))
    for it in (apart, within):
        assert history.entries_of([it])[0].action_text == "ANSWER"
        assert "Hm." in history.entries_of([it], reasoning=True)[0].action_text


def test_a_prompt_budget_with_room_shows_everything() -> None:
    messages = PromptBudget(1000, words).build(OPENING, ENTRIES, "NEWEST", note="NOTE")
    assert messages == (*OPENING, *history.full_history(ENTRIES), Message("user", "NEWEST\n\nNOTE"))


def test_before_the_first_step_a_prompt_budget_gives_the_opening() -> None:
    assert PromptBudget(1).build(OPENING, (), "") == OPENING


@given(limit=st.integers(4, 20))
def test_a_prompt_budget_is_kept_by_leaving_out_the_oldest_steps(limit: int) -> None:
    """The opening takes three words, the newest observation one."""
    messages = PromptBudget(limit, words).build(OPENING, ENTRIES, "NEWEST")
    assert size(messages) <= limit
    assert "TASK" in text(messages)
    assert "NEWEST" in text(messages)
    shown = [n for n in range(1, 5) if f"ACTION{n}" in text(messages)]
    assert shown == list(range(5 - len(shown), 5))
    assert len(shown) == min(4, (limit - 4 + 1) // 2)


def test_an_observation_that_does_not_fit_is_cut_in_the_middle() -> None:
    observation = "START " + "x" * 6000 + " END"
    messages = PromptBudget(500).build(OPENING, ENTRIES, observation)
    shown = messages[-1].content
    assert [message.role for message in messages] == ["system", "user"]
    assert shown.startswith("TASK\n\nSTART")
    assert shown.endswith("END")
    assert "characters left out" in shown
    assert 490 <= sum(estimate_tokens(m.content) for m in messages) <= 500


def test_an_observation_is_cut_no_shorter_than_was_asked() -> None:
    budget = PromptBudget(10, min_current_observation_chars=900)
    shown = budget.build(OPENING, (), "x" * 6000)[-1].content
    assert shown.count("x") == 900


def test_a_prompt_budget_asks_a_function_of_the_caller_for_the_history() -> None:
    rooms: list[int] = []

    def build(entries: Sequence[HistoryEntry], room: int) -> Sequence[Message]:
        rooms.append(room)
        return [Message("assistant", f"{len(entries)} steps")]

    messages = PromptBudget(20, words, build).build(OPENING, ENTRIES, "NEWEST")
    assert messages == (*OPENING, Message("assistant", "4 steps"), Message("user", "NEWEST"))
    assert rooms == [20 - 3 - 1]


def test_a_prompt_budget_without_any_room_is_refused() -> None:
    with pytest.raises(UsageError):
        PromptBudget(0)
    with pytest.raises(UsageError):
        PromptBudget(1, min_current_observation_chars=-1)
