"""What a clean replay takes, beside nbclient's plain execution of the same notebook.

Both start a kernel, run setup, accepted cells and tests, and close it.  A replay compares besides
what each cell put out and the state that it left.

    python benchmarks/replay.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from figures import Figures, Row, alternate, ratio, show, spread
from nbclient import NotebookClient

import nbrefine
from nbrefine.postconditions import holds
from nbrefine.values import Subtask

ROUNDS = 11
STEPS = 10
CELL = """\
import pandas as pd
frame_{step} = pd.DataFrame({{"x": range(10_000), "y": [n * {step} for n in range(10_000)]}})
print(frame_{step}["y"].sum())
frame_{step}.describe()"""


def measure() -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episode.ipynb"
        _record(path)
        _replayed(path)
        _executed(path)  # both once before, so that files are in memory
        ours, theirs = alternate(ROUNDS, lambda: _replayed(path), lambda: _executed(path))
    over = ratio(ours, theirs)
    raw: dict[str, Any] = {"replay": ours, "nbclient": theirs}
    return Figures(
        "A clean replay",
        f"An episode of {STEPS} accepted cells on pandas, each with a check, run again {ROUNDS} "
        "times by each side in turn, from the file to the closed kernel. The replay compares "
        "outputs and states with the record; nbclient executes the notebook and compares nothing.",
        (
            Row(
                "run a notebook again",
                spread(ours, "s"),
                spread(theirs, "s"),
                f"{over:.2f}",
                "≤ 1",
                over <= 1,
            ),
        ),
        raw,
    )


def _record(path: Path) -> None:
    steps = range(1, STEPS + 1)
    episode = nbrefine.solve(
        "Make frames.",
        subtasks=[
            Subtask(f"Make frame {step}", (), (holds(f"len(frame_{step}) == 10_000"),))
            for step in steps
        ],
        model=[f"```python\n{CELL.format(step=step)}\n```" for step in steps],
        record=path,
    )
    assert episode.solved, episode.stop


def _replayed(path: Path) -> float:
    start = time.perf_counter()
    replayed = nbrefine.replay(path)
    taken = time.perf_counter() - start
    assert replayed.ok, replayed.first
    assert replayed.compared == STEPS
    return taken


def _executed(path: Path) -> float:
    start = time.perf_counter()
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}).execute()
    return time.perf_counter() - start


if __name__ == "__main__":
    show(measure)
