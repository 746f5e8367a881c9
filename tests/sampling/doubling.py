"""A function to write that doubles a number, candidates for it, and what became of them."""

from __future__ import annotations

from nbrefine.kernel import Kernel
from nbrefine.sampling import Samples
from nbrefine.source import fenced
from nbrefine.values import Task

DOUBLE = Task(
    "Write double(x).",
    "double",
    tests="assert double(2) == 4\nassert double(-3) == -6",
    hidden_tests="assert double(10) == 20",
)
RIGHT = "def double(x):\n    return 2 * x"
SQUARE = "def double(x):\n    return x * x"  # passes the first test alone
WRONG = "def double(x):\n    return x"
OVERFITTED = "def double(x):\n    return {2: 4, -3: -6}.get(x)"


def replies(*codes: str) -> list[str]:
    return [fenced(code, "python") for code in codes]


def solved(samples: Samples) -> list[bool]:
    return [episode.solved for episode in samples.episodes]


def reasons(samples: Samples) -> list[str]:
    return [episode.stop.reason if episode.stop else "" for episode in samples.episodes]


def value(kernel: Kernel, expression: str) -> str:
    return kernel.run(expression).result().text.strip()
