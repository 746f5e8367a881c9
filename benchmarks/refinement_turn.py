"""What a refinement turn costs beside the model and the code: branch, cell, tests, digest, record.

A scripted model answers at once with a cell that binds a number, on a session that holds a frame
of 200 MB; the tests look at the number.  A turn lasts from the reply until it is in the journal.
Two turns of an episode are rejected and the third is accepted, which becomes the session.

    python benchmarks/refinement_turn.py
"""

from __future__ import annotations

import inspect
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from figures import Figures, Row, show, spread

from nbrefine import Task, refine
from nbrefine.env import attempt
from nbrefine.env.folder import FolderWatch
from nbrefine.env.session import Session
from nbrefine.notebook.recorder import Recorder

EPISODES = 10
TURNS = 3
GOAL = 0.150
SETUP_SECONDS = 0.5

TASK = Task(
    "Bind the answer.",
    setup=(
        f"import time; until = time.perf_counter() + {SETUP_SECONDS}\n"
        "import numpy as np, pandas as pd\n"
        "frame = pd.DataFrame(np.ones((1_000_000, 25)))\n"
        "time.sleep(max(0, until - time.perf_counter())); del until"
    ),
    tests=f"def test_answer():\n    assert answer == {TURNS}",
)
PARTS = {
    "a branch to run in": (Session, "begin"),
    "looking at the folder": (FolderWatch, "begin"),
    "a branch for the tests, the tests, the digest": (attempt, "_judge"),
    "adoption": (Session, "accept"),
    "journal": (Recorder, "turn"),
}
MEANWHILE = {
    "digest of the namespace, beside the tests": (attempt, "snapshot"),
    "what changed in the folder, beside them too": (FolderWatch, "end"),
}
"""Is done while the tests run, so it is part of their time."""
THE_CELL = "the cell"
THE_REST = "everything else"


class Clock:
    """Notes when turns begin and end, and how long their parts take."""

    def __init__(self) -> None:
        self.turns: list[float] = []
        self.parts: list[dict[str, float]] = []
        self._began = 0.0

    def begin(self) -> None:
        self.parts.append(dict.fromkeys((*PARTS, *MEANWHILE, THE_CELL, THE_REST), 0.0))
        self._began = time.perf_counter()

    def add(self, part: str, seconds: float) -> None:
        if self.parts:  # what is before the first turn is no part of one
            self.parts[-1][part] += seconds
        if part == "journal":
            self.turns.append(time.perf_counter() - self._began)

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            for part, (owner, name) in (PARTS | MEANWHILE).items():
                stack.enter_context(timed(owner, name, partial(self.add, part)))
            yield


def timed(owner: Any, name: str, add: Callable[[float], None]) -> AbstractContextManager[Any]:
    """Let a function or method tell, as long as the context lasts, how long its calls take."""
    bound = inspect.getattr_static(owner, name)
    whole = getattr(owner, name)

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return await whole(*args, **kwargs)
        finally:
            add(time.perf_counter() - began)

    def called(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return whole(*args, **kwargs)
        finally:
            add(time.perf_counter() - began)

    told: Any = awaited if inspect.iscoroutinefunction(whole) else called
    return patch.object(owner, name, staticmethod(told) if isinstance(bound, classmethod) else told)


def episode(isolation: str) -> Clock:
    """Run one episode and give its times."""
    clock = Clock()

    def answer(_: object) -> str:
        clock.begin()
        return f"```python\nanswer = {len(clock.parts)}\n```"

    with tempfile.TemporaryDirectory() as folder, clock.watching():
        done = refine(
            TASK, model=answer, isolation=isolation, record=Path(folder, "turns.ipynb"), seed=None
        )
    assert done.stop is not None
    assert (done.stop.reason, len(done.turns)) == ("solved", TURNS), done.stop
    assert {turn.isolation for turn in done.turns} == {isolation}, done.turns[0].isolation_reason
    assert all(turn.digest for turn in done.turns if turn.accepted)
    for turn, parts, whole in zip(done.turns, clock.parts, clock.turns, strict=True):
        assert turn.result is not None
        parts[THE_CELL] = turn.result.timing.seconds
        apart = sum(parts[part] for part in (*PARTS, THE_CELL))
        parts[THE_REST] = whole - apart
    return clock


def split_rows(clocks: list[Clock]) -> Iterator[Row]:
    turns = [parts for clock in clocks for parts in clock.parts]
    for part in (*PARTS, THE_CELL, THE_REST, *MEANWHILE):
        taken = [parts[part] for parts in turns if parts[part]]
        share = statistics.mean(parts[part] for parts in turns)
        often = "" if len(taken) == len(turns) else f"in {len(taken)} of {len(turns)} turns; "
        yield Row(
            f"of that: {part}", spread(taken, "ms", 1e3), "", f"{often}{share * 1e3:.1f} ms a turn"
        )


def measure() -> Figures:
    kinds = ("fork", "rebuild", "none")
    for kind in kinds:
        episode(kind)  # the first of each reads files that the others find in memory
    clocks: dict[str, list[Clock]] = {kind: [] for kind in kinds}
    for number in range(EPISODES):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            clocks[kind].append(episode(kind))
    turns = {
        kind: [[clock.turns[at] for clock in clocks[kind]] for at in range(TURNS)] for kind in kinds
    }
    mine = [seconds for each in turns["fork"] for seconds in each]
    found = statistics.median(mine)

    def row(what: str, at: int) -> Row:
        rebuild, none = (spread(turns[kind][at], "ms", 1e3) for kind in ("rebuild", "none"))
        return Row(
            what, spread(turns["fork"][at], "ms", 1e3), f'{rebuild}, "rebuild"; {none}, "none"'
        )

    return Figures(
        "A refinement turn beside model and code",
        f"{EPISODES} episodes of {TURNS} turns for each isolation, in turn: `refine` with a "
        "model that answers at once, a cell that binds a number, one test, a record on disk, and "
        f"a frame of 200 MB, which takes {SETUP_SECONDS} s to build. A turn lasts from the reply "
        'until it is in the journal. With "rebuild" the state is built anew after a rejected '
        'turn; with "none" all runs in the one session, unprotected.',
        (
            Row(
                "a turn",
                spread(mine, "ms", 1e3),
                "",
                "",
                f"≤ {GOAL * 1e3:.0f} ms",
                found <= GOAL,
            ),
            row("the first, rejected", 0),
            row("the second, rejected", 1),
            row("the third, accepted", 2),
            *split_rows(clocks["fork"]),
        ),
        {
            kind: [{"turns": clock.turns, "parts": clock.parts} for clock in clocks[kind]]
            for kind in kinds
        },
    )


if __name__ == "__main__":
    show(measure)
