"""Loops whose code runs in a container: the page's file, and environments of one's own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbrefine.config import EnvironmentFactory
from nbrefine.env import (
    ContainerEnvironment,
    IterativeEnvironment,
    IterativeTask,
    NotebookEnvironment,
    Problem,
    SingleTurnEnvironment,
)
from nbrefine.errors import ExecutorError, UsageError
from nbrefine.executors import ContainerConfig, ContainerWarning, SubprocessCodeExecutor
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.format import AnswerReward
from nbrefine.runner.grading import grader_of
from nbrefine.state import Action, StepResult
from nbrefine.taskdata import load_rows
from nbrefine.values import Task
from tests.config.test_evaluation_config import CONTAINER, read
from tests.containers import IMAGE, MARK, Podman

DOUBLE = IterativeTask("Write double(x).", test_code="assert double(4) == 8")
PROCESS = ContainerConfig("process")


def stepped(environment: Any, *texts: str) -> list[StepResult]:
    """Answer the first task so, turn by turn."""
    state, _ = environment.reset(options={"task_index": 0})
    results = []
    for text in texts:
        results.append(environment.step(state, Action.from_text(text)))
        state = results[-1].next_state
    return results


def metadata(result: StepResult) -> dict[str, Any]:
    (signal,) = [each for each in result.rewards if each.name == "code_execution"]
    assert signal.metadata is not None
    return signal.metadata


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


@pytest.mark.usefixtures("hub")
def test_defect_4_the_page_s_file_loops_and_every_turn_runs_in_the_container(
    podman: Podman, tmp_path: Path
) -> None:
    """llenvs made a single-turn environment of it. The mark is in the image, the secret is not."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    row = load_rows("openai/openai_humaneval", split="test", limit=1)[0]
    look = (
        f"import os\nprint(os.path.exists({MARK!r}), os.path.exists({str(secret)!r}))\n"
        f"{row['prompt']}"
    )
    bodies = ("    return 1 / 0", "    return False", row["canonical_solution"])
    before = podman.containers()
    (config,) = read(tmp_path, CONTAINER).environments
    with pytest.warns(ContainerWarning, match="Containers are run by podman: docker"):
        environment = EnvironmentFactory.create(config)
    with environment:
        results = stepped(environment, *(fenced(look + body) for body in bodies))
        assert len(podman.containers() - before) == 1
    assert [result.info["turn"] for result in results] == [1, 2, 3]
    assert [result.info["solved"] for result in results] == [False, False, True]
    assert [metadata(result)["stdout"] for result in results] == ["True False\n"] * 3
    for result in results:
        assert metadata(result)["isolation"][0].startswith(f"container of {IMAGE} (podman ")
    assert "ZeroDivisionError" in results[0].next_state.observation.prompt
    assert "got: False" in results[1].next_state.observation.prompt
    assert [result.done for result in results] == [False, False, True]
    assert podman.containers() == before


def test_any_environment_that_runs_code_runs_it_in_the_container(podman: Podman) -> None:
    loop = IterativeEnvironment(tasks=(DOUBLE,), max_turns=2)
    before = podman.containers()
    with ContainerEnvironment(loop, runtime="podman") as environment:
        code = f"open({MARK!r}).close()\ndef double(x):\n    return "
        first, second = stepped(environment, fenced(code + "x"), fenced(code + "2 * x"))
        assert "got: 4\n      expected: 8\n" in first.next_state.observation.prompt
        assert second.terminated
        assert len(podman.containers() - before) == 1
    assert podman.containers() == before
    assert environment.container.runtime == "podman"


@pytest.fixture
def wrapped() -> Iterator[ContainerEnvironment]:
    loop = IterativeEnvironment(tasks=(DOUBLE, DOUBLE), max_turns=2, prompts={"initial": "{task}!"})
    with ContainerEnvironment(loop, PROCESS) as environment:
        yield environment


def test_all_else_is_the_environment_s_own(wrapped: ContainerEnvironment) -> None:
    loop = wrapped.environment
    assert len(wrapped) == 2
    assert wrapped.spec == loop.spec
    assert wrapped.prompts == loop.prompts
    assert wrapped.reward_functions == loop.reward_functions
    assert wrapped.available_tools == ()
    assert wrapped.max_turns == 2
    state, info = wrapped.reset(seed=7, options={"task_index": 1, "episode_id": "e"})
    assert (state.observation.prompt, info["task_index"]) == ("Write double(x).!", 1)
    assert state.metadata.episode_id == "e"
    wrapped.release(state)
    with pytest.raises(AttributeError, match="no_such_name"):
        wrapped.no_such_name  # noqa: B018
    assert copy.copy(wrapped).environment is loop


def test_a_step_can_be_judged_again(wrapped: ContainerEnvironment) -> None:
    state, _ = wrapped.reset()
    action = Action.from_text("def double(x):\n    return 2 * x")
    signals = wrapped.compute_rewards(state, action, state)
    assert signals.total == 1.0
    assert signals.signals[0].metadata is not None
    assert signals.signals[0].metadata["isolation"][0] == "no container"


def test_fields_win_over_those_of_a_configuration() -> None:
    loop = IterativeEnvironment(tasks=(DOUBLE,))
    config = ContainerConfig("podman", timeout=7)
    with ContainerEnvironment(loop, config, runtime="process") as environment:
        assert environment.container == ContainerConfig("process", timeout=7)


def test_an_environment_in_a_container_can_be_wrapped_into_a_loop() -> None:
    rewards = (CodeExecutionReward(SubprocessCodeExecutor()),)
    inner = SingleTurnEnvironment(
        [Problem(Task("Write double(x).", tests="assert double(4) == 8"))],
        rewards=rewards,
        name="doubles",
        adapter="test",
    )
    with IterativeEnvironment(ContainerEnvironment(inner, PROCESS), max_turns=2) as environment:
        first, second = stepped(environment, "def double(x): return x", "double = lambda x: 2 * x")
        assert not first.done
        assert second.info["solved"]
        assert metadata(second)["isolation"][0] == "no container"


@pytest.mark.parametrize("owned", [True, False])
def test_closing_it_closes_what_ran_the_code_before_where_the_reward_owns_it(owned: bool) -> None:
    with SubprocessCodeExecutor(workers=1) as former:
        reward = CodeExecutionReward(former, close_executor=owned)
        tasks = (IterativeTask("Write double(x)."),)
        environment = ContainerEnvironment(
            IterativeEnvironment(tasks=tasks, extra_rewards=(reward,)), PROCESS
        )
        environment.close()
        environment.close()
        for executor in (*((former,) if owned else ()), environment.executor):
            with pytest.raises(UsageError, match="closed"):
                executor.execute("", "assert True")
        if not owned:
            assert former.execute("", "assert True").all_passed


def test_a_grade_is_given_in_the_environment_s_container(wrapped: ContainerEnvironment) -> None:
    grader = grader_of(wrapped)
    task = Task("Write double(x).", hidden_tests="assert double(1) == 2", entry_point="double")
    grade = grader.grade(task, "def double(x):\n    return 2 * x").result()
    assert grade.solved
    assert grade.isolation[0] == "no container"
    grader.close()  # and the environment goes on
    assert stepped(wrapped, "double = lambda x: 2 * x")[0].info["solved"]


def test_an_environment_that_runs_no_code_is_refused() -> None:
    inner = SingleTurnEnvironment(
        [Problem(Task("6 * 7?"), expected_answer="42")],
        rewards=(AnswerReward(),),
        name="sums",
        adapter="test",
    )
    with inner, pytest.raises(UsageError) as error:
        ContainerEnvironment(inner, PROCESS)
    assert str(error.value) == (
        "SingleTurnEnvironment runs no code, so that in a container nothing would run. "
        "Give it a CodeExecutionReward, or use it as it is"
    )


def test_live_kernels_are_refused() -> None:
    with (
        NotebookEnvironment([Task("x", tests="assert x")]) as live,
        pytest.raises(UsageError, match="runs code in live kernels, which are in no container"),
    ):
        ContainerEnvironment(live, PROCESS)


def test_what_cannot_be_a_container_leaves_the_environment_as_it_was(podman: Podman) -> None:
    with IterativeEnvironment(tasks=(DOUBLE,)) as loop:
        with pytest.raises(ExecutorError, match=r"has no image python:3\.13"):
            ContainerEnvironment(loop, runtime="podman", image="python:3.13")
        result = stepped(loop, "def double(x): return 2 * x")[0]
        assert result.info["solved"]
        assert "container" not in metadata(result)["isolation"][0]
