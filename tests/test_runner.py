"""Trajectories: how prompts are put together, and many episodes side by side."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import nbrefine
from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.driver import Driver, EpisodeRun
from nbrefine.env import Environment, NotebookEnvironment
from nbrefine.env.iterative import IterativeEnvironment, IterativeTask
from nbrefine.env.single import Problem, SingleTurnEnvironment
from nbrefine.errors import (
    KernelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RecordError,
    RunStopped,
    UsageError,
)
from nbrefine.models.recorded import RecordedModel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import load
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
from nbrefine.state import Action, EnvironmentSpec, Observation, State, StateMetadata, StepResult
from nbrefine.stopping import StopRule
from nbrefine.trajectory import Trajectory
from nbrefine.values import (
    Episode,
    Message,
    Reply,
    RewardType,
    Sampling,
    Signal,
    SignalBundle,
    Task,
)

ANSWERS = ["four", "nine", "two", "six", "ten", "one"]


def iterative(**settings: Any) -> IterativeEnvironment:
    tasks = [IterativeTask(f"TASK{n}", answer) for n, answer in enumerate(ANSWERS)]
    return IterativeEnvironment(tasks=tasks, extra_rewards=(Told(),), **settings)


class Told:
    """An outcome reward that says what was wrong."""

    name = "answer"
    reward_type = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        right = next_state.hidden.submissions[-1] == state.hidden.ground_truth
        said = None if right else f"FEEDBACK on {next_state.hidden.submissions[-1]}"
        return Signal(self.name, self.reward_type, float(right), said)


def knowing(messages: Sequence[Message]) -> str:
    """Answer wrongly first, and rightly as soon as there is any feedback."""
    task = next(word for m in messages for word in m.content.split() if word.startswith("TASK"))
    return ANSWERS[int(task[4:])] if "FEEDBACK" in messages[-1].content else "zero"


def chats(model: ScriptedModel) -> list[list[tuple[str, str]]]:
    return [[(message.role, message.content) for message in chat] for chat in model.requests]


def run(environment: Environment, replies: Any, **settings: Any) -> ScriptedModel:
    model = ScriptedModel(replies)
    TrajectoryRunner(environment, model, **settings).run_trajectory()
    return model


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


class Plain(Environment):
    """Three turns, each told as a text or a chat; keeps no episode of its own."""

    def __init__(self, *, system: str = "", chat: bool = True, limit: int | None = 3) -> None:
        self.system = system
        self.chat = chat
        self.limit = limit

    @property
    def spec(self) -> EnvironmentSpec:
        return EnvironmentSpec("plain", "test", max_steps=self.limit, pure_step=True)

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        opening = [Message("system", self.system)] if self.system else []
        chat = (*opening, Message("user", "TASK")) if self.chat else ()
        return State(Observation("TASK", chat)), {}

    async def _step(self, state: State, action: Action) -> StepResult:
        step = state.metadata.step + 1
        said = Message("assistant", action.text or "")
        told = f"FEEDBACK{step}"
        chat = (*state.observation.messages, said, Message("user", told)) if self.chat else ()
        return StepResult(
            State(Observation(told, chat), metadata=StateMetadata(step)),
            SignalBundle(),
            truncated=step == 3,
        )


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


def test_a_batch_keeps_the_order_of_its_tasks_and_numbers_the_samples() -> None:
    gate = threading.Barrier(2)

    def answer(messages: Sequence[Message]) -> str:
        gate.wait(60)  # two are asked at once, or this breaks
        return knowing(messages)

    runner = TrajectoryRunner(iterative(), ScriptedModel(answer))
    batch = runner.run_batch([3, 1, 3, 0], batch_size=2)
    assert [(t.task_index, t.sample) for t in batch] == [(3, 0), (1, 0), (3, 1), (0, 0)]
    assert [t.transitions[-1].submission for t in batch] == ["six", "nine", "six", "four"]
    assert all(t.success for t in batch)
    assert len({t.episode.seed for t in batch}) == 4
    assert len({t.episode.id for t in batch}) == 4


def test_no_more_run_at_once_than_the_batch_size() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def answer(messages: Sequence[Message]) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        reply = knowing(messages)
        with lock:
            now -= 1
        return reply

    TrajectoryRunner(iterative(), answer).run_batch(range(6), batch_size=2)
    assert 1 <= most <= 2


def test_progress_is_told_once_for_every_trajectory_in_order() -> None:
    told: list[tuple[int, int]] = []
    runner = TrajectoryRunner(iterative(), knowing)
    runner.run_batch(range(5), 3, lambda done, total: told.append((done, total)))
    assert told == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]


def test_an_empty_batch_is_empty() -> None:
    assert TrajectoryRunner(iterative(), knowing).run_batch([]) == []


def test_a_progress_callback_that_raises_ends_the_batch_and_releases_all() -> None:
    made: list[Counted] = []

    def failing(done: int, total: int) -> None:
        raise ZeroDivisionError("mine")

    runner = TrajectoryRunner(backend=knowing, env_factory=lambda: Counted(made))
    with pytest.raises(ZeroDivisionError, match="mine"):
        runner.run_batch(range(6), 2, failing)
    assert made
    assert all(env.closed == 1 for env in made)


class Counted(IterativeEnvironment):
    """Counts how often it was closed."""

    def __init__(self, made: list[Counted], *, broken: bool = False) -> None:
        tasks = [IterativeTask(f"TASK{n}", answer) for n, answer in enumerate(ANSWERS)]
        super().__init__(tasks=tasks, extra_rewards=(Told(),))
        self.closed = 0
        self.broken = broken
        made.append(self)

    async def _close(self) -> None:
        self.closed += 1

    async def _step(self, state: State, action: Action) -> StepResult:
        if self.broken:
            raise KernelError("The kernel is gone")
        return await super()._step(state, action)


def test_a_factory_makes_one_environment_a_trajectory_and_each_is_closed() -> None:
    made: list[Counted] = []
    runner = TrajectoryRunner(backend=knowing, env_factory=lambda: Counted(made))
    assert all(t.success for t in runner.run_batch(range(4), 2))
    assert runner.run_trajectory(1).success
    assert [env.closed for env in made] == [1] * 5


def test_an_environment_that_was_handed_in_stays_open() -> None:
    env = Counted([])
    TrajectoryRunner(env, knowing).run_batch(range(3))
    assert env.closed == 0


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


def test_one_trajectory_s_trouble_is_its_own() -> None:
    made: list[Counted] = []
    number = itertools.count()

    def make() -> Counted:
        match next(number):
            case 1:
                return Counted(made, broken=True)
            case 2:
                raise OSError("no room")
        return Counted(made)

    runner = TrajectoryRunner(backend=knowing, env_factory=make)
    fine, broken, unmade, fine_too = runner.run_batch(range(4), batch_size=1)
    assert [fine.success, fine_too.success] == [True, True]
    assert [t.episode.verdict for t in (broken, unmade)] == ["infra-error"] * 2
    assert broken.episode.stop is not None
    assert broken.episode.stop.detail == "The kernel is gone"
    assert unmade.episode.stop is not None
    assert unmade.episode.stop.detail == "OSError: no room"
    assert (unmade.task_index, unmade.length) == (2, 0)
    assert [env.closed for env in made] == [1, 1, 1]


def test_the_turns_before_a_trouble_are_kept() -> None:
    def answer(messages: Sequence[Message]) -> str:
        if "FEEDBACK" in messages[-1].content:
            raise ModelUnavailableError("The server is gone")
        return "zero"

    (trajectory,) = TrajectoryRunner(iterative(), answer).run_batch([1])
    assert (trajectory.length, trajectory.episode.verdict) == (1, "infra-error")


def test_a_single_trajectory_raises_its_trouble() -> None:
    runner = TrajectoryRunner(backend=knowing, env_factory=lambda: Counted([], broken=True))
    with pytest.raises(KernelError):
        runner.run_trajectory()


class Unreachable(ScriptedModel):
    async def check(self) -> None:
        raise ModelUnavailableError("There is no server")


def test_a_model_that_cannot_be_used_is_told_before_a_batch_begins() -> None:
    told: list[int] = []
    runner = TrajectoryRunner(iterative(), Unreachable([]))
    with pytest.raises(ModelUnavailableError):
        runner.run_batch(range(3), progress_callback=lambda done, total: told.append(done))
    assert told == []


def test_bad_settings_are_refused() -> None:
    env = iterative()
    with pytest.raises(UsageError, match="environment or an env_factory"):
        TrajectoryRunner(backend=["x"])
    with pytest.raises(UsageError, match="environment or an env_factory"):
        TrajectoryRunner(env, ["x"], env_factory=iterative)
    with pytest.raises(UsageError, match="system_prompt"):
        TrajectoryRunner(env, ["x"], system_prompt="S", system_prompt_fn=lambda state: "S")
    with pytest.raises(UsageError, match="list is no environment"):
        TrajectoryRunner([], ["x"])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="list is no environment"):
        TrajectoryRunner(backend=["x"], env_factory=list).run_trajectory()  # type: ignore[arg-type]
    runner = TrajectoryRunner(env, ["x"])
    with pytest.raises(UsageError, match="batch_size"):
        runner.run_batch([0], batch_size=0)
    with pytest.raises(UsageError, match="task_index is 6, but there are 6 tasks"):
        runner.run_batch([0, 6])
    with pytest.raises(UsageError, match="task_index is -1"):
        runner.run_trajectory(-1)


def test_a_batch_that_is_stopped_gives_what_there_is_of_each() -> None:
    hanging = threading.Event()

    async def answer(messages: Sequence[Message]) -> str:
        if "TASK1" in str(messages) and "FEEDBACK" in messages[-1].content:
            hanging.set()
            await asyncio.sleep(3600)
        return knowing(messages)

    made: list[Counted] = []
    runner = TrajectoryRunner(backend=answer, env_factory=lambda: Counted(made))
    run = runner.arun_batch([0, 1, 2, 3], batch_size=1)
    assert hanging.wait(60)
    run.stop()
    done, cut, *unbegun = run.result(60)
    assert done.success
    assert (cut.length, cut.task_index) == (1, 1)
    assert [t.length for t in unbegun] == [0, 0]
    for trajectory in (cut, *unbegun):
        assert trajectory.episode.stop is not None
        assert trajectory.episode.stop.reason == "stopped"
    assert [env.closed for env in made] == [1, 1]


def test_a_stopped_trajectory_gives_what_there_is_of_it() -> None:
    hanging = threading.Event()

    async def answer(messages: Sequence[Message]) -> str:
        if "FEEDBACK" in messages[-1].content:
            hanging.set()
            await asyncio.sleep(3600)
        return "zero"

    run = TrajectoryRunner(iterative(), answer).arun_trajectory(0)
    assert hanging.wait(60)
    run.stop()
    trajectory = run.result(60)
    assert isinstance(trajectory, Trajectory)
    assert trajectory.length == 1


def test_a_run_that_is_stopped_at_once_leaves_nothing() -> None:
    made: list[Counted] = []
    runner = TrajectoryRunner(backend=knowing, env_factory=lambda: Counted(made))

    async def main() -> list[Trajectory]:
        run, batch = runner.arun_trajectory(0), runner.arun_batch(range(3))
        run.stop()
        batch.stop()
        with pytest.raises(RunStopped):
            await run
        return await batch

    # On the portal's own loop, so that neither has come far when it is stopped.
    stops = [trajectory.episode.stop for trajectory in Run(main()).result(60)]
    assert [stop.reason for stop in stops if stop] == ["stopped"] * 3
    assert all(env.closed == 1 for env in made)


def test_a_trajectory_that_waits_for_another_can_be_stopped_at_once() -> None:
    """An environment that does not call its step pure takes one trajectory at a time."""
    asked, go = threading.Event(), threading.Event()

    class Impure(Plain):
        @property
        def spec(self) -> EnvironmentSpec:
            return replace(super().spec, pure_step=False)

    def answer(messages: Sequence[Message]) -> str:
        asked.set()
        go.wait(60)
        return "zero"

    runner = TrajectoryRunner(Impure(), answer)
    first, second = runner.arun_trajectory(0), runner.arun_trajectory(1)
    assert asked.wait(60)
    second.stop()
    with pytest.raises(RunStopped):
        second.result(60)
    go.set()
    assert first.result(60).length == 3


def test_awaited_on_a_loop_of_the_caller_it_gives_the_same() -> None:
    async def main() -> list[bool]:
        runner = TrajectoryRunner(iterative(), knowing)
        alone = await runner.arun_trajectory(1)
        return [alone.success, *(t.success for t in await runner.arun_batch([0, 2]))]

    assert asyncio.run(main()) == [True] * 3


def test_a_budget_holds_for_all_trajectories_together() -> None:
    budget = Budget(calls=3)
    runner = TrajectoryRunner(iterative(), knowing, budget=budget)
    batch = runner.run_batch(range(4), batch_size=1)
    assert [t.length for t in batch] == [2, 1, 0, 0]
    assert [t.episode.stop.reason for t in batch if t.episode.stop] == [
        "solved",
        "budget",
        "budget",
        "budget",
    ]


def test_a_model_made_here_is_closed_with_the_runner_and_one_handed_in_is_not() -> None:
    closed: list[str] = []

    class Closable(ScriptedModel):
        async def aclose(self) -> None:
            closed.append(self.name)

    with TrajectoryRunner(iterative(), Closable(knowing)) as runner:
        assert runner.run_trajectory().success
    assert closed == []
    with TrajectoryRunner(iterative(), knowing) as runner:
        runner._model.aclose = lambda: _note(closed)  # type: ignore[method-assign]
    assert closed == ["ours"]


async def _note(closed: list[str]) -> None:
    closed.append("ours")


def test_each_trajectory_has_a_notebook_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    runner = TrajectoryRunner(iterative(), knowing, record=folder)
    batch = runner.run_batch([1, 0, 1])
    names = ["task-0001.ipynb", "task-0000.ipynb", "task-0001-sample-01.ipynb"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for name, trajectory in zip(names, batch, strict=True):
        assert nbrefine.load(folder / name) == trajectory.episode
    with pytest.raises(RecordError, match="holds an episode already"):
        runner.run_batch([2, 1])
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    again = TrajectoryRunner(iterative(), knowing, record=folder, overwrite=True)
    assert again.run_batch([1])[0].success


def test_a_notebook_may_be_named_by_what_its_episode_is_about(tmp_path: Path) -> None:
    def named(episode: Episode, task_index: int, sample: int) -> str:
        return f"{episode.task.prompt.split()[0]}-{task_index}-{sample}.ipynb"

    runner = TrajectoryRunner(iterative(), knowing, record=tmp_path, record_as=named)
    batch = runner.run_batch([1, 1])
    names = [f"{batch[0].episode.task.prompt.split()[0]}-1-{n}.ipynb" for n in range(2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert [nbrefine.load(tmp_path / name) for name in names] == [t.episode for t in batch]
    assert runner.run_batch([1])[0].episode.verdict == "infra-error"  # there is one already


def test_the_name_of_one_notebook_is_no_folder_of_records(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one for every episode"):
        TrajectoryRunner(iterative(), knowing, record=tmp_path / "runs.ipynb")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_records_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    runner = TrajectoryRunner(iterative(), knowing, record=tmp_path / "file" / "runs")
    with pytest.raises(UsageError, match="cannot be a folder of records"):
        runner.run_batch([0])
    with pytest.raises(UsageError, match="cannot be a folder of records"):
        runner.run_trajectory(0)


def test_the_log_gets_a_line_for_every_turn_and_every_end() -> None:
    lines: list[str] = []
    TrajectoryRunner(iterative(), knowing, log=lines.append).run_batch([1, 1], batch_size=1)
    assert lines == [
        "task 1: turn 1 failed",
        "task 1: turn 2 solved",
        "task 1: Solved after 2 turns: the best outcome reward is 1.",
        "task 1, sample 1: turn 1 failed",
        "task 1, sample 1: turn 2 solved",
        "task 1, sample 1: Solved after 2 turns: the best outcome reward is 1.",
    ]


def test_the_log_tells_of_a_trajectory_in_trouble_too() -> None:
    def broken(messages: object) -> str:
        raise ModelTimeoutError("The server is slow")

    lines: list[str] = []
    TrajectoryRunner(iterative(), broken, log=lines.append).run_batch([1])
    assert [line.startswith("task 1: ") and "slow" in line for line in lines] == [True]


def test_trouble_of_the_log_at_the_end_is_the_caller_s_and_no_trajectory_s() -> None:
    def log(line: str) -> None:
        if "Solved" in line:
            raise LookupError("no log")

    runner = TrajectoryRunner(iterative(), knowing, log=log)
    with pytest.raises(LookupError, match="no log"):
        runner.run_batch([0, 1])
    with pytest.raises(LookupError, match="no log"):
        runner.run_trajectory(0)


class Whole:
    """A whole number that is no int, as those of numpy are."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def test_an_index_of_any_whole_number_is_recorded_as_an_int(tmp_path: Path) -> None:
    runner = TrajectoryRunner(iterative(), knowing, record=tmp_path)
    (told,) = runner.run_batch([Whole(1)])  # type: ignore[list-item]
    assert (told.task_index, type(told.task_index)) == (1, int)
    recorded = Trajectory(load(tmp_path / "task-0001.ipynb"))
    assert (recorded.task_index, recorded.success) == (1, True)
    with pytest.raises(UsageError, match="no whole number"):
        runner.run_batch(["1"])  # type: ignore[list-item]


def test_a_single_answer_is_a_trajectory_too() -> None:
    problem = Problem(Task("TASK"), expected_answer="four")
    env = SingleTurnEnvironment([problem, problem], rewards=(AnswerReward(),))
    right, wrong = TrajectoryRunner(env, ["four", "zero"]).run_batch([0, 1], batch_size=1)
    assert [(t.length, t.success) for t in (right, wrong)] == [(1, True), (1, False)]
    assert all(t.transitions[0].terminated for t in (right, wrong))


def test_trajectories_share_the_executor_of_their_environment_and_keep_their_tests_apart() -> None:
    def answer(messages: Sequence[Message]) -> str:
        asked = next(message for message in messages if message.role == "user")
        number = asked.content.split()[3]
        right = "tests passed" in messages[-1].content
        return f"```python\nx = {number if right else 'None'}\n```"

    tasks = [IterativeTask(f"Set x to {n}", test_code=f"assert x == {n}") for n in range(8)]
    before = set(psutil.Process().children(recursive=True))
    with IterativeEnvironment(tasks=tasks) as env:
        batch = TrajectoryRunner(env, answer).run_batch(range(8), batch_size=4)
        assert set(psutil.Process().children(recursive=True)) - before
    assert [t.success for t in batch] == [True] * 8
    assert [t.length for t in batch] == [2] * 8
    for n, trajectory in enumerate(batch):
        tests = trajectory.episode.turns[-1].tests
        assert tests is not None
        assert [case.expression for case in tests.cases] == [f"x == {n}"]
    assert set(psutil.Process().children(recursive=True)) - before == set()


TASKS = [
    Task("Write add(a, b).", "add", tests="assert add(1, 2) == 3"),
    Task("Write neg(a).", "neg", tests="assert neg(2) == -2"),
]
SOLUTIONS = {
    "add": ["```python\nadd = 1\n```", "```python\ndef add(a, b):\n    return a + b\n```"],
    "neg": ["```python\nneg = 1\n```", "```python\ndef neg(a):\n    return -a\n```"],
}


def coder(messages: Sequence[Message]) -> str:
    task = "add" if "Write add" in str(messages) else "neg"
    return SOLUTIONS[task]["tests passed" in messages[-1].content]


def test_notebook_environments_of_a_factory_run_side_by_side_on_kernels_of_their_own(
    tmp_path: Path,
) -> None:
    runner = TrajectoryRunner(
        backend=coder, env_factory=lambda: NotebookEnvironment(TASKS), record=tmp_path / "runs"
    )
    batch = runner.run_batch([0, 1], batch_size=2)
    assert [t.success for t in batch] == [True, True]
    assert [t.length for t in batch] == [2, 2]
    assert len({t.episode.kernel.pid for t in batch}) == 2
    assert [t.episode.task.id for t in batch] == ["add", "neg"]
    assert nbrefine.load(tmp_path / "runs" / "task-0001.ipynb") == batch[1].episode


def test_one_notebook_environment_runs_its_trajectories_one_after_the_other() -> None:
    with NotebookEnvironment(TASKS) as env:
        model = ScriptedModel(coder)
        runner = TrajectoryRunner(env, model, system_prompt="MINE", turn_info=True)
        batch = runner.run_batch([0, 1], batch_size=2)
    assert [t.success for t in batch] == [True, True]
    assert all(chat[0] == Message("system", "MINE") for chat in model.requests)
    assert all("[Turn " in chat[-1].content for chat in model.requests)


def test_a_notebook_environment_can_be_used_on_after_a_stop_within_a_cell(tmp_path: Path) -> None:
    started = tmp_path / "started"
    hang = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(3600)"
    with NotebookEnvironment(TASKS, timeout=None) as env:
        stuck = TrajectoryRunner(env, [f"```python\n{hang}\n```"]).arun_trajectory(0)
        _wait_until(started.exists)
        stuck.stop()
        (turn,) = stuck.result(60).episode.turns  # its reply was paid for
        assert (turn.verdict, turn.code) == ("infra-error", "")
        assert TrajectoryRunner(env, coder).run_trajectory(1).success


HANGING = '''
import sys
from nbrefine.env import NotebookEnvironment
from nbrefine.runner import TrajectoryRunner
from nbrefine.values import Task

home, pids, runs = sys.argv[1:]
cell = f"""
import os, pathlib, time
(pathlib.Path({pids!r}) / str(os.getpid())).touch()
time.sleep(3600)
"""

def make():
    return NotebookEnvironment(Task("t"), timeout=None, cwd=home)

runner = TrajectoryRunner(backend=lambda messages: f"```python{cell}```", env_factory=make,
                          record=runs)
runner.run_batch([0, 0], batch_size=2)
'''


def test_ctrl_c_ends_every_kernel_of_a_batch_and_closes_every_record(tmp_path: Path) -> None:
    home, pids, runs = (tmp_path / name for name in ("home", "pids", "runs"))
    home.mkdir()
    pids.mkdir()
    script = [sys.executable, "-c", HANGING, *map(str, (home, pids, runs))]
    process = subprocess.Popen(script, stderr=subprocess.PIPE, text=True)
    try:
        _wait_until(lambda: len(list(pids.iterdir())) == 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(60)
    assert err.splitlines()[-1] == "KeyboardInterrupt"
    _wait_until(lambda: not any(psutil.pid_exists(int(path.name)) for path in pids.iterdir()))
    names = ["task-0000-sample-01.ipynb", "task-0000.ipynb"]
    assert sorted(path.name for path in runs.iterdir()) == names  # no journal is left
    for name in names:
        stop = nbrefine.load(runs / name).stop
        assert stop is not None
        assert stop.reason == "stopped"


def _wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)
