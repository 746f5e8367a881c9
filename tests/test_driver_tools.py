"""A driver with tools, images, pauses, and an episode to go on from."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import nbrefine
from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.driver import Driver, EpisodeRun
from nbrefine.env import Environment, MultiStepEnvironment
from nbrefine.errors import KernelError, UsageError
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import Recorder
from nbrefine.state import Action, Observation, State, StepResult
from nbrefine.values import (
    Episode,
    Image,
    Message,
    Reply,
    SignalBundle,
    Stop,
    Task,
    Tool,
    ToolCall,
    Turn,
)

LOOK = Tool("look", "Look around.", {"type": "object", "properties": {}})
PLOT = Image("image/png", "iVBORw0KGgo=")


@dataclass(frozen=True)
class Held:
    episode: Episode
    step: int = 1


class Room(Environment):
    """Looks around until told "out"; goes on with an episode where it is given one.

    Parameters
    ----------
    tools: what is offered.
    images: what the prompts show.
    """

    def __init__(self, *tools: Any, images: tuple[Image, ...] = ()) -> None:
        self.tools = tools
        self.images = images
        self.actions: list[Action] = []

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        fresh = Episode(Task("Find the way out."), id="room", seed=seed, settings={"room": 7})
        episode: Episode = (options or {}).get("episode", fresh)
        return self._state(replace(episode, stop=None)), {}

    async def _step(self, state: State, action: Action) -> StepResult:
        self.actions.append(action)
        episode: Episode = state.hidden.episode
        out = action.text == "out"
        turn = Turn(
            number=len(episode.turns) + 1,
            step=state.hidden.step,
            attempt=1,
            messages=state.observation.messages,
            reply=action.reply,
            feedback="No way here.",
            accepted=True,
        )
        stop = Stop("solved", "out") if out else None
        after = replace(episode, turns=(*episode.turns, turn), stop=stop)
        return StepResult(self._state(after), SignalBundle.single(float(out)), terminated=out)

    def _state(self, episode: Episode) -> State:
        asked = Message("user", f"Turn {len(episode.turns) + 1}", self.images)
        shown = Observation(asked.content, (asked,), available_tools=self.tools)
        return State(shown, Held(episode, step=len(episode.turns) + 1))


def begun(env: Environment, replies: Any, *, paused: bool = False, **settings: Any) -> EpisodeRun:
    model = replies if hasattr(replies, "complete") else ScriptedModel(replies)
    driver = Driver(env, model, **settings)
    if paused:
        driver.pause()
    run = EpisodeRun(driver)
    if paused:
        settled(run, "paused")
    return run


def test_the_model_is_offered_the_tools_of_the_state_and_its_calls_are_the_action() -> None:
    env = Room(LOOK, "what an environment of its own kind offers")
    model = ScriptedModel([{"tool": "look", "arguments": {"at": "door"}}, "out"])
    episode = begun(env, model).result(60)
    call = ToolCall("look", {"at": "door"})
    assert model.offers == [(LOOK,), (LOOK,)]
    assert [action.tool_calls for action in env.actions] == [(call,), ()]
    assert episode.turns[0].reply is not None
    assert episode.turns[0].reply.tool_calls == (call,)


class Plain:
    """A model as users write them, from before there were tools."""

    name = "plain"

    async def check(self) -> None: ...

    def complete(
        self,
        messages: Sequence[Message],
        *,
        sampling: Any = None,
        budget: Budget | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Run[Reply]:
        return ScriptedModel(["out"]).complete(messages)

    async def aclose(self) -> None: ...


def test_a_model_without_tools_is_used_where_there_are_none_and_told_of_where_there_are() -> None:
    assert begun(Room(), Plain()).result(60).solved
    with pytest.raises(UsageError, match=r'plain takes no tools.*style="fenced"'):
        begun(Room(LOOK), Plain()).result(60)


@pytest.mark.parametrize("takes", [True, False])
def test_only_a_model_that_takes_images_is_sent_them_and_the_record_holds_what_was_sent(
    takes: bool, tmp_path: Path
) -> None:
    model = ScriptedModel(["left", "out"], takes_images=takes)
    path = tmp_path / "e.ipynb"
    episode = begun(Room(images=(PLOT,)), model, recorder=Recorder(path)).result(60)
    sent = [message.images for messages in model.requests for message in messages]
    assert sent == [(PLOT,) if takes else ()] * 2
    assert [turn.messages for turn in episode.turns] == model.requests
    assert nbrefine.load(path) == episode


def settled(run: EpisodeRun, doing: str) -> None:
    deadline = time.monotonic() + 60
    while run.activity.doing != doing:
        assert time.monotonic() < deadline, run.activity
        time.sleep(0.01)


def test_a_pause_takes_hold_before_the_next_call_of_the_model(tmp_path: Path) -> None:
    asked, answer = threading.Event(), threading.Event()

    def slowly(messages: Sequence[Message]) -> str:
        asked.set()
        assert answer.wait(60)
        return "left"

    model = ScriptedModel(slowly)
    path = tmp_path / "e.ipynb"
    run = begun(Room(), model, recorder=Recorder(path), budget=Budget(turns=3))
    assert asked.wait(60)
    run.pause()
    assert run.activity.doing == "asking"  # what has begun ends
    answer.set()
    settled(run, "paused")
    assert run.activity.turn == 2
    assert len(nbrefine.load(path).turns) == len(model.requests) == 1
    run.resume()
    episode = run.result(60)
    assert episode.stop is not None
    assert (episode.stop.reason, len(model.requests)) == ("budget", 3)
    run.pause()  # of an episode that has ended, nothing comes


def test_a_pause_asked_for_after_a_turn_is_kept_before_the_next(tmp_path: Path) -> None:
    runs: list[EpisodeRun] = []
    ready = threading.Event()

    def pause(episode: Episode) -> None:
        assert ready.wait(60)
        runs[0].pause()

    model = ScriptedModel(["left", "out"])
    runs.append(begun(Room(), model, on_turn=pause))
    ready.set()
    settled(runs[0], "paused")
    assert len(model.requests) == 1
    runs[0].resume()
    assert runs[0].result(60).solved


def test_stop_ends_a_pause() -> None:
    model = ScriptedModel(["out"])
    run = begun(Room(), model, paused=True)
    run.stop()
    episode = run.result(60)
    assert episode.stop == Stop("stopped", "stopped by a person")
    assert (model.requests, run.activity.doing) == ([], "closing")


def test_finish_lets_the_turn_end_and_asks_no_more() -> None:
    asked, answer = threading.Event(), threading.Event()

    def slowly(messages: Sequence[Message]) -> str:
        asked.set()
        assert answer.wait(60)
        return "left"

    model = ScriptedModel(slowly)
    run = begun(Room(), model)
    assert asked.wait(60)
    run.finish()
    answer.set()
    episode = run.result(60)
    assert episode.stop == Stop("stopped", "stopped by a person after a turn")
    assert (len(episode.turns), len(model.requests)) == (1, 1)
    run.finish()  # of an episode that has ended, nothing comes


def test_finish_leaves_a_turn_that_solves_it_its_own_end() -> None:
    asked, answer = threading.Event(), threading.Event()

    def slowly(messages: Sequence[Message]) -> str:
        asked.set()
        assert answer.wait(60)
        return "out"

    run = begun(Room(), ScriptedModel(slowly))
    assert asked.wait(60)
    run.finish()
    answer.set()
    assert run.result(60).solved


def test_finish_ends_a_pause() -> None:
    model = ScriptedModel(["out"])
    run = begun(Room(), model, paused=True)
    run.finish()
    episode = run.result(60)
    assert episode.stop == Stop("stopped", "stopped by a person")  # after none
    assert model.requests == []


def test_a_budget_is_asked_after_a_pause_not_before_it() -> None:
    budget = Budget(calls=1)
    model = ScriptedModel(["out"])
    run = begun(Room(), model, paused=True, budget=budget)
    budget.add_call()
    run.resume()
    episode = run.result(60)
    assert episode.stop is not None
    assert (episode.stop.reason, model.requests) == ("budget", [])


def test_an_episode_goes_on_in_its_own_record(tmp_path: Path) -> None:
    path = tmp_path / "e.ipynb"
    first = begun(
        Room(),
        ["left", "right"],
        recorder=Recorder(path),
        budget=Budget(turns=2),
        settings={"a": 1},
    ).result(60)
    assert first.settings == {"room": 7, "a": 1}  # what the environment says stays
    model = ScriptedModel(["out"], name="another")
    whole = begun(
        Room(),
        model,
        options={"episode": nbrefine.load(path)},
        recorder=Recorder(path, resume=True),
        settings={"a": 2},
    ).result(60)
    assert whole.turns[:2] == first.turns
    assert [message.content for message in model.requests[0]] == ["Turn 3"]
    assert whole.turns[2].reply is not None
    assert whole.turns[2].reply.sampling.seed == 3  # as if it had never ended
    assert (whole.solved, whole.model, whole.settings) == (True, "another", {"room": 7, "a": 2})
    assert nbrefine.load(path) == whole


def test_a_reply_that_nothing_judged_belongs_to_the_step_it_was_for() -> None:
    class Breaking(Room):
        async def _step(self, state: State, action: Action) -> StepResult:
            if len(state.hidden.episode.turns) == 2:
                raise KernelError("The kernel is gone")
            return await super()._step(state, action)

    with pytest.raises(KernelError) as caught:
        begun(Breaking(), ["left", "right", "out"]).result(60)
    assert isinstance(caught.value.episode, Episode)
    turns = [(turn.number, turn.step, turn.attempt) for turn in caught.value.episode.turns]
    assert turns == [(1, 1, 1), (2, 2, 1), (3, 3, 1)]


def test_a_real_session_is_worked_on_by_tools_and_paused_between_two_cells(tmp_path: Path) -> None:
    """One kernel, one record: the state of the session outlives the pause."""
    model = ScriptedModel(
        [
            {"tool": "run_cell", "arguments": {"code": "rows = [1, 2, 3]"}},
            {"tool": "inspect_variable", "arguments": {"name": "rows"}},
            {"tool": "run_cell", "arguments": '{"code": "len('},
            {"tool": "run_cell", "arguments": {"code": "print(sum(rows))"}},
            {"tool": "finish", "arguments": {"answer": "6"}},
        ]
    )
    path = tmp_path / "e.ipynb"
    env = MultiStepEnvironment(
        Task("What is the sum of 1, 2 and 3?"), style="tools", planning="none", cwd=tmp_path
    )
    run = begun(env, model, paused=True, recorder=Recorder(path))
    run.resume()
    episode = run.result(120)
    assert episode.solved
    assert episode.answer is not None
    assert episode.answer.text == "6"
    assert [turn.kind for turn in episode.turns] == [
        "attempt", "inspection", "attempt", "attempt", "answer",
    ]  # fmt: skip
    assert [turn.accepted for turn in episode.turns] == [True, False, False, True, False]
    assert "could not be read" in episode.turns[2].feedback
    offered = {tool.name for tool in model.offers[0]}
    assert {"run_cell", "inspect_variable", "read_file", "finish"} <= offered
    assert nbrefine.load(path) == episode
