"""The environment interface as values: actions and step results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbrefine.env.iterative import IterativeEnvironment
from nbrefine.state import Action, EnvironmentSpec, Observation, State, StepResult
from nbrefine.trajectory import Trajectory
from nbrefine.values import Episode, Reply, SignalBundle, Task


@pytest.mark.parametrize(
    ("action", "has_text", "has_tool_calls", "is_text_only"),
    [
        (Action.from_text("x = 1"), True, False, True),
        (Action.from_reply(Reply("x = 1")), True, False, True),
        (Action.from_tool_call({"name": "run"}), False, True, False),
        (Action.from_tool_calls(({"name": "run"}, {"name": "look"})), False, True, False),
        (Action(text="x = 1", tool_calls=({"name": "run"},)), True, True, False),
        (Action(), False, False, False),
    ],
)
def test_an_action_tells_what_it_holds(
    action: Action, has_text: bool, has_tool_calls: bool, is_text_only: bool
) -> None:
    assert (action.has_text, action.has_tool_calls) == (has_text, has_tool_calls)
    assert action.is_text_only == is_text_only


def test_an_action_made_of_a_reply_keeps_it_and_one_made_of_code_names_it() -> None:
    reply = Reply("x = 1")
    assert Action.from_reply(reply).reply is reply
    assert Action.from_code("x = 1").code == "x = 1"
    assert Action.from_text("x = 1").code is None


@pytest.mark.parametrize(
    ("terminated", "truncated", "done"),
    [(False, False, False), (True, False, True), (False, True, True)],
)
def test_a_step_is_done_when_it_ended_by_itself_or_at_a_limit(
    terminated: bool, truncated: bool, done: bool
) -> None:
    state = State(Observation("t"))
    result = StepResult(state, SignalBundle.empty(), terminated, truncated, "x = 1")
    assert result.done == done
    assert result.resolved_action == result.extracted_action == "x = 1"


def test_a_spec_of_two_names_promises_neither_several_turns_nor_pure_steps() -> None:
    spec = EnvironmentSpec("sums", "own")
    assert (spec.name, spec.adapter, spec.max_steps, spec.metadata) == ("sums", "own", None, {})
    assert (spec.is_multi_turn, spec.pure_step) == (False, False)
    assert spec.supports_task_index
    assert spec.supports_len
    assert spec.supports_seed


def test_states_trajectories_and_environments_are_one_short_line_each() -> None:
    task = Task("Write double(x): " + 500 * "long ", tests="assert double(4) == 8")
    with IterativeEnvironment(tasks=task) as env:
        state, _ = env.reset()
        assert repr(env) == "IterativeEnvironment('iterative_iterative')"
    trajectory = Trajectory(Episode(replace(task, id="double")))
    assert repr(trajectory) == "Trajectory(task='double', turns=0, success=False)"
    assert repr(state).startswith("State(step=0, is_terminal=False, prompt='Write doub")
    assert len(repr(state)) < 100
