"""The episodes of a folder, so that all of them can be run again."""

from __future__ import annotations

import os.path
from pathlib import Path

from nbrefine.notebook.folder import records_in


def episodes(folder: str | Path) -> list[Path]:
    """Give the notebooks of a folder and those within it that hold an episode, by name.

    Notebooks of another kind and checkpoints are passed over; a notebook that holds a record that
    cannot be read is not, so that it is told of where it is run.

    Parameters
    ----------
    folder: a folder, or one episode's notebook or journal, which is given as it is.

    Raises
    ------
    UsageError: there is none.
    """
    folder = Path(folder)
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        return [folder]
    return [path for path, _ in records_in(folder)]
