"""The loop: ask the model, run its code, tell it what happened, until a rule says stop.

Read this file first.  One episode is one fold: the environment's `step` is the transition,
`StopRule` and `Budget` decide, and every finished turn is recorded before the model is asked
again.  `refine` blocks and gives the `Episode`; `start` gives a handle to the running one.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nbrefine._portal import Run
from nbrefine.budget import Budget
from nbrefine.env import REBUILD_LIMIT, IsolationPolicy, NotebookEnvironment, WorkspaceMode
from nbrefine.errors import (
    BudgetExceeded,
    InvalidTaskError,
    NbrefineError,
    RecordError,
    RunStopped,
    UsageError,
)
from nbrefine.history import History
from nbrefine.kernel import Kernel, OutputLimits
from nbrefine.models import Model, resolve
from nbrefine.notebook import Recorder, load
from nbrefine.redaction import clean_text
from nbrefine.state import Action, State
from nbrefine.stopping import StopRule
from nbrefine.values import Episode, Reply, Sampling, Stop, Task

ESCALATED_TEMPERATURE = 0.8
"""Temperature from the first repeated answer on, where the caller's is lower.

At temperature 0 the same prompt gives the same answer: 3,758 of 5,318 logged repair calls came
after their episode's first pair of equal programs in a row.
"""


def refine(task: Task | str, **settings: Any) -> Episode:
    """Refine code for a task until it is solved or a rule says stop, and give the episode.

    Parameters
    ----------
    task: what is asked, as a `Task` or in plain words.
    settings: see `start`.

    Raises
    ------
    NbrefineError: the host's or the caller's trouble; its `episode` holds the turns so far.
    """
    return start(task, **settings).result()


def start(
    task: Task | str,
    *,
    model: Model | str | Callable[..., Any] | Iterable[str] = "local",
    initial_code: str = "",
    tests: str = "",
    setup: str = "",
    data: str | Path | Iterable[str | Path] = (),
    kernel: Kernel | str = "python3",
    max_turns: int = 5,
    timeout: float | None = 120.0,
    test_timeout: float = 10.0,
    history: History | None = None,
    rules: StopRule | None = None,
    budget: Budget | None = None,
    sampling: Sampling = Sampling(temperature=0.0),
    seed: int | None = 0,
    isolation: IsolationPolicy = "auto",
    rebuild_limit: float = REBUILD_LIMIT,
    confirm: Callable[[str], bool] | None = None,
    workspace: WorkspaceMode = "auto",
    record: str | Path | None = None,
    overwrite: bool = False,
    cwd: str | Path | None = None,
) -> EpisodeRun:
    """Begin to refine code for a task and give the handle to the running episode.

    Parameters
    ----------
    task: what is asked, as a `Task` or in plain words.
    model: a `Model`, a name such as "local" or "openai:gpt-4o-mini", a function from messages
        to text, or a list of replies.
    initial_code: code that is evaluated as the first turn, before the model is asked.
    tests: visible tests: asserts, `check(candidate)` or pytest-style functions; without any, a
        cell that ran without an error is the success.
    setup: code that runs in the session before the first attempt.
    data: file or files the task speaks of; the prompt names them relative to the kernel's folder.
    kernel: a kernelspec's name, or a live `Kernel` to work in.
    max_turns: turns until the episode ends unsolved.
    timeout: seconds a cell may run; None for no limit.
    test_timeout: seconds one test may run.
    history: which past a prompt shows; by default task, last code and last feedback.
    rules: when to change strategy and when to stop on repeats.
    budget: what may be spent; checked before every model call.
    sampling: how replies are drawn; a seed of its own is made from `seed` for every turn.
    seed: seeds the session and the model's sampling; None leaves both to chance.
    isolation, rebuild_limit, confirm, workspace: see `NotebookEnvironment`.
    record: path `NAME.ipynb` of the episode notebook, written while the episode runs; all of an
        output that it must cut goes to files in `NAME.files`.
    overwrite: whether a recorded episode at that path may be replaced.
    cwd: the kernel's folder; by default the notebook's, or the current one without a record.
        Run All starts in the notebook's, so a record made elsewhere may not find its files.

    Raises
    ------
    UsageError: a file is missing, the record cannot be written, the model is not known, or
        tests or setup are given beside those of the task.
    InvalidTaskError: the tests do not parse.
    """
    if isinstance(task, str):
        task = Task(task)
    if not isinstance(task, Task):
        raise UsageError(f"{task!r} is no task", hint="Give a text or a Task")
    rules = rules or StopRule()
    record = Path(record) if record is not None else None
    data = (data,) if isinstance(data, str | Path) else data
    folder = Path(cwd) if cwd is not None else record.parent if record else Path.cwd()
    task = replace(
        task,
        tests=_one_of("tests", task.tests, tests),
        setup=_one_of("setup", task.setup, setup),
        files=(*task.files, *_relative(data, folder)),
    )
    recorder = Recorder(record, overwrite=overwrite) if record else None
    env = NotebookEnvironment(
        task,
        kernel=kernel,
        max_turns=max_turns,
        timeout=timeout,
        test_timeout=test_timeout,
        isolation=isolation,
        rebuild_limit=rebuild_limit,
        confirm=confirm,
        workspace=workspace,
        history=history,
        rules=rules,
        cwd=folder,
        ignore=_within(folder, recorder.paths) if recorder else (),
        limits=OutputLimits(folder=recorder.folder if recorder else None),
    )
    ours = not hasattr(model, "complete")
    return EpisodeRun(
        Refiner(
            env,
            resolve(model, load=load),
            close_model=ours,
            initial_code=initial_code,
            rules=rules,
            budget=budget or Budget(),
            sampling=sampling,
            seed=seed,
            recorder=recorder,
            settings={
                "max_turns": max_turns,
                "timeout": timeout,
                "test_timeout": test_timeout,
                "isolation": isolation,
                "rebuild_limit": rebuild_limit,
                "workspace": workspace,
                "rules": asdict(rules),
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_tokens": sampling.max_tokens,
            },
        )
    )


def _one_of(name: str, of_task: str, given: str) -> str:
    if of_task and given and of_task != given:
        raise UsageError(f"The task has {name} of its own", hint=f"Give {name} only once")
    return of_task or given


def _within(folder: Path, paths: Iterable[Path]) -> tuple[str, ...]:
    """Give those paths that lie in a folder, relative to it."""
    folder = folder.resolve()
    return tuple(str(path.relative_to(folder)) for path in paths if path.is_relative_to(folder))


def _relative(data: Iterable[str | Path], folder: Path) -> tuple[str, ...]:
    files = [Path(file) for file in data]
    for file in files:
        if not file.exists():
            raise UsageError(f"There is no data file {file}", hint="Check the path")
        if (name := str(file)) != clean_text(name):
            raise UsageError(f"The name of the data file {name!r} is no UTF-8", hint="Rename it")
    return tuple(Path(os.path.relpath(file, folder)).as_posix() for file in files)


@dataclass(frozen=True, slots=True)
class Activity:
    """What a running episode is doing at this moment."""

    doing: str = "starting"
    """"starting", "asking", "running", "testing" or "ended"."""
    turn: int = 0
    """1-based number of the turn; 0 before the first."""
    since: float = field(default_factory=time.monotonic)
    """When it began, by `time.monotonic`."""
    reply_text: str = ""
    """What the model has written so far in this turn."""


class EpisodeRun(Run[Episode]):
    """The handle to a running episode: `await` it, ask for its `result()`, or `stop()` it.

    `stop()` ends the current model call or cell and closes the record; the result is then the
    episode so far with the stop reason "stopped".
    """

    def __init__(self, refiner: Refiner) -> None:
        self._refiner = refiner
        super().__init__(refiner.drive(), on_stop=refiner.stop)

    @property
    def episode(self) -> Episode | None:
        """The episode up to its last finished turn; None before the kernel is ready."""
        return self._refiner.episode

    @property
    def activity(self) -> Activity:
        """What is being done at this moment."""
        return self._refiner.seen


class Refiner:
    """Drives one episode: the fold over the environment's `step`."""

    def __init__(
        self,
        env: NotebookEnvironment,
        model: Model,
        *,
        close_model: bool,
        initial_code: str,
        rules: StopRule,
        budget: Budget,
        sampling: Sampling,
        seed: int | None,
        recorder: Recorder | None,
        settings: dict[str, Any],
    ) -> None:
        self.episode: Episode | None = None
        self.activity = Activity()
        self._env = env
        self._model = model
        self._close_model = close_model
        self._initial_code = initial_code
        self._rules = rules
        self._budget = budget
        self._sampling = sampling
        self._seed = seed
        self._recorder = recorder
        self._settings = settings
        self._scribe = ThreadPoolExecutor(1, "nbrefine-record")
        self._fold_task: asyncio.Task[Stop] | None = None
        self._stopping = False

    def stop(self) -> None:
        """End the current call or cell and, with it, the episode."""
        self._stopping = True
        if self._fold_task is not None:
            self._fold_task.cancel()

    @property
    def seen(self) -> Activity:
        """What is being done at this moment."""
        return replace(self.activity, doing="testing") if self._env.testing else self.activity

    async def drive(self) -> Episode:
        """Run the episode to its end, close its record and release everything."""
        trouble: Exception | None = None
        try:
            try:
                stop = await self._until_stopped()
            except Exception as raised:  # noqa: BLE001 - the record is closed, then it goes on up
                trouble, stop = raised, _stop_for(raised)
            if self.episode is not None:
                self.episode = replace(self.episode, stop=stop)
                await self._record(Recorder.end)
        except RecordError as raised:
            trouble = trouble or raised
        finally:
            self._doing("ended")
            await self._release()
        if trouble is None:
            assert self.episode is not None
            return self.episode
        if isinstance(trouble, NbrefineError):
            trouble.episode = self.episode
        raise trouble

    async def _until_stopped(self) -> Stop:
        self._fold_task = asyncio.create_task(self._fold())
        if self._stopping:
            self._fold_task.cancel()
        try:
            return await self._fold_task
        except BudgetExceeded as limit:
            return Stop("budget", limit.message)
        except RunStopped as refused:
            if self.episode is None:
                raise
            return Stop("stopped", refused.message)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            if self.episode is None:
                raise RunStopped("The episode was stopped before its kernel was ready") from None
            return Stop("stopped", "stopped by a person")

    async def _fold(self) -> Stop:
        await self._model.check()
        state, _ = await self._env.areset(seed=self._seed)
        self.episode = self._described(state.hidden.episode)
        await self._record(Recorder.begin)
        action = Action.from_code(self._initial_code) if self._initial_code else None
        while (stop := self.episode.stop or self._rules.decide(self.episode.turns)) is None:
            if action is None:
                action = Action.from_reply(await self._ask(state))
            self._doing("running")
            state = (await self._env.astep(state, action)).next_state
            self.episode = self._described(state.hidden.episode)
            self._budget.add_turn()
            await self._record(Recorder.turn)
            action = None
        return stop

    async def _ask(self, state: State) -> Reply:
        self._budget.check()
        self._doing("asking")
        return await self._model.complete(
            state.observation.messages,
            sampling=self._draw(state),
            budget=self._budget,
            on_text=self._hear,
        )

    def _draw(self, state: State) -> Sampling:
        """Give the settings of the next reply: a seed for the turn, more heat on a repeat."""
        drawn = self._sampling
        if self._seed is not None:
            drawn = replace(drawn, seed=1000 * self._seed + state.metadata.step + 1)
        if state.hidden.escalated and (drawn.temperature or 0.0) < ESCALATED_TEMPERATURE:
            drawn = replace(drawn, temperature=ESCALATED_TEMPERATURE)
        return drawn

    def _described(self, episode: Episode) -> Episode:
        return replace(episode, model=self._model.name, settings=self._settings)

    def _doing(self, what: str) -> None:
        turn = len(self.episode.turns) + 1 if self.episode is not None else 0
        self.activity = Activity(what, turn)

    def _hear(self, text: str) -> None:
        heard = self.activity.reply_text + text if text else ""  # "" says that it begins anew
        self.activity = replace(self.activity, reply_text=heard)

    async def _record(self, write: Callable[[Recorder, Episode], None]) -> None:
        """Write to the record in its own thread, one write after the other."""
        if self._recorder is not None:
            loop = asyncio.get_running_loop()
            assert self.episode is not None
            await loop.run_in_executor(self._scribe, write, self._recorder, self.episode)

    async def _release(self) -> None:
        """Close record, kernel and model, in this order, each whatever the others do."""
        async with AsyncExitStack() as stack:
            if self._close_model:
                stack.push_async_callback(self._model.aclose)
            stack.push_async_callback(self._env.aclose)
            stack.callback(self._scribe.shutdown, wait=False)
            if self._recorder is not None:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._scribe, self._recorder.close)


def _stop_for(trouble: Exception) -> Stop:
    if isinstance(trouble, InvalidTaskError):
        return Stop("invalid-task", trouble.message)
    return Stop("infra-error", str(trouble))
