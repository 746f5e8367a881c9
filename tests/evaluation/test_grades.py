"""Grades by hidden tests decide, and tasks that cannot be judged count for nothing."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from nbrefine import notebook
from nbrefine.config import EnvironmentConfig
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.evaluation import (
    Row,
    run_evaluation,
)
from nbrefine.executors import CodeExecutionResult, SubprocessCodeExecutor
from nbrefine.metrics import outcome_of, solved_by_attempt
from nbrefine.models.scripted import ScriptedModel
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.format import AnswerReward
from nbrefine.values import GradeNote, Task
from nbrefine.views.terminal import show
from tests.evaluation.sums import coding, fenced


def test_a_grade_by_hidden_tests_decides_what_passes_and_is_wrong() -> None:
    replies = [fenced(f"def double(x):\n    return {value}") for value in ("2 * x", "x + 1", "3")]
    with coding("assert double(4) == 8") as env:
        result = run_evaluation(env, replies, samples=3, batch_size=1)
        ungraded = run_evaluation(env, replies, samples=3, batch_size=1, grade=False)
    (rows,) = result.rows.values()
    assert [(row.outcome.verdict, row.outcome.graded) for row in rows] == [
        ("solved", True),
        ("solved", False),
        ("failed", None),
    ]
    told = [row.to_dict() for row in rows]
    assert [
        (row["verdict"], row["solved"], row["solved_at"], row["passed_at"]) for row in told
    ] == [
        ("solved", True, 1, 1),
        ("failed", False, None, 1),
        ("failed", False, None, None),
    ]
    assert [row["passing_but_wrong"] for row in told] == [False, True, False]
    assert [Row.from_dict(row).outcome for row in told] == [row.outcome for row in rows]
    assert solved_by_attempt(rows) == pytest.approx((1 / 3,))
    # An episode knows as much.
    (trajectories,) = result.trajectories.values()
    assert sorted(t.episode.grade is None for t in trajectories) == [False, False, True]
    assert solved_by_attempt(trajectories) == pytest.approx((1 / 3,))
    metrics = result.metrics["coding"]
    assert metrics.accuracy.count == 1
    assert metrics.passing_but_wrong is not None
    assert (metrics.passing_but_wrong.count, metrics.passing_but_wrong.n) == (1, 2)
    assert ungraded.metrics["coding"].accuracy.count == 2


def test_a_task_whose_reference_fails_here_counts_for_nothing_solved_or_not() -> None:
    replies = [fenced(f"def double(x): return {value}") for value in ("2 * x", "3")]
    with coding("assert double(4) == 9") as env:
        result = run_evaluation(env, replies, samples=2, batch_size=1)
    metrics = result.metrics["coding"]
    assert (metrics.invalid_tasks, metrics.accuracy.n) == (2, 0)
    (rows,) = result.rows.values()
    assert all("the reference fails here" in row.detail for row in rows)
    assert [finding.kind for row in rows for finding in row.findings] == ["reference-fails"] * 2
    assert [finding.kind for finding in result.findings["coding"]] == ["reference-fails"]


def test_a_test_that_different_samples_fail_alike_is_told_with_the_results(
    tmp_path: Path,
) -> None:
    replies = [fenced(f"def double(x): return {value}") for value in ("2 * x", "x + x", "x << 1")]
    tests = "assert double(1) == 2\nassert double(4) == 9"  # 8 would be right
    rewards = (CodeExecutionReward(SubprocessCodeExecutor()),)
    problem = Problem(Task("Write double(x).", id="double", tests=tests))
    with SingleTurnEnvironment([problem], rewards=rewards, name="coding") as env:
        result = run_evaluation(env, replies, samples=3, batch_size=1, output_dir=tmp_path)
    (finding,) = result.findings["coding"]
    assert (finding.kind, finding.task, finding.likely) == ("same-failure", "double", True)
    assert "8, where it wants 9" in finding.detail
    assert result.metrics["coding"].accuracy.n == 3  # no figure depends on it
    (told,) = json.loads((tmp_path / "summary.json").read_text())["findings"]["coding"]
    assert told["detail"] == finding.detail


def test_findings_of_an_episode_are_kept_with_its_row(tmp_path: Path) -> None:
    tests = "import nowhere_to_be_found\nassert double(1) == 2"
    rewards = (CodeExecutionReward(SubprocessCodeExecutor()),)
    problem = Problem(Task("Write double(x).", id="double", tests=tests, entry_point="double"))
    code = fenced("def double(x): return 2 * x")
    with SingleTurnEnvironment([problem], rewards=rewards, name="coding") as env:
        first = run_evaluation(env, [code], output_dir=tmp_path)
        later = run_evaluation(env, [], output_dir=tmp_path)
    (finding,) = first.findings["coding"]
    assert finding.kind == "test-error"
    assert later.rows == first.rows
    assert later.findings == first.findings


def test_a_notebook_tells_the_grade_apart_from_the_feedback_and_nothing_of_hidden_tests(
    tmp_path: Path,
) -> None:
    replies = [fenced(f"def double(x):\n    return {value}") for value in ("2 * x", "x + 1", "3")]
    with coding("assert double(4) == 8, 'secret'") as env:
        run_evaluation(env, replies, samples=3, batch_size=1, output_dir=tmp_path)
    files = [tmp_path / "coding" / "episodes" / f"double{n}.ipynb" for n in SAMPLES]
    right, overfitted, wrong = map(notebook.load, files)
    assert right.grade == GradeNote("solved", 2, 2)
    assert overfitted.grade == GradeNote("failed", 1, 2)
    assert wrong.grade is None
    assert overfitted.solved  # which is what the feedback said
    assert outcome_of(overfitted).passing_but_wrong
    pages = [file.read_text(encoding="utf-8") for file in files]
    assert "Grade: failed, 1/2 visible and hidden tests." in pages[1]
    assert "Grade: solved, 2/2 visible and hidden tests." in pages[0]
    assert "Grade:" not in pages[2]
    for page in pages:
        assert not re.search(r"secret|double\(4\)", page)
    output = StringIO()
    show(overfitted, console=Console(file=output, width=200))
    assert "Grade: failed, 1/2 visible and hidden tests." in output.getvalue()
    assert "double(4)" not in output.getvalue()


SAMPLES = ("", "-sample-01", "-sample-02")


def test_a_task_with_hidden_tests_alone_is_judged_by_its_grade(tmp_path: Path) -> None:
    row = {"question": "Write double(x).", "answer": "", "hidden_tests": "assert double(4) == 8"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    env = EnvironmentConfig(name=str(tmp_path / "rows.jsonl"), adapter="huggingface")
    replies = [fenced(f"def double(x): return {value}") for value in ("2 * x", "3")]
    result = run_evaluation(env, replies, samples=2, batch_size=1)
    (rows,) = result.rows.values()
    assert [(row.outcome.verdict, row.outcome.graded) for row in rows] == [
        ("solved", True),
        ("failed", False),
    ]
    metrics = result.metrics["rows"]
    assert (metrics.accuracy.n, metrics.accuracy.count) == (2, 1)
    assert metrics.passing_but_wrong is None  # no feedback had called it solved


@pytest.mark.parametrize(("reference", "invalid"), [("2 * x", 0), ("x", 2)])
def test_the_reference_of_a_task_without_hidden_tests_is_tried_too(
    reference: str, invalid: int
) -> None:
    task = Task(
        "Write double(x).",
        tests="assert double(1) == 2",
        entry_point="double",
        reference=f"def double(x):\n    return {reference}",
    )
    rewards = (CodeExecutionReward(SubprocessCodeExecutor()),)
    replies = [fenced(f"def double(x): return {value}") for value in ("2 * x", "3")]
    with SingleTurnEnvironment([Problem(task)], rewards=rewards, name="coding") as env:
        result = run_evaluation(env, replies, samples=2, batch_size=1)
    metrics = result.metrics["coding"]
    assert (metrics.invalid_tasks, metrics.accuracy.n) == (invalid, 2 - invalid)


SOLUTION = "def double(x):\n    return x"  # not what its tests say


ROWS_THAT_NOBODY_CAN_SOLVE = {
    "a wrong reference": {"test": "assert double(2) == 4"},
    "a wrong reference of a named function": {
        "test": "def check(candidate):\n    assert candidate(2) == 4",
        "entry_point": "double",
    },
    "a wrong reference for check(candidate)": {
        "test": "def check(candidate):\n    assert candidate(2) == 4"
    },
    "a wrong reference under hidden tests": {
        "test": "assert double(0) == 0",
        "hidden_tests": "assert double(2) == 4",
    },
    "no tests": {"test": ""},
    "blank tests": {"test": " \n"},
}


@pytest.mark.parametrize("why", ROWS_THAT_NOBODY_CAN_SOLVE)
def test_a_row_of_a_file_that_cannot_be_judged_is_invalid_before_the_model_is_asked(
    why: str, tmp_path: Path
) -> None:
    row = {"prompt": "Write double(x).", "canonical_solution": SOLUTION}
    row |= ROWS_THAT_NOBODY_CAN_SOLVE[why]
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    env = EnvironmentConfig(
        name=str(tmp_path / "rows.jsonl"),
        adapter="huggingface",
        params={"question_column": "prompt", "answer_column": "canonical_solution"},
    )
    model = ScriptedModel([])
    result = run_evaluation(env, model)
    assert model.requests == []
    metrics = result.metrics["rows"]
    assert (metrics.invalid_tasks, metrics.infra_errors, metrics.accuracy.n) == (1, 0, 0)
    ((told,),) = result.rows.values()
    assert told.detail.startswith(
        "the reference fails here" if "reference" in why else "The task has no tests"
    )


def test_a_reference_is_not_tried_where_programs_run_elsewhere_than_with_the_grader() -> None:
    class Elsewhere:
        """Where data lies, say, that the grader does not have."""

        def execute(
            self, code: str, test_code: str, *, timeout: float = 30.0
        ) -> CodeExecutionResult:
            with SubprocessCodeExecutor() as executor:
                return executor.execute(code, test_code, timeout=timeout)

    task = Task("Write double(x).", tests="assert double(1) == 2", reference=SOLUTION)
    rewards = (CodeExecutionReward(Elsewhere()),)
    with SingleTurnEnvironment([Problem(task)], rewards=rewards, name="coding") as env:
        result = run_evaluation(env, [fenced("def double(x): return 2 * x")])
    metrics = result.metrics["coding"]
    assert (metrics.invalid_tasks, metrics.accuracy.count) == (0, 1)


def test_a_task_without_tests_is_valid_where_something_else_judges_it() -> None:
    rewards = (CodeExecutionReward(SubprocessCodeExecutor()), AnswerReward())
    problem = Problem(Task("2 + 2?", id="sum"), expected_answer="4")
    with SingleTurnEnvironment([problem], rewards=rewards, name="mixed") as env:
        result = run_evaluation(env, ["4"])
    assert (result.metrics["mixed"].invalid_tasks, result.metrics["mixed"].accuracy.count) == (0, 1)


def test_a_reference_that_is_no_program_is_not_tried() -> None:
    task = Task("Set x to 4.", tests="assert x == 4", reference="4")
    rewards = (CodeExecutionReward(SubprocessCodeExecutor()),)
    with SingleTurnEnvironment([Problem(task)], rewards=rewards, name="coding") as env:
        result = run_evaluation(env, [fenced("x = 4"), fenced("x = 5")], samples=2, batch_size=1)
    assert (result.metrics["coding"].invalid_tasks, result.metrics["coding"].accuracy.count) == (
        0,
        1,
    )
