"""How plans follow each other without losing a number or a check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.errors import InvalidTaskError
from nbrefine.planning import Progress, StepLimits, first_plan, planned, progress
from nbrefine.planning.plans import UNPLANNED, standing
from nbrefine.postconditions import holds
from nbrefine.stopping import StopRule
from nbrefine.values import Plan, Subtask, Task, Turn, TurnKind
from tests.planning.turns import turn

OWN = (
    Subtask("load", postconditions=(holds("loaded"),)),
    Subtask("clean", (1,), (holds("clean"),)),
    Subtask("count", (1,), (holds("counted"),)),
    Subtask("save", (2, 3), (holds("saved"),)),
)


def goals(plan: Plan) -> list[str]:
    return [each.goal for each in plan.subtasks]


def needs(plan: Plan) -> list[tuple[int, ...]]:
    return [each.needs for each in plan.subtasks]


def test_a_task_brings_its_plan_along() -> None:
    assert first_plan(Task("do it", subtasks=OWN)) == Plan(OWN, "task", since=1)
    assert first_plan(Task("do it")) is None


@pytest.mark.parametrize("needed", [2, 3, 0, -1])
def test_a_task_whose_subtask_needs_a_later_one_is_invalid(needed: int) -> None:
    task = Task("do it", subtasks=(Subtask("a"), Subtask("b", (needed,))))
    with pytest.raises(InvalidTaskError, match=f"Subtask 2 needs subtask {needed}, which does not"):
        first_plan(task)


def test_a_model_s_first_plan_begins_at_one() -> None:
    subtasks = (Subtask("a"), Subtask("b", (1,)))
    turns = [turn(1, kind="inspection", said="look"), turn(2, said="hm"), turn(3, kind="plan")]
    assert planned((), turns, subtasks, since=4) == Plan(subtasks, "model", since=4)


def test_steps_that_were_made_before_a_plan_keep_their_numbers() -> None:
    turns = [turn(1, 1, "a = 1", accepted=True), turn(2, 2, "b"), turn(3, 2, kind="plan")]
    plan = planned((), turns, (Subtask("c"), Subtask("d", (1,))), since=4)
    assert goals(plan) == [UNPLANNED, UNPLANNED, "c", "d"]
    assert needs(plan) == [(), (), (), (3,)]
    assert standing((plan,), turns).replaced == {2}
    assert standing((plan,), turns).own == ()


def test_another_plan_keeps_what_was_begun_and_what_the_task_asks_for() -> None:
    """`load` is done and `clean` used up; two new steps come, then all that is left of the task."""
    plans = [Plan(OWN)]
    turns = [turn(1, 1, "a", accepted=True), turn(2, 2, "b"), turn(3, 2, kind="plan")]
    new = (Subtask("look closer"), Subtask("mend", (1,)))
    plan = planned(plans, turns, new, since=4, reason="Step 2 has had 1 attempt of 1")
    assert goals(plan) == ["load", "clean", "look closer", "mend", "clean", "count", "save"]
    assert needs(plan) == [(), (1,), (), (3,), (1,), (1,), (5, 6)]
    assert [each.postconditions for each in plan.subtasks[4:]] == [
        each.postconditions for each in OWN[1:]
    ]
    assert (plan.origin, plan.since, plan.reason) == ("model", 4, "Step 2 has had 1 attempt of 1")
    now = standing((*plans, plan), turns)
    assert now.own == (1, 5, 6, 7)
    assert now.replaced == {2}


def test_a_third_plan_drops_what_the_second_added() -> None:
    plans = [Plan(OWN)]
    turns = [turn(1, 1, "a", accepted=True), turn(2, 2, "b"), turn(3, 2, kind="plan")]
    plans.append(planned(plans, turns, (Subtask("x"), Subtask("y", (1,))), since=4))
    turns += [turn(4, 3, "c"), turn(5, 3, kind="plan")]
    plan = planned(plans, turns, (Subtask("z"),), since=6)
    assert goals(plan) == ["load", "clean", "x", "z", "clean", "count", "save"]
    assert needs(plan) == [(), (1,), (), (), (1,), (1,), (5, 6)]
    assert standing((*plans, plan), turns).replaced == {2, 3}


def test_a_plan_without_steps_tries_what_is_left_again() -> None:
    turns = [turn(1, 1, "a")]
    plan = planned([Plan(OWN[:2])], turns, (), since=2)
    assert goals(plan) == ["load", "load", "clean"]
    assert needs(plan) == [(), (), (2,)]


def test_a_step_that_was_passed_over_keeps_its_number_and_comes_back() -> None:
    """`clean` was given up, so `save` would be blocked; `count` is done between them."""
    turns = [
        turn(1, 1, "a", accepted=True),
        turn(2, 2, "b"),
        turn(3, 3, "c", accepted=True),
        turn(4, 3, kind="plan"),
    ]
    plan = planned([Plan(OWN)], turns, (Subtask("mend"),), since=5)
    assert goals(plan) == ["load", "clean", "count", "mend", "clean", "save"]
    assert needs(plan) == [(), (1,), (1,), (), (1,), (5, 3)]


def test_a_plan_that_comes_before_a_step_was_begun_takes_its_number() -> None:
    turns = [turn(1, 1, "a", accepted=True), turn(2, 2, kind="plan")]
    plan = planned([Plan((Subtask("a"), Subtask("b")), "model")], turns, (Subtask("c"),), since=3)
    assert goals(plan) == ["a", "c"]


def test_a_look_before_there_was_a_plan_begins_nothing_of_a_later_one() -> None:
    turns = [turn(1, 1, kind="inspection", said="df"), turn(2, kind="plan"), turn(3, kind="plan")]
    plans = [planned((), turns[:2], (Subtask("a"),), since=3)]
    assert goals(planned(plans, turns, (Subtask("b"),), since=4)) == ["b"]
    turns.append(turn(4, 1, kind="inspection", said="df"))
    assert goals(planned(plans, turns, (Subtask("b"),), since=5)) == ["a", "b"]


def test_work_after_the_last_step_keeps_its_number_too() -> None:
    turns = [turn(1, 1, "a", accepted=True), turn(2, 2, "more", accepted=True)]
    plan = planned([Plan((Subtask("a"),))], turns, (Subtask("b"),), since=3)
    assert goals(plan) == ["a", UNPLANNED, "b"]


@st.composite
def lists_of_subtasks(draw: st.DrawFn, *, name: str, least: int = 1) -> tuple[Subtask, ...]:
    count = draw(st.integers(least, 4))
    found = []
    for number in range(1, count + 1):
        needed = draw(st.sets(st.integers(1, number - 1))) if number > 1 else set()
        checks = (holds(f"{name}_{number}"),) if draw(st.booleans()) else ()
        found.append(Subtask(f"{name} {number}", tuple(sorted(needed)), checks))
    return tuple(found)


MOVES = st.lists(
    st.sampled_from(
        ["accept", "accept", "fail", "fail", "look", "mumble", "refused", "plan", "up"]
    ),
    max_size=25,
)


KINDS: dict[str, TurnKind] = {"look": "inspection", "refused": "plan", "plan": "plan"}


@given(lists_of_subtasks(name="own", least=0), MOVES, st.data())
def test_whatever_happens_no_number_changes_and_no_check_of_the_task_is_lost(
    own: tuple[Subtask, ...], moves: list[str], data: st.DataObject
) -> None:
    first = first_plan(Task("do it", subtasks=own))
    plans = [first] if first else []
    turns: list[Turn] = []
    given_up: set[int] = set()
    begun: dict[int, Subtask] = {}
    for number, move in enumerate(moves, start=1):
        now = where(plans, turns, given_up)
        known = len(plans[-1].subtasks) if plans else 0
        ran = move in ("accept", "fail")
        if ran or (KINDS.get(move) != "plan" and now.step <= known):
            begun[now.step] = now.subtask or Subtask(UNPLANNED)
        if move == "up" and now.subtask is not None:
            given_up.add(now.step)
        turns.append(
            turn(
                number,
                now.step,
                "code" if ran else "",
                kind=KINDS.get(move, "attempt"),
                accepted=move == "accept",
            )
        )
        if move == "plan":
            added = data.draw(lists_of_subtasks(name=f"new{number}"))
            plans.append(planned(plans, turns, added, since=number + 1))
            assert set(added) <= {
                Subtask(each.goal, tuple(n - offset for n in each.needs), each.postconditions)
                for offset in (max(begun, default=0),)
                for each in plans[-1].subtasks
            }
        holds_together(own, plans, turns, given_up, begun)


def where(plans: list[Plan], turns: list[Turn], given_up: set[int]) -> Progress:
    return progress(
        plans,
        turns,
        limits=StepLimits(),
        rules=StopRule(),
        max_replans=3,
        given_up=given_up,
    )


def holds_together(
    own: tuple[Subtask, ...],
    plans: list[Plan],
    turns: list[Turn],
    given_up: set[int],
    begun: dict[int, Subtask],
) -> None:
    now = where(plans, turns, given_up)
    closed = [*now.done, *now.given_up, *now.blocked, *now.replaced]
    assert len({*closed, now.step}) == len(closed) + 1
    if not plans:
        assert now.subtask is None
        assert not now.finished
        return
    subtasks = plans[-1].subtasks
    assert now.subtask is None or set(now.subtask.needs) <= set(now.done)
    for number, subtask in enumerate(subtasks, start=1):
        assert all(1 <= needed < number for needed in subtask.needs)
        assert number == now.step or number in closed or number > now.step
    for number, subtask in begun.items():
        if number <= len(subtasks):
            assert subtasks[number - 1] == subtask
    numbers = standing(plans, turns).own
    assert len(numbers) == len(own)
    for number, subtask in zip(numbers, own, strict=True):
        assert subtasks[number - 1].goal == subtask.goal
        assert subtasks[number - 1].postconditions == subtask.postconditions
        assert subtasks[number - 1].needs == tuple(numbers[each - 1] for each in subtask.needs)
        assert number not in now.replaced
    if now.finished and not (now.given_up or now.blocked):
        assert set(numbers) <= set(now.done)
