"""A cell that dies of an assert which is a check of its step is told what the check saw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbrefine.env import MultiStepEnvironment
from nbrefine.env.copied import dies_of, narrowed
from nbrefine.kernel import Kernel
from nbrefine.outputs import CellResult, Failure
from nbrefine.postconditions import file_written, holds
from nbrefine.state import Action
from nbrefine.values import CaseResult, Episode, Subtask, Task, TestReport, Turn

CHECKS = (holds("len(rows) == 4"), holds("assert sum(rows) > 0"), file_written("out.txt"))
TASK = Task("Make rows", subtasks=(Subtask("Make rows", postconditions=CHECKS),))
HINT = "Leave that assert out of your code: it is checked after the code has run."


def tried(kernel: Kernel, code: str) -> Turn:
    with MultiStepEnvironment(TASK, kernel=kernel) as env:
        state, _ = env.reset(seed=0)
        after = env.step(state, Action.from_text(f"```python\n{code}\n```")).next_state
    episode: Episode = after.hidden.episode
    return episode.turns[-1]


@pytest.mark.parametrize(
    "asserted", ["assert len(rows) == 4", "if rows:\n    assert len( rows )==4, 'too few'"]
)
def test_what_came_is_told_and_what_was_not_reached_is_not(kernel: Kernel, asserted: str) -> None:
    turn = tried(kernel, f"rows = [1, 2, 3]\n{asserted}\nopen('out.txt', 'w').write('x')")
    assert not turn.accepted
    assert turn.tests is not None
    assert [(case.status, case.got, case.expected) for case in turn.tests.cases] == [
        ("failed", "3", "4"),
        ("not-run", "", ""),
        ("not-run", "", ""),
    ]
    assert "len(rows) == 4\n  got: 3\n  expected: 4" in turn.feedback
    assert HINT in turn.feedback
    assert "FileNotFoundError" not in turn.feedback


@pytest.mark.parametrize(
    "code",
    [
        "rows = [1, 2, 3]\nassert rows == []",  # none of the checks
        "rows = [1, 2, 3, 4]\nassert len(rows) == 4\nassert not rows",  # that one holds
        "rows = [1]\nassert len(rows) == 1 / 0",
    ],
)
def test_another_failure_is_told_as_ever(kernel: Kernel, code: str) -> None:
    turn = tried(kernel, code)
    assert not turn.accepted
    assert turn.tests is not None
    assert {case.status for case in turn.tests.cases} == {"not-run"}
    assert HINT not in turn.feedback
    assert "Correct the code." in turn.feedback


def test_a_copy_that_holds_does_no_harm(kernel: Kernel) -> None:
    code = "rows = [1, 2, 3, 4]\nassert len(rows) == 4\nopen('out.txt', 'w').write('x')"
    assert tried(kernel, code).accepted


def test_an_assert_may_be_a_part_of_a_check() -> None:
    tests = 'assert "a" in df.columns and len(df) == 4\n'
    result = CellResult("assert len(df) == 4", "error", error=Failure("AssertionError", ""))
    assert dies_of(result, tests)
    assert not dies_of(replace(result, source="assert len(df) == 3"), tests)
    assert not dies_of(replace(result, error=Failure("ValueError", "")), tests)
    failed = CaseResult("test_1", "failed", tests.removeprefix("assert ").strip(), got="3")
    assert narrowed(TestReport((failed,)), result) == TestReport((failed,))
