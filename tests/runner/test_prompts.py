"""Trajectories: how prompts are put together, and what is sampled and told of each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nbrefine.driver import Driver, EpisodeRun
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.models.recorded import RecordedModel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.rewards.format import AnswerReward
from nbrefine.runner import (
    HistoryEntry,
    PromptBudget,
    TrajectoryRunner,
    TurnInfoConfig,
    derived_seed,
    full_history,
    last_n_history,
    no_history,
    sliding_window_history,
)
from nbrefine.state import State
from nbrefine.stopping import StopRule
from nbrefine.values import (
    Message,
    Reply,
    Sampling,
    Task,
)
from tests.runner.telling import Plain, iterative, knowing, run


def chats(model: ScriptedModel) -> list[list[tuple[str, str]]]:
    return [[(message.role, message.content) for message in chat] for chat in model.requests]


def test_a_trajectory_is_run_to_its_end_and_says_what_it_was() -> None:
    runner = TrajectoryRunner(iterative(), ScriptedModel(knowing), seed=7)
    trajectory = runner.run_trajectory(2)
    assert trajectory.success
    assert [t.submission for t in trajectory.transitions] == ["zero", "two"]
    assert [t.terminated for t in trajectory.transitions] == [False, True]
    episode = trajectory.episode
    assert (episode.model, episode.seed) == ("scripted", derived_seed(7, 2))
    assert episode.settings == {
        "environment": "iterative_iterative",
        "max_turns": 3,
        "task_index": 2,
        "sample": 0,
        "rules": None,
        "temperature": 0.0,
        "top_p": None,
        "max_tokens": None,
    }


def test_an_answer_handed_in_wrong_is_no_success() -> None:
    trajectory = TrajectoryRunner(iterative(), ["SUBMIT zero"]).run_trajectory()
    assert trajectory.episode.stop is not None
    assert trajectory.episode.stop.reason == "submitted"
    assert (trajectory.success, trajectory.transitions[-1].terminated) == (False, True)


def test_by_default_the_environment_s_own_chat_is_sent() -> None:
    model = run(iterative(), ["a", "b", "four"])
    direct = ScriptedModel(["a", "b", "four"])
    EpisodeRun(Driver(iterative(), direct)).result(60)
    assert model.requests == direct.requests
    assert len(model.requests) == 3


def test_the_system_prompt_takes_the_place_of_the_environment_s() -> None:
    model = run(Plain(system="THEIRS"), ["a", "b", "c"], system_prompt="MINE")
    assert [[m.content for m in chat if m.role == "system"] for chat in model.requests] == [
        ["MINE"]
    ] * 3
    assert [chat[0].role for chat in model.requests] == ["system"] * 3
    kept = run(Plain(system="THEIRS"), ["a", "b", "c"])
    assert [chat[0] for chat in kept.requests] == [Message("system", "THEIRS")] * 3


def test_the_system_prompt_may_be_made_from_the_first_state_of_each_trajectory() -> None:
    states: list[State] = []

    def made(state: State) -> str:
        states.append(state)
        return f"For {state.observation.task}"

    model = run(iterative(), ["a", "b", "four"], system_prompt_fn=made)
    assert [chat[0] for chat in model.requests] == [Message("system", "For TASK0")] * 3
    assert [state.metadata.step for state in states] == [0]


def test_an_environment_that_shows_no_chat_gets_one_of_all_steps() -> None:
    assert chats(run(Plain(chat=False), ["a", "b", "c"]))[2] == [
        ("user", "TASK"),
        ("assistant", "a"),
        ("user", "FEEDBACK1"),
        ("assistant", "b"),
        ("user", "FEEDBACK2"),
    ]


@pytest.mark.parametrize("off", [None, False])
def test_turns_are_not_told_unless_asked_for(off: bool | None) -> None:
    model = run(Plain(), ["a", "b", "c"], turn_info=off)
    assert chats(model)[1] == [("user", "TASK"), ("assistant", "a"), ("user", "FEEDBACK1")]


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("history_fn", [None, full_history])
def test_turn_info_follows_the_task_and_precedes_what_is_newest(
    chat: bool, history_fn: Any
) -> None:
    """The defaults are those of the interface that this one implements."""
    model = run(Plain(chat=chat), ["a", "b", "c"], turn_info=True, history_fn=history_fn)
    assert chats(model) == [
        [("user", "[Turn 1/3]\nTASK\n\nYou have a maximum of 3 turns.")],
        [
            ("user", "TASK\n\nYou have a maximum of 3 turns."),
            ("assistant", "a"),
            ("user", "[Turn 2/3]\nFEEDBACK1"),
        ],
        [
            ("user", "TASK\n\nYou have a maximum of 3 turns."),
            ("assistant", "a"),
            ("user", "FEEDBACK1"),
            ("assistant", "b"),
            ("user", "[Turn 3/3]\nFEEDBACK2"),
        ],
    ]


def test_turn_info_without_a_limit_names_none() -> None:
    model = run(Plain(limit=None), ["a", "b", "c"], turn_info=True)
    assert chats(model)[0] == [("user", "[Turn 1]\nTASK")]
    assert chats(model)[1][-1] == ("user", "[Turn 2]\nFEEDBACK1")


def test_turn_info_is_worded_as_one_likes_and_other_braces_stay() -> None:
    info = TurnInfoConfig(" ({turns_remaining} of {max_steps}, {x})", "{turn}: ")
    model = run(Plain(), ["a", "b", "c"], turn_info=info)
    assert chats(model)[0] == [("user", "1: TASK (3 of 3, {x})")]
    assert chats(model)[2][0] == ("user", "TASK (1 of 3, {x})")
    assert chats(model)[2][-1] == ("user", "3: FEEDBACK2")


def test_no_history_shows_task_and_newest_feedback_alone() -> None:
    model = run(iterative(), ["a", "b", "four"], history_fn=no_history)
    shown = chats(model)[2]
    assert [role for role, _ in shown] == ["user"]
    assert shown[0][1].startswith("TASK0")
    assert shown[0][1].endswith("FEEDBACK on b")
    assert "FEEDBACK on a" not in shown[0][1]


def test_last_n_history_shows_the_last_attempts() -> None:
    model = run(iterative(), ["a", "b", "four"], history_fn=last_n_history(1))
    (_, task), *rest = chats(model)[2]
    assert task.startswith("TASK0")
    assert rest == [("assistant", "b"), ("user", "FEEDBACK on b")]


@pytest.mark.parametrize("history_fn", [None, full_history, no_history, last_n_history(1)])
@pytest.mark.parametrize("budget", [None, PromptBudget(30)])
@pytest.mark.parametrize("env", [iterative, Plain, lambda: Plain(chat=False)])
def test_whatever_the_settings_roles_alternate_and_the_last_word_is_the_user_s(
    env: Any, budget: Any, history_fn: Any
) -> None:
    model = run(
        env(),
        ["alpha", "", "gamma"],
        history_fn=history_fn,
        prompt_budget=budget,
        turn_info=True,
        system_prompt="S",
        format_reminder="R",
    )
    assert len(model.requests) == 3
    for turn, chat in enumerate(model.requests, 1):
        roles = [message.role for message in chat]
        assert roles[:2] == ["system", "user"]
        assert roles[-1] == "user"
        assert all(one != other for one, other in itertools.pairwise(roles))
        assert "TASK" in chat[1].content
        assert f"[Turn {turn}/3]" in chat[-1].content


@pytest.mark.parametrize(
    "history_fn", [None, full_history, last_n_history(2), sliding_window_history(500)]
)
@pytest.mark.parametrize("env", [iterative, Plain])
def test_no_attempt_and_no_feedback_is_sent_twice(env: Any, history_fn: Any) -> None:
    model = run(env(), ["alpha", "beta", "gamma"], history_fn=history_fn)
    shown = "\n".join(message.content for message in model.requests[2])
    assert "beta" in shown
    newest = "FEEDBACK on beta" if env is iterative else "FEEDBACK2"
    assert shown.count(newest) == 1
    for attempt in ("alpha", "beta"):
        assert shown.replace(f"FEEDBACK on {attempt}", "").count(attempt) <= 1


def test_a_prompt_budget_wins_over_the_history_function() -> None:
    asked: list[int] = []

    def build(entries: Sequence[HistoryEntry], room: int) -> Sequence[Message]:
        asked.append(len(entries))
        return ()

    def refused(entries: Sequence[HistoryEntry]) -> Sequence[Message]:
        raise AssertionError

    budget = PromptBudget(1000, build_history=build)
    run(iterative(), ["a", "b", "four"], prompt_budget=budget, history_fn=refused)
    assert asked == [1, 2]


def test_a_prompt_budget_keeps_prompts_within_its_tokens() -> None:
    replies = [word * 300 for word in ("a", "b", "c")]
    model = run(Plain(), replies, prompt_budget=PromptBudget(130, len))
    assert all(sum(len(m.content) for m in chat) <= 130 for chat in model.requests)
    assert chats(model)[2] == [("user", "TASK\n\nFEEDBACK2")]


THOUGHT = Reply("<think>\nHmm.\n</think>\n\nzero", reasoning="Deep down.")


@pytest.mark.parametrize("history_fn", [None, full_history])
def test_reasoning_is_left_out_of_the_history(history_fn: Any) -> None:
    model = run(Plain(), [THOUGHT, "b", "c"], history_fn=history_fn)
    assert chats(model)[1][1] == ("assistant", "zero")


@pytest.mark.parametrize("history_fn", [None, full_history])
def test_reasoning_is_in_the_history_where_it_is_asked_for(history_fn: Any) -> None:
    model = run(
        Plain(), [THOUGHT, "b", "c"], history_fn=history_fn, include_reasoning_in_history=True
    )
    shown = chats(model)[1][1][1]
    assert "Hmm." in shown
    assert "Deep down." in shown
    assert shown.endswith("zero")


@pytest.mark.parametrize("history_fn", [None, no_history])
def test_the_format_reminder_ends_every_prompt(history_fn: Any) -> None:
    model = run(iterative(), ["a", "b", "four"], format_reminder="REMIND", history_fn=history_fn)
    assert all(chat[-1].role == "user" for chat in model.requests)
    assert all(chat[-1].content.endswith("\n\nREMIND") for chat in model.requests)
    assert all(str(chat).count("REMIND") == 1 for chat in model.requests)


def test_the_record_of_a_composed_run_can_be_played_again() -> None:
    """The recorded model answers only the very prompts that were sent."""
    settings: dict[str, Any] = {"system_prompt": "S", "turn_info": True, "format_reminder": "R"}
    first = TrajectoryRunner(iterative(), ["a", "b", "four"], **settings).run_trajectory()
    again = TrajectoryRunner(iterative(), RecordedModel(first.episode), **settings).run_trajectory()
    assert [t.prompt for t in again.transitions] == [t.prompt for t in first.transitions]
    assert again.success


def test_sampling_is_as_given_and_seeds_differ_by_turn() -> None:
    sampling = Sampling(temperature=0.7, top_p=0.9, max_tokens=50)
    runner = TrajectoryRunner(iterative(), ["a", "b", "four"], sampling_params=sampling)
    drawn = [t.reply.sampling for t in runner.run_trajectory(seed=5).episode.turns if t.reply]
    assert drawn == [replace(sampling, seed=5000 + turn) for turn in (1, 2, 3)]


def test_without_a_seed_all_is_left_to_chance() -> None:
    episode = TrajectoryRunner(iterative(), ["four"], seed=None).run_trajectory().episode
    assert episode.seed is None
    assert episode.turns[0].reply is not None
    assert episode.turns[0].reply.sampling.seed is None


def test_every_task_and_every_sample_has_a_seed_of_its_own() -> None:
    seeds = {
        derived_seed(0, task, sample) for task, sample in itertools.product(range(50), repeat=2)
    }
    assert len(seeds) == 2500
    assert derived_seed(3, 0) != derived_seed(4, 0)
    biggest = max(derived_seed(10**9, task) for task in range(5000))
    assert 1000 * biggest + 999 < 2**31


def test_a_rule_stops_repeats_where_one_is_given() -> None:
    env = iterative(max_turns=9)
    free = TrajectoryRunner(env, itertools.repeat("zero")).run_trajectory()
    ruled = TrajectoryRunner(env, itertools.repeat("zero"), rules=StopRule()).run_trajectory()
    assert (free.length, ruled.length) == (9, 3)


def test_a_turn_is_numbered_before_what_is_newest_even_in_one_message_with_the_task() -> None:
    prompts = {"feedback": "You wrote {submission}: {feedback}"}
    env = iterative(prompts=prompts, include_history=False)
    model = ScriptedModel(["zero", "nought", "nil"])
    TrajectoryRunner(env, model, turn_info=True).run_trajectory()
    first, second, _ = ([m.content for m in chat if m.role == "user"] for chat in model.requests)
    assert len(second) == 1
    assert first[0].startswith("[Turn 1/3]\n")
    task = first[0].removeprefix("[Turn 1/3]\n")
    assert second[0] == f"{task}\n\n[Turn 2/3]\nYou wrote zero: FEEDBACK on zero"


def test_a_single_answer_is_a_trajectory_too() -> None:
    problem = Problem(Task("TASK"), expected_answer="four")
    env = SingleTurnEnvironment([problem, problem], rewards=(AnswerReward(),))
    right, wrong = TrajectoryRunner(env, ["four", "zero"]).run_batch([0, 1], batch_size=1)
    assert [(t.length, t.success) for t in (right, wrong)] == [(1, True), (1, False)]
    assert all(t.transitions[0].terminated for t in (right, wrong))
