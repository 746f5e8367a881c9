"""The page's own programs, with the import paths changed and what they print checked."""

from __future__ import annotations

import pytest

from nbrefine.env import (
    COUNTED_PROMPTS,
    IterativeEnvironment,
    IterativeTask,
    Problem,
    SingleTurnEnvironment,
    UnsolvableWarning,
)
from nbrefine.executors import SubprocessCodeExecutor
from nbrefine.extractors import CodeBlockExtractor
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.state import Action
from nbrefine.values import RewardType, Signal, Task

UNSOLVABLE = pytest.mark.filterwarnings("ignore::nbrefine.env.UnsolvableWarning")
"""The page's tasks have no tests: they are made, and warned of."""

TASKS = (
    IterativeTask(
        prompt="Write a function that adds two numbers.",
        ground_truth="def add(a, b): return a + b",
    ),
    IterativeTask(
        prompt="Write a function that reverses a string.",
        ground_truth="def reverse(s): return s[::-1]",
    ),
)


def test_quick_start_as_it_stands() -> None:
    with pytest.warns(UnsolvableWarning):
        env = IterativeEnvironment(tasks=TASKS, max_turns=3)
    state, info = env.reset(options={"task_index": 0})
    assert state.observation.prompt.startswith("Write a function that adds two numbers.")
    result = env.step(state, Action(text="def add(a, b): return a - b"))
    assert "Feedback" in result.next_state.observation.prompt
    assert info == {"task_index": 0}


@UNSOLVABLE
def test_quick_start_with_the_turns_that_its_comments_show() -> None:
    env = IterativeEnvironment(tasks=TASKS, max_turns=3, prompts=COUNTED_PROMPTS)
    state, _ = env.reset(options={"task_index": 0})
    assert "You have 3 turn(s) to solve this task." in state.observation.prompt
    result = env.step(state, Action(text="def add(a, b): return a - b"))
    assert "You have 2 turn(s) remaining." in result.next_state.observation.prompt


def test_a_signal_carries_numbers_and_text() -> None:
    signal = Signal(
        name="code_execution",
        reward_type=RewardType.OUTCOME,
        reward=0.6,
        feedback="3/5 tests passed.\nFailed: test_edge_case",
    )
    assert (signal.reward, signal.weight) == (0.6, 1.0)


@UNSOLVABLE
def test_early_submit() -> None:
    env = IterativeEnvironment(tasks=TASKS, submit_keyword="SUBMIT")
    result = env.step(env.reset()[0], Action(text="SUBMIT my final answer is 42"))
    assert result.terminated
    assert result.info["submission"] == "SUBMIT my final answer is 42"
    disabled = IterativeEnvironment(tasks=TASKS, submit_keyword=None)
    assert not disabled.step(disabled.reset()[0], Action(text="SUBMIT 42")).terminated


def test_code_execution_and_submission_extraction_around_an_inner_environment() -> None:
    inner_env = SingleTurnEnvironment(
        [Problem(Task("Write add(a, b).", tests="assert add(1, 2) == 3\nassert add(2, 2) == 4"))]
    )
    executor = SubprocessCodeExecutor()
    code_reward = CodeExecutionReward(
        executor=executor,
        code_extractor=CodeBlockExtractor(language="python"),
    )
    with IterativeEnvironment(
        inner=inner_env,
        submission_extractor=CodeBlockExtractor(language="python"),
        max_turns=5,
        extra_rewards=(code_reward,),
    ) as env:
        state, _ = env.reset()
        wrong = env.step(state, Action("```python\ndef add(a, b): return 3\n```"))
        assert wrong.next_state.observation.prompt.startswith(
            "## Feedback on your previous submission\n\n1/2 tests passed."
        )
        right = env.step(wrong.next_state, Action("```py\ndef add(a, b): return a + b\n```"))
    assert (right.terminated, right.rewards.total) == (True, 1.0)


class MyReward:
    name = "my_reward"
    reward_type = RewardType.OUTCOME

    def compute(self, state: object, action: Action, next_state: object) -> Signal:
        hidden = state.hidden  # type: ignore[attr-defined]  # as a user writes it
        return Signal(self.name, self.reward_type, float(action.text == hidden.ground_truth))


def test_programmatic_construction() -> None:
    my_reward = MyReward()
    env = IterativeEnvironment(
        tasks=(
            IterativeTask(prompt="Task 1", ground_truth="answer1"),
            IterativeTask(prompt="Task 2", ground_truth="answer2"),
        ),
        max_turns=5,
        include_history=True,
        submit_keyword="SUBMIT",
        solved_threshold=1.0,
        extra_rewards=(my_reward,),
    )
    state, _ = env.reset(options={"task_index": 1})
    assert not env.step(state, Action("answer1")).done
    assert env.step(state, Action("answer2")).terminated
    assert len(env) == 2
