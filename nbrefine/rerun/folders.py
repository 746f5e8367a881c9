"""The episodes of a folder, so that all of them can be run again."""

from __future__ import annotations

import os.path
from pathlib import Path

from nbrefine.errors import RecordError, UsageError
from nbrefine.notebook import load
from nbrefine.notebook.reading import AnotherKind


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
    found = [
        path
        for path in sorted(folder.rglob("*.ipynb"))
        if ".ipynb_checkpoints" not in path.parts and _holds_a_record(path)
    ]
    if not found:
        raise UsageError(
            f"There is no episode notebook in {folder}", hint="Give the path of an episode"
        )
    return found


def _holds_a_record(path: Path) -> bool:
    try:
        load(path)
    except AnotherKind:
        return False
    except RecordError:  # which is told where it is run
        return True
    return True
