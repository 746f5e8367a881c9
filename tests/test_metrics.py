"""Statistics over episodes, against hand-computed values, published ones and brute force."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.errors import UsageError
from nbrefine.metrics import (
    Outcome,
    aggregate,
    compute_accuracy,
    compute_action_reward,
    compute_all_metrics,
    compute_format_compliance,
    compute_passing_but_wrong,
    compute_trajectory_reward,
    mean_pass_at_k,
    outcome_of,
    pass_at_k,
    pass_hat_k,
    solved_by_attempt,
    wilson_interval,
)
from nbrefine.values import (
    Episode,
    Reply,
    RewardType,
    Signal,
    SignalBundle,
    Stop,
    Task,
    Turn,
    Usage,
    Verdict,
)


def outcome(task: str, verdict: Verdict = "failed", *, turns: int = 1) -> Outcome:
    solved_at = turns if verdict == "solved" else None
    return Outcome(task, verdict, turns=turns, solved_at=solved_at)


def test_pass_at_k_by_hand() -> None:
    # 5 samples, 2 right: C(3, 2) = 3 of C(5, 2) = 10 pairs hold none of the two.
    assert pass_at_k(5, 2, 2) == pytest.approx(0.7)
    assert pass_at_k(5, 2, 1) == pytest.approx(0.4)
    assert pass_at_k(5, 2, 4) == 1.0
    assert pass_at_k(5, 0, 5) == 0.0
    assert pass_at_k(200, 1, 100) == pytest.approx(0.5)
    assert math.isnan(pass_at_k(4, 4, 5))


def test_pass_hat_k_by_hand() -> None:
    # 5 samples, 3 right: C(3, 2) = 3 of C(5, 2) = 10 pairs are right in both.
    assert pass_hat_k(5, 3, 2) == pytest.approx(0.3)
    assert pass_hat_k(5, 3, 4) == 0.0
    assert pass_hat_k(5, 5, 5) == 1.0
    assert math.isnan(pass_hat_k(2, 2, 3))


@given(st.data())
def test_pass_at_k_is_what_drawing_every_subset_gives(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 8))
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
    assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize("counts", [(3, 4, 1), (3, -1, 1), (3, 1, 0)])
def test_counts_that_cannot_be_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError):
        pass_at_k(*counts)
    with pytest.raises(UsageError):
        pass_hat_k(*counts)


def test_defect_12_pass_at_k_is_averaged_over_tasks_and_never_pooled() -> None:
    """164 tasks, one sample each, half solved: pooled counts would say pass@5 = 0.97."""
    halves = [outcome(str(n), "solved" if n % 2 else "failed") for n in range(164)]
    accuracy = compute_accuracy(halves, ks=[1, 5])
    assert accuracy.pass_at_k[1] == 0.5
    assert math.isnan(accuracy.pass_at_k[5])
    # Five tasks that are always solved and five that never are, five samples each.
    assert mean_pass_at_k([(5, 5)] * 5 + [(5, 0)] * 5, 5) == 0.5
    assert 1 - math.comb(82, 5) / math.comb(164, 5) == pytest.approx(0.97, abs=0.005)


def test_only_ks_that_there_are_samples_for_are_reported_unasked() -> None:
    five = [replace(outcome("a", "solved"), sample=n) for n in range(5)]
    assert list(compute_accuracy(five).pass_at_k) == [1, 2, 5]
    assert compute_accuracy([]).pass_at_k == {}


# Newcombe 1998, table I, method 3.
@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_s_interval_is_the_published_one(
    successes: int, n: int, low: float, high: float
) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_s_interval_holds_the_share_and_stays_within_0_and_1(
    counts: tuple[int, int],
) -> None:
    successes, n = counts
    low, high = wilson_interval(successes, n)
    assert 0 <= low <= high <= 1
    if n:
        assert low <= successes / n <= high


def test_an_interval_of_nothing_is_everything_and_of_too_much_is_refused() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(UsageError):
        wilson_interval(3, 2)


@pytest.mark.parametrize(
    ("samples", "ks"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (7, [1, 2, 5, 7])]
)
def test_pass_at_the_number_of_samples_is_reported_unasked(samples: int, ks: list[int]) -> None:
    drawn = [Outcome("a", "solved" if n == 0 else "failed", sample=n) for n in range(samples)]
    told = compute_accuracy(drawn).pass_at_k
    assert list(told) == ks
    assert told[samples] == 1.0  # one of all of them is right


def test_samples_are_averaged_within_their_task_first() -> None:
    # Task means 1, 0.5 and 0: mean 0.5; squares 0.25 + 0 + 0.25; / 2 / 3 = 1/12.
    drawn = [
        outcome("a", "solved"),
        outcome("b", "solved"),
        outcome("b"),
        *[outcome("c")] * 4,
    ]
    accuracy = compute_accuracy(drawn, ks=[1])
    assert (accuracy.n, accuracy.count, accuracy.tasks) == (7, 2, 3)
    assert accuracy.mean == 0.5
    assert accuracy.pass_at_k[1] == 0.5
    assert accuracy.std_error == pytest.approx(math.sqrt(1 / 12))
    assert accuracy.interval == wilson_interval(1.5, 3)


def test_the_error_of_equally_many_samples_is_the_clustered_one() -> None:
    """Miller 2024, equation 4, times C / (C - 1): sums of residuals, squared by cluster."""
    clusters = {"a": [1, 1, 0], "b": [0, 0, 0], "c": [1, 0, 1], "d": [1, 1, 1]}
    drawn = [outcome(t, "solved" if x else "failed") for t, xs in clusters.items() for x in xs]
    values = [x for xs in clusters.values() for x in xs]
    mean = sum(values) / len(values)
    squares = sum(sum(x - mean for x in xs) ** 2 for xs in clusters.values())
    expected = math.sqrt(squares * 4 / 3) / len(values)
    assert compute_accuracy(drawn).std_error == pytest.approx(expected)


def test_invalid_tasks_and_troubles_of_the_host_are_no_failures() -> None:
    drawn = [
        outcome("a", "solved"),
        outcome("b", "invalid-task"),
        outcome("c", "infra-error"),
        outcome("d", "timeout"),
    ]
    metrics = compute_all_metrics(drawn)
    assert metrics.episodes == 4
    assert (metrics.accuracy.n, metrics.accuracy.mean) == (2, 0.5)
    assert (metrics.invalid_tasks, metrics.infra_errors) == (1, 1)
    assert metrics.verdicts == {"solved": 1, "invalid-task": 1, "infra-error": 1, "timeout": 1}
    assert metrics.solved_by_attempt == (0.5,)


def test_the_curve_of_solved_by_attempt_is_cumulative() -> None:
    drawn = [
        outcome("a", "solved", turns=1),
        outcome("b", "solved", turns=3),
        outcome("c", "failed", turns=4),
        outcome("d", "solved", turns=1),
        outcome("e", "infra-error", turns=9),
    ]
    assert solved_by_attempt(drawn) == (0.5, 0.5, 0.75, 0.75)
    assert solved_by_attempt(drawn, attempts=2) == (0.5, 0.5)
    assert solved_by_attempt([]) == ()


def test_a_grade_decides_and_tells_what_passed_and_is_wrong() -> None:
    passing = outcome("a", "solved")
    drawn = [
        replace(passing, task="a", graded=True),
        replace(passing, task="b", graded=False),
        replace(passing, task="c", graded=True),
        replace(passing, task="d", graded=True),
        passing,  # not graded
        replace(outcome("e"), graded=False),  # did not pass
    ]
    wrong = compute_passing_but_wrong(drawn)
    assert (wrong.count, wrong.n, wrong.mean) == (1, 4, 0.25)
    assert [o.solved for o in drawn] == [True, False, True, True, True, False]
    assert compute_all_metrics([passing]).passing_but_wrong is None
    assert solved_by_attempt(drawn[:2]) == (0.5,)


def turn(number: int, *signals: Signal) -> Turn:
    reply = Reply("x", usage=Usage(10, 5))
    return Turn(number, signals=SignalBundle(signals), reply=reply, verdict="failed", seconds=2.0)


def episode() -> Episode:
    form, outcome_type = RewardType.FORMAT, RewardType.OUTCOME
    return Episode(
        Task("Do it.", id="t"),
        turns=(
            turn(1, Signal("tests", outcome_type, 0.5), Signal("format", form, 0.0, weight=0.5)),
            turn(2, Signal("judge", RewardType.PROCESS, None)),
            turn(3, Signal("tests", outcome_type, 1.0), Signal("format", form, 1.0, weight=0.5)),
        ),
        stop=Stop("solved"),
    )


def test_an_outcome_holds_what_an_episode_says() -> None:
    assert outcome_of(episode()) == Outcome(
        task="t",
        verdict="solved",
        solved_at=3,
        turns=3,
        turn_rewards=(0.5, 1.5),
        formats=(False, True),
        usage=Usage(30, 15),
        seconds=6.0,
    )


def test_rewards_and_form_of_episodes() -> None:
    reward = compute_trajectory_reward([episode()])
    assert (reward.n, reward.mean, reward.minimum, reward.maximum) == (1, 2.0, 2.0, 2.0)
    assert math.isnan(reward.std_error)
    action = compute_action_reward([episode()])
    assert (action.n, action.mean, action.minimum, action.maximum) == (2, 1.0, 0.5, 1.5)
    form = compute_format_compliance([episode()])
    assert (form.n, form.count, form.mean) == (2, 1, 0.5)
    assert compute_all_metrics([outcome("a")]).format_compliance is None


def test_whatever_holds_an_episode_can_be_counted() -> None:
    class Holder:
        episode = episode()

    assert compute_accuracy([Holder(), episode(), outcome_of(episode())]).count == 3


def test_tasks_without_an_id_are_told_apart_by_their_prompt() -> None:
    drawn = [Episode(Task(prompt), stop=Stop("solved")) for prompt in "aab"]
    assert compute_accuracy(drawn).tasks == 2


def test_metrics_are_plain_json_with_null_for_what_is_not_known() -> None:
    told = compute_all_metrics([outcome("a", "solved")], ks=[1, 2]).to_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["accuracy"]["pass_at_k"] == {"1": 1.0, "2": None}
    assert told["accuracy"]["std_error"] is None


def test_environments_weigh_the_same() -> None:
    easy = compute_accuracy([outcome("a", "solved"), outcome("b", "solved"), outcome("c")])
    hard = compute_accuracy([outcome("a"), outcome("b")])
    both = aggregate([easy, hard])
    assert both.environments == 2
    assert both.mean == pytest.approx(1 / 3)
    # The first has variance 1/3 over 3 tasks, the second none.
    assert both.std_error == pytest.approx(math.sqrt(1 / 9) / 2)
    assert math.isnan(aggregate([]).mean)
    assert aggregate([]).to_dict() == {"environments": 0, "mean": None, "std_error": None}
