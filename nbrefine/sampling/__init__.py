"""Sampling: several candidates for one task, of which the first that passes or the best is taken.

Candidates do not know of each other: they are steps from one state, each in a branch of its own,
or each has a fresh kernel.  `sample` blocks and gives the `Samples`; `start_sampling` gives a
handle to the running ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from nbrefine._portal import Run, blocking
from nbrefine.budget import Budget
from nbrefine.env import Environment
from nbrefine.errors import UsageError
from nbrefine.kernel import Kernel
from nbrefine.models import Model, resolve
from nbrefine.notebook import Recorder, load
from nbrefine.runner.grading import grader_of
from nbrefine.runner.rollout import record_folder
from nbrefine.sampling.drawing import Drawing
from nbrefine.sampling.origins import Branches, Fresh, Given, Make, Origin, Trials, maker
from nbrefine.sampling.samples import Samples, Select
from nbrefine.state import State
from nbrefine.values import Sampling, Task

if TYPE_CHECKING:
    from nbrefine.rewards.grader import Grader

__all__ = ["Samples", "Select", "sample", "start_sampling"]

DRAWN = Sampling(temperature=0.8)
"""How candidates are drawn by default: the temperature at which pass@100 was highest for Codex
(Chen et al. 2021, arXiv 2107.03374, section 3.3)."""


def start_sampling(
    task: Task | str | None,
    model: Model | str | Callable[..., Any] | Iterable[Any] = "local",
    n: int = 5,
    *,
    select: Select = "first",
    tests: str = "",
    kernel: Kernel | str = "python3",
    fresh: bool = False,
    environment: Environment | None = None,
    state: State | None = None,
    max_turns: int = 1,
    workers: int | None = None,
    timeout: float | None = 120.0,
    test_timeout: float = 10.0,
    sampling: Sampling = DRAWN,
    seed: int | None = 0,
    budget: Budget | None = None,
    grader: Grader | None = None,
    record: str | Path | None = None,
    overwrite: bool = False,
    cwd: str | Path | None = None,
) -> Run[Samples]:
    """Begin to draw candidates for a task and give the handle to them.

    All begin from one live state, each in a branch of it, and wait there until the choice is made:
    the chosen one, if it passed, becomes the session of a kernel that was handed in, with the
    files that it wrote, and no other leaves a trace.  Files are held back where the system allows
    an overlay; see `Kernel.start`.  Stopped, the run gives what there is by then and chooses among
    that; so it does where the model or the host gives out after a candidate has come.

    What is visible chooses: the tests that the model was shown or, where there are none, that the
    cell ran.  Hidden tests only count, in a `grader`'s hands; where the
    grade speaks against the chosen one, `Samples.note` says so.

    Parameters
    ----------
    task: what is asked, as a `Task` or in plain words; None with a state of an environment.
    model: in any form that `refine` takes.
    n: how many candidates.
    select: "first" takes the first that passes and stops the others; "best" runs all, and takes
        the one with the best score, the earliest of equals, passed or not.
    tests: visible tests, where the task has none of its own.
    kernel: a kernelspec's name, or a live `Kernel`, in whose state the candidates begin; only
        the task's setup and what is chosen change it.
    fresh: whether each candidate gets a kernel of its own instead of a branch.
    environment, state: a state of an environment of yours that all candidates are steps from; it
        is not released, and the environment stays open.
    max_turns: turns each candidate may take; with more than one it is refined by itself.
    workers: candidates at a time; by default one for each processor.
    timeout: seconds a cell may run; None for no limit.
    test_timeout: seconds one test may run.
    sampling: how replies are drawn; every candidate has a seed of its own.
    seed: seeds the session, and by `derived_seed` each candidate's sampling; None leaves both to
        chance.
    budget: what all candidates together may spend; checked before every model call.
    grader: judges each candidate that has passed by visible and hidden tests, in another process;
        by default one of its own where the task has hidden tests, closed with this.
    record: folder for one notebook per candidate; made if it is not there.
    overwrite: whether episodes recorded there before may be replaced.
    cwd: the kernel's folder; by default the current one.

    Raises
    ------
    UsageError: a setting is out of range or excludes another; at temperature 0 all candidates
        would be the same; the model is not known; or a candidate cannot be recorded.
    InvalidTaskError: the tests do not parse, the setup fails, or the grader finds that the task
        cannot be judged here, before any candidate is drawn.
    BranchRefused: candidates cannot begin from one state, and why.
    NbrefineError: the model or the host gave out before any candidate came; the error's `episode`
        holds the turns of the first.
    """
    _check(n=n, max_turns=max_turns, **({} if workers is None else {"workers": workers}))
    if select not in get_args(Select):
        raise UsageError(f"There is no select {select!r}", hint='Use "first" or "best"')
    if n > 1 and sampling.temperature == 0:
        raise UsageError(
            f"At temperature 0 all {n} candidates would be the same",
            hint="Give sampling=Sampling(temperature=0.8), or n=1",
        )
    recorders = (
        _recorders(record_folder(record), n, overwrite=overwrite) if record is not None else []
    )
    origin: Origin
    if environment is not None or state is not None:
        origin = Given.checked(environment, state, max_turns, kernel, task or tests, fresh=fresh)
    else:
        make = maker(
            _task(task, tests),
            max_turns=max_turns,
            timeout=timeout,
            test_timeout=test_timeout,
            cwd=cwd,
            ignore=_within(cwd, recorders),
        )
        origin = _origin(make, kernel, seed, fresh=fresh)
    hidden = bool(origin.task.hidden_tests.strip())
    drawing = Drawing(
        origin,
        resolve(model, load=load),
        n,
        select=select,
        workers=min(n, workers or os.cpu_count() or 1),
        sampling=sampling,
        seed=seed,
        budget=budget or Budget(),
        grader=grader or (grader_of(environment) if hidden else None),
        recorders=recorders,
        close_model=not hasattr(model, "complete"),
        close_grader=grader is None,
    )
    return Run(drawing.run(), on_stop=drawing.stop)


@blocking(start_sampling)
def sample() -> None:
    """Draw candidates for a task, and take the first that passes or the best of them.

    For the parameters and errors see `start_sampling`; the kernel is left as it was where there is
    an error.
    """


def _origin(make: Make, kernel: Kernel | str, seed: int | None, *, fresh: bool) -> Origin:
    if fresh:
        return Fresh(make, kernel)
    if isinstance(kernel, str) or kernel.owned:
        return Branches(make, kernel, seed)
    return Trials(make, kernel)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} is {count}, but 1 is the least")


def _task(task: Task | str | None, tests: str) -> Task:
    if isinstance(task, str):
        task = Task(task)
    if not isinstance(task, Task):
        raise UsageError(f"{task!r} is no task", hint="Give a text or a Task")
    if task.tests and tests and task.tests != tests:
        raise UsageError("The task has tests of its own", hint="Give tests only once")
    return replace(task, tests=task.tests or tests)


def _recorders(folder: Path, n: int, *, overwrite: bool) -> list[Recorder]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be a folder of records ({error})") from None
    paths = [folder / f"sample-{index:02d}.ipynb" for index in range(n)]
    return [Recorder(path, overwrite=overwrite) for path in paths]


def _within(cwd: str | Path | None, recorders: Sequence[Recorder]) -> tuple[str, ...]:
    """Give what records write in the kernel's folder, so that nobody takes it for its work."""
    here = Path(cwd or ".").resolve()
    paths = [path for recorder in recorders for path in recorder.paths]
    return tuple(str(path.relative_to(here)) for path in paths if path.is_relative_to(here))
