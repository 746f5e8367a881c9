"""Three sums to evaluate on, and models that answer them."""

from __future__ import annotations

from collections.abc import Sequence

from nbrefine.env.iterative import IterativeEnvironment
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.evaluation import (
    EvaluationResult,
)
from nbrefine.executors import SubprocessCodeExecutor
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.rewards.format import AnswerReward
from nbrefine.values import Message, Task

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
