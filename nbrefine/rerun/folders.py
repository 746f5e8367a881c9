"""Folders: the episodes of one, to run all of them again, and one of its own for a replay."""

from __future__ import annotations

import os.path
import shutil
from pathlib import Path

from nbrefine.errors import UsageError
from nbrefine.notebook.folder import records_in
from nbrefine.values import Episode


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


def working_copy(episode: Episode, folder: Path, temporary: Path) -> Path:
    """Give a folder of its own with the data, so that nothing else is there and nothing is lost.

    Parameters
    ----------
    folder: where the data are.
    temporary: where the new folder is made.

    Raises
    ------
    UsageError: a data file is missing.
    """
    up = max((Path(name).parts.count("..") for name in episode.task.files), default=0)
    work = temporary.joinpath(*["within"] * up, "work")
    work.mkdir(parents=True)
    for name in episode.task.files:
        if Path(name).is_absolute():
            continue
        if not (folder / name).is_file():
            raise UsageError(
                f"There is no data file {folder / name}", hint="Give the folder that has it: cwd="
            )
        place = work / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, place)
    return work
