"""Where a multi-step episode goes from here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbrefine.env.course import Course, Planning, all_done, best_of, gave_up, pending
from nbrefine.outputs import CellResult, Failure
from nbrefine.planning import StepLimits
from nbrefine.stopping import StopRule
from nbrefine.values import (
    CaseResult,
    Episode,
    Extraction,
    Plan,
    RewardType,
    Signal,
    SignalBundle,
    Subtask,
    Task,
    TestReport,
    Turn,
)

STEPS = (Subtask("Load"), Subtask("Clean", (1,)), Subtask("Draw", (2,)), Subtask("Say"))


def course(planning: Planning = "auto", *, replans: int = 1) -> Course:
    return Course(StepLimits(attempts=2), StopRule(), 9, replans, planning, accept_best=False)


def turn(number: int, step: int, *, passed: int = 0, accepted: bool = False) -> Turn:
    code = f"x = {number}"
    cases = [CaseResult(f"test_{n}", "passed" if n < passed else "failed") for n in range(2)]
    return Turn(
        number,
        step=step,
        attempt=number,
        extraction=Extraction("found", code, "python"),
        result=CellResult(code, "ok"),
        tests=TestReport(tuple(cases)),
        signals=SignalBundle((Signal("tests", RewardType.OUTCOME, passed / 2),)),
        verdict="solved" if accepted else "failed",
        accepted=accepted,
    )


def episode(*turns: Turn, planned: bool = True) -> Episode:
    return Episode(Task("t"), turns=turns, plans=(Plan(STEPS),) if planned else ())


def test_a_plan_is_asked_for_first_or_when_a_step_is_used_up_and_not_for_ever() -> None:
    nothing = episode(planned=False)
    for planning, wanted in (("ask", "plan"), ("auto", "act"), ("none", "act")):
        rules = course(planning)  # type: ignore[arg-type]
        assert rules.wants(nothing, rules.now(nothing, ()), 0) == wanted
    asking = course("ask")
    assert asking.wants(nothing, asking.now(nothing, ()), 2) == "act"
    begun = episode(turn(1, 1, accepted=True), planned=False)
    assert asking.wants(begun, asking.now(begun, ()), 0) == "act"
    used_up = episode(turn(1, 1), turn(2, 1))
    for rules, wanted in (
        (course(), "plan"),
        (course(replans=0), "act"),
        (course("none"), "act"),
    ):
        assert rules.wants(used_up, rules.now(used_up, ()), 0) == wanted


def test_a_plan_of_the_model_s_own_is_welcome_where_there_is_none() -> None:
    assert course().may_plan(episode(planned=False))
    assert not course("none").may_plan(episode(planned=False))
    assert not course().may_plan(episode())


def test_the_best_attempt_ran_and_passed_most_and_came_first() -> None:
    failed = replace(turn(1, 1, passed=2), result=CellResult("1 / 0", "error"))
    left = replace(turn(2, 1, passed=2), result=CellResult("exit()", "ok", exited=True))
    now = course().now(episode(failed, left, turn(3, 1, passed=1), turn(4, 1, passed=1)), ())
    best = best_of(now)
    assert best is not None
    assert best.number == 3
    assert best_of(course().now(episode(failed), ())) is None


def test_what_was_given_up_and_what_needs_it_is_named() -> None:
    tried = episode(turn(1, 1, accepted=True), turn(2, 2, passed=1), turn(3, 2))
    stop = gave_up(tried, course().now(tried, {2}))
    assert stop.reason == "gave-up"
    assert stop.detail.split("; ") == [
        (
            "step 2 (Clean) was given up after 2 attempts "
            "(the best was attempt 1, 1/2 of its checks held)"
        ),
        "step 3 was not begun, since it needs what is missing",
        "step 4 (Say) was not done",
    ]


def test_the_best_attempt_is_named_however_bad_it_was() -> None:
    none_held = turn(2, 1, passed=0)
    looked = Turn(1, kind="inspection", step=1)
    raised = replace(
        turn(3, 1),
        tests=None,
        result=CellResult("1 / 0", "error", error=Failure("ZeroDivisionError", "division by zero")),
    )
    rejected = Turn(4, step=1, attempt=4, extraction=Extraction("found", "x = 1", "python"))
    ended = replace(turn(2, 1), tests=None, verdict="infra-error", stopped=True)
    mute, cut = Turn(1, verdict="no-code"), Turn(2, attempt=2, verdict="incomplete-reply")
    refused = Turn(5, kind="answer", attempt=5)
    for turns, told in (
        ((none_held,), "after 1 attempt (the best was attempt 1, 0/2 of its checks held)"),
        ((looked, none_held), "after 1 attempt (the best was attempt 1, 0/2 of its checks held)"),
        ((raised,), "after 1 attempt (the best was attempt 1, which raised ZeroDivisionError)"),
        ((rejected,), "after 1 attempt (the best was attempt 1, which did not run)"),
        ((looked,), "without an attempt: it took too long"),
        ((ended,), "without an attempt: it took too long"),
        ((raised, ended), "after 1 attempt (the best was attempt 1, which raised"),
        ((ended, raised), "after 1 attempt (the best was attempt 1, which raised"),
        ((mute, cut), "after 2 replies without code"),
        (
            (mute, raised, refused),
            "after 1 attempt and 1 reply without code and 1 answer not taken (the best",
        ),
    ):
        tried = episode(*turns)
        stop = gave_up(tried, course().now(tried, {1}), "It took too long")
        assert f"step 1 (Load) was given up {told}" in stop.detail


def test_only_the_task_s_own_steps_are_pending() -> None:
    assert [number for number, _ in pending(episode(turn(1, 1, accepted=True)))] == [2, 3, 4]
    own = replace(episode(), plans=(Plan(STEPS, "model"),))
    assert pending(own) == ()
    assert pending(episode(planned=False)) == ()


@pytest.mark.parametrize(
    ("turns", "detail"),
    [
        ((turn(1, 1, passed=2, accepted=True),), "1 step done, 2 checks held"),
        ((replace(turn(1, 1, accepted=True), tests=None),), "1 step done; nothing checks them"),
    ],
)
def test_the_end_says_what_has_decided_it(turns: tuple[Turn, ...], detail: str) -> None:
    stop = all_done(episode(*turns))
    assert (stop.reason, stop.detail) == ("solved", detail)


def test_the_tests_of_the_whole_task_are_counted_at_the_end() -> None:
    report = TestReport((CaseResult("test_1", "passed"),))
    checked = turn(1, 1, passed=2, accepted=True)
    stop = all_done(episode(checked), report)
    assert stop.detail == "1 step done, 2 checks held, 1 test of the whole task passed"
    stop = all_done(episode(replace(checked, tests=None)), report)
    assert stop.detail == "1 step done, 1 test of the whole task passed"
