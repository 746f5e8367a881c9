"""Task data: rows of the hub or of local files, tasks made of them, and episodes as rows again."""

from __future__ import annotations

from nbrefine.taskdata.columns import Columns, to_task
from nbrefine.taskdata.export import to_dataset
from nbrefine.taskdata.rows import Rows, load_rows
from nbrefine.taskdata.sets import (
    KNOWN,
    KnownSet,
    humaneval_task,
    humanevalpack_task,
    mbpp_task,
    quixbugs_task,
)

__all__ = [
    "KNOWN",
    "Columns",
    "KnownSet",
    "Rows",
    "humaneval_task",
    "humanevalpack_task",
    "load_rows",
    "mbpp_task",
    "quixbugs_task",
    "to_dataset",
    "to_task",
]
