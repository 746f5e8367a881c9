"""One trajectory from its environment to its end, and many of them side by side."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from nbrefine._portal import call_user
from nbrefine._version import __version__
from nbrefine.budget import Budget
from nbrefine.driver import Driver, stop_for
from nbrefine.env import Environment
from nbrefine.errors import RunStopped, UsageError
from nbrefine.models import Model
from nbrefine.notebook import Recorder
from nbrefine.notebook.wording import verdict
from nbrefine.runner.prompt import Prompt, Wording
from nbrefine.state import State
from nbrefine.stopping import StopRule
from nbrefine.trajectory import Trajectory
from nbrefine.values import Episode, Message, Sampling, Task, utc_now

SEEDS = 2_000_000
"""How many seeds there are for trajectories: 1000 times any of them still fits into 31 bits."""


def derived_seed(seed: int, task_index: int, sample: int = 0) -> int:
    """Give the seed of a trajectory: no two samples of a task have the same.

    It is seed + 1000 task_index + sample, modulo `SEEDS`.
    """
    return (seed + 1000 * task_index + sample) % SEEDS


def record_name(task_index: int, sample: int = 0) -> str:
    """Name the notebook of a trajectory within a folder of records."""
    return f"task-{task_index:04d}{f'-sample-{sample:02d}' if sample else ''}.ipynb"


def side_by_side(model: Model, asked: int) -> int:
    """Give how many trajectories are to run at once, of as many as were asked for.

    With a model that answers one call at a time two are enough: one waits for its answer while
    the other's code runs.  More would all be half-way when a person stops them.
    """
    return min(asked, 2) if getattr(model, "one_at_a_time", False) else asked


def record_folder(given: str | Path) -> Path:
    """Give the folder of records of several episodes.

    Raises
    ------
    UsageError: its name is one of a single notebook.
    """
    folder = Path(given)
    if folder.suffix == ".ipynb" and not folder.is_dir():
        raise UsageError(
            f"{folder} is the name of one notebook, but there is one for every episode",
            hint=f"Give a folder, such as {folder.with_suffix('')}",
        )
    return folder


def checked(environment: object) -> Environment:
    """Give an environment back, and refuse anything else."""
    if not isinstance(environment, Environment):
        raise UsageError(
            f"{type(environment).__name__} is no environment",
            hint="Give one of nbrefine.env, or a class of your own that derives from Environment",
        )
    return environment


@dataclass(frozen=True, slots=True)
class Setup:
    """What all trajectories of a runner have in common; see `TrajectoryRunner`."""

    make: Callable[[], Environment]
    """Gives the environment of a trajectory."""
    own: bool
    """Whether `make` gives each trajectory one of its own, to be closed after it."""
    one_at_a_time: asyncio.Lock | None
    """Held by the trajectory that is in an environment that takes only one."""
    model: Model
    sampling: Sampling
    wording: Wording
    rules: StopRule | None
    budget: Budget | None
    seed: int | None
    record: Path | None
    record_as: Callable[[Episode, int, int], str] | None
    overwrite: bool
    log: Callable[[str], object] | None
    check: Callable[[State, Episode], object] | None = None

    def compose(self, max_steps: int | None) -> Callable[..., Any]:
        """Give what puts the prompts of a trajectory together, and checks it before the first."""
        prompt, check = Prompt(self.wording, max_steps), self.check
        if check is None:
            return prompt

        async def checked(state: State, episode: Episode) -> Sequence[Message]:
            if not episode.turns:
                answer = check(state, episode)
                if inspect.isawaitable(answer):
                    await answer
            return prompt(state, episode)

        return checked


class Rollout:
    """One trajectory.

    Parameters
    ----------
    setup: what it has in common with others.
    task_index, sample: which task of the environment, and which trajectory of that task.
    seed: its own seed instead of the derived one.
    """

    def __init__(
        self, setup: Setup, task_index: int, sample: int, *, seed: int | None = None
    ) -> None:
        self._setup = setup
        self._index = task_index
        self._sample = sample
        self._seed = seed
        if seed is None and setup.seed is not None:
            self._seed = derived_seed(setup.seed, task_index, sample)
        self._recorder: Recorder | None = None
        self._waiting: asyncio.Task[Any] | None = None
        self._driver: Driver | None = None
        self.stopping = False

    def prepare(self) -> None:
        """Find out whether it can be recorded; blocks.

        Raises
        ------
        UsageError: it cannot, and why.
        """
        folder = self._setup.record
        if folder is None or self._recorder is not None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be a folder of records ({error})") from None
        if self._setup.record_as is None:
            self._recorder = self._recorder_as(record_name(self._index, self._sample))

    def _recorder_as(self, name: str) -> Recorder:
        assert self._setup.record is not None
        return Recorder(self._setup.record / name, overwrite=self._setup.overwrite)

    def _recorder_of(self, episode: Episode) -> Recorder:
        """Give what records an episode, whose task is known by now."""
        assert self._setup.record_as is not None
        return self._recorder_as(self._setup.record_as(episode, self._index, self._sample))

    def stop(self) -> None:
        """End it; runs on the portal."""
        self.stopping = True
        if self._driver is not None:
            self._driver.stop()
        elif self._waiting is not None:
            self._waiting.cancel()

    async def run(self) -> Trajectory:
        """Run it to the end and tell of it; raises what `drive` raises."""
        trajectory = await self.drive()
        await self.tell(trajectory)
        return trajectory

    async def drive(self) -> Trajectory:
        """Run it to the end and release all that was made for it.

        Raises
        ------
        RunStopped: it was stopped before it had begun.
        Exception: the host's or the caller's trouble.
        """
        if self.stopping:
            raise unbegun()
        self._waiting = asyncio.current_task()
        async with self._setup.one_at_a_time or nullcontext():
            self._waiting = None
            self._driver = await self._begun()
            episode = await self._driver.drive()
        return Trajectory(episode)

    async def tell(self, trajectory: Trajectory) -> None:
        """Log how it ended."""
        if self._setup.log is not None:
            await call_user(self._say, verdict(trajectory.episode))

    def failed(self, trouble: Exception) -> Trajectory:
        """Give what there is of it after trouble, with the stop that says so."""
        episode = self._driver.episode if self._driver is not None else None
        if episode is None:
            episode = Episode(
                Task(""),
                id=uuid4().hex,
                created=utc_now(),
                model=self._setup.model.name,
                seed=self._seed,
                settings=self._settings(),
                version=__version__,
            )
        return Trajectory(replace(episode, stop=stop_for(trouble)))

    async def _begun(self) -> Driver:
        setup = self._setup
        await asyncio.to_thread(self.prepare)
        late = setup.record is not None and setup.record_as is not None
        env = checked(await call_user(setup.make))
        try:
            spec = env.spec
            driver = Driver(
                env,
                setup.model,
                options={"task_index": self._index},
                seed=self._seed,
                compose=setup.compose(spec.max_steps),
                rules=setup.rules,
                budget=setup.budget,
                sampling=setup.sampling,
                recorder=self._recorder_of if late else self._recorder,
                settings={"environment": spec.name, "max_turns": spec.max_steps} | self._settings(),
                on_turn=self._on_turn if setup.log is not None else None,
                close_env=setup.own,
            )
        except BaseException:
            if setup.own:
                await env.aclose()
            raise
        if self.stopping:  # meanwhile
            driver.stop()
        return driver

    def _settings(self) -> dict[str, Any]:
        sampling, rules = self._setup.sampling, self._setup.rules
        return {
            "task_index": self._index,
            "sample": self._sample,
            "rules": asdict(rules) if rules is not None else None,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
        }

    def _on_turn(self, episode: Episode) -> None:
        turn = episode.turns[-1]
        self._say(f"turn {turn.number} {turn.verdict}")

    def _say(self, what: str) -> None:
        assert self._setup.log is not None
        sample = f", sample {self._sample}" if self._sample else ""
        self._setup.log(f"task {self._index}{sample}: {what}")


def unbegun() -> RunStopped:
    """Make the error for a trajectory that was stopped too early to have an episode."""
    return RunStopped("The trajectory was stopped before it began")


class Batch:
    """Many trajectories side by side, each with its own trouble.

    Parameters
    ----------
    setup: what they have in common.
    indices: the task of each; one that comes again is another sample.
    size: how many run at once.
    progress: called in a worker thread with how many have ended and how many there are.
    """

    def __init__(
        self,
        setup: Setup,
        indices: Sequence[int],
        size: int,
        progress: Callable[[int, int], object] | None,
    ) -> None:
        self._setup = setup
        seen: Counter[int] = Counter()
        self._rollouts: list[Rollout] = []
        for index in indices:
            self._rollouts.append(Rollout(setup, index, seen[index]))
            seen[index] += 1
        self._gate = asyncio.Semaphore(side_by_side(setup.model, size))
        self._progress = progress
        self._telling = asyncio.Lock()
        self._done = 0

    def stop(self) -> None:
        """End those that run and begin no more; runs on the portal."""
        for rollout in self._rollouts:
            rollout.stop()

    async def run(self) -> list[Trajectory]:
        """Run all of them and give them in order.

        Raises
        ------
        UsageError: one of them cannot be recorded; none was begun.
        ModelError: the model cannot be used; none was begun.
        Exception: what the progress callback or the log raised; the others were ended and
            released.
        """
        await self._setup.model.check()
        await asyncio.to_thread(self._prepare)
        running = [asyncio.create_task(self._one(rollout)) for rollout in self._rollouts]
        try:
            return list(await asyncio.gather(*running))
        except BaseException:
            self._progress = None
            self.stop()
            await asyncio.gather(*running, return_exceptions=True)
            raise

    def _prepare(self) -> None:
        for rollout in self._rollouts:
            rollout.prepare()

    async def _one(self, rollout: Rollout) -> Trajectory:
        async with self._gate:
            trajectory = await self._outcome(rollout)
        await rollout.tell(trajectory)
        async with self._telling:
            self._done += 1
            if self._progress is not None:
                await call_user(self._progress, self._done, len(self._rollouts))
        return trajectory

    async def _outcome(self, rollout: Rollout) -> Trajectory:
        try:
            return await rollout.drive()
        except asyncio.CancelledError:
            if not rollout.stopping:
                raise
            return rollout.failed(unbegun())
        except Exception as trouble:  # noqa: BLE001 - it is this trajectory's and no other's
            return rollout.failed(trouble)
