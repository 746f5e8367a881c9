"""Evaluations of several environments, as a configuration names them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbrefine import notebook
from nbrefine.config import EnvironmentConfig, EvalConfig
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.errors import UsageError
from nbrefine.evaluation import (
    EvaluationResult,
    Row,
    run_evaluation,
    run_multi_evaluation,
)
from nbrefine.evaluation.running import _names
from nbrefine.rewards.judge import JudgeReward
from nbrefine.runner import derived_seed
from nbrefine.values import Message, Reply, Task, Usage
from tests.evaluation.sums import ANSWERS, fenced, right, told


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
