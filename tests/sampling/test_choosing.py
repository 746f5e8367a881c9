"""Several candidates for one task: what each is asked, which is taken, and what counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine.budget import Budget
from nbrefine.env import IterativeEnvironment, IterativeTask
from nbrefine.errors import InvalidTaskError, ModelTimeoutError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.metrics import pass_at_k
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import load
from nbrefine.rewards.grader import Grader
from nbrefine.sampling import sample
from nbrefine.values import Episode, GradeNote, Message, Reply, Sampling
from tests.sampling.doubling import (
    DOUBLE,
    OVERFITTED,
    RIGHT,
    SQUARE,
    WRONG,
    reasons,
    replies,
    solved,
)


def test_the_first_that_passes_is_taken_and_the_rest_never_begins() -> None:
    model = ScriptedModel(replies(WRONG, RIGHT, RIGHT, RIGHT))
    samples = sample(DOUBLE, model, 4, workers=1)
    assert samples.chosen_index == 1
    assert samples.code == RIGHT
    assert solved(samples) == [False, True, False, False]
    assert reasons(samples) == ["max-turns", "solved", "stopped", "stopped"]
    assert len(model.requests) == 2
    assert (samples.n, samples.passed) == (2, 1)


def test_the_best_of_all_is_taken_and_ties_go_to_the_earliest(live: Kernel) -> None:
    samples = sample(
        DOUBLE, replies(WRONG, SQUARE, SQUARE + "\n", WRONG), 4, select="best", kernel=live
    )
    assert not any(solved(samples))
    assert samples.chosen_index is not None
    assert samples.code.strip() == SQUARE
    # The replies may be handed out in any order; the earliest of the two best is taken.
    best = [i for i, e in enumerate(samples.episodes) if e.best and e.best.score == (0.5, 1)]
    assert len(best) == 2
    assert samples.chosen_index == best[0]
    assert samples.n == 4


def test_pass_at_k_is_the_unbiased_estimate_over_all_candidates(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(RIGHT, WRONG, RIGHT, WRONG), 4, select="best", kernel=live)
    # 1 - C(2, k) / C(4, k) by hand: 1 - 2/4, 1 - 1/6, 1 - 0.
    assert samples.pass_at_k(1) == pytest.approx(0.5)
    assert samples.pass_at_k(2) == pytest.approx(5 / 6)
    assert samples.pass_at_k(3) == 1.0
    assert math.isnan(samples.pass_at_k(5))
    assert samples.pass_at_k(2) == pass_at_k(4, 2, 2)


def test_draws_that_ended_with_a_success_give_no_pass_at_k(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(RIGHT, WRONG), 2, workers=1, kernel=live)
    assert reasons(samples) == ["solved", "stopped"]
    assert math.isnan(samples.pass_at_k(1))
    nobody = sample(DOUBLE, replies(WRONG, WRONG), 2, workers=1, kernel=live)
    assert nobody.pass_at_k(2) == 0.0
    assert nobody.chosen is None
    assert nobody.code == ""


def test_what_came_before_the_model_broke_off_is_judged(live: Kernel, tmp_path: Path) -> None:
    samples = sample(
        DOUBLE,
        replies(WRONG, RIGHT),
        4,
        kernel=live,
        select="best",
        workers=1,
        record=tmp_path,
    )
    assert solved(samples) == [False, True, False, False]
    assert reasons(samples) == ["max-turns", "solved", "infra-error", "infra-error"]
    assert samples.chosen_index == 1
    assert (samples.n, samples.passed) == (2, 1)
    assert samples.pass_at_k(1) == 0.5  # of the two that count
    assert "candidate 2 ended in trouble" in samples.note
    assert "has given all its replies (2)" in samples.note
    assert [turn.code for turn in load(tmp_path / "sample-01.ipynb").turns] == [RIGHT]
    assert load(tmp_path / "sample-02.ipynb").verdict == "infra-error"


def test_a_call_that_fails_is_that_candidate_s_trouble_alone(live: Kernel) -> None:
    answers = iter(replies(WRONG, "", RIGHT))

    def answer(messages: Sequence[Message]) -> str:
        if "double" not in (reply := next(answers)):
            raise ModelTimeoutError("No answer within 60 s")
        return reply

    samples = sample(DOUBLE, answer, 3, kernel=live, select="best", workers=1)
    assert reasons(samples) == ["max-turns", "infra-error", "solved"]
    assert (samples.chosen_index, samples.n, samples.passed) == (2, 2, 1)
    assert samples.note == (
        "candidate 1 ended in trouble and counts for nothing: No answer within 60 s"
    )


def test_every_candidate_is_an_episode_of_its_own_with_a_seed_of_its_own(live: Kernel) -> None:
    drawn: list[Sampling] = []

    class Model(ScriptedModel):
        def complete(self, messages, *, sampling=Sampling(), **rest):  # type: ignore[no-untyped-def]
            drawn.append(sampling)
            return super().complete(messages, sampling=sampling, **rest)

    samples = sample(
        DOUBLE, Model(replies(*[WRONG] * 3)), 3, select="best", workers=1, seed=7, kernel=live
    )
    assert [sampling.seed for sampling in drawn] == [7001, 8001, 9001]
    assert {sampling.temperature for sampling in drawn} == {0.8}
    assert len({episode.id for episode in samples.episodes}) == 3
    assert [episode.settings["sample"] for episode in samples.episodes] == [0, 1, 2]
    assert {episode.task.id for episode in samples.episodes} == {"double"}
    drawn.clear()
    sample(
        DOUBLE, Model(replies(WRONG, WRONG)), 2, select="best", workers=1, seed=None, kernel=live
    )
    assert [sampling.seed for sampling in drawn] == [None, None]


def test_all_candidates_are_asked_the_same_and_see_nothing_of_each_other(live: Kernel) -> None:
    model = ScriptedModel(replies(WRONG, SQUARE, WRONG))
    sample(DOUBLE, model, 3, select="best", workers=1, kernel=live)
    assert len(set(model.requests)) == 1


def test_hidden_tests_count_but_never_choose(live: Kernel) -> None:
    with Grader() as grader:
        samples = sample(
            DOUBLE,
            replies(OVERFITTED, RIGHT, WRONG),
            3,
            select="best",
            workers=1,
            grader=grader,
            kernel=live,
        )
    assert samples.chosen_index == 0  # by the visible tests it is as good as the right one
    assert [grade.solved if grade else None for grade in samples.grades] == [False, True, None]
    assert samples.grades[0] is not None
    assert samples.grades[0].passing_but_wrong
    assert samples.passed == 1
    assert samples.pass_at_k(1) == pytest.approx(1 / 3)
    assert [outcome.passing_but_wrong for outcome in samples.outcomes] == [True, False, False]


def test_hidden_tests_count_without_a_grader_of_the_caller_s_too(
    live: Kernel, tmp_path: Path
) -> None:
    codes = replies(OVERFITTED, RIGHT, WRONG)
    samples = sample(DOUBLE, codes, 3, select="best", workers=1, kernel=live, record=tmp_path)
    assert samples.chosen_index == 0
    assert [grade.solved if grade else None for grade in samples.grades] == [False, True, None]
    assert samples.passed == 1
    assert samples.pass_at_k(1) == pytest.approx(1 / 3)
    assert "candidate 0 was taken because it passed the visible tests" in samples.note
    assert samples.note.endswith("the grade of 1 is solved")
    grades = [GradeNote("failed", 2, 3), GradeNote("solved", 3, 3), None]
    assert [episode.grade for episode in samples.episodes] == grades
    recorded = sorted(tmp_path.glob("*.ipynb"))
    assert [load(path).grade for path in recorded] == grades


def test_the_first_that_passes_what_is_visible_is_taken_and_a_note_tells_of_its_grade(
    live: Kernel,
) -> None:
    samples = sample(DOUBLE, replies(OVERFITTED, RIGHT), 2, workers=1, kernel=live)
    assert samples.chosen_index == 0
    assert (samples.n, samples.passed) == (1, 0)
    assert math.isnan(samples.pass_at_k(1))
    assert "its grade is failed" in samples.note
    assert "no further one was drawn, which select='best' does" in samples.note


def test_a_right_candidate_needs_no_note(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(RIGHT), 1, kernel=live)
    assert [grade.solved for grade in samples.grades if grade] == [True]
    assert samples.note == ""


def test_a_task_whose_hidden_tests_cannot_be_run_counts_for_nothing(live: Kernel) -> None:
    broken = replace(DOUBLE, hidden_tests="assert double(")
    samples = sample(broken, replies(RIGHT), 1, kernel=live)
    assert [grade.verdict for grade in samples.grades if grade] == ["invalid-task"]
    assert samples.n == 0


def test_a_task_that_cannot_be_graded_here_is_refused_before_the_model_is_asked(
    live: Kernel,
) -> None:
    model = ScriptedModel(replies(RIGHT))
    broken = replace(DOUBLE, reference=WRONG)
    with Grader() as grader, pytest.raises(InvalidTaskError, match="the reference fails"):
        sample(broken, model, 1, kernel=live, grader=grader)
    assert model.requests == []


def test_with_more_turns_each_candidate_is_refined_by_itself(live: Kernel) -> None:
    model = ScriptedModel(replies(WRONG, SQUARE, WRONG, RIGHT))
    samples = sample(DOUBLE, model, 2, select="best", max_turns=2, workers=1, kernel=live)
    assert [len(episode.turns) for episode in samples.episodes] == [2, 2]
    assert solved(samples) == [False, True]
    assert samples.chosen_index == 1
    # The second turn of each tells of its own first attempt and no other.
    asked = [messages[-1].content for messages in model.requests]
    assert ["0/2 tests" in text for text in asked] == [False, True, False, True]
    assert asked[1] == asked[3]


def test_each_candidate_is_recorded_as_a_notebook(tmp_path: Path) -> None:
    samples = sample(
        DOUBLE, replies(WRONG, RIGHT), 2, select="best", workers=1, record=tmp_path, cwd=tmp_path
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "sample-00.ipynb",
        "sample-01.ipynb",
    ]
    assert load(tmp_path / "sample-01.ipynb") == samples.episodes[1]
    # The records themselves are nobody's work.
    told = [turn.files for episode in samples.episodes for turn in episode.turns]
    assert [files.changes for files in told if files] == [(), ()]
    with pytest.raises(UsageError):
        sample(DOUBLE, replies(WRONG), 1, record=tmp_path)


def test_a_budget_is_the_sampling_s_own_and_ends_it(live: Kernel) -> None:
    budget = Budget(calls=2)
    samples = sample(
        DOUBLE, replies(*[WRONG] * 4), 4, select="best", workers=1, budget=budget, kernel=live
    )
    assert reasons(samples) == ["max-turns", "max-turns", "budget", "budget"]
    assert budget.spent.calls == 2
    assert samples.n == 2
    assert math.isnan(samples.pass_at_k(3))


_KNOWN = IterativeTask("2 + 2?", test_code="assert True")

SETTINGS: dict[str, Callable[[], object]] = {
    "n is 0": lambda: sample(DOUBLE, [], 0),
    "max_turns is 0": lambda: sample(DOUBLE, [], 1, max_turns=0),
    "workers is 0": lambda: sample(DOUBLE, [], 1, workers=0),
    "no select": lambda: sample(DOUBLE, [], 1, select="worst"),  # type: ignore[arg-type]
    "temperature 0": lambda: sample(DOUBLE, [], 2, sampling=Sampling(temperature=0.0)),
    "is no task": lambda: sample(None, [], 1),
    "tests of its own": lambda: sample(DOUBLE, [], 1, tests="assert True"),
    "go together": lambda: sample(None, [], 1, environment=IterativeEnvironment(tasks=_KNOWN)),
    "the name of one notebook": lambda: sample(DOUBLE, [], 1, record="runs.ipynb"),
    "nothing runs in no time": lambda: sample(DOUBLE, [], 1, timeout=0),
}


@pytest.mark.parametrize("told", SETTINGS)
def test_what_makes_no_sense_is_refused_before_anything_starts(told: str) -> None:
    with pytest.raises(UsageError, match=told):
        SETTINGS[told]()


def test_one_candidate_may_be_drawn_at_temperature_0(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(RIGHT), 1, sampling=Sampling(temperature=0.0), kernel=live)
    assert samples.chosen_index == 0


def test_rows_tell_the_candidate_and_whether_it_was_taken(live: Kernel) -> None:
    samples = sample(DOUBLE, replies(WRONG, RIGHT, RIGHT), 3, select="best", workers=1, kernel=live)
    told = [(row["sample"], row["chosen"], row["verdict"]) for row in samples.to_rows()]
    assert told == [(0, False, "failed"), (1, True, "solved"), (2, False, "solved")]


def test_replies_without_code_are_candidates_too(live: Kernel) -> None:
    model: list[str | Reply] = ["I cannot.", *replies(RIGHT)]
    samples = sample(DOUBLE, model, 2, select="best", workers=1, kernel=live)
    assert samples.chosen_index == 1
    assert (samples.n, samples.passed) == (2, 1)
    nothing = sample(DOUBLE, ["I cannot."], 1, select="best", kernel=live)
    assert nothing.chosen is None
    assert isinstance(nothing.episodes[0], Episode)
