"""What the benchmarks share: taking turns, medians with their spread, and the table.

Side by side means that both sides alternate within one process and one run, the order turned
round each time, so that whatever slows the machine down slows both.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a figure, what it is compared with, and its goal."""

    what: str
    ours: str
    peer: str = ""
    result: str = ""
    goal: str = ""
    met: bool | None = None
    """None where there is no goal."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one benchmark gave."""

    title: str
    how: str
    """What was done, in a few sentences."""
    rows: tuple[Row, ...]
    raw: dict[str, Any]
    """Every single measurement: seconds, characters and bytes."""


Side = Callable[[], Awaitable[float]]
"""Measures itself once, in seconds or what else it counts."""


def alternate(rounds: int, *sides: Callable[[], float]) -> tuple[list[float], ...]:
    """Let each side measure itself once a round, in turn, and give each side's measurements."""
    taken: tuple[list[float], ...] = tuple([] for _ in sides)
    pairs = list(zip(sides, taken, strict=True))
    for number in range(rounds):
        for side, measured in pairs if number % 2 == 0 else reversed(pairs):
            measured.append(side())
    return taken


async def take_turns(rounds: int, sides: Mapping[str, Side]) -> dict[str, list[float]]:
    """Do what `alternate` does for sides that are awaited and have names."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name in sides if number % 2 == 0 else reversed(sides):
            taken[name].append(await sides[name]())
    return taken


def spread(samples: Sequence[float], unit: str, factor: float = 1.0) -> str:
    """Write the median and, in brackets, the first and the third quartile."""
    low, middle, high = (
        factor * each for each in statistics.quantiles(samples, method="inclusive")
    )
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2 if middle >= 1 else 3
    return f"{middle:,.{digits}f} {unit} ({low:,.{digits}f} to {high:,.{digits}f})"


def ratio(over: Sequence[float], under: Sequence[float]) -> float:
    """Divide one side's median by the other's."""
    return statistics.median(over) / statistics.median(under)


def table(figures: Figures) -> str:
    """Write a benchmark's figures as Markdown."""
    lines = [
        f"### {figures.title}",
        "",
        figures.how,
        "",
        "| | nbrefine | peer | result | goal | met |",
        "|---|---|---|---|---|---|",
    ]
    for row in figures.rows:
        met = "" if row.met is None else "yes" if row.met else "**no**"
        cells = (row.what, row.ours, row.peer, row.result, row.goal, met)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def show(measure: Callable[[], Figures]) -> None:
    """Run one benchmark by itself and print its table."""
    print(f"Load average before the run: {os.getloadavg()[0]:.2f}\n")
    print(table(measure()))
