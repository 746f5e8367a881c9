"""A live kernel behind the environment interface: what it promises, and what a state holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psutil
import pytest

from nbrefine.env import IsolationPolicy, NotebookEnvironment
from nbrefine.errors import UsageError
from nbrefine.kernel import Kernel
from nbrefine.state import Action, EnvironmentSpec, State, StepResult
from nbrefine.values import RewardType, Signal, Task, Turn

THREE = Task("Bring items to three.", setup="items = [1]", tests="assert len(items) == 3")


def newest(result: StepResult) -> Turn:
    turn: Turn = result.next_state.hidden.episode.turns[-1]
    return turn


def code(text: str) -> Action:
    return Action.from_code(text)


@pytest.fixture
def env() -> Iterator[NotebookEnvironment]:
    with NotebookEnvironment(THREE) as made:
        yield made


def processes() -> int:
    """Count the processes that this one has started, directly or not."""
    alive = psutil.Process().children(recursive=True)
    return sum(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in alive)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def test_a_session_that_branches_has_pure_steps_once_that_is_known(
    env: NotebookEnvironment,
) -> None:
    assert env.spec == EnvironmentSpec(
        "notebook",
        "notebook",
        max_steps=5,
        is_multi_turn=True,
        metadata={"impure": "whether the kernel can branch is known after reset()"},
    )
    env.reset()
    assert env.spec.pure_step
    assert env.spec.metadata == {}
    assert (env.prompts, env.available_tools, env.reward_functions) == ({}, (), ())


def test_forks_or_an_error_promise_pure_steps_before_there_is_a_kernel() -> None:
    with NotebookEnvironment(THREE, isolation="fork", kernel="no-such-kernel") as env:
        assert env.spec.pure_step


@pytest.mark.parametrize("isolation", ["rebuild", "none"])
def test_without_branches_steps_are_not_pure_and_the_spec_says_why(
    isolation: IsolationPolicy,
) -> None:
    with NotebookEnvironment(THREE, isolation=isolation) as env:
        env.reset()
        assert not env.spec.pure_step
        assert env.spec.metadata["impure"].endswith(f"(isolation '{isolation}')")


def test_a_kernel_that_cannot_branch_has_no_pure_steps_and_the_spec_says_why() -> None:
    with (
        Kernel.start(plain=True) as kernel,
        NotebookEnvironment(THREE, kernel=kernel, confirm=lambda why: True) as env,
    ):
        state = env.reset()[0]
        assert env.spec.metadata == {"impure": "no attempt has branched yet"}
        assert newest(env.step(state, code("items.append(0)"))).isolation == "none"
        assert not env.spec.pure_step
        assert env.spec.metadata["impure"] not in ("", "no attempt has branched yet")


def test_a_kernel_of_ours_that_was_handed_in_has_pure_steps_once_it_has_branched() -> None:
    with Kernel.start() as kernel, NotebookEnvironment(THREE, kernel=kernel) as env:
        state = env.reset()[0]
        assert not env.spec.pure_step
        env.step(state, code("items.append(0)"))
        assert env.spec.pure_step


def test_a_session_whose_hazard_forbids_a_copy_has_no_pure_steps() -> None:
    setup = "import polars\npolars.DataFrame({'a': [1, 2]}).lazy().sum().collect()\nitems = [1]"
    with NotebookEnvironment(Task("t", setup=setup, tests="assert len(items) == 3")) as env:
        state = env.reset()[0]
        assert not env.spec.pure_step
        assert "polars" in env.spec.metadata["impure"]
        assert newest(env.step(state, code("items.append(0)"))).isolation == "rebuild"


def test_one_state_stepped_twice_has_two_futures_and_older_states_stay_what_they_were(
    env: NotebookEnvironment,
) -> None:
    start = env.reset()[0]
    one = env.step(start, code("items.append('one')"))
    two = env.step(start, code("items += ['two', 'two']"))
    assert [result.terminated for result in (one, two)] == [False, True]
    assert newest(two).isolation == "fork"
    later = env.step(one.next_state, code("print(items); items += ['one', 'one']"))
    old = env.step(start, code("print(items); items.clear()"))
    for result, done in ((later, True), (old, False)):
        result_of_cell = newest(result).result
        assert result_of_cell is not None
        assert result_of_cell.text == "[1]\n"
        assert result.terminated == done
    assert [turn.number for turn in later.next_state.hidden.episode.turns] == [1, 2]
    assert [turn.number for turn in old.next_state.hidden.episode.turns] == [1]


def test_the_same_action_from_the_same_state_fares_the_same(env: NotebookEnvironment) -> None:
    action = code("import random; items += [random.random()]; print(items)")
    start = env.reset(seed=3)[0]
    results = [newest(env.step(start, action)).result for _ in range(3)]
    assert len({result.text for result in results if result is not None}) == 1


def test_released_states_leave_no_process_and_are_stepped_no_more(
    env: NotebookEnvironment,
) -> None:
    start = env.reset()[0]
    held = processes()  # the kernel's, and the copy of the first state
    rejected = env.step(start, code("items.append(2)")).next_state
    solved = env.step(start, code("items += [2, 3]")).next_state
    until(lambda: processes() <= held)  # the branches of the attempts have gone
    env.release(start)
    again = env.step(rejected, code("items.append(4)"))  # its point is another state's too
    assert newest(again).isolation == "fork"
    for state in (rejected, again.next_state, solved, solved):
        env.release(state)
    until(lambda: processes() < held)
    for state in (start, rejected):
        with pytest.raises(UsageError, match="state was released"):
            env.step(state, code("x = 1"))


def test_a_state_that_was_only_forgotten_keeps_no_copy_from_being_released(
    env: NotebookEnvironment,
) -> None:
    start = env.reset()[0]
    held = processes()
    env.step(start, code("items.append(2)"))  # its next state is dropped at once
    until(lambda: processes() <= held)
    env.release(start)
    until(lambda: processes() < held)


@pytest.mark.parametrize("observe", [True, False])
def test_observations_carry_the_kernel_s_state_on_request(observe: bool) -> None:
    with NotebookEnvironment(THREE, observe_state=observe) as env:
        start = env.reset()[0]
        rejected = env.step(start, code("items.append(2)\nmine = 1")).next_state
        nothing = env.step(rejected, Action("I give up.")).next_state
        solved = env.step(nothing, code("items += [2, 3]\nmine = 1")).next_state
    seen = [state.observation.state for state in (start, rejected, nothing, solved)]
    if not observe:
        assert seen == [None] * 4
        return
    assert ["items: list of length 1" in str(text) for text in seen] == [True, True, True, False]
    assert ["mine" in str(text) for text in seen] == [False, False, False, True]
    assert "items: list of length 3" in str(seen[3])


@dataclass(frozen=True)
class Brief:
    """Praises short cells."""

    name: str = "brief"
    reward_type: RewardType = RewardType.PROCESS

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        lines = next_state.hidden.episode.turns[-1].code.count("\n") + 1
        return Signal(self.name, self.reward_type, 1 / lines, f"{lines} line(s)")


def test_extra_rewards_are_told_beside_the_tests_and_decide_nothing() -> None:
    with NotebookEnvironment(THREE, extra_rewards=(Brief(),)) as env:
        assert [function.name for function in env.reward_functions] == ["brief"]
        state = env.reset()[0]
        action = code("items.append(2)\nx = 1")
        result = env.step(state, action)
        assert [(signal.reward_type, signal.reward) for signal in result.rewards] == [
            (RewardType.OUTCOME, 0.0),
            (RewardType.PROCESS, 0.5),
        ]
        assert result.info["feedback"].endswith("\n\n2 line(s)")
        assert "2 line(s)" in result.next_state.observation.messages[-1].content
        assert env.compute_rewards(state, action, result.next_state) == result.rewards
        solved = env.step(result.next_state, code("items += [2, 3]"))
    assert (solved.terminated, newest(solved).feedback) == (True, "")
    assert newest(solved).signals == solved.rewards


@pytest.mark.parametrize("isolation", ["auto", "none"])
def test_a_state_of_an_earlier_episode_does_not_run_in_the_session_of_another(
    isolation: IsolationPolicy,
) -> None:
    tasks = [Task(f"y is {n}", setup=f"x = {n}", tests=f"assert y == {n}") for n in (1, 2)]
    with NotebookEnvironment(tasks, isolation=isolation) as env:
        earlier, _ = env.reset(options={"task_index": 0})
        state, _ = env.reset(options={"task_index": 1})
        for refused in (
            lambda: env.step(earlier, Action.from_code("y = x")),
            lambda: env.settle(earlier),
        ):
            with pytest.raises(UsageError, match="earlier episode"):
                refused()
        assert env.step(state, Action.from_code("y = x")).info["solved"]


def test_a_submit_keyword_ends_an_episode_whatever_came_of_the_cell() -> None:
    with NotebookEnvironment(THREE, submit_keyword="SUBMIT") as env:
        state = env.reset()[0]
        wrong = env.step(state, Action("SUBMIT\n```python\nitems.append(2)\n```"))
        right = env.step(state, Action("SUBMIT\n```python\nitems += [2, 3]\n```"))
        bare = env.step(state, Action("SUBMIT\nitems += [2, 3]"))
        goes_on = env.step(state, Action("submitting soon\n```python\nitems.append(2)\n```"))
    assert (wrong.terminated, wrong.info["early_submit"], wrong.info["solved"]) == (
        True,
        True,
        False,
    )
    assert wrong.next_state.hidden.episode.stop.reason == "submitted"
    assert right.next_state.hidden.episode.stop.reason == "solved"
    assert (newest(bare).code, bare.info["solved"]) == ("items += [2, 3]", True)
    assert not goes_on.done


class Held:
    name = "held"
    reward_type = RewardType.PROCESS
    closed = 0

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return Signal(self.name, self.reward_type)

    async def aclose(self) -> None:
        self.closed += 1


def test_rewards_stay_open_over_episodes_and_are_closed_with_the_environment() -> None:
    held = Held()
    with NotebookEnvironment(THREE, extra_rewards=(held,)) as env:
        for _ in range(2):
            env.reset()
        assert held.closed == 0
    assert held.closed == 1
