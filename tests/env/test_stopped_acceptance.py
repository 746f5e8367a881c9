"""Stopped at any moment: what the session holds, and what is in the record, is the same."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from nbrefine.driver import Driver, EpisodeRun
from nbrefine.env import MultiStepEnvironment, NotebookEnvironment
from nbrefine.env.attempt import _outlasted
from nbrefine.env.base import Environment
from nbrefine.env.session import Session
from nbrefine.errors import KernelError
from nbrefine.kernel import Kernel
from nbrefine.models.scripted import ScriptedModel
from nbrefine.notebook import Recorder, load
from nbrefine.notebook.wording import fate
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
    task = Task("Add", answer=AnswerForm("value", variable="seen"))
    return MultiStepEnvironment(task, kernel=kernel, isolation="none")


def refined_in_place(kernel: Kernel) -> Environment:
    return NotebookEnvironment(Task("Add", tests="assert seen"), kernel=kernel, isolation="none")


@contextmanager
def stopped_at(
    moment: int, stop: Callable[[], None], patch: pytest.MonkeyPatch, since: str
) -> Iterator[None]:
    """Stop at one of the moments at which the portal's loop turns from one thing to the next.

    They are counted from the one on at which the session's method of that name is called.
    """
    method, passed = getattr(Session, since), itertools.count()

    def watched(loop: Any) -> None:
        soon = loop.call_soon

        def call_soon(*args: Any, **options: Any) -> Any:
            handle = soon(*args, **options)
            if next(passed) == moment:
                soon(stop)
                soon(stop)  # as by an impatient person
            return handle

        inner.setattr(loop, "call_soon", call_soon)

    async def called(self: Session, *args: Any, **options: Any) -> Any:
        watched(asyncio.get_running_loop())
        return await method(self, *args, **options)

    with patch.context() as inner:
        inner.setattr(Session, since, called)
        yield


def stopped(
    make: Make,
    kernel: Kernel,
    record: Path,
    moment: int,
    patch: pytest.MonkeyPatch,
    *,
    since: str = "accept",
) -> Episode:
    """Give an episode, as its record has it, whose first cell was to become the session."""
    assert kernel.run("seen = []").result().ok
    (record.parent / "log.txt").unlink(missing_ok=True)
    model = ScriptedModel([f"```python\n{CELL.format(n=n)}\n```" for n in (1, 2)])
    driver = Driver(make(kernel), model, recorder=Recorder(record, overwrite=True))
    with stopped_at(moment, driver.stop, patch, since):
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


def reason(episode: Episode) -> str:
    assert episode.stop is not None
    return episode.stop.reason


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
    ends = []
    for moment in moments:
        episode = stopped(make, kernel, folder / "e.ipynb", moment, monkeypatch)
        accepted = added(episode.accepted)
        assert held(kernel, folder) == (accepted, accepted), moment
        assert [turn.number for turn in episode.turns] == list(range(1, len(episode.turns) + 1))
        ends.append(reason(episode))
    assert ends.count("stopped") > 2, ends


@pytest.mark.parametrize(
    ("make", "moments"), [(in_steps, range(0, 120, 13)), (refined, range(0, 90, 9))]
)
def test_a_cell_that_ran_in_a_kernel_of_somebody_else_s_is_in_the_record(
    attached: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Make, moments: range
) -> None:
    ends = []
    for moment in moments:
        episode = stopped(make, attached, tmp_path / "e.ipynb", moment, monkeypatch)
        ends.append(reason(episode))
        ran = [turn for turn in episode.turns if turn.accepted or turn.isolation == "none"]
        seen, _ = held(attached, tmp_path)
        # One that was interrupted there has done some of what it does.
        assert set(added(episode.accepted)) <= set(seen) <= set(added(ran)), moment
    assert ends.count("stopped") > 2, ends


def test_a_cell_that_ran_in_the_session_itself_is_in_the_record(
    kernel: Kernel, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for moment in range(16):
        episode = stopped(in_place, kernel, folder / "e.ipynb", moment, monkeypatch)
        assert held(kernel, folder)[0] == added(episode.turns) == [1], moment
        ends.append(reason(episode))
    assert "stopped" in ends


@pytest.mark.parametrize("make", [in_place, refined_in_place])
def test_stopped_at_any_moment_of_its_own_it_is_in_the_record_if_it_began(
    kernel: Kernel, folder: Path, monkeypatch: pytest.MonkeyPatch, make: Make
) -> None:
    ends = []
    for moment in range(0, 120, 6):
        episode = stopped(make, kernel, folder / "e.ipynb", moment, monkeypatch, since="begin")
        seen, _ = held(kernel, folder)
        assert set(seen) <= set(added(episode.turns)) <= {1}, moment
        ends.append(reason(episode))
    assert ends.count("stopped") > 2, ends


SLEEPS = f"{CELL.format(n=1)}\nlog.close()\nimport time\ntime.sleep(600)"


@pytest.mark.parametrize("isolation", ["none", "rebuild"])
@pytest.mark.parametrize("kind", [NotebookEnvironment, MultiStepEnvironment])
def test_of_a_cell_that_is_stopped_in_the_session_itself_the_record_tells_how_far_it_came(
    tmp_path: Path, kind: type[Any], isolation: str
) -> None:
    task = Task("Add", setup="seen = []", tests="assert seen")
    env = kind(task, cwd=tmp_path, isolation=isolation)
    record = tmp_path / "e.ipynb"
    model = ScriptedModel([f"```python\n{SLEEPS}\n```"])
    run = EpisodeRun(Driver(env, model, recorder=Recorder(record)))
    while not (tmp_path / "log.txt").exists():
        assert not run.done()
        time.sleep(0.02)
    run.stop()
    assert reason(run.result()) == "stopped"
    (turn,) = load(record).turns
    assert turn.code == SLEEPS
    assert turn.result is not None
    assert (turn.result.status, turn.isolation) == ("interrupted", isolation)
    assert (turn.accepted, turn.verdict, turn.stopped) == (False, "infra-error", True)
    assert fate(turn) == "not judged (stopped by a person)"


@pytest.mark.parametrize("stops", [0, 2])
def test_what_was_stopped_and_met_trouble_raises_the_stop_alone(stops: int) -> None:
    async def waited() -> BaseException | None:
        work = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(_outlasted(work, lambda: None))
        for _ in range(stops):
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.sleep(0)
        work.set_exception(KernelError("it is busy"))
        await asyncio.wait({waiting})
        return None if waiting.cancelled() else waiting.exception()

    found = asyncio.run(waited())
    assert found is None if stops else isinstance(found, KernelError)
