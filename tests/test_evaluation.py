"""An evaluation runs every task and sample, keeps results as they come, and goes on from them."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

from nbrefine import notebook
from nbrefine.config import EnvironmentConfig, EvalConfig
from nbrefine.env.iterative import IterativeEnvironment
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.errors import ModelUnavailableError, NbrefineError, RecordError, UsageError
from nbrefine.evaluation import (
    EvaluationResult,
    Row,
    arun_evaluation,
    run_evaluation,
    run_multi_evaluation,
)
from nbrefine.evaluation.episodes import TOO_MANY
from nbrefine.evaluation.running import _names
from nbrefine.executors import CodeExecutionResult, SubprocessCodeExecutor
from nbrefine.metrics import outcome_of, solved_by_attempt
from nbrefine.models.local import LocalModel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.format import AnswerReward
from nbrefine.rewards.judge import JudgeReward
from nbrefine.runner import TrajectoryRunner, derived_seed
from nbrefine.state import Action, State
from nbrefine.values import GradeNote, Message, Reply, RewardType, Sampling, Signal, Task, Usage
from nbrefine.views.terminal import show

ANSWERS = {"one and one?": "2", "two and two?": "4", "three and three?": "6"}


def sums(max_turns: int = 2) -> IterativeEnvironment:
    problems = [
        Problem(Task(question, id=f"sum-{answer}"), expected_answer=answer)
        for question, answer in ANSWERS.items()
    ]
    inner = SingleTurnEnvironment(problems, rewards=(AnswerReward(),), name="sums")
    return IterativeEnvironment(inner, max_turns=max_turns, submit_keyword=None)


def asked(messages: Sequence[Message]) -> str:
    return next(q for q in ANSWERS if any(q in message.content for message in messages))


def right(messages: Sequence[Message]) -> str:
    return ANSWERS[asked(messages)]


def wrong_at_first(messages: Sequence[Message]) -> str:
    return right(messages) if messages[-1].content != asked(messages) else "0"


def told(result: EvaluationResult) -> list[tuple[int, int, str, int]]:
    (rows,) = result.rows.values()
    return [(r.task_index, r.sample, r.outcome.verdict, r.outcome.turns) for r in rows]


def test_every_task_and_sample_is_run_once() -> None:
    result = run_evaluation(sums(), wrong_at_first, samples=2, batch_size=4)
    assert told(result) == [(task, n, "solved", 2) for task in range(3) for n in range(2)]
    metrics = result.metrics["sums_iterative"]
    assert (metrics.accuracy.n, metrics.accuracy.tasks, metrics.accuracy.mean) == (6, 3, 1.0)
    assert metrics.solved_by_attempt == (0.0, 1.0)
    assert result.complete
    (trajectories,) = result.trajectories.values()
    assert len(trajectories) == 6


def test_a_row_names_its_task_by_its_index_where_it_has_no_id(tmp_path: Path) -> None:
    lines = ['{"question": "2 + 2?", "answer": "4"}', '{"question": "1 + 1?", "answer": "2"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    env = EnvironmentConfig(
        name=str(tmp_path / "rows.jsonl"), adapter="huggingface", answer_extractor="raw"
    )
    (rows,) = run_evaluation(env, ["4", "2"], batch_size=1).rows.values()
    assert [row.task for row in rows] == ["rows/0", "rows/1"]
    (named,) = run_evaluation(sums(), ["2"], limit=1).rows.values()
    assert [row.task for row in named] == ["sum-2"]


def test_what_is_asked_for_is_a_limit_and_one_name() -> None:
    result = run_evaluation(sums(), right, limit=2, name="mine")
    assert list(result.metrics) == ["mine"]
    assert told(result) == [(0, 0, "solved", 1), (1, 0, "solved", 1)]


def test_an_environment_of_unknown_length_needs_a_limit() -> None:
    class Endless:
        def __getitem__(self, index: int) -> Problem:
            return Problem(Task("one and one?"), expected_answer="2")

    env = SingleTurnEnvironment(Endless(), rewards=(AnswerReward(),))
    with pytest.raises(UsageError, match="does not know how many tasks it has"):
        run_evaluation(env, right)
    assert len(told(run_evaluation(env, right, limit=5))) == 5


class Watching(ScriptedModel):
    """Keeps the sampling of every call."""

    def __init__(self, answer: Callable[[Sequence[Message]], str]) -> None:
        super().__init__(answer)
        self.drawn: list[tuple[str, Sampling]] = []

    def complete(self, messages: Any, *, sampling: Sampling = Sampling(), **kw: Any) -> Any:
        self.drawn.append((asked(messages), sampling))
        return super().complete(messages, sampling=sampling, **kw)


def test_the_number_of_the_sample_enters_every_seed() -> None:
    model = Watching(right)
    heat = Sampling(temperature=0.8)
    result = run_evaluation(sums(), model, samples=3, seed=7, sampling_params=heat)
    seeds = [sampling.seed for _, sampling in model.drawn]
    assert len(set(seeds)) == 9
    assert {sampling.temperature for _, sampling in model.drawn} == {0.8}
    (rows,) = result.rows.values()
    assert [row.seed for row in rows] == [
        derived_seed(7, task, n) for task in range(3) for n in range(3)
    ]
    again = Watching(right)
    run_evaluation(sums(), again, samples=3, seed=7, sampling_params=heat)
    assert sorted(str(drawn) for drawn in again.drawn) == sorted(
        str(drawn) for drawn in model.drawn
    )


def test_not_more_episodes_than_the_batch_run_at_once_and_as_many_do() -> None:
    at_once = threading.Barrier(2, timeout=60)
    running: list[int] = []
    most = 0

    async def answer(messages: Sequence[Message]) -> str:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await asyncio.to_thread(at_once.wait)  # passes only where two are there
        running.pop()
        return right(messages)

    run_evaluation(sums(), answer, samples=2, batch_size=2)
    assert most == 2


def test_two_episodes_are_enough_for_a_model_that_answers_one_call_at_a_time() -> None:
    at_once = threading.Barrier(2, timeout=60)
    running: list[int] = []
    most = 0

    async def answer(messages: Sequence[Message]) -> str:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        await asyncio.to_thread(at_once.wait)  # passes only where two are there
        running.pop()
        return right(messages)

    model = ScriptedModel(answer)
    model.one_at_a_time = LocalModel.one_at_a_time  # type: ignore[attr-defined]
    run_evaluation(sums(), model, samples=2, batch_size=6)
    assert most == 2
    running.clear()
    most = 0
    TrajectoryRunner(sums(), model).run_batch([0, 1, 2, 0, 1, 2], 6)
    assert most == 2


def test_progress_is_told_up_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    run_evaluation(
        sums(), right, samples=2, batch_size=1, progress_callback=lambda *at: seen.append(at)
    )
    assert seen == [(done, 6) for done in range(7)]


def test_results_are_kept_as_they_come_and_episodes_as_notebooks(tmp_path: Path) -> None:
    kept: list[int] = []

    def look(done: int, total: int) -> None:
        lines = (tmp_path / "sums_iterative" / "results.jsonl").read_text().splitlines()
        kept.append(len(lines) - 1)

    result = run_evaluation(
        sums(), wrong_at_first, batch_size=1, output_dir=tmp_path, progress_callback=look
    )
    assert kept == [0, 1, 2, 3]
    (rows,) = result.rows.values()
    for row in rows:
        episode = notebook.load(tmp_path / "sums_iterative" / row.notebook)
        assert episode.task.id == row.task
        assert [turn.verdict for turn in episode.turns] == ["failed", "solved"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["metrics"]["sums_iterative"]["accuracy"]["mean"] == 1.0
    assert len(summary["results"]["sums_iterative"]) == 3


def test_notebooks_are_named_by_task_and_sample_no_two_alike(tmp_path: Path) -> None:
    ids = ("HumanEval/0", "a", "A", "a-sample-01", "", "../é/", "x" * 300, "x" * 300)
    problems = [Problem(Task("?", id=name), expected_answer="2") for name in ids]

    def names(samples: int, **settings: Any) -> dict[int, list[str]]:
        with SingleTurnEnvironment(problems, rewards=(AnswerReward(),), name="sums") as env:
            result = run_evaluation(
                env, lambda _: "2", samples=samples, output_dir=tmp_path, **settings
            )
        told: dict[int, list[str]] = {}
        for row in result.rows["sums"]:
            told.setdefault(row.task_index, []).append(row.notebook.removeprefix("episodes/"))
            assert notebook.load(tmp_path / "sums" / row.notebook).task.id == ids[row.task_index]
        return told

    first = names(1, batch_size=1)
    assert first == {
        0: ["HumanEval-0.ipynb"],
        1: ["a.ipynb"],
        2: ["A-0002.ipynb"],
        3: ["a-sample-01-0003.ipynb"],
        4: ["task-0004.ipynb"],
        5: ["é.ipynb"],
        6: [f"{'x' * 100}.ipynb"],
        7: [f"{'x' * 100}-0007.ipynb"],
    }
    second = names(2)  # goes on with the names there are
    assert {task: told[:1] for task, told in second.items()} == first
    assert second[0][1] == "HumanEval-0-sample-01.ipynb"
    assert second[2][1] == "A-0002-sample-01.ipynb"
    assert len({name.casefold() for told in second.values() for name in told}) == 16


def test_without_details_there_are_rows_and_no_notebooks(tmp_path: Path) -> None:
    result = run_evaluation(sums(), right, output_dir=tmp_path, save_detailed_results=False)
    assert not list(tmp_path.rglob("*.ipynb"))
    assert {row.notebook for rows in result.rows.values() for row in rows} == {""}


class Failing(ScriptedModel):
    """Is out of order for some questions."""

    def __init__(self, *broken: str) -> None:
        super().__init__(right)
        self.broken = broken

    def complete(self, messages: Any, **settings: Any) -> Any:
        if asked(messages) in self.broken:
            raise ModelUnavailableError("The server is gone")
        return super().complete(messages, **settings)


def test_a_second_run_keeps_what_is_good_and_does_again_what_ended_in_trouble(
    tmp_path: Path,
) -> None:
    first = run_evaluation(sums(), Failing("two and two?"), output_dir=tmp_path)
    assert told(first) == [(0, 0, "solved", 1), (1, 0, "infra-error", 0), (2, 0, "solved", 1)]
    assert first.errored == 1
    metrics = first.metrics["sums_iterative"]
    assert (metrics.accuracy.n, metrics.accuracy.mean, metrics.infra_errors) == (2, 1.0, 1)
    mended = Failing()
    second = run_evaluation(sums(), mended, output_dir=tmp_path)
    assert [asked(messages) for messages in mended.requests] == ["two and two?"]
    assert told(second) == [(task, 0, "solved", 1) for task in range(3)]
    assert second.errored == 0
    (trajectories,) = second.trajectories.values()
    assert len(trajectories) == 1


def test_more_tasks_and_samples_may_be_asked_for_later(tmp_path: Path) -> None:
    run_evaluation(sums(), right, limit=1, output_dir=tmp_path)
    model = ScriptedModel(right)
    result = run_evaluation(sums(), model, samples=2, output_dir=tmp_path)
    assert len(model.requests) == 5
    assert len(told(result)) == 6


def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    run_evaluation(sums(), right, limit=1, output_dir=tmp_path)
    with pytest.raises(UsageError, match=r"sampling\.temperature was 0\.0 and is 0\.5"):
        run_evaluation(
            sums(), right, output_dir=tmp_path, sampling_params=Sampling(temperature=0.5)
        )
    with pytest.raises(UsageError, match="model was 'scripted' and is 'other'"):
        run_evaluation(sums(), ScriptedModel(right, name="other"), output_dir=tmp_path)
    with pytest.raises(UsageError, match=r"environment\.max_steps was 2 and is 3"):
        run_evaluation(sums(3), right, output_dir=tmp_path)


def test_a_line_that_a_kill_has_torn_is_done_again(tmp_path: Path) -> None:
    run_evaluation(sums(), right, output_dir=tmp_path, batch_size=1)
    path = tmp_path / "sums_iterative" / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    model = ScriptedModel(right)
    result = run_evaluation(sums(), model, output_dir=tmp_path)
    assert len(model.requests) == 1
    assert told(result) == [(task, 0, "solved", 1) for task in range(3)]
    assert len(path.read_bytes().splitlines()) == len(whole.splitlines())


def test_a_file_that_is_something_else_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sums_iterative" / "results.jsonl"
    path.parent.mkdir()
    path.write_text("mine\n")
    with pytest.raises(RecordError, match=r"Line 1 of .* is no result of nbrefine"):
        run_evaluation(sums(), right, output_dir=tmp_path)
    assert path.read_text() == "mine\n"


def test_two_evaluations_do_not_write_into_one_folder(tmp_path: Path) -> None:
    told_off: list[str] = []

    def other(done: int, total: int) -> None:
        with pytest.raises(UsageError) as caught:
            run_evaluation(sums(), right, output_dir=tmp_path)
        told_off.append(str(caught.value))

    run_evaluation(sums(), right, limit=1, output_dir=tmp_path, progress_callback=other)
    assert told_off
    assert "Another evaluation writes into" in told_off[0]
    run_evaluation(sums(), right, output_dir=tmp_path)


def test_a_mistake_of_the_caller_ends_it_at_once_and_keeps_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has given all its replies"):
        run_evaluation(sums(), ["2", "4"], batch_size=1, output_dir=tmp_path)
    lines = (tmp_path / "sums_iterative" / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["verdict"] for line in lines[1:]] == ["solved", "solved"]


def test_what_no_text_can_hold_and_no_number_is_can_be_kept(tmp_path: Path) -> None:
    class Odd:
        name, reward_type = "odd", RewardType.OUTCOME

        def compute(self, state: State, action: Action, next_state: State) -> Signal:
            if action.text == "4":
                raise ValueError("half a pair: \ud800")
            return Signal(self.name, self.reward_type, math.nan)

    env = SingleTurnEnvironment([Problem(Task(q)) for q in ANSWERS], rewards=(Odd(),))
    first = run_evaluation(env, right, output_dir=tmp_path)
    again = run_evaluation(env, right, output_dir=tmp_path)
    for result in (first, again):
        (rows,) = result.rows.values()
        assert math.isnan(rows[0].outcome.reward)
        assert "half a pair: \ufffd" in rows[1].detail

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    kept = (tmp_path / "single_turn" / "results.jsonl").read_text().splitlines()
    for text in ((tmp_path / "summary.json").read_text(), *kept):
        json.loads(text, parse_constant=refuse)


def test_trouble_that_does_not_end_ends_it(tmp_path: Path) -> None:
    model = Failing(*ANSWERS)
    with pytest.raises(NbrefineError, match=f"{TOO_MANY} episodes in a row ended in trouble") as e:
        run_evaluation(sums(), model, samples=20, batch_size=1, output_dir=tmp_path)
    assert "The server is gone" in str(e.value)
    lines = (tmp_path / "sums_iterative" / "results.jsonl").read_text().splitlines()
    assert len(lines) == 1 + TOO_MANY


def test_a_reward_that_breaks_is_trouble_and_no_failure_of_the_model() -> None:
    class Broken:
        name, reward_type = "broken", RewardType.OUTCOME

        def compute(self, state: State, action: Action, next_state: State) -> Signal:
            if action.text == "4":
                raise ZeroDivisionError("a fault")
            return Signal(self.name, self.reward_type, 1.0)

    problems = [Problem(Task(question)) for question in ANSWERS]
    env = SingleTurnEnvironment(problems, rewards=(Broken(),))
    result = run_evaluation(env, right)
    verdicts = ["solved", "infra-error", "solved"]
    assert told(result) == [(task, 0, verdict, 1) for task, verdict in enumerate(verdicts)]
    assert result.metrics["single_turn"].accuracy.n == 2  # the reply is kept and counts as none
    (rows,) = result.rows.values()
    assert "a fault" in rows[1].detail


def test_a_model_that_cannot_be_reached_is_told_before_anything_begins(tmp_path: Path) -> None:
    class Gone(ScriptedModel):
        async def check(self) -> None:
            raise ModelUnavailableError("No server")

    with pytest.raises(ModelUnavailableError):
        run_evaluation(sums(), Gone(right), output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_stopped_it_gives_what_there_is_and_goes_on_later(tmp_path: Path) -> None:
    waiting = threading.Event()

    async def answer(messages: Sequence[Message]) -> str:
        if asked(messages) == "three and three?":
            waiting.set()
            await asyncio.Event().wait()
        return right(messages)

    running = arun_evaluation(sums(), answer, batch_size=1, output_dir=tmp_path)
    assert waiting.wait(60)
    assert len(told(running.result_so_far)) == 2
    running.stop()
    result = running.result(60)
    assert told(result) == [(0, 0, "solved", 1), (1, 0, "solved", 1)]
    assert not result.complete
    assert json.loads((tmp_path / "summary.json").read_text())["complete"] is False
    model = ScriptedModel(right)
    assert run_evaluation(sums(), model, output_dir=tmp_path).complete
    assert [asked(messages) for messages in model.requests] == ["three and three?"]


def coding(hidden_tests: str) -> SingleTurnEnvironment:
    task = Task(
        "Write double(x).",
        id="double",
        tests="assert double(1) == 2",
        hidden_tests=hidden_tests,
        reference="def double(x):\n    return 2 * x",
    )
    rewards = (CodeExecutionReward(SubprocessCodeExecutor()),)
    return SingleTurnEnvironment([Problem(task)], rewards=rewards, name="coding")


def fenced(code: str) -> str:
    return f"Here it is:\n```python\n{code}\n```"


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


def config(folder: Path, **keys: Any) -> EvalConfig:
    """Two environments of the same sums, which a script answers."""
    rows = [{"question": question, "answer": answer} for question, answer in ANSWERS.items()]
    (folder / "sums.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "replies.json").write_text(json.dumps(2 * list(ANSWERS.values())))
    environment = {
        "name": str(folder / "sums.jsonl"),
        "adapter": "huggingface",
        "iterative": {"submit_keyword": None},
    }
    return EvalConfig.from_dict(
        {
            "environments": [environment, environment],
            "model": f"scripted:{folder / 'replies.json'}",
            "output_dir": str(folder / "out"),
            "batch_size": 1,
            **keys,
        }
    )


def test_all_environments_of_a_configuration_are_run(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    result = run_multi_evaluation(config(tmp_path), progress_callback=lambda *at: seen.append(at))
    assert list(result.metrics) == ["sums", "sums-2"]
    assert [metrics.accuracy.mean for metrics in result.metrics.values()] == [1.0, 1.0]
    assert (result.accuracy.environments, result.accuracy.mean) == (2, 1.0)
    assert seen[-1] == (6, 6)
    assert (tmp_path / "out" / "sums-2" / "results.jsonl").exists()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["complete"] is True


def test_nothing_is_left_running_or_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [{"prompt": question, "test_code": "assert answer"} for question in ANSWERS]
    environment = {"name": "sums", "adapter": "iterative", "params": {"tasks": tasks}}
    coding = {"environments": [environment, environment], "model": "scripted:programs.json"}
    (tmp_path / "programs.json").write_text(json.dumps([fenced("answer = 1")] * 4))
    monkeypatch.chdir(tmp_path)
    me = psutil.Process()
    run_multi_evaluation(config(tmp_path, limit=1))  # opens what stays for good
    before = ({child.pid for child in me.children(recursive=True)}, me.num_fds())
    result = run_multi_evaluation(EvalConfig.from_dict({**coding, "limit": 2}))
    assert [metrics.accuracy.count for metrics in result.metrics.values()] == [2, 2]
    # What earlier tests had begun may end meanwhile.
    assert {child.pid for child in me.children(recursive=True)} <= before[0]
    assert me.num_fds() <= before[1]


def sent(folder: Path, result: EvaluationResult) -> tuple[Message, ...]:
    """Give the first prompt of a result's first episode."""
    notebooks = [row.notebook for row in result.rows["sums"]]
    return notebook.load(folder / "out" / "sums" / notebooks[0]).turns[0].messages


def test_every_key_of_how_it_is_run_takes_effect(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "limit": 1,
        "samples": 2,
        "system_prompt": "You add.",
        "turn_info": {"state_prefix": "<{turn}> "},
        "inference": {"temperature": 0.5, "top_p": 0.9, "max_tokens": 77, "seed": 5},
    }
    asked_for = config(tmp_path, **settings)
    (tmp_path / "replies.json").write_text(json.dumps(["2"] * 4))
    result = run_multi_evaluation(asked_for)
    assert [len(rows) for rows in result.rows.values()] == [2, 2]
    assert [row.seed for row in result.rows["sums"]] == [derived_seed(5, 0, n) for n in range(2)]
    system, first = sent(tmp_path, result)
    assert system == Message("system", "You add.")
    assert first.content.startswith("<1> one and one?")
    reply = result.trajectories["sums"][0].episode.turns[0].reply
    assert reply is not None
    drawn = reply.sampling
    assert (drawn.temperature, drawn.top_p, drawn.max_tokens) == (0.5, 0.9, 77)


def test_turn_info_true_takes_the_usual_texts(tmp_path: Path) -> None:
    result = run_multi_evaluation(config(tmp_path, turn_info=True))
    assert "[Turn 1/3]" in sent(tmp_path, result)[-1].content


def test_a_template_for_all_asks_the_task(tmp_path: Path) -> None:
    result = run_multi_evaluation(config(tmp_path, prompt_template="Q: {task} A:"))
    assert sent(tmp_path, result)[-1].content == "Q: one and one? A:"


def test_a_judge_for_all_is_that_of_environments_without_one(tmp_path: Path) -> None:
    (tmp_path / "judge.json").write_text(json.dumps(["Good. [[9]]"] * 3))
    judge = {"model": f"scripted:{tmp_path / 'judge.json'}", "name": "critic"}
    result = run_multi_evaluation(config(tmp_path, judge=judge))
    for trajectories in result.trajectories.values():
        for trajectory in trajectories:
            signals = trajectory.episode.turns[0].signals
            assert [signal.name for signal in signals] == ["correctness", "critic"]


def test_tokens_of_judges_are_counted_beside_the_solver_s(tmp_path: Path) -> None:
    replies = [Reply("a", usage=Usage(5, 2)), Reply("b", usage=Usage(6, 3))]

    def evaluated() -> EvaluationResult:
        judge = JudgeReward([Reply("[[3]]", usage=Usage(11, 4))] * 2, "helpfulness")
        with SingleTurnEnvironment([Problem(Task("t"))], rewards=[judge], name="judged") as env:
            return run_evaluation(env, replies, samples=2, output_dir=tmp_path)

    for result in (evaluated(), evaluated()):  # the second reads what the first has kept
        metrics = result.metrics["judged"]
        assert (metrics.usage, metrics.helper_usage) == (Usage(11, 5), Usage(22, 8))
        told = result.to_dict()["metrics"]["judged"]
        assert told["helper_usage"]["input_tokens"] == 22
    row = result.rows["judged"][0].to_dict()
    assert (row.pop("helper_input_tokens"), row.pop("helper_output_tokens")) == (11, 4)
    assert Row.from_dict(row).outcome.helper_usage == Usage()  # as rows were before


def test_a_mistake_in_the_last_environment_is_told_before_the_first_runs(tmp_path: Path) -> None:
    given = config(tmp_path).to_dict()
    given["environments"][1]["params"] = {"question_column": "asked"}
    with pytest.raises(UsageError):
        run_multi_evaluation(EvalConfig.from_dict(given))
    assert not (tmp_path / "out").exists()


def test_results_of_other_settings_in_the_last_are_told_before_the_first_runs(
    tmp_path: Path,
) -> None:
    given = config(tmp_path).to_dict()
    run_multi_evaluation(EvalConfig.from_dict({**given, "limit": 1}))
    (tmp_path / "out" / "sums" / "results.jsonl").unlink()
    given["environments"][1]["iterative"]["max_turns"] = 7
    asked: list[tuple[int, int]] = []
    with pytest.raises(UsageError, match=r"max_turns was left out and is 7"):
        run_multi_evaluation(
            EvalConfig.from_dict(given), progress_callback=lambda *at: asked.append(at)
        )
    assert asked == []


def test_every_environment_has_a_name_that_makes_a_folder_of_its_own() -> None:
    given = ("a", "a", "a-2", "A", "b/c", "b--c", "data/b.jsonl", "b")
    names = list(_names([EnvironmentConfig(name=name) for name in given]))
    assert names == ["a", "a-2", "a-2-2", "A-3", "b/c", "b--c-2", "b", "b-2"]


def test_rows_of_another_file_or_changed_ones_are_not_mixed_and_moved_ones_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, **params: Any) -> EvaluationResult:
        env = EnvironmentConfig(name=name, adapter="huggingface", params=params)
        return run_evaluation(env, right, output_dir=tmp_path / "out")

    monkeypatch.chdir(tmp_path)
    row = {"question": "one and one?", "answer": "2"}
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "sums.jsonl").write_text(json.dumps(row))
    assert len(told(run("a/sums.jsonl"))) == 1
    run("b/sums.jsonl")  # the very same rows
    monkeypatch.chdir("b")
    run("sums.jsonl")
    Path("sums.jsonl").write_text(json.dumps({**row, "answer": "3"}))
    with pytest.raises(UsageError, match=r"environment\.data was '\w{16}' and is '\w{16}'"):
        run("sums.jsonl")


def test_episodes_on_live_kernels_have_one_each(tmp_path: Path) -> None:
    rows = [
        {"question": q, "answer": "", "test": f"assert answer == {a}"} for q, a in ANSWERS.items()
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    cells = EnvironmentConfig(name=str(tmp_path / "rows.jsonl"), adapter="notebook")
    both = threading.Barrier(2, timeout=60)

    async def answer(messages: Sequence[Message]) -> str:
        await asyncio.to_thread(both.wait)  # passes only where two episodes run at once
        return fenced(f"answer = {right(messages)}")

    result = run_evaluation(cells, answer, limit=2, batch_size=2, output_dir=tmp_path)
    assert result.metrics["rows"].accuracy.mean == 1.0
    (trajectories,) = result.trajectories.values()
    assert len({trajectory.episode.kernel.pid for trajectory in trajectories}) == 2
    assert {path.name for path in (tmp_path / "rows" / "episodes").glob("*.ipynb")} == {
        "task-0000.ipynb",
        "task-0001.ipynb",
    }


def test_an_environment_without_tasks_is_refused() -> None:
    with pytest.raises(UsageError, match="single_turn has no tasks"):
        run_evaluation(SingleTurnEnvironment([]), right)


@pytest.mark.parametrize("settings", [{"samples": 0}, {"limit": 0}, {"batch_size": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="but 1 is the least"):
        run_evaluation(sums(), right, **settings)


def test_a_result_is_saved_with_its_rows_or_without(tmp_path: Path) -> None:
    result = run_evaluation(sums(), right)
    result.save(tmp_path / "all.json")
    result.save(tmp_path / "figures.json", include_results=False)
    whole = json.loads((tmp_path / "all.json").read_text())
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [row["solved"] for row in whole["results"]["sums_iterative"]] == [True] * 3
    assert "results" not in figures
    assert figures["metrics"] == whole["metrics"]
    with pytest.raises(RecordError):
        result.save(tmp_path / "no" / "folder.json")
