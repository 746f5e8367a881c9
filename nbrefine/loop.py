"""The loop: ask the model, run its code, tell it what happened, until a rule says stop.

Read this file first, then `driver`, which does it: one episode is one fold over an environment's
`step`.  `refine` blocks and gives the `Episode`; `start` gives a handle to the running one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nbrefine._portal import blocking
from nbrefine.budget import Budget
from nbrefine.driver import Activity, Driver, EpisodeRun
from nbrefine.env import REBUILD_LIMIT, IsolationPolicy, NotebookEnvironment, WorkspaceMode
from nbrefine.errors import UsageError
from nbrefine.history import History, by_name
from nbrefine.inputs import data_files, one_of, within
from nbrefine.kernel import Kernel, OutputLimits
from nbrefine.models import Model, resolve
from nbrefine.notebook import Recorder, load
from nbrefine.stopping import StopRule
from nbrefine.values import Sampling, Task

__all__ = ["Activity", "EpisodeRun", "refine", "start"]


def start(
    task: Task | str,
    *,
    model: Model | str | Callable[..., Any] | Iterable[str] = "local",
    base_url: str | None = None,
    initial_code: str = "",
    tests: str = "",
    setup: str = "",
    data: str | Path | Iterable[str | Path] = (),
    kernel: Kernel | str = "python3",
    max_turns: int = 5,
    timeout: float | None = 120.0,
    test_timeout: float = 10.0,
    history: History | str = "current",
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
    base_url: the server of an "openai:" model.
    initial_code: code that is evaluated as the first turn, before the model is asked.
    tests: visible tests: asserts, `check(candidate)` or pytest-style functions; without any, a
        cell that ran without an error is the success.
    setup: code that runs in the session before the first attempt.
    data: file or files the task speaks of; the prompt names them relative to the kernel's folder.
    kernel: a kernelspec's name, or a live `Kernel` to work in.
    max_turns: turns until the episode ends unsolved.
    timeout: seconds a cell may run; None for no limit.
    test_timeout: seconds one test may run.
    history: which past a prompt shows: a strategy of `nbrefine.history`, or the name of one, which
        the record keeps.
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
    UsageError: a file is missing, the record cannot be written, the model or the history is not
        known, or tests or setup are given beside those of the task.
    InvalidTaskError: the tests do not parse.
    """
    if isinstance(task, str):
        task = Task(task)
    if not isinstance(task, Task):
        raise UsageError(f"{task!r} is no task", hint="Give a text or a Task")
    rules = rules or StopRule()
    past = by_name(history) if isinstance(history, str) else history
    record = Path(record) if record is not None else None
    folder = Path(cwd) if cwd is not None else record.parent if record else Path.cwd()
    task = replace(
        task,
        tests=one_of("tests", task.tests, tests),
        setup=one_of("setup", task.setup, setup),
        files=(*task.files, *data_files(data, folder)),
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
        history=past,
        rules=rules,
        cwd=folder,
        ignore=within(folder, recorder.paths) if recorder else (),
        limits=OutputLimits(folder=recorder.folder if recorder else None),
    )
    answering = resolve(model, base_url=base_url, load=load)
    return EpisodeRun(
        Driver(
            env,
            answering,
            close_model=answering is not model,
            initial_code=initial_code,
            rules=rules,
            budget=budget,
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
                "history": history if isinstance(history, str) else None,
                "rules": asdict(rules),
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_tokens": sampling.max_tokens,
            },
        )
    )


@blocking(start)
def refine() -> None:
    """Refine code for a task until it is solved or a rule says stop, and give the episode.

    For the parameters see `start`.

    Raises
    ------
    NbrefineError: the host's or the caller's trouble; its `episode` holds the turns so far.
    """
