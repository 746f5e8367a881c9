"""The one fold: any environment driven to an ended, recorded episode."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import nbrefine
from nbrefine.budget import Budget
from nbrefine.driver import Driver, EpisodeRun, stop_for
from nbrefine.env import Environment
from nbrefine.errors import InvalidTaskError, KernelError, RecordError, RunStopped
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import Recorder
from nbrefine.notebook.journal import Journal
from nbrefine.state import Action, Observation, State, StateMetadata, StepResult
from nbrefine.stopping import StopRule
from nbrefine.values import (
    Episode,
    Message,
    Reply,
    RewardType,
    Sampling,
    Signal,
    SignalBundle,
    Stop,
    Task,
    Turn,
    Usage,
)
from nbrefine.views.terminal import show


class Guess(Environment):
    """Guess a word within three turns: an environment that keeps no episode, as a user's own."""

    def __init__(self, *, chat: bool = False) -> None:
        self.chat = chat
        self.resets: list[tuple[int | None, dict[str, Any] | None]] = []
        self.closed = 0

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        self.resets.append((seed, options))
        shown = (Message("user", "Guess!"),) if self.chat else ()
        return State(Observation("Guess!", shown, task="Guess a word.")), {}

    async def _step(self, state: State, action: Action) -> StepResult:
        text = (action.text or "").strip()
        step, right = state.metadata.step + 1, text == "yes"
        last = right or text == "done" or step == 3
        signal = Signal("word", RewardType.OUTCOME, float(right), None if right else f"Not {text}.")
        shown = state.observation.messages
        if self.chat:
            shown += (Message("assistant", text), Message("user", f"Not {text}."))
        observation = Observation("Over." if last else f"Not {text}.", () if last else shown)
        return StepResult(
            State(observation, metadata=StateMetadata(step, is_terminal=last)),
            SignalBundle((signal,)),
            terminated=right or text == "done",
            truncated=last and not right and text != "done",
            extracted_action=text.upper(),
        )

    async def _close(self) -> None:
        self.closed += 1


@dataclass(frozen=True)
class Own:
    episode: Episode
    escalated: bool = False


class Keeping(Environment):
    """Keeps its own episode, as the environments of the package do, and ends it at "yes"."""

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        episode = Episode(Task("Guess a word.", id="own"), id="e-1", seed=seed)
        return State(Observation("Guess!", (Message("user", "Guess!"),)), Own(episode)), {}

    async def _step(self, state: State, action: Action) -> StepResult:
        episode: Episode = state.hidden.episode
        text = action.text or ""
        number = len(episode.turns) + 1
        shown = state.observation.messages if action.reply else ()
        turn = Turn(number, attempt=number, messages=shown, reply=action.reply, feedback="No.")
        stop = Stop("solved", "yes") if text == "yes" else None
        episode = replace(episode, turns=(*episode.turns, turn), stop=stop)
        chat = (*state.observation.messages, Message("assistant", text), Message("user", "No."))
        return StepResult(
            State(Observation("No.", chat), Own(episode, escalated=number >= 2)),
            SignalBundle.single(float(stop is not None)),
            terminated=stop is not None,
        )


def drive(env: Environment, replies: Any, **settings: Any) -> Episode:
    model = replies if hasattr(replies, "complete") else ScriptedModel(replies)
    return EpisodeRun(Driver(env, model, **settings)).result(60)


def test_the_episode_of_an_environment_without_one_is_put_together_from_its_steps() -> None:
    episode = drive(Guess(), ["no", Reply("yes", usage=Usage(7, 2), seconds=1.5)])
    first, second = episode.turns
    assert episode.task == Task("Guess a word.")
    assert episode.id
    assert episode.solved
    assert episode.model == "scripted"
    assert (first.number, first.attempt, second.number, second.attempt) == (1, 1, 2, 2)
    assert (first.verdict, first.accepted, second.verdict, second.accepted) == (
        "failed", False, "solved", True,
    )  # fmt: skip
    assert (first.code, second.code) == ("NO", "YES")  # as the environment read them
    assert first.reply is not None
    assert first.reply.text == "no"
    assert first.feedback == "Not no."
    assert first.messages == (Message("user", "Guess!"),)
    assert second.messages == (Message("user", "Not no."),)
    assert first.signals.total == 0.0
    assert second.signals.total == 1.0
    assert second.seconds >= 1.5
    assert episode.usage == Usage(7, 2)


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        (["yes"], "solved"),
        (["done"], "submitted"),
        (["a", "b", "c"], "max-turns"),
    ],
)
def test_how_such_an_environment_ended_is_told_by_its_last_step(
    replies: list[str], reason: str
) -> None:
    episode = drive(Guess(), replies)
    assert episode.stop is not None
    assert episode.stop.reason == reason
    assert episode.solved == (reason == "solved")


@given(st.lists(st.sampled_from(["a", "b", "yes", "done"]), min_size=3, max_size=3))
def test_any_row_of_replies_ends_where_the_environment_ends_it(replies: list[str]) -> None:
    ends = (n for n, reply in enumerate(replies, 1) if reply in ("yes", "done") or n == 3)
    length = next(ends)
    reasons = {"yes": "solved", "done": "submitted"}
    episode = drive(Guess(), replies)
    assert [turn.code for turn in episode.turns] == [r.upper() for r in replies[:length]]
    assert episode.stop is not None
    assert episode.stop.reason == reasons.get(replies[length - 1], "max-turns")
    assert [turn.accepted for turn in episode.turns] == [r == "yes" for r in replies[:length]]


class Judging(Guess):
    """Says itself whether a step has solved the task, whatever its rewards."""

    async def _step(self, state: State, action: Action) -> StepResult:
        result = await super()._step(state, action)
        return replace(result, info={"solved": action.text == "done"})


def test_an_environment_that_says_whether_it_is_solved_is_believed() -> None:
    assert drive(Judging(), ["done"]).solved
    stop = drive(Judging(), ["yes"]).stop
    assert stop is not None
    assert stop.reason == "submitted"


class Odd(Guess):
    """Speaks in lone surrogates, which no record can hold."""

    async def _step(self, state: State, action: Action) -> StepResult:
        result = await super()._step(state, action)
        said = replace(result.next_state.observation, prompt="no\ud800")
        return replace(
            result,
            next_state=replace(result.next_state, observation=said),
            extracted_action="x\ud800",
        )


def test_what_no_record_can_hold_is_the_same_in_episode_and_record(tmp_path: Path) -> None:
    path = tmp_path / "e.ipynb"
    episode = drive(Odd(), ["a", "yes"], recorder=Recorder(path))
    assert (episode.turns[0].feedback, episode.turns[0].code) == ("no\ufffd", "x\ufffd")
    assert nbrefine.load(path) == episode


def test_an_environment_s_own_episode_is_taken_as_it_is() -> None:
    episode = drive(Keeping(), ["no", "yes"], seed=3, settings={"task_index": 4})
    assert (episode.id, episode.task.id, episode.seed) == ("e-1", "own", 3)
    assert episode.stop == Stop("solved", "yes")
    assert len(episode.turns) == 2
    assert episode.settings == {"task_index": 4}


def test_reset_is_told_seed_and_options() -> None:
    env = Guess()
    drive(env, ["yes"], seed=5, options={"task_index": 2, "episode_id": "x"})
    drive(env, ["yes"], seed=None)
    assert env.resets == [(5, {"task_index": 2, "episode_id": "x"}), (None, None)]


def test_the_composed_prompt_is_what_is_sent_and_what_the_turns_record() -> None:
    """A recorded model compares prompts, so the record must hold what was really sent."""

    def compose(state: State, episode: Episode) -> Sequence[Message]:
        return [Message("user", f"{state.observation.prompt} #{len(episode.turns)}")]

    for env in (Guess(), Keeping()):
        model = ScriptedModel(["no", "yes"])
        episode = drive(env, model, compose=compose)
        assert tuple(turn.messages for turn in episode.turns) == tuple(model.requests)
        assert [turn.messages[0].content[-2:] for turn in episode.turns] == ["#0", "#1"]


def test_a_composer_runs_in_a_worker_thread_and_its_error_comes_through() -> None:
    names: list[str] = []

    def compose(state: State, episode: Episode) -> Sequence[Message]:
        names.append(threading.current_thread().name)
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        drive(Guess(), ["yes"], compose=compose)
    assert names == ["nbrefine-user"]


def test_a_journal_gets_each_turn_once_though_prompts_are_put_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []
    write = Journal._write

    def watched(journal: Journal, line: dict[str, Any]) -> None:
        written.append(line.get("at"))
        write(journal, line)

    monkeypatch.setattr(Journal, "_write", watched)
    episode = drive(
        Keeping(),
        ["a", "b", "c", "yes"],
        compose=lambda state, episode: [Message("user", f"turn {len(episode.turns)}")],
        recorder=Recorder(tmp_path / "e.ipynb"),
    )
    assert [at for at in written if at is not None] == [0, 1, 2, 3]
    assert nbrefine.load(tmp_path / "e.ipynb") == episode


def test_without_a_rule_repeats_go_on_and_with_one_they_end_the_episode() -> None:
    assert len(drive(Guess(), ["a", "a", "a"]).turns) == 3
    stop = drive(Guess(), ["a", "a", "a"], rules=StopRule(max_sightings=2)).stop
    assert stop is not None
    assert stop.reason == "cycle"


def test_every_turn_has_a_seed_and_an_escalated_state_more_heat() -> None:
    episode = drive(Keeping(), ["a", "b", "yes"], seed=2, sampling=Sampling(temperature=0.1))
    drawn = [turn.reply.sampling for turn in episode.turns if turn.reply]
    assert [sampling.seed for sampling in drawn] == [2001, 2002, 2003]
    assert [sampling.temperature for sampling in drawn] == [0.1, 0.1, 0.8]


def test_initial_code_is_the_first_turn_and_has_no_prompt() -> None:
    model = ScriptedModel(["yes"])
    episode = drive(Guess(), model, initial_code="no")
    assert [turn.reply is None for turn in episode.turns] == [True, False]
    assert [len(turn.messages) for turn in episode.turns] == [0, 1]
    assert episode.turns[0].extraction.status == "given"


def test_a_budget_is_asked_before_the_call_and_charged_with_turns() -> None:
    budget = Budget(turns=2)
    episode = drive(Guess(), ["a", "b", "c"], budget=budget)
    assert episode.stop is not None
    assert (episode.stop.reason, len(episode.turns)) == ("budget", 2)
    assert budget.spent.turns == 2


def test_each_turn_is_told_after_it_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "e.ipynb"
    told: list[int] = []

    def on_turn(episode: Episode) -> None:
        assert len(nbrefine.load(path).turns) == len(episode.turns)
        told.append(len(episode.turns))

    drive(Guess(), ["a", "yes"], recorder=Recorder(path), on_turn=on_turn)
    assert told == [1, 2]


class Closable(ScriptedModel):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("replies", [["yes"], []])
def test_what_is_to_be_closed_is_closed_once_however_it_ends(ours: bool, replies: Any) -> None:
    env, model = Guess(), Closable(replies)
    run = EpisodeRun(Driver(env, model, close_env=ours, close_model=ours))
    if replies:
        run.result(60)
    else:
        with pytest.raises(nbrefine.NbrefineError):
            run.result(60)
    assert (env.closed, model.closed) == (int(ours), int(ours))


class Broken(Guess):
    async def _step(self, state: State, action: Action) -> StepResult:
        if state.metadata.step:
            raise KernelError("The kernel is gone", hint="Start it again")
        return await super()._step(state, action)


def test_a_host_s_trouble_comes_through_with_the_episode_and_the_reply_that_was_paid_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "e.ipynb"
    paid = Reply("b", usage=Usage(7, 3), seconds=2.0)
    with pytest.raises(KernelError) as caught:
        drive(Broken(), ["a", paid], recorder=Recorder(path))
    episode = caught.value.episode
    assert isinstance(episode, Episode)
    assert (len(episode.turns), episode.verdict) == (2, "infra-error")
    lost = episode.turns[-1]
    assert lost.reply is not None
    assert (lost.number, lost.attempt, lost.reply.text, lost.verdict) == (2, 2, "b", "infra-error")
    assert [message.content for message in lost.messages] == ["Not a."]
    assert lost.seconds >= 2.0
    assert episode.usage.output_tokens >= 3
    assert not lost.feedback  # no model is told of it
    assert [turn.number for turn in episode.attempts] == [1]
    assert nbrefine.load(path) == episode


def test_a_reply_that_nothing_has_judged_reads_as_such(tmp_path: Path) -> None:
    path = tmp_path / "e.ipynb"
    with pytest.raises(KernelError) as caught:
        drive(Broken(), ["a", "b"], recorder=Recorder(path))
    assert isinstance(caught.value.episode, Episode)
    why = "It was not judged: The kernel is gone. Start it again"
    page = path.read_text(encoding="utf-8")
    assert "Attempt 2 of 2 was not judged (infra-error)" in page
    assert why in page
    output = StringIO()
    show(caught.value.episode, console=Console(file=output, width=120))
    assert "Attempt 2 of 2: not judged (infra-error)" in output.getvalue()
    assert why in output.getvalue()
    assert "Nothing was run" not in output.getvalue()  # which is not known


def test_an_error_of_the_caller_s_own_code_holds_the_episode_too() -> None:
    class Faulty(Guess):
        async def _step(self, state: State, action: Action) -> StepResult:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError) as caught:
        drive(Faulty(), ["a"])
    episode = getattr(caught.value, "episode", None)
    assert isinstance(episode, Episode)
    assert [turn.verdict for turn in episode.turns] == ["infra-error"]


class Invalid(Guess):
    async def _step(self, state: State, action: Action) -> StepResult:
        raise InvalidTaskError("The tests do not parse")


def test_a_reply_to_an_invalid_task_is_kept_as_one() -> None:
    with pytest.raises(InvalidTaskError) as caught:
        drive(Invalid(), ["a"])
    assert isinstance(caught.value.episode, Episode)
    assert [turn.verdict for turn in caught.value.episode.turns] == ["invalid-task"]


class Spent(Guess):
    async def _step(self, state: State, action: Action) -> StepResult:
        budget = Budget(calls=1)
        budget.add_call(Usage())
        budget.check()
        raise AssertionError("a judge's budget is spent")


def test_a_judge_s_budget_that_is_spent_ends_the_episode_with_the_reply() -> None:
    episode = drive(Spent(), ["a"])
    assert episode.stop is not None
    assert (episode.stop.reason, episode.verdict) == ("budget", "infra-error")
    assert [turn.reply and turn.reply.text for turn in episode.turns] == ["a"]


def test_stop_ends_a_call_that_hangs_and_keeps_the_turns() -> None:
    asked = threading.Event()

    async def answer(messages: Sequence[Message]) -> str:
        if "Not" in messages[-1].content:
            asked.set()
            await asyncio.sleep(3600)
        return "no"

    env = Guess()
    run = EpisodeRun(Driver(env, ScriptedModel(answer)))
    assert asked.wait(60)
    assert run.activity.doing == "asking"
    assert run.activity.turn == 2
    run.stop()
    episode = run.result(60)
    assert episode.stop == Stop("stopped", "stopped by a person")
    assert len(episode.turns) == 1
    assert run.activity.doing == "closing"
    assert env.closed == 1


def test_stop_in_the_middle_of_a_step_keeps_the_reply_that_was_paid_for(tmp_path: Path) -> None:
    stepping = threading.Event()

    class Slow(Guess):
        async def _step(self, state: State, action: Action) -> StepResult:
            stepping.set()
            await asyncio.sleep(3600)
            return await super()._step(state, action)

    path = tmp_path / "e.ipynb"
    paid = Reply("a", usage=Usage(7, 3))
    run = EpisodeRun(Driver(Slow(), ScriptedModel([paid]), recorder=Recorder(path)))
    assert stepping.wait(60)
    run.stop()
    episode = run.result(60)
    assert episode.stop == Stop("stopped", "stopped by a person")
    (turn,) = episode.turns
    assert (turn.reply and turn.reply.text, turn.verdict) == ("a", "infra-error")
    assert turn.extraction.reason == "It was not judged: stopped by a person"
    assert episode.usage == Usage(7, 3)
    assert episode.attempts == ()
    assert nbrefine.load(path) == episode


def test_every_trouble_has_its_stop() -> None:
    assert stop_for(InvalidTaskError("No tests")) == Stop("invalid-task", "No tests")
    assert stop_for(RecordError("Full", hint="Make room")) == Stop("infra-error", "Full. Make room")
    assert stop_for(RunStopped("Stopped")) == Stop("stopped", "Stopped")
    assert stop_for(ValueError("x")) == Stop("infra-error", "ValueError: x")
    assert stop_for(ValueError()) == Stop("infra-error", "ValueError")
