"""Every key of a configuration takes effect in what is built of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nbrefine._portal import Run
from nbrefine.config import (
    BackendFactory,
    ContainerConfig,
    EnvironmentConfig,
    EnvironmentFactory,
    ModelConfig,
)
from nbrefine.config.backends import Throttled
from nbrefine.env.base import Environment
from nbrefine.env.iterative import IterativeEnvironment
from nbrefine.env.notebook import NotebookEnvironment
from nbrefine.env.reasoning import ReasoningGymEnvironment
from nbrefine.errors import NbrefineError, UsageError
from nbrefine.executors import ContainerCodeExecutor
from nbrefine.kernel.processes.runtime import _sweep
from nbrefine.models.openai import OpenAIModel
from nbrefine.models.recorded import RecordedModel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import load
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.judge import JudgeReward
from nbrefine.state import Action, State, StepResult
from nbrefine.values import Message, Reply, RewardType
from tests.conftest import ROOT

WORDS = ["nought", "one", "two", "three", "four", "five"]


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def numbers() -> str:
    """A file of six questions without tests."""
    rows = [{"question": f"Write {n} as a word.", "answer": word} for n, word in enumerate(WORDS)]
    return lines("numbers.jsonl", rows)


@pytest.fixture
def doubles() -> str:
    """A file of one question with tests."""
    test = "assert double(2) == 4\nassert double('a') == 'aa'"
    row = {"question": "Write double(x).", "answer": "", "test": test, "hint": "Multiply."}
    return lines("doubles.jsonl", [row])


def lines(name: str, rows: list[dict[str, Any]]) -> str:
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return name


def script(name: str, *replies: str) -> dict[str, Any]:
    Path(name).write_text(json.dumps(replies))
    return {"backend": "scripted", "model": name}


def made(name: str, adapter: str = "huggingface", **keys: Any) -> Environment:
    return EnvironmentFactory.create(
        EnvironmentConfig.model_validate({"name": name, "adapter": adapter, **keys})
    )


def prompts(env: Environment) -> list[str]:
    return [env.reset(options={"task_index": at})[0].observation.prompt for at in range(len(env))]


def stepped(env: Environment, *texts: str, state: State | None = None) -> list[StepResult]:
    results = []
    state = state or env.reset(seed=0)[0]
    for text in texts:
        results.append(env.step(state, Action.from_text(text)))
        state = results[-1].next_state
    return results


def fenced(code: str) -> str:
    return f"Here it is.\n```python\n{code}\n```"


def test_a_name_size_and_columns_give_the_tasks(doubles: str, numbers: str) -> None:
    assert prompts(made(numbers, size=2)) == ["Write 0 as a word.", "Write 1 as a word."]
    assert prompts(made(doubles, params={"question_column": "hint", "test_column": ""})) == [
        "Multiply."
    ]


def test_a_seed_draws_the_tasks(numbers: str) -> None:
    first, again, other = (prompts(made(numbers, size=4, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first)) == 4


def test_answers_are_extracted_as_asked_for(numbers: str) -> None:
    tagged = made(
        numbers, answer_extractor="tag_based", answer_extractor_config={"tag_name": "word"}
    )
    (result,) = stepped(tagged, "I say <word>nought</word>.")
    assert result.info["solved"]
    (result,) = stepped(made(numbers), "I say <word>nought</word>.")
    assert not result.info["solved"]


def test_puzzles_have_their_size_seed_and_settings() -> None:
    params = {"min_terms": 4, "max_terms": 4}
    with made("chain_sum", "reasoning_gym", size=2, seed=7, params=params) as env:
        assert isinstance(env, ReasoningGymEnvironment)
        assert len(env) == 2
        tasks = [env.problems[at].task for at in range(2)]
    assert [task.id for task in tasks] == ["chain_sum/7/0", "chain_sum/7/1"]
    for task in tasks:
        term = task.prompt.split("problem: ")[1].removesuffix(" =")
        assert len(re.split(r" [+-] ", term)) == 4


def test_listed_tasks_are_a_loop_with_their_tests_or_answers() -> None:
    tasks = [
        {"prompt": "Write one().", "test_code": "assert one() == 1"},
        {"prompt": "Say two.", "ground_truth": "two"},
    ]
    env = made("mine", adapter="iterative", params={"tasks": tasks}, size=1, iterative={})
    assert isinstance(env, IterativeEnvironment)
    assert prompts(made("mine", adapter="iterative", params={"tasks": tasks}))[1] == "Say two."
    assert len(env) == 1
    (tests,) = env.reward_functions
    assert isinstance(tests, CodeExecutionReward)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"params": {"tasks": [{"prompt": 3}]}}, "Task 1 of params.tasks has no prompt"),
        (
            {"params": {"tasks": [{"prompt": "x", "tests": "y"}]}},
            'Task 1 of params.tasks has the unknown key "tests". Allowed: prompt, ground_truth',
        ),
        ({"params": {"tasks": [{"prompt": "x", "test_code": 1}]}}, "test_code of Task 1 of"),
        ({"params": {}}, "takes its tasks from params.tasks"),
        ({"params": {"tasks": [{"prompt": "x"}]}, "seed": 1}, "seed does nothing"),
        (
            {"params": {"tasks": [{"prompt": "x"}]}, "answer_extractor": "boxed"},
            "answer_extractor does nothing",
        ),
    ],
)
def test_a_wrong_list_of_tasks_is_told(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        made("mine", adapter="iterative", **keys)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"spli": "test"}, 'unknown key "spli" in the params of numbers.jsonl. Allowed: split,'),
        ({"seed": 3}, '"seed" stands in the params of numbers.jsonl. Write it beside params'),
        ({"rewards": []}, 'unknown key "rewards"'),
    ],
)
def test_wrong_params_are_told(numbers: str, params: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        made(numbers, params=params)
    assert said in str(caught.value)


def test_max_turns_is_where_a_loop_is_cut(numbers: str) -> None:
    results = stepped(made(numbers, iterative={"max_turns": 2}), "no", "no")
    assert [(r.terminated, r.truncated) for r in results] == [(False, False), (False, True)]
    assert made(numbers, iterative={}).spec.max_steps == 3


def test_history_is_told_or_not(numbers: str) -> None:
    for told in (True, False):
        env = made(numbers, iterative={"include_history": told})
        *_, second = stepped(env, "MY FIRST", "MY SECOND")
        assert ("MY FIRST" in second.next_state.observation.prompt) is told


def test_history_is_summed_up_by_the_environment_s_own_model(numbers: str) -> None:
    """Defect 3: `summarize_history` is not only parsed."""
    env = made(
        numbers,
        iterative={"summarize_history": True},
        env_llm={"model": script("summary.json", "IT TRIED NO.")},
    )
    *_, second = stepped(env, "MY FIRST", "MY SECOND")
    assert "IT TRIED NO." in second.next_state.observation.prompt
    assert "MY FIRST" not in second.next_state.observation.prompt


def test_a_submit_keyword_ends_a_loop_and_null_disables_it(numbers: str) -> None:
    for keyword, ended in (("DONE", True), (None, False)):
        env = made(numbers, iterative={"submit_keyword": keyword})
        (result,) = stepped(env, "DONE with it")
        assert result.terminated is ended
        assert ("DONE" in env.reset()[0].observation.prompt) is ended
    (result,) = stepped(made(numbers, iterative={"submit_keyword": "DONE"}), "SUBMIT it")
    assert not result.terminated


def test_a_submission_is_extracted_as_asked_for(numbers: str) -> None:
    env = made(
        numbers,
        iterative={
            "submission_extractor": "tag_based",
            "submission_extractor_config": {"tag_name": "word"},
        },
    )
    (result,) = stepped(env, "I say <word>nought</word>.")
    assert result.extracted_action == "nought"
    assert result.info["solved"]
    with pytest.raises(UsageError, match="nonsense"):
        made(numbers, iterative={"submission_extractor": "nonsense"})


def test_prompts_reach_the_loop_and_an_environment_of_one_turn(numbers: str) -> None:
    """Defect 3: per-environment `prompts` reach the wrapper."""
    mine = {"initial": "Q: {task}", "feedback": "F: {feedback}"}
    env = made(numbers, prompts=mine, iterative={})
    assert env.reset()[0].observation.prompt == "Q: Write 0 as a word."
    (result,) = stepped(env, "no")
    assert result.next_state.observation.prompt.startswith("F: ")
    alone = made(numbers, prompts=mine)
    assert alone.reset()[0].observation.prompt == "Q: Write 0 as a word."
    (result,) = stepped(alone, "no")
    assert result.truncated
    with pytest.raises(UsageError, match="There is no prompt 'first'"):
        made(numbers, prompts={"first": "x"})


def test_tests_judge_submissions_within_their_time(doubles: str) -> None:
    """Defect 3: `code_execution.timeout` reaches the executor."""
    block = {"code_execution": {"timeout": 1}, "submission_extractor": "code_block"}
    with made(doubles, iterative=block) as env:
        right = fenced("def double(x):\n    return 2 * x")
        slow = fenced("def double(x):\n    while True: pass")
        first, second = stepped(env, slow, right)
    assert first.next_state.hidden.episode.turns[-1].verdict == "timeout"
    assert second.info["solved"]


def test_rows_with_tests_are_judged_by_them_where_nothing_else_does(doubles: str) -> None:
    with made(doubles) as env:
        (result,) = stepped(env, fenced("def double(x):\n    return 2 * x"))
        assert result.info["solved"]
    (judge,) = made(
        doubles, judge={"model": script("j.json"), "reward_type": "outcome"}
    ).reward_functions
    assert isinstance(judge, JudgeReward)
    commented = made(doubles, judge={"model": script("j.json")})
    assert [type(reward) for reward in commented.reward_functions] == [
        CodeExecutionReward,
        JudgeReward,
    ]


def judged(numbers: str, reply: str, *, loop: dict[str, Any], **judge: Any) -> Any:
    """Step once where only a judge rewards, and give the result and the judge."""
    env = made(
        numbers,
        iterative=loop,
        judge={"model": script("judge.json", reply), "reward_type": "outcome", **judge},
    )
    (result,) = stepped(env, "MY ANSWER")
    return result, env.reward_functions[-1]


@pytest.mark.parametrize(("threshold", "solved"), [(0.5, True), (0.7, False)])
def test_a_threshold_solves(numbers: str, threshold: float, solved: bool) -> None:
    # 7 on a scale from 1 to 10 is 6/9 from 0 to 1.
    result, _ = judged(numbers, "Good. [[7]]", loop={"solved_threshold": threshold})
    assert result.info["solved"] is solved


def test_every_key_of_a_judge_takes_effect(numbers: str) -> None:
    result, judge = judged(
        numbers,
        "Well. [[4]]",
        loop={},
        template="helpfulness",
        name="helper",
        reward_type="process",
        weight=0.5,
        normalize=False,
        inference={"temperature": 0.3, "max_tokens": 9},
    )
    signal = result.rewards.by_name("helper")
    assert (signal.reward_type, signal.reward, signal.weight) == (RewardType.PROCESS, 4.0, 0.5)
    assert judge.template.name == "helpfulness"
    (request,) = judge.backend.model.requests
    assert "MY ANSWER" in request[-1].content
    assert (judge.sampling_params.temperature, judge.sampling_params.max_tokens) == (0.3, 9)
    result, _ = judged(numbers, "No mark.", loop={}, default_score=0.25)
    assert result.rewards.by_name("judge").reward == 0.25
    result, _ = judged(numbers, "No mark.", loop={})
    assert result.rewards.by_name("judge").reward is None
    with pytest.raises(UsageError, match="nonsense"):
        judged(numbers, "", loop={}, template="nonsense")


def test_closing_an_environment_closes_the_models_made_for_it(
    numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    async def aclose(self: ScriptedModel) -> None:
        closed.append(self.name)

    monkeypatch.setattr(ScriptedModel, "aclose", aclose)
    made(
        numbers,
        iterative={"summarize_history": True},
        env_llm={"model": script("summary.json")},
        judge={"model": script("judge.json")},
    ).close()
    assert sorted(closed) == ["scripted:judge.json", "scripted:summary.json"]


def test_defect_4_a_container_runs_the_code_of_a_loop(doubles: str) -> None:
    """It stays a loop, and what runs the code is what the container's keys say."""
    env = made(
        doubles,
        container={"runtime": "process"},
        iterative={"max_turns": 5, "code_execution": {"timeout": 30}},
    )
    with env:
        assert env.spec.max_steps == 5
        (tests,) = env.reward_functions
        assert isinstance(tests, CodeExecutionReward)
        assert isinstance(tests.executor, ContainerCodeExecutor)
        *_, last = stepped(env, fenced("x = 1"), fenced("def double(x):\n    return 2 * x"))
        assert last.info["solved"]


def test_every_key_of_a_container_reaches_it(tmp_path: Path) -> None:
    keys = {
        "runtime": "podman",
        "rootfs": str(tmp_path),
        "timeout": 5.0,
        "env_vars": {"A": "1"},
        "volumes": {str(tmp_path): "/data"},
        "docker_command": "/opt/podman",
        "memory": 1 << 30,
    }
    built = ContainerConfig.model_validate(keys).to_container()
    assert {key: getattr(built, key) for key in keys} == keys
    image = ContainerConfig(runtime="docker", image="python:3.12-slim").to_container()
    assert (image.runtime, image.image) == ("docker", "python:3.12-slim")


def test_only_python_runs_in_containers(doubles: str) -> None:
    with pytest.raises(UsageError, match="Only Python runs in containers, not java"):
        made(
            doubles,
            params={"language": "java"},
            container={"runtime": "process"},
            iterative={"code_execution": {}},
        )


@pytest.mark.usefixtures("hub")
def test_the_page_s_file_builds_a_loop_over_humaneval(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.config.test_evaluation_config import PAGE, read

    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    (config,) = read(Path(), PAGE).environments
    with EnvironmentFactory.create(config) as env:
        assert len(env) == 164
        assert env.spec.max_steps == 5
        tests, judge = env.reward_functions
        assert isinstance(tests, CodeExecutionReward)
        assert isinstance(judge, JudgeReward)
        assert judge.template.name == "iterative_feedback"
        rows = (shared_data / "humaneval" / "test.jsonl").read_text().splitlines()
        row = json.loads(rows[0])
        state, _ = env.reset()
        assert state.observation.prompt.startswith(row["prompt"])
        code = row["prompt"] + row["canonical_solution"]
        signal = tests.compute(state, Action.from_text(fenced(code)), state)
        assert signal.reward == 1.0


def test_cells_on_a_live_kernel_are_an_adapter(doubles: str) -> None:
    env = made(
        doubles,
        adapter="notebook",
        params={"isolation": "none"},
        iterative={"max_turns": 2, "submit_keyword": None, "code_execution": {"timeout": 50}},
    )
    assert isinstance(env, NotebookEnvironment)
    with env:
        folder = Path(str(env._cwd))
        assert folder.is_dir()
        assert folder != Path.cwd()
        results = stepped(env, fenced("open('left', 'w')"), fenced("double = lambda x: 2 * x"))
        assert [r.terminated for r in results] == [False, True]
        assert (folder / "left").exists()
        os.utime(folder, (0, 0))
        _sweep(folder.parent)  # as every other process does that begins to start kernels
        assert (folder / "left").exists()
    assert not folder.exists()
    assert not Path("left").exists()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"judge": {"model": "local"}}, "The key judge does nothing"),
        ({"prompts": {"initial": "x"}}, "and no prompts"),
        ({"iterative": {"include_history": False}}, "heeds of iterative only code_execution, max"),
        ({"params": {"test_column": ""}}, "doubles.jsonl has no tests"),
        ({"params": {"isolation": "nonsense"}}, "nonsense"),
    ],
)
def test_what_live_kernels_do_not_take_is_refused(
    doubles: str, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        made(doubles, adapter="notebook", **keys)
    assert said in str(caught.value)


def inner_model(**keys: Any) -> Any:
    model = BackendFactory.create(ModelConfig(**keys))
    assert isinstance(model, Throttled)
    return model.model


def test_every_key_of_a_model_on_a_server_takes_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-mine")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    model = inner_model(
        backend="openai", model="m", base_url="http://h:1/v1", api_key_env="MY_KEY", timeout=3.5
    )
    assert isinstance(model, OpenAIModel)
    assert (model.model, model.base_url, model.timeout) == ("m", "http://h:1/v1", 3.5)
    assert model._key == "sk-mine"
    assert inner_model(backend="vllm", model="m").base_url == "http://localhost:8000/v1"
    assert inner_model(backend="vllm", model="m", base_url="http://h:2/v1").base_url == (
        "http://h:2/v1"
    )
    with pytest.raises(UsageError, match="NO_SUCH_KEY holds no key"):
        inner_model(backend="openai", model="m", api_key_env="NO_SUCH_KEY")


def test_replies_come_from_a_file() -> None:
    script("replies.json", "one", "two")
    model = BackendFactory.create(ModelConfig(backend="scripted", model="replies.json"))
    asked = (Message("user", "?"),)
    assert [model.complete(asked).result().text for _ in range(2)] == ["one", "two"]
    path = ROOT / "benchmarks" / "demo" / "seed-0.ipynb"
    recorded = inner_model(backend="recorded", model=str(path))
    assert isinstance(recorded, RecordedModel)
    first = load(path).turns[0]
    assert first.reply is not None
    assert recorded.complete(first.messages).result().text == first.reply.text
    with pytest.raises(UsageError, match="There is no file"):
        BackendFactory.create(ModelConfig(backend="scripted", model="gone.json"))


def test_no_more_calls_are_under_way_than_a_model_may_have() -> None:
    running, most = 0, 0
    at_once = threading.Barrier(2, timeout=60)

    async def answer(messages: Sequence[Message]) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.to_thread(at_once.wait)  # passes only where two are there
        running -= 1
        return "x"

    model = Throttled(ScriptedModel(answer), 2)
    calls: list[Run[Reply]] = [model.complete((Message("user", "?"),)) for _ in range(6)]
    assert [call.result(60).text for call in calls] == ["x"] * 6
    assert most == 2


def test_an_unknown_model_file_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NbrefineError):
        BackendFactory.create(ModelConfig(backend="local", model="no-such-model"))
