"""Where the work stands, told from plans and turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbrefine.errors import UsageError
from nbrefine.planning import Progress, StepLimits, planned, progress
from nbrefine.planning.progress import numbered
from nbrefine.stopping import StopRule
from nbrefine.values import Plan, Subtask, ToolCall, Turn, TurnKind
from tests.planning.turns import turn

CHAIN = Plan(
    (Subtask("a"), Subtask("b"), Subtask("c", (2,)), Subtask("d", (3,)), Subtask("e", (1,)))
)


def where(
    plans: list[Plan],
    turns: list[Turn],
    *,
    limits: StepLimits = StepLimits(),  # noqa: B008 # frozen
    rules: StopRule = StopRule(),  # noqa: B008 # frozen
    max_replans: int = 1,
    given_up: tuple[int, ...] = (),
) -> Progress:
    return progress(
        plans, turns, limits=limits, rules=rules, max_replans=max_replans, given_up=given_up
    )


def test_without_a_plan_each_accepted_cell_ends_a_step() -> None:
    turns = [turn(1, 1, "a"), turn(2, 1, "b", accepted=True), turn(3, 2, "c")]
    now = where([], turns)
    assert (now.step, now.subtask, now.turns, now.done) == (2, None, (turns[2],), (1,))
    assert not now.finished
    assert where([], []).step == 1


def test_with_a_plan_each_subtask_comes_after_the_other() -> None:
    turns: list[Turn] = []
    for number, subtask in enumerate(CHAIN.subtasks, start=1):
        now = where([CHAIN], turns)
        assert (now.step, now.subtask, now.turns) == (number, subtask, ())
        assert now.done == tuple(range(1, number))
        turns.append(turn(number, number, "x", accepted=True))
    now = where([CHAIN], turns)
    assert (now.step, now.subtask, now.finished) == (6, None, True)
    turns.append(turn(6, 6, "more", accepted=True))
    assert where([CHAIN], turns).step == 7


def test_what_needs_a_subtask_that_was_given_up_is_blocked_and_the_rest_goes_on() -> None:
    turns = [turn(1, 1, "x", accepted=True), turn(2, 2, "y")]
    now = where([CHAIN], turns, given_up=(2,))
    assert (now.done, now.given_up, now.blocked) == ((1,), (2,), (3, 4))
    assert (now.step, now.subtask) == (5, CHAIN.subtasks[4])
    turns.append(turn(3, 5, "z", accepted=True))
    assert where([CHAIN], turns, given_up=(2,)).finished


def test_a_subtask_that_is_done_after_all_was_not_given_up() -> None:
    now = where([CHAIN], [turn(1, 1, "x", accepted=True)], given_up=(1,))
    assert (now.done, now.given_up, now.blocked) == ((1,), (), ())


def test_what_another_plan_replaced_is_neither_given_up_nor_worked_on() -> None:
    turns = [turn(1, 1, "x", accepted=True), turn(2, 2, "y"), turn(3, 2, kind="plan")]
    plans = [CHAIN, planned([CHAIN], turns, (Subtask("new"),), since=4)]
    now = where(plans, turns, given_up=(2,))
    assert (now.replaced, now.given_up, now.blocked) == ((2,), (), ())
    assert (now.step, now.subtask) == (3, Subtask("new"))
    assert now.replans_left == 0


def test_a_model_s_first_plan_is_no_replan() -> None:
    assert where([], [], max_replans=2).replans_left == 2
    assert where([CHAIN], [], max_replans=2).replans_left == 2
    another = replace(CHAIN, origin="model")
    assert where([another], [], max_replans=2).replans_left == 2
    assert where([CHAIN, another], [], max_replans=2).replans_left == 1
    assert where([CHAIN, *[another] * 4], [], max_replans=2).replans_left == 0


def test_another_instruction_is_no_replan() -> None:
    assert where([CHAIN, CHAIN], [], max_replans=1).replans_left == 1


@pytest.mark.parametrize(
    ("limits", "turns", "told"),
    [
        (StepLimits(attempts=2), [turn(1, 1, "a"), turn(2, 1, "b")], "has had 2 of its 2 tries"),
        (StepLimits(attempts=2), [turn(1, 1, "a"), turn(2, 1, said="hm")], "Step 1 has had 2 of"),
        (StepLimits(attempts=3), [turn(1, 1, "a"), turn(2, 1, "b")], ""),
        (StepLimits(attempts=1), [turn(1, 1, kind="inspection", said="look")], ""),
        (StepLimits(attempts=1), [turn(1, 1, kind="plan", said="1. a")], ""),
        (StepLimits(attempts=1), [turn(1, 1, kind="answer", said="42")], "had 1 of its 1 try"),
        (StepLimits(tokens=1000), [turn(1, 1, "a", tokens=999)], ""),
        (
            StepLimits(tokens=1000),
            [turn(1, 1, "a", tokens=600), turn(2, 1, kind="inspection", tokens=600)],
            "Step 1 has taken 1,200 of its 1,000 tokens",
        ),
        (StepLimits(tokens=1000), [turn(1, 1, "plan", kind="plan", tokens=2000)], ""),
        (StepLimits(seconds=60), [turn(1, 1, "a", seconds=59.9)], ""),
        (StepLimits(seconds=60), [turn(1, 1, "a", seconds=75.2)], "has taken 75.2 of its 60 s"),
        (StepLimits(seconds=0.5), [turn(1, 1, "a", seconds=0.7)], "has taken 0.7 of its 0.5 s"),
        (StepLimits(), [turn(1, 1, "a"), turn(2, 1, "a")], ""),
        (
            StepLimits(),
            [turn(1, 1, "a"), turn(2, 1, "a"), turn(3, 1, "a")],
            "In step 1 the same attempt with the same outcome was made 3 times",
        ),
        (
            StepLimits(),
            [turn(n, 1, kind="inspection", said="look") for n in (1, 2, 3)],
            "In step 1 the same attempt with the same outcome was made 3 times",
        ),
    ],
)  # fmt: skip
def test_a_step_is_exhausted_when_a_limit_is_used_up(
    limits: StepLimits, turns: list[Turn], told: str
) -> None:
    for plans in ([], [CHAIN]):
        exhausted = where(plans, turns, limits=limits).exhausted
        assert exhausted.startswith(told) or told in exhausted
        assert bool(exhausted) == bool(told)


def test_a_limit_is_of_each_step() -> None:
    turns = [turn(1, 1, "a"), turn(2, 1, "a", accepted=True), turn(3, 2, "a")]
    assert where([CHAIN], turns, limits=StepLimits(attempts=2)).exhausted == ""
    turns.append(turn(4, 2, "b"))
    assert where([CHAIN], turns, limits=StepLimits(attempts=2)).exhausted.startswith("Step 2")


def test_a_step_stays_exhausted_while_a_plan_is_asked_for() -> None:
    turns = [turn(n, 1, "a") for n in (1, 2, 3)]
    told = where([CHAIN], turns).exhausted
    turns.append(turn(4, 1, kind="plan", said="no plan"))
    assert where([CHAIN], turns).exhausted == told != ""


def test_a_variable_may_be_looked_at_again_after_each_attempt() -> None:
    turns = []
    for number in (1, 3, 5):
        turns += [turn(number, 1, f"a{number}"), turn(number + 1, 1, kind="inspection", said="df")]
    assert where([CHAIN], turns).exhausted == ""
    turns += [turn(n, 1, kind="inspection", said="df") for n in (7, 8)]
    assert where([CHAIN], turns).exhausted != ""


@pytest.mark.parametrize("kind", ["inspection", "answer"])
def test_calls_of_tools_are_repeats_where_their_arguments_are(kind: TurnKind) -> None:
    def calling(number: int, argument: str) -> Turn:
        return turn(number, 1, kind=kind, calls=(ToolCall("a_tool", {"text": argument}),))

    many = StepLimits(attempts=9)
    turns = [calling(n, argument) for n, argument in enumerate("abc", 1)]
    assert where([], turns, limits=many).exhausted == ""
    turns += [calling(4, "c"), calling(5, "c")]
    assert "was made 3 times" in where([], turns, limits=many).exhausted


def test_calls_that_cannot_be_read_are_repeats_where_they_stand_so() -> None:
    def calling(number: int, raw: str) -> Turn:
        return turn(number, 1, calls=(ToolCall("run_cell", problem="it is cut", raw=raw),))

    assert (
        where([], [calling(n, raw) for n, raw in enumerate(("{a", "{b", "{c"), 1)]).exhausted == ""
    )
    assert where([], [calling(n, "{a") for n in (1, 2, 3)]).exhausted != ""


def test_a_cell_that_is_accepted_over_and_over_is_enough_without_a_plan() -> None:
    turns = [turn(n, n, "x = 1", accepted=True) for n in (1, 2, 3)]
    assert where([], turns[:2]).exhausted == ""
    told = where([], turns).exhausted
    assert told == "The same cell with the same outcome was run 3 times in a row"
    looked = [*turns, turn(4, 4, kind="inspection", said="x")]
    assert where([], looked).exhausted == told
    assert where([CHAIN], turns).exhausted == ""


def test_other_cells_between_are_no_repeat() -> None:
    codes = ("x = 1", "x = 1", "y = 1", "x = 1", "x = 1")
    turns = [turn(n, n, code, accepted=True) for n, code in enumerate(codes, 1)]
    assert where([], turns).exhausted == ""
    assert where([], [*turns, turn(6, 6, "1 / 0")]).exhausted == ""


@pytest.mark.parametrize("settings", [{"attempts": 0}, {"tokens": 0}, {"seconds": -1.0}])
def test_limits_that_allow_nothing_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(settings))):
        StepLimits(**settings)


def test_an_attempt_that_a_person_has_stopped_leaves_its_number_to_the_next() -> None:
    ended = replace(turn(2, 1, "b"), verdict="infra-error", stopped=True)
    turns = [turn(1, 1, "a"), ended, turn(3, 1, kind="inspection"), turn(4, 1, "c")]
    assert [each.attempt for each in numbered(turns) if each.tried] == [1, 2, 2]
