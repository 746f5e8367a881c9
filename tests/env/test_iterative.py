"""Iterative environments: their settings, and what a step does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nbrefine.env import (
    IterativeEnvironment,
    IterativeTask,
    NotebookEnvironment,
    Problem,
    SingleTurnEnvironment,
    UnsolvableWarning,
)
from nbrefine.errors import UsageError
from nbrefine.extractors import CodeBlockExtractor, TagBasedExtractor
from nbrefine.rewards.base import RewardFunction
from nbrefine.rewards.format import AnswerReward, FormatReward
from nbrefine.rewards.judge import JudgeReward
from nbrefine.state import Action, EnvironmentSpec, State, StateMetadata
from nbrefine.values import Finish, Message, Reply, RewardType, Signal, Task
from tests.env.guessing import GUESS, Graded, Noting, begun, guessing, newest


@pytest.fixture
def env() -> Iterator[IterativeEnvironment]:
    with guessing() as env:
        yield env


def test_the_defaults_are_those_of_the_page() -> None:
    with guessing() as env:
        assert env.spec == EnvironmentSpec(
            "iterative_iterative", "iterative", max_steps=3, is_multi_turn=True, pure_step=True
        )
        hidden = begun(env).hidden
    assert (hidden.max_turns, hidden.turn, hidden.submissions, hidden.feedback_history) == (
        3,
        0,
        (),
        (),
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "Must provide either 'inner' or 'tasks'"),
        ({"inner": SingleTurnEnvironment([]), "tasks": [GUESS]}, "Both 'inner' and 'tasks'"),
        ({"tasks": []}, "at least one task"),
        ({"tasks": ["Write a poem."]}, "'Write a poem.' is no task"),
        ({"tasks": "Write a poem."}, "'Write a poem.' is no task"),
        ({"inner": GUESS}, "IterativeTask has no spec. Give an Environment, or tasks as tasks="),
        ({"tasks": [GUESS], "max_turns": 0}, "max_turns is 0"),
        ({"tasks": [GUESS], "solved_threshold": float("nan")}, "solved_threshold is nan"),
        ({"tasks": [GUESS], "submit_keyword": " "}, "blank submit_keyword"),
        ({"tasks": [GUESS], "prompts": {"inital": "{task}"}}, "initial, feedback, history_entry"),
        ({"tasks": [GUESS], "prompts": {"initial": None}}, "Give a text"),
        ({"tasks": [GUESS], "summarize_history": True}, "env_model"),
        (
            {
                "tasks": [GUESS],
                "summarize_history": True,
                "env_model": ["x"],
                "history_summarizer": lambda *_: "",
            },
            "two authors",
        ),
        ({"inner": object()}, "object has no spec"),
    ],
)
def test_what_cannot_be_is_a_value_error_that_says_why(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        IterativeEnvironment(**settings)


class Impure(SingleTurnEnvironment):
    @property
    def spec(self) -> EnvironmentSpec:
        return replace(super().spec, name="dice", pure_step=False)


def test_an_inner_environment_without_pure_step_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"dice has no pure_step"):
        IterativeEnvironment(Impure([Problem(Task("t"))]))


def test_an_inner_environment_that_takes_several_turns_is_refused() -> None:
    with guessing() as inner, pytest.raises(UsageError, match="several turns by itself"):
        IterativeEnvironment(inner)
    with (
        NotebookEnvironment(Task("t"), isolation="fork") as live,
        pytest.raises(UsageError, match="notebook takes several turns"),
    ):
        IterativeEnvironment(live)


@dataclass(frozen=True)
class Style:
    """Speaks of form only."""

    name: str = "style"
    reward_type: RewardType = RewardType.FORMAT

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return Signal(self.name, self.reward_type, 1.0)


@pytest.mark.parametrize("extra", [(), (Style(),)], ids=["no-reward", "format-only"])
@pytest.mark.parametrize(
    ("tasks", "which"),
    [
        ([GUESS], r"The task has no test_code"),
        ([IterativeTask("t", test_code="assert f"), GUESS, GUESS], r"2 of 3.*task_index 1"),
    ],
)
def test_a_task_that_nothing_can_find_solved_is_warned_of_and_made(
    tasks: list[IterativeTask], which: str, extra: tuple[Style, ...]
) -> None:
    with pytest.warns(UnsolvableWarning, match=which) as warned:
        env = IterativeEnvironment(tasks=tasks, extra_rewards=extra)
    assert [each.filename for each in warned] == [__file__]
    with env:
        result = env.step(begun(env, task_index=len(tasks) - 1), Action("anything"))
    assert (result.terminated, result.truncated) == (False, False)
    assert newest(result).verdict == "invalid-task"  # nobody's failure


def test_a_step_does_what_the_page_says(env: IterativeEnvironment) -> None:
    state, info = env.reset(seed=7, options={"episode_id": "e-1"})
    assert info == {"task_index": 0}
    result = env.step(state, Action("0.4 it is"))
    after = result.next_state
    assert (result.terminated, result.truncated, result.done) == (False, False, False)
    assert (result.extracted_action, result.resolved_action) == ("0.4 it is", "0.4 it is")
    assert result.info == {
        "turn": 1,
        "submission": "0.4 it is",
        "feedback": ("score 0.4",),
        "solved": False,
        "early_submit": False,
    }
    assert after.metadata == StateMetadata(
        1, "e-1", False, {"task_index": 0, "turn": 1, "solved": False, "early_submit": False}
    )
    assert (after.hidden.turn, after.hidden.submissions) == (1, ("0.4 it is",))
    assert after.hidden.feedback_history == (("score 0.4",),)
    assert after.observation.task == "Guess a number."
    assert after.hidden.episode.seed == 7


def test_the_episode_is_the_truth_of_every_turn(env: IterativeEnvironment) -> None:
    state = begun(env, episode_id="e-2")
    reply = Reply("0.4", model="m", seconds=2.0)
    first = env.step(state, Action.from_reply(reply))
    second = env.step(first.next_state, Action("1 now"))
    episode = second.next_state.hidden.episode
    assert episode.id == "e-2"
    assert (episode.solved, episode.stop.detail) == (True, "the best outcome reward is 1")
    wrong, right = episode.turns
    assert (wrong.reply, wrong.messages) == (reply, state.observation.messages)
    assert (wrong.verdict, wrong.accepted, wrong.feedback) == ("failed", False, "score 0.4")
    assert wrong.seconds >= 2.0
    assert wrong.signals == first.rewards
    assert (right.number, right.attempt, right.code) == (2, 2, "1 now")
    assert (right.verdict, right.accepted, right.reply) == ("solved", True, Reply("1 now"))
    assert (right.messages, right.score) == ((), (1.0, 0))
    assert state.hidden.episode.turns == ()


def test_code_that_the_caller_supplies_is_the_submission_as_it_is() -> None:
    with guessing(submission_extractor=TagBasedExtractor()) as env:
        turn = newest(env.step(begun(env), Action.from_code("SUBMIT <answer>1</answer>")))
    assert (turn.code, turn.extraction.status, turn.reply) == (
        "SUBMIT <answer>1</answer>",
        "given",
        None,
    )
    assert not turn.accepted


def test_the_submission_is_extracted_and_the_response_is_kept() -> None:
    with guessing(submission_extractor=CodeBlockExtractor(language="python")) as env:
        text = "Here.\n```python\nx = 1\n```\n"
        result = env.step(begun(env), Action(text))
    assert result.info["submission"] == result.extracted_action == newest(result).code == "x = 1"
    assert newest(result).extraction.language == "python"
    assert newest(result).reply == Reply(text)
    assert result.next_state.observation.messages[1] == Message("assistant", text)


def test_where_nothing_is_extracted_the_raw_response_is_the_submission() -> None:
    with guessing(submission_extractor=TagBasedExtractor("answer")) as env:
        result = env.step(begun(env), Action("0.5 without a tag"))
    assert result.info["submission"] == "0.5 without a tag"
    assert "nothing was found" in newest(result).extraction.reason


def test_extra_rewards_see_the_whole_response_the_state_and_what_it_hides() -> None:
    seen: list[tuple[State, Action, State]] = []
    inner = SingleTurnEnvironment([Problem(Task("t"), {"k": 1}, "1.0")], rewards=[Graded()])
    extractor = TagBasedExtractor("answer")
    action = Action("I say <answer>0.5</answer>")
    with IterativeEnvironment(inner, None, extractor, extra_rewards=[Noting(seen)]) as env:
        assert [function.name for function in env.reward_functions] == ["graded", "noting"]
        state = begun(env)
        result = env.step(state, action)
    assert [(s.name, s.reward) for s in result.rewards] == [("graded", 0.5), ("noting", 0.25)]
    ((before, told, after),) = seen
    assert (before, told) == (state, action)
    assert (before.hidden.ground_truth, before.hidden.entry) == ("1.0", {"k": 1})
    assert after.hidden.submissions == ("0.5",)
    assert after.metadata.step == 1
    assert result.info["feedback"] == ("score 0.5", "noted")
    assert newest(result).feedback == "score 0.5\n\nnoted"


def test_rewards_can_be_computed_again_for_a_step_that_was_taken() -> None:
    seen: list[tuple[State, Action, State]] = []
    inner = SingleTurnEnvironment([Problem(Task("t"))], rewards=[Graded()])
    with IterativeEnvironment(inner, extra_rewards=[Noting(seen)]) as env:
        state = begun(env)
        result = env.step(state, Action("0.5"))
        again = env.compute_rewards(state, Action("0.5"), result.next_state)
    assert again == result.rewards
    assert seen[1] == (state, Action("0.5"), result.next_state)


def test_judges_form_and_code_judge_one_step_together() -> None:
    """The composability that the page promises; the judge's words reach the solver."""
    inner = SingleTurnEnvironment([Problem(Task("Say yes."), expected_answer="yes")])
    judges = [
        JudgeReward(lambda messages: "Nearly. [[7]]", "iterative_feedback", name="kind"),
        JudgeReward(lambda messages: "No. [[4]]", "helpfulness", name="stern"),
    ]
    own: list[RewardFunction] = [FormatReward(TagBasedExtractor())]
    rewards = [*own, AnswerReward(TagBasedExtractor()), *judges]
    with IterativeEnvironment(inner, extra_rewards=rewards) as env:
        wrong = env.step(begun(env), Action("no"))
        right = env.step(wrong.next_state, Action("<answer>yes</answer>"))
    assert [signal.name for signal in wrong.rewards] == ["format", "correctness", "kind", "stern"]
    assert [signal.reward for signal in wrong.rewards] == [0.0, 0.0, 6 / 9, 3 / 9]
    for words in ("Nearly.", "No."):
        assert words in wrong.next_state.observation.prompt
    assert (wrong.done, right.terminated) == (False, True)


def test_a_judge_that_failed_is_not_held_against_the_model() -> None:
    inner = SingleTurnEnvironment([Problem(Task("Say yes."))])
    judge = JudgeReward(lambda messages: "I cannot say.", "correctness")
    with IterativeEnvironment(inner, extra_rewards=[judge]) as env:
        result = env.step(begun(env), Action("no"))
    assert [signal.reward for signal in result.rewards] == [None]
    assert (newest(result).verdict, result.done) == ("infra-error", False)


class Silent:
    name = "silent"
    reward_type = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        raise OSError("the disk is full")


def test_a_reward_function_that_fails_is_the_host_s_trouble_and_no_turn() -> None:
    with IterativeEnvironment(tasks=[GUESS], extra_rewards=(Silent(),)) as env:
        state = begun(env)
        with pytest.raises(Exception, match="the disk is full"):
            env.step(state, Action("1"))
    assert state.hidden.episode.turns == ()


@pytest.mark.parametrize(
    ("text", "finish", "extractor", "verdict", "told"),
    [
        ("0.5 and", "length", None, "incomplete-reply", True),
        ("0.5 and", "stop", None, "failed", False),
        ("0.5 <answer>0.5</answer> and", "length", TagBasedExtractor(), "failed", False),
        ("0.5 <answer>0.5 and", "length", TagBasedExtractor(), "incomplete-reply", True),
        ("1 and", "length", None, "solved", False),
    ],
)
def test_a_response_that_was_cut_off_is_told_so_and_is_no_plain_failure(
    text: str, finish: Finish, extractor: TagBasedExtractor | None, verdict: str, told: bool
) -> None:
    with guessing(submission_extractor=extractor) as env:
        result = env.step(begun(env), Action.from_reply(Reply(text, finish=finish)))
    assert newest(result).verdict == verdict
    assert ("was cut off before its end" in result.next_state.observation.prompt) == told


def test_one_task_needs_no_tuple() -> None:
    with IterativeEnvironment(tasks=GUESS, extra_rewards=(Graded(),)) as env:
        assert len(env) == 1


def test_a_task_s_prompt_can_be_recorded_and_sent_whatever_it_holds() -> None:
    inner = SingleTurnEnvironment([Problem(Task("caf\ud800"))])
    with IterativeEnvironment(inner) as env:
        state = begun(env)
    assert state.hidden.episode.task.prompt == state.observation.task == "caf\ufffd"
    state.observation.messages[0].content.encode()


def test_lone_surrogates_of_a_response_reach_neither_the_record_nor_the_next_prompt(
    env: IterativeEnvironment,
) -> None:
    result = env.step(begun(env), Action("0.5 \ud800"))
    assert newest(result).code == "0.5 \ufffd"
    for message in result.next_state.observation.messages:
        message.content.encode()
