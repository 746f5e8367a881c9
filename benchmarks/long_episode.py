"""What an attempt costs late in a long episode: the whole loop, with its record.

A scripted model answers with a cell that prints 20 kB and fails.  The session is not rebuilt
between attempts (isolation "none"), since a fresh kernel for each would hide what the loop and
the record cost.  An attempt lasts from one question to the model to the next.

    python benchmarks/long_episode.py
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from figures import Figures, Row, show, spread

from nbrefine import refine

EPISODES = 10
ATTEMPTS = 1_000
OUTPUT = 20_000
EARLY, LATE = slice(100, 200), slice(900, 1_000)
GOAL = 1.5


def episode() -> dict[str, Any]:
    """Run one episode in this process; give each attempt's seconds, and the memory by hundreds."""
    asked: list[float] = []
    memory: list[int] = []
    process = psutil.Process()

    def answer(_: object) -> str:
        asked.append(time.perf_counter())
        memory.append(process.memory_info().rss)
        number = len(asked)
        line = f"attempt {number:06d} "
        code = f"print({line!r} * {OUTPUT // len(line)})\nraise ValueError({number})"
        return f"```python\n{code}\n```"

    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "long.ipynb")
        # One more than is measured: its question is the end of the last attempt that is.
        done = refine(
            "Count.", model=answer, max_turns=ATTEMPTS + 1, isolation="none", record=record
        )
        size = record.stat().st_size
    assert len(done.attempts) == ATTEMPTS + 1, done.stop
    assert all(turn.result and len(turn.result.text) >= 0.99 * OUTPUT for turn in done.attempts)
    seconds = [after - before for before, after in pairwise(asked)]
    return {"seconds": seconds, "memory": memory[100::100], "notebook": size}


def in_fresh_process() -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, "--one"], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure() -> Figures:
    episodes = [in_fresh_process() for _ in range(EPISODES)]
    early = [sum(each["seconds"][EARLY]) for each in episodes]
    late = [sum(each["seconds"][LATE]) for each in episodes]
    growth = [after / before for before, after in zip(early, late, strict=True)]
    found = statistics.median(growth)
    single = [[s for each in episodes for s in each["seconds"][part]] for part in (EARLY, LATE)]
    before, after = ([each["memory"][at] for each in episodes] for at in (0, -1))
    size = statistics.median(each["notebook"] for each in episodes)
    return Figures(
        "Late attempts of a long episode",
        f"{EPISODES} episodes of {ATTEMPTS:,} attempts, each in a fresh process: a scripted "
        f"model, {OUTPUT // 1000} kB of output and an error in every attempt, a record on disk, "
        'isolation "none", so that what the loop and the record cost is not hidden behind '
        "fresh kernels. The sums hold the rewriting of the notebook "
        f"({size / 1e6:.0f} MB at the end).",
        (
            Row(
                "attempts 901 to 1,000, sum",
                spread(late, "s"),
                f"{spread(early, 's')}, attempts 101 to 200",
                f"{found:.2f} times ({min(growth):.2f} to {max(growth):.2f} by episode)",
                f"≤ {GOAL}",
                found <= GOAL,
            ),
            Row(
                "attempts 901 to 1,000, one",
                spread(single[1], "ms", 1e3),
                f"{spread(single[0], 'ms', 1e3)}, attempts 101 to 200",
            ),
            Row(
                "resident memory after attempt 1,000",
                spread(after, "MB", 1e-6),
                f"{spread(before, 'MB', 1e-6)}, after attempt 100",
            ),
        ),
        {"episodes": episodes},
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--one"]:
        json.dump(episode(), sys.stdout)
    else:
        show(measure)
