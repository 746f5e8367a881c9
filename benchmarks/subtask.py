"""What a subtask costs beside the model and its code, where `solve` works on a plan.

A scripted model answers at once with a cell that binds a number, on a session that holds frames and
arrays of 200 MB; two postconditions look at the number.  A subtask lasts from the reply until the
model is asked for the next one, or until the end of the episode is in the journal.

    python benchmarks/subtask.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from figures import Figures, Row, show, spread
from refinement_turn import timed

from nbrefine import Task, solve
from nbrefine.env import attempt
from nbrefine.env.looking import Folder
from nbrefine.env.multistep import MultiStepEnvironment
from nbrefine.env.session import Session
from nbrefine.notebook.recorder import Recorder
from nbrefine.postconditions import holds, in_range
from nbrefine.values import Subtask

EPISODES = 5
SUBTASKS = 20
GOAL = 0.150

SETUP = """\
import numpy as np, pandas as pd
for number in range(4):
    globals()[f"frame_{number}"] = pd.DataFrame(np.full((250_000, 20), float(number)))
first, second = np.ones(2_500_000), np.ones((2_500, 1_000))
"""
PARTS = {
    "a branch to run in": (Session, "begin"),
    "a branch for the postconditions, these, the digest": (attempt, "_judge"),
    "adoption": (Session, "accept"),
    "the files that it has written": (Folder, "artifacts"),
    "the next prompt, with a look at the folder": (MultiStepEnvironment, "_state"),
    "journal": (Recorder, "turn"),
}
MEANWHILE = {"digest and listing, beside the postconditions": (attempt, "snapshot")}
THE_CELL = "the cell"
THE_REST = "everything else"


class Clock:
    """Notes how long subtasks and their parts take."""

    def __init__(self) -> None:
        self.subtasks: list[float] = []
        self.parts: list[dict[str, float]] = []
        self._began = 0.0

    def begin(self) -> None:
        self.parts.append(dict.fromkeys((*PARTS, *MEANWHILE, THE_CELL, THE_REST), 0.0))
        self._began = time.perf_counter()

    def end(self) -> None:
        self.subtasks.append(time.perf_counter() - self._began)

    def add(self, part: str, seconds: float) -> None:
        if self.parts:  # what is before the first subtask is no part of one
            self.parts[-1][part] += seconds

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            for part, (owner, name) in (PARTS | MEANWHILE).items():
                stack.enter_context(timed(owner, name, partial(self.add, part)))
            yield


def episode() -> Clock:
    """Run one episode and give its times."""
    clock = Clock()

    def answer(_: object) -> str:
        if clock.parts:
            clock.end()
        number = len(clock.parts) + 1
        clock.begin()
        return f"```python\nfound_{number} = float(frame_1.iat[0, 0]) * {number}\n```"

    steps = tuple(
        Subtask(
            f"Bind found_{number}.",
            postconditions=(
                in_range(f"found_{number}", low=number, high=number),
                holds(f"isinstance(found_{number}, float)"),
            ),
        )
        for number in range(1, SUBTASKS + 1)
    )
    task = Task("Find the numbers.", setup=SETUP, subtasks=steps)
    with tempfile.TemporaryDirectory() as folder, clock.watching():
        record = Path(folder, "steps.ipynb")
        done = solve(task, model=answer, record=record, max_turns=SUBTASKS + 1, seed=None)
        clock.end()
    assert done.stop is not None
    assert (done.stop.reason, len(done.turns)) == ("solved", SUBTASKS), done.stop
    assert {turn.isolation for turn in done.turns} == {"fork"}, done.turns[0].isolation_reason
    assert all(turn.tests is not None and turn.tests.passed == 2 for turn in done.turns)
    for turn, parts, whole in zip(done.turns, clock.parts, clock.subtasks, strict=True):
        assert turn.result is not None
        parts[THE_CELL] = turn.result.timing.seconds
        parts[THE_REST] = whole - sum(parts[part] for part in (*PARTS, THE_CELL))
    del clock.parts[-1], clock.subtasks[-1]  # with it the notebook is written and the kernel ends
    return clock


def split_rows(clocks: list[Clock]) -> Iterator[Row]:
    subtasks: list[dict[str, Any]] = [parts for clock in clocks for parts in clock.parts]
    for part in (*PARTS, THE_CELL, THE_REST, *MEANWHILE):
        yield Row(f"of that: {part}", spread([parts[part] for parts in subtasks], "ms", 1e3))


def measure() -> Figures:
    episode()  # the first reads files that the others find in memory
    clocks = [episode() for _ in range(EPISODES)]
    taken = [seconds for clock in clocks for seconds in clock.subtasks]
    late = [seconds for clock in clocks for seconds in clock.subtasks[-5:]]
    early = [seconds for clock in clocks for seconds in clock.subtasks[:5]]
    found = statistics.median(taken)
    goal = f"≤ {GOAL * 1e3:.0f} ms"
    return Figures(
        "A subtask beside model and code",
        f"{EPISODES} episodes of {SUBTASKS} subtasks: `solve` with a model that answers at once, a "
        "cell that binds a number, two postconditions, a record on disk, and frames and arrays of "
        "200 MB. A subtask lasts from the reply until the model is asked for the next one; the "
        "last of an episode, which ends it, is not counted.",
        (
            Row("a subtask", spread(taken, "ms", 1e3), "", "", goal, found <= GOAL),
            Row("the last five", spread(late, "ms", 1e3), f"{spread(early, 'ms', 1e3)}, the first"),
            *split_rows(clocks),
        ),
        {"episodes": [{"subtasks": each.subtasks, "parts": each.parts} for each in clocks]},
    )


if __name__ == "__main__":
    show(measure)
