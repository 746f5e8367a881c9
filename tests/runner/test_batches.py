"""Many trajectories side by side: their order, trouble, stops and limits."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.env.iterative import IterativeEnvironment, IterativeTask
from nbrefine.errors import (
    KernelError,
    ModelUnavailableError,
    RunStopped,
    UsageError,
)
from nbrefine.models.scripted import ScriptedModel
from nbrefine.runner import (
    TrajectoryRunner,
)
from nbrefine.state import Action, EnvironmentSpec, State, StepResult
from nbrefine.trajectory import Trajectory
from nbrefine.values import (
    Message,
)
from tests.runner.telling import ANSWERS, Plain, Told, iterative, knowing


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
