"""Executors whose answers are given, and states to judge a reply in."""

from __future__ import annotations

import ast
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from nbrefine.executors import CodeExecutionResult
from nbrefine.rewards.code import (
    CodeExecutionReward,
)
from nbrefine.state import Action, Observation, State
from nbrefine.values import (
    Signal,
    Task,
)

F = "```"
ADD = "def add(a, b):\n    return a + b\n"
TESTS = "assert add(1, 2) == 3\nassert add(1, 1) == 3"


@dataclass
class Counted:
    """A result as an executor of somebody's own may give it."""

    passed: int = 0
    total: int = 0
    errors: tuple[str, ...] = ()
    compilation_error: str | None = None
    stdout: str = ""
    stderr: str = ""


@dataclass
class OwnExecutor:
    """Runs everything in this process: each assert is a test, any other statement prepares."""

    ran: list[tuple[str, str, float]] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def execute(self, code: str, test_code: str, *, timeout: float = 30.0) -> Any:
        self.ran.append((code, test_code, timeout))
        self.threads.append(threading.current_thread())
        names: dict[str, Any] = {}
        try:
            exec(code, names)
        except (SyntaxError, NameError) as error:
            return Counted(compilation_error=f"{type(error).__name__}: {error}")
        errors = []
        total = 0
        for node in ast.parse(test_code).body:
            total += isinstance(node, ast.Assert | ast.Expr)
            try:
                exec(compile(ast.Module([node], []), "tests", "exec"), names)
            except AssertionError as error:
                errors.append(f"test_{total - 1}: {error}")
        return Counted(total - len(errors), total, tuple(errors))


class Given:
    """Gives a result that is known beforehand."""

    def __init__(self, **fields: Any) -> None:
        self.result = CodeExecutionResult(**fields)

    def execute(self, code: str, test_code: str, *, timeout: float = 30.0) -> CodeExecutionResult:
        return self.result


def state(hidden: Any = None, **fields: Any) -> State:
    return State(Observation("Do it."), hidden if hidden is not None else SimpleNamespace(**fields))


def having(tests: str, **fields: Any) -> State:
    return state(task=Task("Do it.", tests=tests, **fields))


def judged(executor: Any, before: State, reply: str, **options: Any) -> Signal:
    return CodeExecutionReward(executor, **options).compute(before, Action(reply), before)


def told(**fields: Any) -> str:
    feedback = judged(Given(**fields), having("assert f()"), "f = 1").feedback
    assert feedback is not None
    return feedback
