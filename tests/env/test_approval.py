"""A person between the model and the kernel."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from nbrefine.env import MultiStepEnvironment
from nbrefine.env.approval import Decision, Proposal
from nbrefine.errors import UsageError
from nbrefine.kernel import Kernel
from nbrefine.planning import StepLimits
from nbrefine.state import Action, State
from nbrefine.values import Episode, Subtask, Task, Turn

TASK = Task("Make x", subtasks=(Subtask("Bind x"), Subtask("Bind y")))
CELL = Action.from_text("Here:\n```python\nx = 1\n```")


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel.start() as kernel:
        yield kernel


def stepped(kernel: Kernel, answer: object, *actions: Action) -> tuple[State, list[Proposal]]:
    asked: list[Proposal] = []

    def approve(proposal: Proposal) -> Decision | bool:
        assert threading.current_thread().name != "nbrefine-portal"
        asked.append(proposal)
        return answer  # type: ignore[return-value]

    with MultiStepEnvironment(TASK, kernel=kernel, approve=approve) as env:
        state, _ = env.reset()
        for action in actions or (CELL,):
            state = env.step(state, action).next_state
    return state, asked


def episode_of(state: State) -> Episode:
    episode: Episode = state.hidden.episode
    return episode


def newest(state: State) -> Turn:
    return episode_of(state).turns[-1]


@pytest.mark.parametrize("answer", [True, Decision("approve")])
def test_an_approved_cell_runs(kernel: Kernel, answer: object) -> None:
    state, asked = stepped(kernel, answer)
    assert newest(state).accepted
    assert [(each.code, each.step, each.attempt) for each in asked] == [("x = 1", 1, 1)]
    assert asked[0].goal == "Bind x"
    assert asked[0].reply.startswith("Here:")


@pytest.mark.parametrize("answer", [False, Decision("reject", reason="it is wrong")])
def test_a_rejected_cell_does_not_run_and_the_model_is_told(kernel: Kernel, answer: object) -> None:
    state, _ = stepped(kernel, answer)
    turn = newest(state)
    assert (turn.result, turn.accepted, turn.verdict) == (None, False, "failed")
    assert turn.code == "x = 1"
    assert "did not let this cell run" in turn.feedback
    assert ("it is wrong" in turn.feedback) == isinstance(answer, Decision)
    assert state.hidden.now.step == 1
    assert episode_of(state).stop is None


def test_an_edited_cell_runs_in_the_place_of_the_proposed_one(kernel: Kernel) -> None:
    state, _ = stepped(kernel, Decision("edit", code="x = 'mine'"))
    turn = newest(state)
    assert turn.accepted
    assert (turn.code, turn.extraction.status) == ("x = 'mine'", "given")
    assert "person" in turn.extraction.reason
    assert kernel.run("x").result().text == "'mine'\n"


def test_a_stop_ends_the_episode_before_the_cell_runs(kernel: Kernel) -> None:
    state, _ = stepped(kernel, Decision("stop", reason="enough"))
    stop = episode_of(state).stop
    assert stop is not None
    assert (stop.reason, "enough" in stop.detail) == ("stopped", True)
    assert (newest(state).result, newest(state).verdict) == (None, "infra-error")
    assert newest(state).stopped
    assert not newest(state).signals


def test_the_time_that_a_person_takes_is_not_the_step_s(kernel: Kernel) -> None:
    def slowly(_: Proposal) -> bool:
        time.sleep(2.5)
        return False

    limits = StepLimits(seconds=2)
    with MultiStepEnvironment(TASK, kernel=kernel, approve=slowly, limits_per_step=limits) as env:
        start, _ = env.reset()
        began = time.monotonic()
        state = env.step(start, CELL).next_state
        took = time.monotonic() - began
    assert took >= 2.5
    assert newest(state).seconds <= took - 2.5 + 0.1


PLAN = Action.from_text("""```plan
- goal: Bind x
  check: open('seen.txt', 'w').write('x') == 1
```""")


def planning(kernel: Kernel, answer: object, *actions: Action) -> tuple[State, list[Proposal]]:
    asked: list[Proposal] = []

    def approve(proposal: Proposal) -> Decision | bool:
        asked.append(proposal)
        return answer if proposal.what == "checks" else True  # type: ignore[return-value]

    with MultiStepEnvironment(
        Task("Make x"), kernel=kernel, planning="ask", approve=approve
    ) as env:
        state, _ = env.reset()
        for action in actions:
            state = env.step(state, action).next_state
    return state, asked


def test_checks_of_a_plan_of_the_model_s_run_only_where_a_person_lets_them(kernel: Kernel) -> None:
    state, asked = planning(kernel, True, PLAN)
    assert [(each.what, each.step, each.attempt) for each in asked] == [("checks", 1, 1)]
    assert "open('seen.txt', 'w').write('x') == 1" in asked[0].code
    assert episode_of(state).plan is not None
    state, _ = planning(kernel, Decision("reject", reason="they write"), PLAN)
    assert episode_of(state).plan is None
    assert newest(state).feedback.endswith(
        "A person did not let the checks of this plan run: they write"
    )
    assert (newest(state).kind, newest(state).verdict) == ("plan", "failed")
    assert not newest(state).stopped
    state, _ = planning(kernel, Decision("stop"), PLAN)
    stop = episode_of(state).stop
    assert stop is not None
    assert (stop.reason, episode_of(state).plan) == ("stopped", None)
    assert newest(state).stopped
    with pytest.raises(UsageError, match="cannot be edited"):
        planning(kernel, Decision("edit", code="x"), PLAN)


def test_code_of_the_caller_s_own_is_not_asked_for(kernel: Kernel) -> None:
    state, asked = stepped(kernel, False, Action.from_code("x = 5"))
    assert newest(state).accepted
    assert asked == []


def test_what_is_no_decision_is_refused(kernel: Kernel) -> None:
    with pytest.raises(UsageError, match="Decision"):
        stepped(kernel, "yes")
    for action, code in (("edit", " "), ("approve", "x"), ("perhaps", "")):
        with pytest.raises(UsageError):
            Decision(action, code=code)  # type: ignore[arg-type]
