"""Episodes as rows of a `datasets.Dataset`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nbrefine.values import Episode, Task, Turn

if TYPE_CHECKING:
    from datasets import Dataset

_TYPES = {
    "turn": "int64",
    "step": "int64",
    "attempt": "int64",
    "accepted": "bool",
    "tests_passed": "int64",
    "tests_total": "int64",
    "reward": "float64",
    "input_tokens": "int64",
    "output_tokens": "int64",
    "seconds": "float64",
}
"""Columns that are not text; told, not guessed, so that a column of Nones keeps its type."""


def to_dataset(episodes: Iterable[Episode]) -> Dataset:
    """Give one row for each turn, with the columns of `Episode.to_rows`.

    The rows are in memory; `.to_parquet(path)` or `.push_to_hub(name)` keep them.
    """
    from datasets import Dataset, Features, Value

    rows = [row for episode in episodes for row in episode.to_rows()]
    names = rows[0] if rows else Episode(Task(""), turns=(Turn(1),)).to_rows()[0]
    features = Features({name: Value(_TYPES.get(name, "string")) for name in names})
    return Dataset.from_dict({name: [row[name] for row in rows] for name in names}, features)
