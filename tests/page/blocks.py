"""The programs and files of the page on iterative environments, in its order and as it has them.

Only import paths change: `run` puts those of `HOMES` in the place of the page's own.
"""
# ruff: noqa: E501 - the page's lines are as long as they are

from __future__ import annotations

import re
from typing import Any

HOMES = {
    "Action": "nbrefine.state",
    "CodeBlockExtractor": "nbrefine.extractors",
    "CodeExecutionReward": "nbrefine.rewards",
    "EnvironmentConfig": "nbrefine.config",
    "EnvironmentFactory": "nbrefine.config",
    "IterativeCodingEnvironment": "nbrefine.env",
    "IterativeEnvironment": "nbrefine.env",
    "IterativeTask": "nbrefine.env",
    "JudgeReward": "nbrefine.rewards",
    "OpenAIBackend": "nbrefine.models",
    "SubprocessCodeExecutor": "nbrefine.executors",
}
"""Where each name is that the page imports."""


def run(block: str, **given: Any) -> dict[str, Any]:
    """Run a program with the names that the page takes to be there, and give all of its names."""
    names = dict(given)
    exec(compile(re.sub(r"(?m)^from llenvs\S* import (.+)$", _ours, block), "page", "exec"), names)
    return names


def _ours(line: re.Match[str]) -> str:
    return "; ".join(f"from {HOMES[name]} import {name}" for name in line[1].split(", "))


QUICK_START = """\
from llenvs.adapters.iterative import IterativeEnvironment, IterativeTask
from llenvs.core.state import Action

# Create tasks directly
tasks = (
    IterativeTask(prompt="Write a function that adds two numbers.", ground_truth="def add(a, b): return a + b"),
    IterativeTask(prompt="Write a function that reverses a string.", ground_truth="def reverse(s): return s[::-1]"),
)

env = IterativeEnvironment(tasks=tasks, max_turns=3)

# Run an episode
state, info = env.reset(options={"task_index": 0})
print(state.observation.prompt)  # Task + "You have 3 turn(s) to solve this task."

result = env.step(state, Action(text="def add(a, b): return a - b"))
print(result.next_state.observation.prompt)  # Feedback + turns remaining
"""

FACTORIES = """\
from llenvs.environments import IterativeCodingEnvironment

# HumanEval with 5 refinement turns
env = IterativeCodingEnvironment.from_humaneval(max_turns=5)
state, info = env.reset(options={"task_index": 0})

# MBPP with 3 turns
env = IterativeCodingEnvironment.from_mbpp(max_turns=3)

# Any HF coding dataset
env = IterativeCodingEnvironment.create(
    dataset="bigcode/humanevalpack",
    language="python",
    max_turns=5,
    question_column="prompt",
    answer_column="canonical_solution",
    test_column="test",
)
"""

FACTORY_WITH_JUDGE = """\
from llenvs.inference.backends.api import OpenAIBackend

judge_backend = OpenAIBackend(model="gpt-4o-mini")

env = IterativeCodingEnvironment.from_humaneval(
    max_turns=5,
    judge_backend=judge_backend,  # Adds JudgeReward with "iterative_feedback" template
)
"""

SIGNAL = """\
Signal(
    name="code_execution",
    reward_type=RewardType.OUTCOME,
    reward=0.6,                      # Numeric reward
    feedback="3/5 tests passed.\\nFailed: test_edge_case",  # Shown to agent
)
"""

WRAPPING = """\
from llenvs.adapters.iterative import IterativeEnvironment
from llenvs.core.judge import JudgeReward

# Get a single-turn environment
from llenvs.core.config import EnvironmentFactory, EnvironmentConfig

inner_env = EnvironmentFactory.create(
    EnvironmentConfig(name="polynomial_equations", adapter="reasoning_gym", size=50)
)

# Add a judge for feedback
judge = JudgeReward(backend=judge_backend, template="iterative_feedback")

# Wrap it
env = IterativeEnvironment(
    inner=inner_env,
    max_turns=5,
    extra_rewards=(judge,),
)
"""

EXTRACTION = """\
from llenvs.core.extraction import CodeBlockExtractor

env = IterativeEnvironment(
    inner=inner_env,
    submission_extractor=CodeBlockExtractor(language="python"),
    max_turns=5,
)
"""

EARLY_SUBMIT = """\
env = IterativeEnvironment(tasks=tasks, submit_keyword="SUBMIT")  # Default

# Agent response: "SUBMIT my final answer is 42"
# → terminated=True, submission="SUBMIT my final answer is 42"
"""

HISTORY = """\
## Feedback on your previous submission (Turn 2/5)

3/5 tests passed.

## Previous attempts

### Turn 1
**Submission:**
def add(a, b): return a - b

**Feedback:**
0/5 tests passed.

You have 3 turn(s) remaining.
"""
"""Not a program: what the agent is shown."""

SUMMARIZER = """\
def my_summarizer(
    submissions: tuple[str, ...],
    feedback_history: tuple[tuple[str, ...], ...],
) -> str:
    return f"You have made {len(submissions)} attempt(s) so far."

env = IterativeEnvironment(
    tasks=tasks,
    history_summarizer=my_summarizer,
)
"""

PROMPTS = """\
env = IterativeEnvironment(
    tasks=tasks,
    prompts={
        "initial": "{task}\\n\\nSay DONE when finished.",
        "feedback": "Previous feedback: {feedback}\\n{history_section}Please revise.",
    },
)
"""

CODE_EXECUTION = """\
from llenvs.core.code_execution import CodeExecutionReward, SubprocessCodeExecutor
from llenvs.core.extraction import CodeBlockExtractor

executor = SubprocessCodeExecutor()
code_reward = CodeExecutionReward(
    executor=executor,
    code_extractor=CodeBlockExtractor(language="python"),
)

env = IterativeEnvironment(
    inner=inner_env,
    extra_rewards=(code_reward,),
)
"""

CONTAINER_YAML = """\
environments:
  - name: openai/openai_humaneval
    adapter: huggingface
    container:
      runtime: docker
      image: python:3.12-slim
    iterative:
      max_turns: 5
      code_execution:
        timeout: 30
"""

YAML = """\
environments:
  - name: openai/openai_humaneval
    adapter: huggingface
    params:
      split: test
      question_column: prompt
      answer_column: canonical_solution
    iterative:
      max_turns: 5
      submission_extractor: code_block
      submission_extractor_config:
        language: python
      code_execution:
        timeout: 30
      solved_threshold: 1.0
      submit_keyword: SUBMIT
    judge:
      model:
        backend: openai
        model: gpt-4o-mini
      template: iterative_feedback
"""

OF_TASKS = """\
from llenvs.adapters.iterative import IterativeEnvironment, IterativeTask

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
"""

OF_ENVIRONMENT = """\
env = IterativeEnvironment(
    inner=existing_env,      # Any single-turn environment
    max_turns=5,
    submission_extractor=my_extractor,
    extra_rewards=(code_reward, judge_reward),
)
"""

IN_ORDER = (
    QUICK_START,
    FACTORIES,
    FACTORY_WITH_JUDGE,
    SIGNAL,
    WRAPPING,
    EXTRACTION,
    EARLY_SUBMIT,
    HISTORY,
    SUMMARIZER,
    PROMPTS,
    CODE_EXECUTION,
    CONTAINER_YAML,
    YAML,
    OF_TASKS,
    OF_ENVIRONMENT,
)
