"""An evaluation runs every task and sample, side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nbrefine.config import EnvironmentConfig
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.errors import UsageError
from nbrefine.evaluation import (
    run_evaluation,
)
from nbrefine.models.local import LocalModel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.rewards.format import AnswerReward
from nbrefine.runner import TrajectoryRunner, derived_seed
from nbrefine.values import Message, Sampling, Task
from tests.evaluation.sums import asked, right, sums, told, wrong_at_first


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


class InPairs:
    """Answers only where two ask at once, and counts how many do."""

    def __init__(self) -> None:
        self.most = 0
        self._running: list[int] = []
        self._at_once = threading.Barrier(2, timeout=60)

    async def __call__(self, messages: Sequence[Message]) -> str:
        self._running.append(1)
        self.most = max(self.most, len(self._running))
        await asyncio.to_thread(self._at_once.wait)
        self._running.pop()
        return right(messages)

    def begin_anew(self) -> None:
        self.most = 0
        self._running.clear()


def test_not_more_episodes_than_the_batch_run_at_once_and_as_many_do() -> None:
    answer = InPairs()
    run_evaluation(sums(), answer, samples=2, batch_size=2)
    assert answer.most == 2


def test_two_episodes_are_enough_for_a_model_that_answers_one_call_at_a_time() -> None:
    answer = InPairs()
    model = ScriptedModel(answer)
    model.one_at_a_time = LocalModel.one_at_a_time  # type: ignore[attr-defined]
    run_evaluation(sums(), model, samples=2, batch_size=6)
    assert answer.most == 2
    answer.begin_anew()
    TrajectoryRunner(sums(), model).run_batch([0, 1, 2, 0, 1, 2], 6)
    assert answer.most == 2


def test_progress_is_told_up_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    run_evaluation(
        sums(), right, samples=2, batch_size=1, progress_callback=lambda *at: seen.append(at)
    )
    assert seen == [(done, 6) for done in range(7)]


def test_an_environment_without_tasks_is_refused() -> None:
    with pytest.raises(UsageError, match="single_turn has no tasks"):
        run_evaluation(SingleTurnEnvironment([]), right)


@pytest.mark.parametrize("settings", [{"samples": 0}, {"limit": 0}, {"batch_size": 0}])
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="but 1 is the least"):
        run_evaluation(sums(), right, **settings)
