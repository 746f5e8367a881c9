"""Iterative tasks with tests: who runs them, and what they decide."""

from __future__ import annotations

import psutil
import pytest

from nbrefine.env import (
    IterativeEnvironment,
    IterativeTask,
    Problem,
    SingleTurnEnvironment,
)
from nbrefine.executors import SubprocessCodeExecutor
from nbrefine.extractors import CodeBlockExtractor
from nbrefine.rewards.code import CodeExecutionReward, program_of
from nbrefine.state import Action
from nbrefine.values import RewardType, Signal, Task
from tests.env.guessing import Fixed, Graded, begun, guessing, newest

ADD = IterativeTask("Write add(a, b).", test_code="assert add(1, 2) == 3\nassert add(-1, 1) == 0")


def test_a_chat_begins_with_how_code_must_be_written_to_be_found() -> None:
    """A small model that was not told so wrote none: it said SUBMIT, six times out of six."""
    tested = IterativeTask("Write double(x).", test_code="assert double(2) == 4")
    with IterativeEnvironment(tasks=tested) as env:
        system, asked = begun(env).observation.messages
        assert system.role == "system"
        assert "exactly one ```python code block" in system.content
        assert asked.content.startswith("Write double(x).")
        later = env.step(begun(env), Action("No.")).next_state.observation.messages
        assert [message.role for message in later] == ["system", "user", "assistant", "user"]
        assert later[0] == system


def test_an_environment_that_has_a_system_message_keeps_it() -> None:
    class Instructing(Graded):
        instructions = "Write a number."

    for system_prompt in ("Be brief.", ""):
        inner = SingleTurnEnvironment([Problem(Task("Guess."))], system_prompt=system_prompt)
        with IterativeEnvironment(inner, extra_rewards=(Instructing(),)) as env:
            system, _ = begun(env).observation.messages
            assert system.content == (system_prompt or "Write a number.")
    with guessing() as env:
        assert [message.role for message in begun(env).observation.messages] == ["user"]


def test_a_task_with_tests_brings_the_reward_that_runs_them() -> None:
    with IterativeEnvironment(
        tasks=(ADD,), submission_extractor=CodeBlockExtractor("python")
    ) as env:
        assert [function.name for function in env.reward_functions] == ["code_execution"]
        first = env.step(begun(env), Action("```python\ndef add(a, b):\n    return 3\n```"))
        assert first.rewards.total == 0.5
        report = newest(first).tests
        assert report is not None
        assert [case.passed for case in report.cases] == [True, False]
        assert "1/2 tests passed." in first.next_state.observation.prompt
        second = env.step(first.next_state, Action("def add(a, b): return a + b"))
    assert (second.terminated, newest(second).verdict) == (True, "solved")
    assert second.next_state.hidden.episode.stop.detail == "2/2 tests passed"


def test_the_end_names_the_tests_only_where_they_have_decided() -> None:
    half = "def add(a, b): return 3"
    kind = Fixed(Signal("kind", RewardType.OUTCOME, 1.0))
    with IterativeEnvironment(tasks=(ADD,), extra_rewards=(kind,)) as env:
        lenient = env.step(begun(env), Action(half))
    with IterativeEnvironment(tasks=(ADD,), solved_threshold=0.5) as env:
        enough = env.step(begun(env), Action(half))
    details = [each.next_state.hidden.episode.stop.detail for each in (lenient, enough)]
    assert details == ["the best outcome reward is 1", "1/2 tests passed"]


def test_tests_that_a_reward_of_the_caller_runs_are_not_run_again() -> None:
    own = CodeExecutionReward(SubprocessCodeExecutor(), name="mine")
    other = CodeExecutionReward(
        SubprocessCodeExecutor(), name="more", test_extractor=lambda state: "assert add(2, 2) == 4"
    )
    with IterativeEnvironment(tasks=(ADD,), extra_rewards=(own,)) as env:
        told = env.step(begun(env), Action("def add(a, b): return 3")).next_state
        assert [function.name for function in env.reward_functions] == ["mine"]
        assert told.observation.prompt.count("1/2 tests passed.") == 1
    with IterativeEnvironment(tasks=(ADD,), extra_rewards=(other,)) as env:
        assert [each.name for each in env.reward_functions] == ["code_execution", "more"]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("I would rather not.", "no-code"),
        ("import os\ndef add(a, b):\n    os._exit(0)", "crashed"),
        ("def add(a, b):\n    return None", "failed"),
    ],
)
def test_the_verdict_of_the_tests_is_the_turn_s(text: str, verdict: str) -> None:
    with IterativeEnvironment(tasks=(ADD,)) as env:
        turn = newest(env.step(begun(env), Action(text)))
    assert (turn.verdict, turn.accepted) == (verdict, False)


def test_a_check_function_is_given_the_entry_point_that_the_task_names() -> None:
    check = "def check(candidate):\n    assert candidate(1, 2) == 3"
    task = IterativeTask("Write add(a, b).", test_code=check, metadata={"entry_point": "add"})
    with IterativeEnvironment(tasks=[task]) as env:
        assert env.step(begun(env), Action("def add(a, b): return a + b")).terminated
        assert not env.step(begun(env), Action("def add(a, b): return a - b")).terminated


def test_closing_it_ends_every_process_that_ran_its_tests() -> None:
    def children() -> set[int]:
        return {each.pid for each in psutil.Process().children(recursive=True)}

    before = children()
    with IterativeEnvironment(tasks=ADD) as env:
        env.step(begun(env), Action("def add(a, b): return a + b"))
        assert children() - before
    assert children() - before == set()


def test_a_turn_holds_the_program_that_was_run_and_the_step_the_reply_whole() -> None:
    """A record, its rows and its best attempt give code, as `refine` does, and no Markdown."""
    task = Task("Write one().", tests="assert one() == 1")
    reply = "Here:\n```python\ndef one():\n    return 1\n```\nDone."
    wrong = reply.replace("return 1", "return 2")
    with SubprocessCodeExecutor(workers=1) as executor:
        inner = SingleTurnEnvironment([Problem(task)], rewards=[CodeExecutionReward(executor)])
        with IterativeEnvironment(inner) as env:
            first = env.step(begun(env), Action(wrong))
            second = env.step(first.next_state, Action(wrong))
            result = env.step(second.next_state, Action(reply))
    assert "Here:\n```python" in second.next_state.observation.prompt
    turn = newest(result)
    assert turn.code == "def one():\n    return 1"
    assert (turn.extraction.status, turn.extraction.language) == ("found", "python")
    assert turn.reply is not None
    assert turn.reply.text == reply
    assert result.info["submission"] == result.extracted_action == reply
    episode = result.next_state.hidden.episode
    assert [row["code"] for row in episode.to_rows()][-1] == turn.code
    assert program_of(episode) == turn.code
