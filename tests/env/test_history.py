"""What a prompt tells of earlier attempts, and that none is ever sent twice."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from nbrefine.budget import Budget
from nbrefine.env import (
    COUNTED_PROMPTS,
    IterativeEnvironment,
    IterativeTask,
    Problem,
    SingleTurnEnvironment,
)
from nbrefine.errors import BudgetExceeded, ModelUnavailableError, UsageError
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import from_notebook, to_notebook
from nbrefine.notebook.wording import facts
from nbrefine.rewards.judge import JudgeReward
from nbrefine.state import Action, State
from nbrefine.values import Message, Reply, RewardType, Signal, Task, Usage

TASKS = (IterativeTask("Say the word."),)


@dataclass(frozen=True)
class Echo:
    """Never content; its feedback names the response's first word."""

    name: str = "echo"
    reward_type: RewardType = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        word = (action.text or "").split()[0]
        return Signal(self.name, self.reward_type, 0.0, f"not the word: {word.upper()}")


def iterative(**settings: Any) -> IterativeEnvironment:
    chosen: dict[str, Any] = {"tasks": TASKS, "extra_rewards": (Echo(),), "max_turns": 9}
    return IterativeEnvironment(**(chosen | settings))


def states(env: IterativeEnvironment, *responses: str) -> list[State]:
    reached = [env.reset()[0]]
    for response in responses:
        reached.append(env.step(reached[-1], Action(response)).next_state)
    return reached


RESPONSES = ("first-try", "second-try", "third-try", "fourth-try")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"include_history": False},
        {"prompts": COUNTED_PROMPTS},
        {"prompts": {"feedback": "You sent {submission}: {feedback}\n{history_section}Again."}},
        {"history_summarizer": lambda submissions, _: "Earlier: " + ", ".join(submissions)},
        {"summarize_history": True, "env_model": lambda messages: "Earlier: this and that."},
    ],
    ids=["default", "no-history", "counted", "submission-in-feedback", "callable", "model"],
)
def test_no_attempt_is_sent_twice_and_roles_alternate(settings: dict[str, Any]) -> None:
    with iterative(**settings) as env:
        for at, state in enumerate(states(env, *RESPONSES)):
            chat = state.observation.messages
            sent = "\n".join(message.content for message in chat)
            assert [sent.count(word) <= 1 for word in RESPONSES] == [True] * 4
            assert all(sent.count(word.upper()) <= 1 for word in RESPONSES)
            if at:
                assert sent.count(RESPONSES[at - 1]) == 1  # the newest is always there
                assert state.observation.prompt in chat[-1].content
            assert sent.count("Say the word.") == 1
            roles = [message.role for message in chat]
            assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


def test_by_default_every_earlier_attempt_is_told_with_its_feedback() -> None:
    with iterative() as env:
        shown = states(env, *RESPONSES[:3])[-1].observation
    assert [message.role for message in shown.messages] == ["user", "assistant", "user"]
    assert shown.messages[1].content == "third-try"
    past = shown.prompt[shown.prompt.index("## Previous attempts") :]
    for turn, word in enumerate(RESPONSES[:2], 1):
        entry = f"### Turn {turn}\n**Submission:**\n{word}\n\n**Feedback:**\nnot the word: "
        assert f"{entry}{word.upper()}\n\n" in past
    assert "third-try" not in shown.prompt
    assert "THIRD-TRY" not in past


def test_history_begins_with_the_second_feedback() -> None:
    with iterative() as env:
        _, first, second = states(env, "a", "b")
    assert "Previous attempts" not in first.observation.prompt
    assert "Previous attempts" in second.observation.prompt


def test_without_history_only_the_current_feedback_is_shown() -> None:
    with iterative(include_history=False) as env:
        shown = states(env, *RESPONSES[:3])[-1].observation
    assert "not the word: THIRD-TRY" in shown.prompt
    for message in shown.messages:
        assert "first-try" not in message.content.lower()
        assert "second-try" not in message.content.lower()
    assert "Previous attempts" not in shown.prompt


def test_a_summarizer_is_given_what_came_before_in_a_thread_of_its_own() -> None:
    seen: list[tuple[Any, ...]] = []

    def my_summarizer(
        submissions: tuple[str, ...], feedback_history: tuple[tuple[str, ...], ...]
    ) -> str:
        seen.append((submissions, feedback_history, threading.current_thread().name))
        return f"You have made {len(submissions)} attempt(s) so far."

    with iterative(history_summarizer=my_summarizer) as env:
        shown = states(env, "a", "b", "c")[-1].observation.prompt
    assert seen == [
        (("a",), (("not the word: A",),), "nbrefine-user"),
        (("a", "b"), (("not the word: A",), ("not the word: B",)), "nbrefine-user"),
    ]
    assert "not the word: C\n\nYou have made 2 attempt(s) so far.\n\n" in shown
    assert "## Previous attempts" not in shown


def test_an_empty_summary_leaves_no_gap() -> None:
    with iterative(history_summarizer=lambda *_: "") as env:
        told = states(env, "a", "b")[-1].observation.prompt
    assert "not the word: B\n\nRevise" in told


def test_a_summarizer_that_gives_no_text_is_named() -> None:
    with iterative(history_summarizer=lambda *_: None) as env:
        state = states(env, "a")[-1]
        with pytest.raises(UsageError, match="history_summarizer gave NoneType"):
            env.step(state, Action("b"))


def test_what_summaries_of_the_history_take_is_in_the_record() -> None:
    model = ScriptedModel([Reply("One.", usage=Usage(7, 2)), Reply("Two.", usage=Usage(9, 3))])
    with iterative(summarize_history=True, env_model=model) as env:
        episode = states(env, "a-word", "b-word", "c-word")[-1].hidden.episode
    told = [turn.signals.by_name("history_summary") for turn in episode.turns]
    assert [signal and signal.metadata for signal in told] == [
        None,
        {"prompt_tokens": 7, "completion_tokens": 2},
        {"prompt_tokens": 9, "completion_tokens": 3},
    ]
    assert (episode.usage, episode.helper_usage) == (Usage(), Usage(16, 5))
    assert ("Tokens of helpers", "16 in, 5 out") in facts(episode)
    assert from_notebook(to_notebook(episode)) == episode


def test_what_judges_take_is_told_beside_the_solver_s_tokens() -> None:
    judge = JudgeReward([Reply("[[3]]", usage=Usage(11, 4))], "helpfulness")
    with iterative(extra_rewards=(judge,)) as env:
        episode = states(env, "a-word")[-1].hidden.episode
    assert (episode.usage, episode.helper_usage) == (Usage(), Usage(11, 4))


def test_the_environment_s_own_model_sums_up_what_came_before_the_newest_attempt() -> None:
    asked: list[list[Message]] = []

    def model(messages: list[Message]) -> str:
        asked.append(messages)
        return "Two words were tried in vain."

    budget = Budget(calls=5)
    with iterative(summarize_history=True, env_model=model, budget=budget) as env:
        shown = states(env, "a-word", "b-word", "c-word")[-1].observation.prompt
    assert "\n\nTwo words were tried in vain.\n\n" in shown
    assert "a-word" not in shown
    assert [message.role for message in asked[1]] == ["system", "user"]
    request = asked[1][1].content
    for told in ("Say the word.", "a-word", "not the word: A-WORD", "b-word", "B-WORD"):
        assert told in request
    assert "c-word" not in request.lower()
    assert budget.spent.calls == len(asked) == 2


def test_the_model_is_asked_only_where_its_summary_is_shown() -> None:
    with iterative(summarize_history=True, env_model=[], include_history=False) as env:
        states(env, "a", "b", "c")
    with iterative(summarize_history=False, env_model=[]) as env:
        assert "**Submission:**\na" in states(env, "a", "b")[-1].observation.prompt


def test_a_summary_that_cannot_be_had_is_the_host_s_trouble_and_no_turn() -> None:
    def gone(messages: list[Message]) -> str:
        raise ModelUnavailableError("There is no server")

    with iterative(summarize_history=True, env_model=gone) as env:
        state = states(env, "a")[-1]
        with pytest.raises(ModelUnavailableError):
            env.step(state, Action("b"))
        assert len(state.hidden.episode.turns) == 1
    with iterative(summarize_history=True, env_model=["x"], budget=Budget(calls=0)) as env:
        state = states(env, "a")[-1]
        with pytest.raises(BudgetExceeded):
            env.step(state, Action("b"))


class Closing(ScriptedModel):
    closed = False

    async def aclose(self) -> None:
        self.closed = True


def test_a_model_that_was_handed_in_stays_open() -> None:
    model = Closing(["x"])
    with iterative(summarize_history=True, env_model=model):
        pass
    assert not model.closed


def test_an_inner_environment_s_system_message_begins_every_chat() -> None:
    inner = SingleTurnEnvironment([Problem(Task("t"))], system_prompt="Answer in one word.")
    with IterativeEnvironment(inner, extra_rewards=(Echo(),)) as env:
        for state in states(env, "a", "b"):
            chat = state.observation.messages
            assert chat[0] == Message("system", "Answer in one word.")
            assert chat[1].content.startswith("t\n\nYou may end")
            assert [message.role for message in chat[1:]] == (
                ["user"] if len(chat) == 2 else ["user", "assistant", "user"]
            )


def test_a_response_without_text_leaves_no_empty_message() -> None:
    @dataclass(frozen=True)
    class Content:
        name: str = "c"
        reward_type: RewardType = RewardType.OUTCOME

        def compute(self, state: State, action: Action, next_state: State) -> Signal:
            return Signal(self.name, self.reward_type, 0.0)

    async def step() -> tuple[Message, ...]:
        async with IterativeEnvironment(tasks=TASKS, extra_rewards=(Content(),)) as env:
            state, _ = await env.areset()
            return (await env.astep(state, Action())).next_state.observation.messages

    chat = asyncio.run(step())
    assert [message.role for message in chat] == ["user"]
    assert "No specific feedback available." in chat[0].content


THOUGHT = "<think>\nlong thoughts\n</think>\n\n"


@pytest.mark.parametrize("settings", [{}, {"prompts": {"feedback": "{submission}: {feedback}"}}])
def test_what_a_model_thought_is_not_told_again(settings: dict[str, Any]) -> None:
    with iterative(**settings) as env:
        newest = states(env, THOUGHT + "first-try", THOUGHT + "second-try")[-1]
    assert "first-try" in newest.observation.prompt or settings
    assert "thoughts" not in newest.observation.prompt
    assert newest.hidden.submissions[0] == THOUGHT + "first-try"


def test_what_a_model_thought_while_it_summed_up_is_not_told() -> None:
    asked: list[str] = []

    def model(messages: Any) -> str:
        asked.append(messages[-1].content)
        return THOUGHT + "Nothing helped."

    with iterative(summarize_history=True, env_model=model) as env:
        newest = states(env, THOUGHT + "first-try", "second-try")[-1]
    assert "Nothing helped." in newest.observation.prompt
    assert "thoughts" not in newest.observation.prompt + "".join(asked)
