"""A whole multi-step episode as a driver has it: prompts as sent, stopped, and gone on with."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nbrefine.driver import Driver, EpisodeRun
from nbrefine.env import MultiStepEnvironment
from nbrefine.env.approval import Decision, Proposal
from nbrefine.errors import KernelError
from nbrefine.kernel import Kernel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.planning import StepLimits
from nbrefine.postconditions import holds
from nbrefine.values import AnswerForm, Episode, Subtask, Task

TASK = Task(
    "Make x and y",
    subtasks=(
        Subtask("Make x", postconditions=(holds("x == 2"), holds("x > 0"))),
        Subtask("Make y", needs=(1,), postconditions=(holds("y == x + 1"),)),
    ),
)


def cells(*codes: str) -> ScriptedModel:
    return ScriptedModel([f"```python\n{code}\n```" for code in codes])


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


def test_each_turn_has_its_own_prompt_also_where_an_earlier_one_was_adopted(tmp_path: Path) -> None:
    env = MultiStepEnvironment(
        TASK,
        cwd=tmp_path,
        accept_best=True,
        limits_per_step=StepLimits(attempts=2),
        max_replans=0,
    )
    episode = EpisodeRun(Driver(env, cells("x = 1", "x = 0", "y = x + 1"))).result()
    assert [turn.accepted for turn in episode.turns] == [True, False, True]
    assert [turn.verdict for turn in episode.turns] == ["failed", "failed", "solved"]
    asked = [turn.messages[-1].content for turn in episode.turns]
    assert "Do step 1 now" in asked[0]
    assert "x = 1" in asked[1]
    assert "Do step 2 now" in asked[2]
    assert "x: int = 1" in asked[2]
    assert episode.stop is not None
    assert episode.stop.reason == "gave-up"


def test_an_episode_that_was_stopped_in_a_cell_goes_on_from_its_last_turn(tmp_path: Path) -> None:
    env = MultiStepEnvironment(TASK, cwd=tmp_path)
    run = EpisodeRun(Driver(env, cells("x = 2", "y = 5\nimport time; time.sleep(600)")))
    until(lambda: ((now := run.activity).doing, now.turn) == ("running", 2))
    run.stop()
    left = run.result()
    assert left.stop is not None
    assert left.stop.reason == "stopped"
    assert [(turn.step, turn.attempt, turn.verdict) for turn in left.turns] == [
        (1, 1, "solved"),
        (2, 1, "infra-error"),  # its reply was paid for, and nothing has judged it
    ]
    again = MultiStepEnvironment(TASK, cwd=tmp_path, limits_per_step=StepLimits(attempts=1))
    run = EpisodeRun(Driver(again, cells("y = x + 1"), options={"episode": left}, close_env=False))
    episode: Episode = run.result()
    assert episode.solved
    assert (episode.id, episode.turns[:2]) == (left.id, left.turns)
    assert (episode.turns[2].step, episode.turns[2].attempt) == (2, 2)
    assert "Do step 2 now" in episode.turns[2].messages[-1].content
    again.close()


def test_a_person_s_stop_is_the_episode_s_and_its_turn_is_kept(tmp_path: Path) -> None:
    def approve(proposal: Proposal) -> Decision:
        return Decision("approve" if proposal.step == 1 else "stop", reason="")

    env = MultiStepEnvironment(TASK, cwd=tmp_path, approve=approve)
    episode = EpisodeRun(Driver(env, cells("x = 2", "y = 3"))).result()
    assert episode.stop is not None
    assert episode.stop.reason == "stopped"
    assert [(turn.code, turn.accepted) for turn in episode.turns] == [
        ("x = 2", True),
        ("y = 3", False),
    ]


def test_a_cell_that_became_the_session_is_kept_where_its_answer_is_not_judged(
    tmp_path: Path,
) -> None:
    slow = holds("__import__('time').sleep(600) is None")
    task = Task("Answer", answer=AnswerForm("value", postconditions=(slow,)))
    with Kernel.start(cwd=tmp_path) as kernel:
        env = MultiStepEnvironment(task, kernel=kernel, test_timeout=600)
        run = EpisodeRun(Driver(env, cells("answer = 4")))
        until(lambda: run.activity.doing == "testing")
        run.stop()
        left = run.result()
        assert kernel.run("answer").result().text == "4\n"
    assert [(turn.code, turn.accepted, turn.verdict) for turn in left.turns] == [
        ("answer = 4", True, "solved")
    ]
    assert left.turns[0].messages
    assert left.answer is None
    assert left.stop is not None
    assert left.stop.reason == "stopped"


def test_the_host_s_trouble_behind_an_accepted_cell_keeps_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def judge(*_: object) -> None:
        raise KernelError("The disk is full")

    monkeypatch.setattr("nbrefine.env.answering.Answering.judge", judge)
    env = MultiStepEnvironment(Task("Answer", answer=AnswerForm("value")), cwd=tmp_path)
    with pytest.raises(KernelError, match="The disk is full") as raised:
        EpisodeRun(Driver(env, cells("oops", "answer = 4"))).result()
    left = raised.value.episode
    assert isinstance(left, Episode)
    assert [(turn.code, turn.accepted) for turn in left.turns] == [
        ("oops", False),
        ("answer = 4", True),
    ]


def test_a_reply_that_is_repeated_is_drawn_with_more_heat_whatever_it_is_about(
    tmp_path: Path,
) -> None:
    look = '<tool_call>{"name": "inspect_variable", "arguments": {"name": "x"}}</tool_call>'
    wrong = "```answer\nthree\n```"
    replies = ["no plan", "no plan", "```python\nx = 3\n```", look, look, wrong, wrong, "ANSWER: 3"]
    env = MultiStepEnvironment(
        Task("Make x", answer=AnswerForm(pattern=r"\d")), cwd=tmp_path, planning="ask"
    )
    episode = EpisodeRun(Driver(env, ScriptedModel(replies))).result()
    assert episode.solved
    drawn = [turn.reply.sampling.temperature for turn in episode.turns if turn.reply]
    kinds = [turn.kind for turn in episode.turns]
    assert list(zip(kinds, drawn, strict=True)) == [
        ("plan", 0.0),
        ("plan", 0.0),
        ("attempt", 0.8),
        ("inspection", 0.0),
        ("inspection", 0.0),
        ("answer", 0.8),
        ("answer", 0.0),
        ("answer", 0.8),
    ]
