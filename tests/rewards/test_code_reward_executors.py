"""The reward that runs code with executors: whose they are, and separate processes."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbrefine.errors import RunStopped, UsageError
from nbrefine.executors import CodeExecutionResult, SubprocessCodeExecutor
from nbrefine.rewards.code import (
    CodeExecutionReward,
    report_of,
)
from nbrefine.state import Action
from tests.rewards.judging import (
    ADD,
    TESTS,
    F,
    OwnExecutor,
    having,
    judged,
    state,
)


def test_an_executor_that_is_told_everything_apart_is_awaited() -> None:
    told_apart: list[Any] = []

    class Started:
        async def aexecute(self, *args: Any, **options: Any) -> CodeExecutionResult:
            told_apart.append((args, options))
            return CodeExecutionResult(1, 1, verdict="solved", tier="grade", isolation=("pid",))

        closed = False

        async def aclose(self) -> None:
            self.closed = True

    executor = Started()
    before = having("assert f() == 1", setup="one = 1", entry_point="f")
    owner = CodeExecutionReward(
        executor,  # type: ignore[arg-type]
        timeout=3.0,
        close_executor=True,
    )
    with owner as reward:
        signal = reward.compute(before, Action(ADD), before)
    options = {"timeout": 3.0, "entry_point": "f", "setup": "one = 1"}
    assert told_apart == [((ADD, "assert f() == 1"), options)]
    assert signal.metadata is not None
    assert (signal.metadata["tier"], signal.metadata["isolation"]) == ("grade", ["pid"])
    assert executor.closed


def test_closing_leaves_an_executor_alone_that_holds_nothing() -> None:
    CodeExecutionReward(OwnExecutor(), close_executor=True).close()


def test_an_executor_serves_two_rewards_and_stays_open_when_one_is_closed() -> None:
    before = having("assert add(1, 2) == 3")
    with SubprocessCodeExecutor(workers=1) as shared:
        first, second = CodeExecutionReward(shared), CodeExecutionReward(shared)
        first.close()
        assert second.compute(before, Action(ADD), before).reward == 1.0


def test_the_processes_of_an_executor_that_nobody_closes_end_with_its_reward() -> None:
    own = psutil.Process()
    earlier = set(own.children(recursive=True))
    before = having("assert add(1, 2) == 3")
    reward = CodeExecutionReward(SubprocessCodeExecutor(workers=1))
    assert reward.compute(before, Action(ADD), before).reward == 1.0
    left = set(own.children(recursive=True)) - earlier
    assert left
    reward.close()
    del reward
    gc.collect()
    _, alive = psutil.wait_procs(left, timeout=60)
    assert not alive


def test_an_own_executor_runs_in_a_thread_of_its_own() -> None:
    executor = OwnExecutor()
    judged(executor, having(TESTS), ADD)
    assert executor.threads[0] is not threading.main_thread()
    assert executor.threads[0].name == "nbrefine-user"


def test_what_executes_nothing_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="executes no code"):
        CodeExecutionReward("python3")  # type: ignore[arg-type]


def test_a_time_limit_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="timeout is 0"):
        CodeExecutionReward(OwnExecutor(), timeout=0)


# With the executor of separate processes


@pytest.fixture(scope="module")
def real() -> Iterator[CodeExecutionReward]:
    with CodeExecutionReward(SubprocessCodeExecutor(workers=2), timeout=20.0) as reward:
        yield reward


def test_code_and_tests_in_separate_processes_give_a_grade_and_all_that_was_seen(
    real: CodeExecutionReward,
) -> None:
    tests = "assert add(1, 2) == 3\nassert add(1, 1) == 3\nassert add(1, 'a') == 1"
    before = having(tests)
    signal = real.compute(before, Action(f"{F}py\nprint('hello')\n{ADD}{F}"), before)
    assert signal.reward == pytest.approx(1 / 3)
    assert signal.feedback is not None
    lines = signal.feedback.splitlines()
    assert lines[:5] == [
        "1/3 tests passed.",
        "Failures:",
        "  - test_2: add(1, 1) == 3",
        "      got: 2",
        "      expected: 3",
    ]
    assert any(line.startswith("      raised: TypeError: unsupported operand") for line in lines)
    assert "hello" in lines
    assert signal.metadata is not None
    assert (signal.metadata["tier"], signal.metadata["verdict"]) == ("grade", "failed")
    report = report_of(signal)
    assert report is not None
    assert [case.status for case in report.cases] == ["passed", "failed", "error"]
    json.dumps(signal.metadata, allow_nan=False)


CHECK = """
def check(candidate):
    assert candidate(2) == 4
    assert candidate(-1) == 1
"""


@pytest.mark.parametrize(
    ("body", "reward"), [("    return x * x", 1.0), ("    return x + x", 0.5), ("    return", 0.0)]
)
def test_defect_2_a_check_is_called_and_its_asserts_are_counted(
    real: CodeExecutionReward, body: str, reward: float
) -> None:
    prompt = 'def square(x):\n    """Give the square of x."""\n'
    row = {"prompt": prompt, "test": CHECK, "entry_point": "square"}
    before = state(entry=row)
    assert real.compute(before, Action(f"{F}python\n{prompt}{body}\n{F}"), before).reward == reward
    assert real.compute(before, Action(body), before).reward == reward


@pytest.mark.parametrize(
    ("reply", "verdict", "told"),
    [
        ("def add(a, b:\n    return", "failed", "Code failed to compile/run: SyntaxError"),
        ("x = 1 / 0", "failed", "Code failed to compile/run: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)", "failed", "Code failed to compile/run: "),
        ("def add(a, b):\n    import sys\n    sys.exit(0)", "failed", "0/1 tests passed."),
        ("def plus(a, b):\n    return a + b", "failed", "0/1 tests passed."),
    ],
)
def test_what_the_code_does_wrong_is_told_and_worth_nothing(
    real: CodeExecutionReward, reply: str, verdict: str, told: str
) -> None:
    before = having("assert add(1, 2) == 3")
    signal = real.compute(before, Action(reply), before)
    assert signal.reward == 0.0
    assert signal.feedback is not None
    assert signal.feedback.startswith(told)
    assert not any(line.rstrip().endswith(":") for line in signal.feedback.splitlines()[2:])
    assert signal.metadata is not None
    assert signal.metadata["verdict"] == verdict


def test_the_time_limit_reaches_the_executor() -> None:
    before = having("assert f() == 1")
    with CodeExecutionReward(SubprocessCodeExecutor(workers=1), timeout=0.5) as reward:
        signal = reward.compute(before, Action("def f():\n    while True:\n        pass"), before)
    assert signal.reward == 0.0
    assert signal.metadata is not None
    assert signal.metadata["verdict"] == "timeout"


@pytest.mark.parametrize("tests", ["assert (", "x = 1"])
def test_tests_that_are_none_are_an_invalid_task(real: CodeExecutionReward, tests: str) -> None:
    before = having(tests)
    signal = real.compute(before, Action(ADD), before)
    assert signal.reward is None
    assert signal.metadata is not None
    assert signal.metadata["verdict"] == "invalid-task"


def test_a_task_s_setup_runs_before_the_code(real: CodeExecutionReward) -> None:
    before = having("assert area(1) > 3", setup="import math")
    signal = real.compute(before, Action("def area(r):\n    return math.pi * r * r"), before)
    assert signal.reward == 1.0


def test_a_judgement_that_is_stopped_leaves_the_executor_ready(real: CodeExecutionReward) -> None:
    before = having("assert f() == 1")
    endless = real.acompute(before, Action("def f():\n    while True:\n        pass"), before)
    endless.stop()
    with pytest.raises(RunStopped):
        endless.result(30)
    assert real.compute(before, Action("def f():\n    return 1"), before).reward == 1.0


def test_bare_bodies_of_real_solutions_are_whole_answers(
    real: CodeExecutionReward, shared_data: Path
) -> None:
    """HumanEval's solutions are bodies; its tests are a check that nobody calls."""
    lines = (shared_data / "humaneval" / "test.jsonl").read_text().splitlines()[::16]
    for row in map(json.loads, lines):
        before = state(entry=row)
        solution = Action(row["canonical_solution"])
        assert real.compute(before, solution, before).reward == 1.0, row["task_id"]
        fenced = Action(f"{F}python\n{row['canonical_solution'].strip()}\n{F}")
        assert real.compute(before, fenced, before).reward == 1.0, row["task_id"]
        nothing = real.compute(before, Action("    return None"), before)
        assert nothing.reward is not None
        assert nothing.reward < 1.0, row["task_id"]


def test_a_name_that_another_block_may_hold_is_told_with_the_blocks(
    real: CodeExecutionReward,
) -> None:
    """Two blocks that are one program are a usual slip, and the error alone hides it."""
    before = having("assert f(1) == 2")
    halves = f"{F}python\ndef g(x):\n    return x + 1\n{F}\nThen:\n{F}python\ndef f(x):\n"
    reply = f"{halves}    return g(x)\n{F}"
    told = real.compute(before, Action(reply), before).feedback or ""
    assert "NameError: name 'g' is not defined" in told
    assert "Your reply had 2 code blocks; only one of them was run." in told
    whole = reply.replace("return g(x)", "return x + 3")
    assert "blocks" not in (real.compute(before, Action(whole), before).feedback or "")
