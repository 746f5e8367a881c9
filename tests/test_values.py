"""The values: what an episode says about itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from nbrefine.outputs import CellResult, Failure
from nbrefine.values import (
    CaseResult,
    Episode,
    Extraction,
    Reply,
    RewardType,
    Signal,
    SignalBundle,
    Stop,
    StopReason,
    Task,
    TestReport,
    Turn,
    Usage,
)

REPORT = TestReport((CaseResult("a", "passed"), CaseResult("b", "failed")))


def turn(number: int, reward: float, *, code: str = "x = 1", passed: int = 0) -> Turn:
    cases = tuple(CaseResult(str(i), "passed" if i < passed else "failed") for i in range(3))
    return Turn(
        number=number,
        reply=Reply("text", usage=Usage(10, 5)),
        extraction=Extraction("found", code),
        result=CellResult(code, "ok"),
        tests=TestReport(cases),
        signals=SignalBundle.single(reward),
        seconds=1.5,
    )


def test_a_report_counts_its_cases_one_by_one() -> None:
    assert (REPORT.passed, REPORT.failed, REPORT.total, REPORT.solved) == (1, 1, 2, False)


def test_a_report_without_a_case_is_not_a_success() -> None:
    assert not TestReport(problem="no tests were found").solved


def test_signals_without_a_reward_count_for_nothing_and_weights_count() -> None:
    bundle = SignalBundle(
        (
            Signal("tests", RewardType.OUTCOME, 0.5, "1/2 tests passed.", weight=2.0),
            Signal("judge", RewardType.PROCESS, None, "unreadable"),
            Signal("format", RewardType.FORMAT, 1.0),
        )
    )
    assert bundle.total == 2.0
    assert [s.name for s in bundle.numeric_signals()] == ["tests", "format"]
    assert bundle.feedback_texts() == ("1/2 tests passed.", "unreadable")
    assert bundle.by_type(RewardType.FORMAT) == (bundle.signals[2],)
    assert bundle.by_name("judge") is bundle.signals[1]
    assert bundle.by_name("absent") is None
    assert len(SignalBundle.empty()) == 0


def test_best_is_by_reward_then_tests_and_ties_go_to_the_earliest() -> None:
    turns = (turn(1, 0.0), turn(2, 0.5, passed=1), turn(3, 0.5, passed=2), turn(4, 0.5, passed=2))
    episode = Episode(Task("t"), turns=turns)
    assert episode.best is turns[2]
    assert episode.last is turns[3]


def test_an_episode_that_ran_nothing_has_neither_best_nor_last() -> None:
    episode = Episode(Task("t"), turns=(Turn(1, reply=Reply("Sorry.")),))
    assert episode.best is None
    assert episode.last is None
    assert episode.attempts == ()


def test_usage_and_seconds_are_sums_over_the_turns() -> None:
    episode = Episode(Task("t"), turns=(turn(1, 0.0), turn(2, 0.0)))
    assert episode.usage == Usage(20, 10)
    assert episode.usage.total_tokens == 30
    assert episode.seconds == 3.0


def test_the_verdict_is_the_stop_s_where_it_judges_and_the_last_turn_s_elsewhere() -> None:
    failed = replace(turn(1, 0.0), verdict="timeout")
    assert Episode(Task("t"), turns=(failed,), stop=Stop("max-turns")).verdict == "timeout"
    assert Episode(Task("t"), turns=(failed,), stop=Stop("infra-error")).verdict == "infra-error"
    assert Episode(Task("t"), turns=(failed,), stop=Stop("solved")).solved


@pytest.mark.parametrize("reason", ["budget", "stopped", "killed", "infra-error"])
def test_an_episode_that_ended_before_its_first_turn_says_nothing_of_the_model(
    reason: StopReason,
) -> None:
    assert Episode(Task("t"), stop=Stop(reason)).verdict == "infra-error"


@pytest.mark.parametrize(
    ("rewards", "best"),
    [
        ((), None),
        ((None,), None),
        ((math.nan,), None),
        ((0.25, None, 0.5), 0.5),
        ((math.nan, 0.5), 0.5),
        ((0.5, math.nan), 0.5),
        ((-1.0, math.nan, -2.0), -1.0),
        ((0.0,), 0.0),
    ],
)
def test_the_best_outcome_passes_over_what_is_no_number(
    rewards: tuple[float | None, ...], best: float | None
) -> None:
    outcomes = tuple(Signal(f"s{n}", RewardType.OUTCOME, r) for n, r in enumerate(rewards))
    signals = SignalBundle((*outcomes, Signal("other", RewardType.PROCESS, 9.0)))
    assert signals.outcome == best
    assert Turn(1, signals=signals).score == (best or 0.0, 0)


def test_rows_are_flat_and_one_per_turn() -> None:
    broken = replace(
        turn(2, 0.25, passed=1),
        result=CellResult("x", "error", error=Failure("NameError", "x")),
        tests=None,
    )
    rows = Episode(Task("t", id="T1"), id="e", turns=(turn(1, 0.5, passed=2), broken)).to_rows()
    assert [row["turn"] for row in rows] == [1, 2]
    assert {row["kind"] for row in rows} == {"attempt"}
    assert (rows[0]["tests_passed"], rows[0]["tests_total"]) == (2, 3)
    assert (rows[1]["tests_passed"], rows[1]["error"], rows[1]["reward"]) == (
        None,
        "NameError",
        0.25,
    )
    assert {type(v) for row in rows for v in row.values()} <= {str, int, float, bool, type(None)}


def test_code_that_was_cut_off_is_not_the_turn_s_code() -> None:
    assert Turn(1, extraction=Extraction("incomplete", "def f(")).code == ""
