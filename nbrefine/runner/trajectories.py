"""`TrajectoryRunner`: trajectories of an environment with a model.

It says how prompts are put together and how replies are drawn; `driver` drives each episode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nbrefine._portal import Closing, Run
from nbrefine.budget import Budget
from nbrefine.env import Environment, NotebookEnvironment
from nbrefine.env.base import checked_index
from nbrefine.errors import UsageError
from nbrefine.history import HistoryFunction, PromptBudget
from nbrefine.models import Model, resolve
from nbrefine.notebook import load
from nbrefine.runner.prompt import TurnInfoConfig, Wording
from nbrefine.runner.rollout import Batch, Rollout, Setup, checked, record_folder
from nbrefine.state import State
from nbrefine.stopping import StopRule
from nbrefine.trajectory import Trajectory
from nbrefine.values import Episode, Sampling

BATCH_SIZE = 8
"""Trajectories that run side by side where nothing else is said."""


class TrajectoryRunner(Closing):
    """Runs trajectories of an environment with a model.

    A model that is made here of a name, a function or a list is closed with the runner; an
    environment and a `Model` that are handed in stay the caller's.

    Parameters
    ----------
    environment: what all trajectories run in.  They run side by side where its `spec` says
        `pure_step`; in any other, and in a `NotebookEnvironment`, which has one session, they run
        one after the other.
    backend: the model, in any form that `refine` takes.
    sampling_params: how replies are drawn; every turn gets a seed of its own.
    system_prompt: takes the place of the environment's own.
    system_prompt_fn: the same, made from the first state of each trajectory.
    turn_info: what prompts say of turns; True for the defaults of `TurnInfoConfig`.
    history_fn: shows the past, by each turn's feedback alone; without it the environment's own
        chat is sent, or for an environment that shows none, all of the past.
    prompt_budget: the same within a limit of tokens; wins over `history_fn`.
    include_reasoning_in_history: whether the model is shown what it thought in earlier turns.
    format_reminder: ends every prompt.
    env_factory: makes an environment for each trajectory, which is closed after it; takes the
        place of `environment`.
    rules: when to stop on repeats; None: never.
    budget: what all trajectories together may spend; checked before every model call.
    seed: every trajectory's own is derived from it, see `derived_seed`; None leaves it to chance.
    record: folder for one notebook per trajectory; made if it is not there.
    record_as: gives the name of a notebook there, in a worker thread, from an episode that begins,
        the index of its task and the number of the sample; by default the last two name it.
    overwrite: whether episodes recorded there before may be replaced.
    log: called in a worker thread with a line after every turn and every trajectory, as `print`
        may be.
    check: called in a worker thread with the first state of every trajectory and its episode,
        before the model is asked; what it raises ends the trajectory: an `InvalidTaskError`, for
        nobody's loss.

    Raises
    ------
    UsageError: two settings exclude each other, or the model is not known.
    """

    def __init__(
        self,
        environment: Environment | None = None,
        backend: Model | str | Callable[..., Any] | Iterable[Any] = "local",
        *,
        sampling_params: Sampling = Sampling(temperature=0.0),
        system_prompt: str | None = None,
        system_prompt_fn: Callable[[State], str] | None = None,
        turn_info: TurnInfoConfig | bool | None = None,
        history_fn: HistoryFunction | None = None,
        prompt_budget: PromptBudget | None = None,
        include_reasoning_in_history: bool = False,
        format_reminder: str = "",
        env_factory: Callable[[], Environment] | None = None,
        rules: StopRule | None = None,
        budget: Budget | None = None,
        seed: int | None = 0,
        record: str | Path | None = None,
        record_as: Callable[[Episode, int, int], str] | None = None,
        overwrite: bool = False,
        log: Callable[[str], object] | None = None,
        check: Callable[[State, Episode], object] | None = None,
    ) -> None:
        if system_prompt is not None and system_prompt_fn is not None:
            raise UsageError(
                "Both system_prompt and system_prompt_fn are given", hint="Give one of the two"
            )
        make, lock = _source(environment, env_factory)
        self._environment = environment
        self._model = resolve(backend, load=load)
        self._close_model = self._model is not backend
        self._setup = Setup(
            make=make,
            own=env_factory is not None,
            one_at_a_time=lock,
            model=self._model,
            sampling=sampling_params,
            wording=Wording(
                system_prompt,
                system_prompt_fn,
                TurnInfoConfig() if turn_info is True else turn_info or None,
                history_fn,
                prompt_budget,
                include_reasoning_in_history,
                format_reminder,
            ),
            rules=rules,
            budget=budget,
            seed=seed,
            record=record_folder(record) if record is not None else None,
            record_as=record_as,
            overwrite=overwrite,
            log=log,
            check=check,
        )

    def run_trajectory(
        self, task_index: int = 0, *, sample: int = 0, seed: int | None = None
    ) -> Trajectory:
        """Run one trajectory to its end.

        Parameters
        ----------
        task_index: which task of the environment.
        sample: which of several trajectories of that task, from 0 on; its seed and its record's
            name follow from it.
        seed: the trajectory's own, instead of the derived one.

        Raises
        ------
        NbrefineError: the host's or the caller's trouble; its `episode` holds the turns so far.
        """
        return self.arun_trajectory(task_index, sample=sample, seed=seed).result()

    def arun_trajectory(
        self, task_index: int = 0, *, sample: int = 0, seed: int | None = None
    ) -> Run[Trajectory]:
        """Begin one trajectory; stopped, it gives the turns so far and the stop "stopped"."""
        (index,) = self._checked((task_index,))
        rollout = Rollout(self._setup, index, sample, seed=seed)
        return Run(rollout.run(), on_stop=rollout.stop)

    def run_batch(
        self,
        task_indices: Iterable[int],
        batch_size: int = BATCH_SIZE,
        progress_callback: Callable[[int, int], object] | None = None,
    ) -> list[Trajectory]:
        """Run many trajectories side by side and give them in the order of their tasks.

        One that runs into trouble does not end the others: its stop says "infra-error" or
        "invalid-task", which never counts against the model.

        Parameters
        ----------
        task_indices: one trajectory for each; an index that comes again is another sample.
        batch_size: how many run at once; two at most with a local model, which answers one call
            at a time.
        progress_callback: called in a worker thread, one call after the other, with how many
            have ended and how many there are.

        Raises
        ------
        UsageError: there is no task of some index, the batch size is less than 1, or one of them
            cannot be recorded; nothing was begun.
        ModelError: the model cannot be used at all.
        Exception: what the progress callback or the log raised at the end of a trajectory.
        """
        return self.arun_batch(task_indices, batch_size, progress_callback).result()

    def arun_batch(
        self,
        task_indices: Iterable[int],
        batch_size: int = BATCH_SIZE,
        progress_callback: Callable[[int, int], object] | None = None,
    ) -> Run[list[Trajectory]]:
        """Begin many trajectories; stopped, each gives its turns so far and the stop "stopped"."""
        if batch_size < 1:
            raise UsageError(f"batch_size is {batch_size}, but one trajectory is the least")
        indices = self._checked(task_indices)
        batch = Batch(self._setup, indices, batch_size, progress_callback)
        return Run(batch.run(), on_stop=batch.stop)

    async def _close(self) -> None:
        """Close the model, if the runner made it."""
        if self._close_model:
            await self._model.aclose()

    def _checked(self, indices: Iterable[int]) -> list[int]:
        try:
            count = len(self._environment) if self._environment is not None else None
        except TypeError:  # it does not know
            count = None
        return [checked_index(index, count) for index in indices]


def _source(
    environment: Environment | None, factory: Callable[[], Environment] | None
) -> tuple[Callable[[], Environment], asyncio.Lock | None]:
    """Give what a trajectory gets its environment from, and the lock that it must hold."""
    if factory is not None and environment is None:
        return factory, None
    if environment is None or factory is not None:
        raise UsageError("A runner needs an environment or an env_factory", hint="Give one of them")
    checked(environment)
    shared = environment.spec.pure_step and not isinstance(environment, NotebookEnvironment)
    return (lambda: environment), None if shared else asyncio.Lock()
