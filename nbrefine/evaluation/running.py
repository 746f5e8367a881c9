"""Many tasks times many samples, a batch at a time, every result kept as soon as it is there."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nbrefine import notebook
from nbrefine._portal import Run, blocking, call_user
from nbrefine.config.backends import BackendFactory
from nbrefine.config.evaluation import (
    DATA_FILES,
    EnvironmentConfig,
    EvalConfig,
    ModelConfig,
    TurnInfoBlock,
)
from nbrefine.config.factories import EnvironmentFactory
from nbrefine.env.base import Environment
from nbrefine.errors import RunStopped, UsageError
from nbrefine.evaluation.episodes import Episodes, Plan
from nbrefine.evaluation.judgeable import Judgeable
from nbrefine.evaluation.records import FOLDER, Records
from nbrefine.evaluation.results import (
    EvaluationResult,
    ResultsFile,
    Row,
    create_evaluation_result,
    plain,
)
from nbrefine.models import Model, resolve
from nbrefine.runner import TrajectoryRunner, TurnInfoConfig
from nbrefine.runner.grading import grader_of
from nbrefine.runner.rollout import side_by_side
from nbrefine.taskdata.files import fingerprint, local_files
from nbrefine.trajectory import Trajectory
from nbrefine.values import Sampling

Progress = Callable[[int, int], object]
"""Told how many episodes have ended and how many there are in all."""

Log = Callable[[str], object]
"""Told a line after every turn and every episode."""

Backend = Model | ModelConfig | str | Callable[..., Any] | Iterable[Any]


def arun_evaluation(
    environment: Environment | EnvironmentConfig,
    backend: Backend,
    *,
    name: str | None = None,
    samples: int = 1,
    limit: int | None = None,
    batch_size: int = 8,
    sampling_params: Sampling = Sampling(temperature=0.0),
    seed: int | None = 0,
    system_prompt: str | None = None,
    turn_info: TurnInfoConfig | bool | None = None,
    grade: bool = True,
    output_dir: str | Path | None = None,
    save_detailed_results: bool = True,
    progress_callback: Progress | None = None,
    log: Log | None = None,
) -> EvaluationRun:
    """Begin to run a model over the tasks of an environment and give the handle to it.

    Parameters
    ----------
    environment: an environment, which stays open, or a configuration of one.
    backend: a model in any form that `refine` takes, or a configuration of one; a `Model` stays
        open.
    name: what results call the environment; by default its own name.
    samples: episodes for each task.
    limit: how many tasks are taken; None for all.
    batch_size: how many episodes run at once; two at most with a local model, which answers one
        call at a time.
    sampling_params: how replies are drawn; the seed of each follows from `seed`, the task, the
        sample and the turn.
    seed: None leaves all to chance.
    system_prompt, turn_info: see `TrajectoryRunner`.
    grade: whether a submission that its feedback calls solved, or the last where no test is
        visible, is graded at the end where the task has hidden tests; the grade decides then.
        Tasks whose own reference fails their tests here are found out before the model is asked,
        and count for nothing.
    output_dir: where results are kept as they come; a second evaluation with the same settings
        goes on there.  None keeps nothing.
    save_detailed_results: whether every episode is kept there as a notebook.
    progress_callback: told after every episode how many have ended and how many there are.
    log: told a line after every turn and every episode, as `print` may be.

    Raises
    ------
    UsageError: a setting is out of range, or `output_dir` holds results of other settings.
    ModelError: the model cannot be reached, or `TOO_MANY` episodes in a row ended in trouble.
    """
    if name is None:
        named = environment if isinstance(environment, EnvironmentConfig) else environment.spec
        name = _label(named.name)
    plan = Plan(
        samples=samples,
        limit=limit,
        batch_size=batch_size,
        sampling=sampling_params,
        seed=seed,
        system_prompt=system_prompt,
        turn_info=turn_info,
        grade=grade,
        output_dir=Path(output_dir) if output_dir is not None else None,
        detailed=save_detailed_results,
    )
    return EvaluationRun(
        _Evaluation((_Part(environment, name),), backend, plan, progress_callback, log)
    )


@blocking(arun_evaluation)
def run_evaluation() -> None:
    """Run a model over an environment's tasks and say what came of it; see `arun_evaluation`."""


def arun_multi_evaluation(
    config: EvalConfig, *, progress_callback: Progress | None = None, log: Log | None = None
) -> EvaluationRun:
    """Begin to run all environments of a configuration and give the handle to it.

    Every environment has a folder of its own in `output_dir`; the figures of all are in
    `summary.json` there at the end.

    Raises
    ------
    UsageError: a configuration cannot be built, or `output_dir` holds results of other settings.
    ModelError: see `arun_evaluation`.
    """
    given = [_with_common(each, config) for each in config.environments]
    parts = [_Part(each, name) for each, name in zip(given, _names(given), strict=True)]
    plan = Plan(
        samples=config.samples,
        limit=config.limit,
        batch_size=config.batch_size,
        sampling=config.inference.to_sampling(),
        seed=config.inference.seed,
        system_prompt=config.system_prompt,
        turn_info=_turn_info(config.turn_info),
        grade=config.grade,
        output_dir=Path(config.output_dir),
        detailed=config.save_detailed_results,
    )
    return EvaluationRun(_Evaluation(parts, config.model, plan, progress_callback, log))


@blocking(arun_multi_evaluation)
def run_multi_evaluation() -> None:
    """Run all environments of a configuration, one after the other; see `arun_evaluation`."""


def _with_common(environment: EnvironmentConfig, config: EvalConfig) -> EnvironmentConfig:
    """Give an environment what is said for all, where it says nothing itself."""
    prompts = environment.prompts
    if config.prompt_template is not None:
        prompts = {"initial": config.prompt_template, **prompts}
    judge = environment.judge or config.judge
    return environment.model_copy(update={"prompts": prompts, "judge": judge})


def _names(environments: Iterable[EnvironmentConfig]) -> Iterator[str]:
    """Give every environment a name of its own, which makes a folder of its own."""
    taken: set[str] = set()
    for each in environments:
        label = _label(each.name)
        numbered = (label if n == 1 else f"{label}-{n}" for n in itertools.count(1))
        # Some file systems take "A" and "a" for one.
        name = next(name for name in numbered if _folder(name).casefold() not in taken)
        taken.add(_folder(name).casefold())
        yield name


def _turn_info(block: TurnInfoBlock | None) -> TurnInfoConfig | None:
    return None if block is None else TurnInfoConfig(**block.model_dump(exclude_none=True))


class EvaluationRun(Run[EvaluationResult]):
    """The handle to a running evaluation: `await` it, ask for its `result()`, or `stop()` it.

    `stop()` ends the episodes that run and keeps the others; the result holds what there is.
    """

    def __init__(self, evaluation: _Evaluation) -> None:
        self._evaluation = evaluation
        super().__init__(evaluation.run(), on_stop=evaluation.stop)

    @property
    def result_so_far(self) -> EvaluationResult:
        """What there is at this moment."""
        return self._evaluation.result()


@dataclass(frozen=True, slots=True)
class _Part:
    environment: Environment | EnvironmentConfig
    name: str


@dataclass(frozen=True, slots=True)
class _Built:
    part: _Part
    environment: Environment
    factory: Callable[[], Environment] | None = None
    """Makes one for each episode, where episodes cannot have it in common."""


def _built(part: _Part, config: EnvironmentConfig) -> _Built:
    factory = EnvironmentFactory.per_episode(config)
    environment = factory() if factory is not None else EnvironmentFactory.create(config)
    return _Built(part, environment, factory)


class _Evaluation:
    """All environments, one after the other."""

    def __init__(
        self,
        parts: Iterable[_Part],
        backend: Backend,
        plan: Plan,
        progress: Progress | None,
        log: Log | None,
    ) -> None:
        self._parts = list(parts)
        self._backend = backend
        self._plan = plan
        self._progress = progress
        self._log = log
        self._model_name = ""
        self._settings: dict[str, Any] = {}
        self._rows: dict[str, list[Row]] = {}
        self._trajectories: dict[str, list[Trajectory]] = {}
        self._done = self._total = 0
        self._work: asyncio.Task[None] | None = None
        self._stopping = False

    def stop(self) -> None:
        """End the episodes that run, and with them all; runs on the portal."""
        self._stopping = True
        if self._work is not None:
            self._work.cancel()

    def result(self) -> EvaluationResult:
        """Give what there is."""
        return create_evaluation_result(
            self._rows,
            trajectories=self._trajectories,
            model=self._model_name,
            settings=self._settings,
            complete=bool(self._total) and self._done == self._total,
        )

    async def run(self) -> EvaluationResult:
        """Run all and give the result; what has ended by then is kept whatever happens."""
        self._work = asyncio.create_task(self._all())
        if self._stopping:
            self._work.cancel()
        try:
            await self._work
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            if not self._rows:
                raise RunStopped("The evaluation was stopped before it had begun") from None
        result = self.result()
        if self._plan.output_dir is not None:
            await asyncio.to_thread(result.save, self._plan.output_dir / "summary.json")
        return result

    async def _all(self) -> None:
        async with AsyncExitStack() as stack:
            model, ours = await asyncio.to_thread(_model, self._backend)
            if ours:
                stack.push_async_callback(model.aclose)
            await model.check()
            self._model_name = model.name
            # All is ready before anything runs, so that a mistake in the last is told at once.
            built = [await self._build(part, stack) for part in self._parts]
            tasks = [self._tasks(each.environment) for each in built]
            self._total = sum(tasks) * self._plan.samples
            ready = [
                await self._ready(each, count, model, stack)
                for each, count in zip(built, tasks, strict=True)
            ]
            for episodes in ready:
                await episodes.run(self._tell)

    async def _build(self, part: _Part, stack: AsyncExitStack) -> _Built:
        config = part.environment
        if not isinstance(config, EnvironmentConfig):
            return _Built(part, config)
        built: _Built = await call_user(_built, part, config)
        stack.push_async_callback(built.environment.aclose)
        return built

    def _tasks(self, environment: Environment) -> int:
        """Count the tasks to take."""
        limit = self._plan.limit
        try:
            tasks = len(environment)
        except TypeError:
            if limit is None:
                raise UsageError(
                    f"{environment.spec.name} does not know how many tasks it has",
                    hint="Give a limit",
                ) from None
            return limit
        if not tasks:
            raise UsageError(f"{environment.spec.name} has no tasks", hint="Give it some")
        return tasks if limit is None else min(limit, tasks)

    async def _ready(
        self, built: _Built, tasks: int, model: Model, stack: AsyncExitStack
    ) -> Episodes:
        """Give the episodes of one environment, with what is there of them already."""
        plan, name, environment = self._plan, built.part.name, built.environment
        settings = await asyncio.to_thread(_told, built, model.name, plan)
        folder = plan.output_dir / _folder(name) if plan.output_dir is not None else None
        kept = await asyncio.to_thread(ResultsFile, folder, settings) if folder else None
        if kept is not None:
            stack.callback(kept.close)
        grader = grader_of(environment) if plan.grade else None
        if grader is not None:
            stack.push_async_callback(grader.aclose)
        records = None
        if folder is not None and kept is not None and plan.detailed:
            records = Records(folder, kept.rows.values())
        runner = TrajectoryRunner(
            environment if built.factory is None else None,
            model,
            env_factory=built.factory,
            sampling_params=plan.sampling,
            seed=plan.seed,
            system_prompt=plan.system_prompt,
            turn_info=plan.turn_info,
            record=folder / FOLDER if folder is not None and records is not None else None,
            record_as=records.name if records is not None else None,
            overwrite=True,
            log=self._log,
            check=Judgeable(environment.reward_functions, grader),
        )
        episodes = Episodes(
            plan,
            tasks,
            runner,
            at_once=side_by_side(model, plan.batch_size),
            name=name,
            grader=grader,
            kept=kept,
            records=records,
        )
        self._settings[name] = settings
        self._rows[name] = episodes.rows
        self._trajectories[name] = episodes.trajectories
        return episodes

    async def _tell(self, ended: int) -> None:
        self._done += ended
        if self._progress is not None:
            await call_user(self._progress, self._done, self._total)


def _model(backend: Backend) -> tuple[Model, bool]:
    """Give a model, and whether it was made here and is to be closed."""
    if isinstance(backend, ModelConfig):
        return BackendFactory.create(backend), True
    return resolve(backend, load=notebook.load), not hasattr(backend, "complete")


def _told(built: _Built, model: str, plan: Plan) -> dict[str, Any]:
    """Give what the results of an environment depend on, as plain JSON."""
    config = built.part.environment
    if isinstance(config, EnvironmentConfig):
        described = config.model_dump(mode="json", exclude_defaults=True)
        if files := _files(config):
            # The same file has another path from another folder, and may change in its place.
            described["name"] = _label(config.name)
            described.get("params", {}).pop("data_files", None)
            described["data"] = fingerprint(files)
    else:
        described = asdict(built.environment.spec)
        del described["metadata"]
    return {"environment": plain(described), "model": model, **plan.to_dict()}


def _files(config: EnvironmentConfig) -> list[str]:
    """Give the files on this machine that hold an environment's tasks."""
    if config.adapter not in ("huggingface", "notebook"):
        return []
    split = config.params.get("split", "test")
    return local_files(config.name, split, config.params.get("data_files")) or []


def _label(name: str) -> str:
    """Give the name of a data set for reports; of files here, without the way to them."""
    if name.endswith(DATA_FILES):
        return Path(name).name.partition(".")[0]
    return Path(name).resolve().name if Path(name).is_dir() else name


def _folder(name: str) -> str:
    """Make a folder's name of an environment's."""
    return re.sub(r"[^\w.-]+", "--", name).lstrip(".-") or "environment"
