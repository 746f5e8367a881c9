"""An evaluation keeps results as they come, and goes on from them."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nbrefine import notebook
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.errors import ModelUnavailableError, NbrefineError, RecordError, UsageError
from nbrefine.evaluation import (
    arun_evaluation,
    run_evaluation,
)
from nbrefine.evaluation.episodes import TOO_MANY
from nbrefine.models.scripted import ScriptedModel
from nbrefine.rewards.format import AnswerReward
from nbrefine.state import Action, State
from nbrefine.values import Message, RewardType, Sampling, Signal, Task
from tests.evaluation.sums import ANSWERS, asked, right, sums, told, wrong_at_first


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
