"""Stopped at any moment: what the session holds, and what is in the record, is the same."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from nbrefine.driver import Driver, EpisodeRun
from nbrefine.env import MultiStepEnvironment, NotebookEnvironment
from nbrefine.env.base import Environment
from nbrefine.env.session import Session
from nbrefine.kernel import Kernel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import Recorder, load
from nbrefine.planning import StepLimits
from nbrefine.postconditions import holds
from nbrefine.values import AnswerForm, Episode, Subtask, Task, Turn

CELL = "seen.append({n})\nwith open('log.txt', 'a') as log:\n    log.write('{n} ')"

Make = Callable[[Kernel], Environment]


def in_steps(kernel: Kernel) -> Environment:
    task = Task("Add", answer=AnswerForm("value", variable="seen"))
    return MultiStepEnvironment(task, kernel=kernel)


def checked(kernel: Kernel) -> Environment:
    step = Subtask("Add", postconditions=(holds("len(seen) > 0"),))
    return MultiStepEnvironment(Task("Add", subtasks=(step, Subtask("End"))), kernel=kernel)


def best(kernel: Kernel) -> Environment:
    """Adopts a cell of an earlier turn."""
    step = Subtask("Add", postconditions=(holds("len(seen) > 0"), holds("seen is None")))
    return MultiStepEnvironment(
        Task("Add", subtasks=(step, Subtask("End"))),
        kernel=kernel,
        accept_best=True,
        limits_per_step=StepLimits(attempts=1),
        max_replans=0,
    )


def refined(kernel: Kernel) -> Environment:
    return NotebookEnvironment(Task("Add", tests="assert seen"), kernel=kernel, max_turns=2)


def in_place(kernel: Kernel) -> Environment:
    return NotebookEnvironment(Task("Add", tests="assert seen"), kernel=kernel, isolation="none")


@contextmanager
def stopped_at(moment: int, stop: Callable[[], None], patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop at one of the moments at which the portal's loop turns from one thing to the next.

    They are counted from the one on at which an attempt begins to become the session.
    """
    accept, passed = Session.accept, itertools.count()

    def watched(loop: Any) -> None:
        soon = loop.call_soon

        def call_soon(*args: Any, **options: Any) -> Any:
            handle = soon(*args, **options)
            if next(passed) == moment:
                soon(stop)
                soon(stop)  # as by an impatient person
            return handle

        inner.setattr(loop, "call_soon", call_soon)

    async def accepting(self: Session, *args: Any, **options: Any) -> Any:
        watched(asyncio.get_running_loop())
        return await accept(self, *args, **options)

    with patch.context() as inner:
        inner.setattr(Session, "accept", accepting)
        yield


def stopped(
    make: Make, kernel: Kernel, record: Path, moment: int, patch: pytest.MonkeyPatch
) -> Episode:
    """Give an episode, as its record has it, whose first cell was to become the session."""
    assert kernel.run("seen = []").result().ok
    (record.parent / "log.txt").unlink(missing_ok=True)
    model = ScriptedModel([f"```python\n{CELL.format(n=n)}\n```" for n in (1, 2)])
    driver = Driver(make(kernel), model, recorder=Recorder(record, overwrite=True))
    with stopped_at(moment, driver.stop, patch):
        episode = EpisodeRun(driver).result()
    found = load(record)
    assert found.turns == episode.turns
    assert found.stop == episode.stop
    return found


def held(kernel: Kernel, folder: Path) -> tuple[list[int], list[int]]:
    """Give what the session and the working folder have of the cells."""
    seen = kernel.run("print(*seen)").result().text
    log = folder / "log.txt"
    return (
        [int(n) for n in seen.split()],
        [int(n) for n in log.read_text().split()] if log.exists() else [],
    )


def added(turns: Sequence[Turn]) -> list[int]:
    return [n for turn in turns for n in (1, 2) if turn.code == CELL.format(n=n)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def kernel(folder: Path) -> Iterator[Kernel]:
    with Kernel.start(cwd=folder, ignore=("*.ipynb", "*.jsonl")) as kernel:
        yield kernel


@pytest.fixture(scope="module")
def attached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel of somebody else's, which no branch can replace."""
    manager = KernelManager(kernel_name="python3")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    folder = tmp_path_factory.mktemp("theirs")
    manager.start_kernel(env=environment, cwd=str(folder))
    try:
        with Kernel.connect(manager.connection_file) as kernel:
            yield kernel
    finally:
        manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    ("make", "moments"),
    [
        (in_steps, range(0, 160, 11)),
        (checked, range(0, 140, 13)),
        (best, range(0, 130, 13)),
        (refined, range(0, 90, 7)),
    ],
)
def test_a_cell_is_in_the_record_where_it_is_in_the_session(
    kernel: Kernel, folder: Path, monkeypatch: pytest.MonkeyPatch, make: Make, moments: range
) -> None:
    for moment in moments:
        episode = stopped(make, kernel, folder / "e.ipynb", moment, monkeypatch)
        accepted = added(episode.accepted)
        assert held(kernel, folder) == (accepted, accepted), moment
        assert [turn.number for turn in episode.turns] == list(range(1, len(episode.turns) + 1))


@pytest.mark.parametrize(
    ("make", "moments"), [(in_steps, range(0, 120, 13)), (refined, range(0, 90, 9))]
)
def test_a_cell_that_ran_in_a_kernel_of_somebody_else_s_is_in_the_record(
    attached: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, moments: range
) -> None:
    for moment in moments:
        episode = stopped(make, attached, tmp_path / "e.ipynb", moment, monkeypatch)
        ran = [turn for turn in episode.turns if turn.accepted or turn.isolation == "none"]
        seen, _ = held(attached, tmp_path)
        # One that was interrupted there has done some of what it does.
        assert set(added(episode.accepted)) <= set(seen) <= set(added(ran)), moment


def test_a_cell_that_ran_in_the_session_itself_is_in_the_record(
    kernel: Kernel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in range(16):
        episode = stopped(in_place, kernel, folder / "e.ipynb", moment, monkeypatch)
        assert held(kernel, folder)[0] == added(episode.turns) == [1], moment
