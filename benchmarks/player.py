"""What the player of a long episode takes in a notebook's kernel: to open, and to go on.

The episode is that of `page.py`: every attempt puts out 2 kB, and its prompt holds the whole
conversation before it.  What a browser takes to draw one scene does not depend on the others.

    python benchmarks/player.py
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from figures import Figures, Row, show, spread
from page import ATTEMPTS, OUTPUT, episode

from nbrefine.views.player import Player
from nbrefine.views.player.still import still
from nbrefine.views.story import story

ROUNDS = 10
GOAL = 1.0
STEPS = 50


def measure() -> Figures:
    Player(episode(2)).close()  # imports
    episodes = {"plain": episode(ATTEMPTS), "failing": episode(ATTEMPTS, failing=True)}
    opening: dict[str, list[float]] = {name: [] for name in episodes}
    going_on, sizes = [], []
    for _ in range(ROUNDS):
        for name, each in episodes.items():
            start = time.perf_counter()
            player = Player(each)
            text = still(story(each))
            opening[name].append(time.perf_counter() - start)
            start = time.perf_counter()
            for at in range(ATTEMPTS - STEPS, ATTEMPTS):
                player.controls.choose(at)
            going_on.append((time.perf_counter() - start) / STEPS)
            sizes.append(len(text["text/html"]))
            player.close()
    raw: dict[str, Any] = {"opening": opening, "going_on": going_on, "text": sizes}
    return Figures(
        "The player of a long episode",
        f"An episode of {ATTEMPTS:,} attempts with {OUTPUT / 1000:.0f} kB of output each, opened "
        f"{ROUNDS} times in one process: the widgets with the first scene, and the text that a "
        f"saved notebook keeps ({sizes[0] / 1000:.0f} kB). Going on is timed over the last "
        f"{STEPS} scenes. The browser's part is not in it.",
        (
            _opened("open", opening["plain"]),
            _opened("open, with a traceback in each", opening["failing"]),
            Row("go to another scene", spread(going_on, "ms", 1e3)),
        ),
        raw,
    )


def _opened(name: str, taken: list[float]) -> Row:
    return Row(name, spread(taken, "s"), "", "", f"≤ {GOAL:g} s", statistics.median(taken) <= GOAL)


if __name__ == "__main__":
    show(measure)
