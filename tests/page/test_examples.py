"""Every program and file of the page runs, and does what the text around it says."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nbrefine.config import EvalConfig
from nbrefine.env import (
    COUNTED_PROMPTS,
    IterativeCodingEnvironment,
    IterativeEnvironment,
    IterativeTask,
    Problem,
    SingleTurnEnvironment,
    UnsolvableWarning,
)
from nbrefine.evaluation import EvaluationResult, run_multi_evaluation
from nbrefine.executors import ContainerWarning, SubprocessCodeExecutor
from nbrefine.extractors import CodeBlockExtractor
from nbrefine.rewards import AnswerReward, CodeExecutionReward, JudgeReward
from nbrefine.state import Action, State, StepResult
from nbrefine.values import RewardType, Signal, Task
from tests.containers import MARK
from tests.page import blocks
from tests.page.blocks import run

if TYPE_CHECKING:
    from tests.containers import Podman
    from tests.models.conftest import LoopbackServer

UNSOLVABLE = pytest.mark.filterwarnings("ignore::nbrefine.env.UnsolvableWarning")
"""The page's own tasks have no tests: they are made, and warned of."""

RIGHT = "```python\ndef add(a, b):\n    return a + b\n```"
WRONG = "```python\ndef add(a, b):\n    return 3\n```"


@pytest.fixture
def tasks() -> tuple[IterativeTask, ...]:
    """What the page calls `tasks` after its quick start."""
    return (
        IterativeTask("Write a function that adds two numbers."),
        IterativeTask("Write a function that reverses a string."),
    )


@pytest.fixture
def inner_env() -> Iterator[SingleTurnEnvironment]:
    """A single-turn environment whose task has two tests, which it does not run itself."""
    task = Task("Write add(a, b).", tests="assert add(1, 2) == 3\nassert add(2, 2) == 4")
    with SingleTurnEnvironment([Problem(task)]) as env:
        yield env


def answered(env: IterativeEnvironment, *responses: str) -> list[StepResult]:
    """Give the results of an episode's responses."""
    state, results = env.reset()[0], []
    for response in responses:
        results.append(env.step(state, Action(text=response)))
        state = results[-1].next_state
    return results


def shown(result: StepResult) -> str:
    return result.next_state.observation.prompt


def test_the_blocks_are_the_page_s(shared_data: Path) -> None:
    page = shared_data.parent / "reference" / "llenvs-iterative-environments.txt"
    if not page.is_file():
        pytest.skip("the page is not here")
    text, at = page.read_text(encoding="utf-8"), 0
    for block in blocks.IN_ORDER:
        at = text.index(block.rstrip("\n"), at) + 1


def test_quick_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UnsolvableWarning):
        names = run(blocks.QUICK_START)
    assert names["info"] == {"task_index": 0}
    task, feedback = capsys.readouterr().out.split("## Feedback on your previous submission")
    assert task.startswith("Write a function that adds two numbers.")
    assert "No specific feedback available." in feedback
    assert not names["result"].done


@UNSOLVABLE
def test_the_turns_in_the_quick_start_s_comments_are_there_with_counted_prompts(
    tasks: tuple[IterativeTask, ...],
) -> None:
    env = IterativeEnvironment(tasks=tasks, max_turns=3, prompts=COUNTED_PROMPTS)
    assert "You have 3 turn(s) to solve this task." in env.reset()[0].observation.prompt
    assert "You have 2 turn(s) remaining." in shown(answered(env, "def add(a, b): return a - b")[0])


@pytest.mark.usefixtures("hub")
def test_factories() -> None:
    humaneval, mbpp, pack = made_one_by_one(blocks.FACTORIES)
    assert [len(env) for env in (humaneval, mbpp, pack)] == [164, 500, 98]  # the shared part of it
    assert [env.max_turns for env in (humaneval, mbpp, pack)] == [5, 3, 5]
    for env in (humaneval, mbpp, pack):
        task = env.reset()[0].hidden.inner_state.hidden.task
        last = answered(env, "```python\npass\n```", f"```python\n{task.reference}\n```")[-1]
        assert last.info["solved"]
        env.close()


def made_one_by_one(block: str, **given: Any) -> list[IterativeEnvironment]:
    """Run a program that calls several environments `env`, and give them all."""
    names, found = given, list[IterativeEnvironment]()
    for statement in ast.parse(block).body:
        names = run(ast.unparse(statement), **names)
        if "env" in names and names["env"] not in found:
            found.append(names["env"])
    return found


@pytest.mark.usefixtures("hub")
def test_each_factory_is_made_of_the_four_parts_that_the_page_lists() -> None:
    with IterativeCodingEnvironment.from_humaneval() as env:
        (reward,) = env.reward_functions
        assert isinstance(env._inner, SingleTurnEnvironment)
        assert env._inner.spec.adapter == "huggingface"
        assert isinstance(reward, CodeExecutionReward)
        assert isinstance(reward.executor, SubprocessCodeExecutor)


@pytest.mark.usefixtures("hub")
def test_a_factory_with_a_judge(openai: LoopbackServer) -> None:
    openai.script = [openai.reply("There is no loop in it yet.\n[[2]]")]
    names = run(blocks.FACTORY_WITH_JUDGE, IterativeCodingEnvironment=IterativeCodingEnvironment)
    with names["judge_backend"], names["env"] as env:
        tests, judge = env.reward_functions
        assert (judge.template.name, judge.reward_type) == (
            "iterative_feedback",
            RewardType.PROCESS,
        )
        (result,) = answered(env, "```python\nhas_close_elements = None\n```")
        assert "There is no loop in it yet." in shown(result)
        assert [signal.name for signal in result.rewards] == [tests.name, "judge_feedback"]
    assert openai.requests[0].body["model"] == "gpt-4o-mini"


def test_a_signal() -> None:
    expression = compile(blocks.SIGNAL, "page", "eval")
    signal = eval(expression, {"Signal": Signal, "RewardType": RewardType})
    assert (signal.name, signal.reward_type.value) == ("code_execution", "outcome")
    assert (signal.reward, signal.weight, signal.metadata) == (0.6, 1.0, None)
    assert signal.feedback.splitlines() == ["3/5 tests passed.", "Failed: test_edge_case"]


def test_wrapping_an_existing_environment(openai: LoopbackServer) -> None:
    openai.script = [openai.reply("A sign is wrong.\n[[4]]"), openai.reply("Fine.\n[[10]]")]
    backend = run("from llenvs.x import OpenAIBackend\nmodel = OpenAIBackend(model='m')")["model"]
    names = run(blocks.WRAPPING, judge_backend=backend)
    with backend, names["env"] as env:
        assert (len(env), env.max_turns) == (50, 5)
        assert env.spec.name == "polynomial_equations_iterative"
        answer = env.reset()[0].hidden.ground_truth
        first, second = answered(env, "no idea", answer)
        assert "A sign is wrong." in shown(first)
        assert [signal.name for signal in first.rewards] == ["reasoning_gym", "judge"]
        assert second.terminated


def test_submission_extraction(inner_env: SingleTurnEnvironment) -> None:
    names = {"IterativeEnvironment": IterativeEnvironment, "inner_env": inner_env}
    env = run(blocks.EXTRACTION, **names)["env"]
    fenced, prose = answered(env, f"Like this:\n{RIGHT}", "I cannot do this.")
    assert fenced.extracted_action == "def add(a, b):\n    return a + b"
    assert prose.extracted_action == "I cannot do this."  # nothing was extracted


@UNSOLVABLE
def test_early_submit(tasks: tuple[IterativeTask, ...]) -> None:
    env = run(blocks.EARLY_SUBMIT, IterativeEnvironment=IterativeEnvironment, tasks=tasks)["env"]
    (result,) = answered(env, "SUBMIT my final answer is 42")
    assert result.terminated
    assert result.info["submission"] == "SUBMIT my final answer is 42"
    default = IterativeEnvironment(tasks=tasks)
    assert answered(default, "SUBMIT 42")[0].terminated
    disabled = IterativeEnvironment(tasks=tasks, submit_keyword=None)
    assert not answered(disabled, "SUBMIT 42")[0].done


class Passing:
    """Tells how many of five tests passed: as many as a response has exclamation marks."""

    name = "tests"
    reward_type = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        n = (action.text or "").count("!")
        return Signal(self.name, self.reward_type, n / 5, f"{n}/5 tests passed.")


def test_what_history_looks_like(tasks: tuple[IterativeTask, ...]) -> None:
    env = IterativeEnvironment(
        tasks=tasks,
        max_turns=5,
        submit_keyword=None,
        prompts=COUNTED_PROMPTS,
        extra_rewards=(Passing(),),
    )
    _, second = answered(env, "def add(a, b): return a - b", "def add(a, b): return a+b!!!")
    assert shown(second) == blocks.HISTORY.rstrip("\n")
    without = IterativeEnvironment(
        tasks=tasks, include_history=False, submit_keyword=None, extra_rewards=(Passing(),)
    )
    _, second = answered(without, "first", "second!")
    assert "1/5 tests passed." in shown(second)
    assert "first" not in shown(second)


@UNSOLVABLE
def test_a_custom_history_summarizer(tasks: tuple[IterativeTask, ...]) -> None:
    env = run(blocks.SUMMARIZER, IterativeEnvironment=IterativeEnvironment, tasks=tasks)["env"]
    first, second = answered(env, "one", "two")
    assert "attempt(s) so far" not in shown(first)
    assert "You have made 1 attempt(s) so far." in shown(second)


@UNSOLVABLE
def test_custom_prompts(tasks: tuple[IterativeTask, ...]) -> None:
    env = run(blocks.PROMPTS, IterativeEnvironment=IterativeEnvironment, tasks=tasks)["env"]
    assert env.reset()[0].observation.prompt == f"{tasks[0].prompt}\n\nSay DONE when finished."
    assert set(env.prompts) == {"initial", "feedback", "history_entry"}
    (first,) = answered(env, "one")
    assert shown(first) == ("Previous feedback: No specific feedback available.\nPlease revise.")


def test_code_execution(inner_env: SingleTurnEnvironment) -> None:
    names = run(
        blocks.CODE_EXECUTION, IterativeEnvironment=IterativeEnvironment, inner_env=inner_env
    )
    with names["env"] as env:
        wrong, right = answered(env, WRONG, RIGHT)
    signal = wrong.rewards.by_name("code_execution")
    assert signal is not None
    assert signal.reward == 0.5  # both a score
    assert shown(wrong).startswith(
        "## Feedback on your previous submission\n\n1/2 tests passed."  # and feedback
    )
    assert (right.terminated, right.rewards.total) == (True, 1.0)


def evaluated(folder: Path, text: str, *replies: str) -> EvaluationResult:
    """Evaluate a file as it is, with what a command line may add: a model, a limit, a folder."""
    (folder / "eval.yaml").write_text(text)
    (folder / "replies.json").write_text(json.dumps(replies))
    options = {
        "model": f"scripted:{folder / 'replies.json'}",
        "limit": 1,
        "output_dir": str(folder / "results"),
    }
    return run_multi_evaluation(EvalConfig.from_yaml(folder / "eval.yaml", options=options))


@pytest.fixture
def first_reference(shared_data: Path) -> str:
    """The reference of HumanEval's first task, as a reply."""
    line = (shared_data / "humaneval" / "test.jsonl").read_text().splitlines()[0]
    row = json.loads(line)
    return f"```python\n{row['prompt']}{row['canonical_solution']}\n```"


@pytest.mark.usefixtures("hub")
def test_the_yaml_file(openai: LoopbackServer, tmp_path: Path, first_reference: str) -> None:
    openai.script = [openai.reply("Nothing is compared.\n[[1]]"), openai.reply("Good.\n[[10]]")]
    wrong = "```python\ndef has_close_elements(numbers, threshold):\n    return None\n```"
    result = evaluated(tmp_path, blocks.YAML, wrong, first_reference)
    (trajectory,) = result.trajectories["openai/openai_humaneval"]
    first, second = trajectory.transitions
    assert "Nothing is compared." in first.feedback
    assert "tests passed." in first.feedback
    assert trajectory.success
    assert second.submission.startswith("from typing import List")
    assert [request.body["model"] for request in openai.requests] == ["gpt-4o-mini"] * 2
    assert result.accuracy.mean == 1.0


@pytest.mark.usefixtures("hub")
def test_the_yaml_file_with_a_container(
    podman: Podman, tmp_path: Path, first_reference: str
) -> None:
    """Every turn runs in the image that the file names; docker has no daemon here."""
    looks = (
        "```python\nimport os\n"
        "def has_close_elements(numbers, threshold):\n"
        f"    raise OSError(str(os.path.exists({MARK!r})))\n```"
    )
    with pytest.warns(ContainerWarning, match="run by podman"):
        result = evaluated(tmp_path, blocks.CONTAINER_YAML, looks, looks, first_reference)
    (trajectory,) = result.trajectories["openai/openai_humaneval"]
    *before, last = trajectory.transitions
    for transition in before:
        assert "OSError: True" in transition.feedback
    assert (len(before), last.terminated, trajectory.success) == (2, True, True)
    assert podman.containers() == set()


class MyReward:
    name = "my_reward"
    reward_type = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        right = action.text == state.hidden.ground_truth
        return Signal(self.name, self.reward_type, float(right))


def test_construction_from_tasks() -> None:
    env = run(blocks.OF_TASKS, my_reward=MyReward())["env"]
    assert len(env) == 2
    state, _ = env.reset(options={"task_index": 1})
    assert not env.step(state, Action("answer1")).done
    assert env.step(state, Action("answer2")).terminated


def test_construction_around_an_environment(openai: LoopbackServer) -> None:
    openai.script = [openai.reply("Look at 2 and 2.\n[[5]]"), openai.reply("Right.\n[[9]]")]
    task = Task("Write add(a, b).", tests="assert add(1, 2) == 3\nassert add(2, 2) == 4")
    backend = run("from llenvs.x import OpenAIBackend\nmodel = OpenAIBackend(model='m')")["model"]
    env = run(
        blocks.OF_ENVIRONMENT,
        IterativeEnvironment=IterativeEnvironment,
        existing_env=SingleTurnEnvironment([Problem(task)], rewards=(AnswerReward(),)),
        my_extractor=CodeBlockExtractor("python"),
        code_reward=CodeExecutionReward(SubprocessCodeExecutor()),
        judge_reward=JudgeReward(backend, "iterative_feedback"),
    )["env"]
    with backend, env:
        wrong, right = answered(env, WRONG, RIGHT)
    assert [signal.name for signal in wrong.rewards] == ["correctness", "code_execution", "judge"]
    assert "1/2 tests passed." in shown(wrong)
    assert "Look at 2 and 2." in shown(wrong)
    assert right.terminated
