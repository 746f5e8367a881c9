"""Task data: rows of the hub or of local files, tasks made of them, and episodes as rows again."""

from __future__ import annotations

from nbrefine.taskdata.columns import Columns, to_task
from nbrefine.taskdata.dabench import Marks, answers_match, dabench_task, exactly, rounded
from nbrefine.taskdata.dacode import Score, compare_csv, compare_text, dacode_score, dacode_task
from nbrefine.taskdata.dseval import dseval_sets
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
    "Marks",
    "Rows",
    "Score",
    "answers_match",
    "compare_csv",
    "compare_text",
    "dabench_task",
    "dacode_score",
    "dacode_task",
    "dseval_sets",
    "exactly",
    "humaneval_task",
    "humanevalpack_task",
    "load_rows",
    "mbpp_task",
    "quixbugs_task",
    "rounded",
    "to_dataset",
    "to_task",
]
