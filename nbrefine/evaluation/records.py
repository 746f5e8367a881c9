"""The notebooks of an environment's episodes: each named by its task, and with its grade."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from threading import Lock

from nbrefine.evaluation.results import Row
from nbrefine.notebook import save
from nbrefine.values import Episode

FOLDER = "episodes"
"""The folder of notebooks beside the rows."""

_LONGEST = 100  # bytes of a task's id in a file's name, which may have 255 with all that follows


class Records:
    """Names notebooks, two tasks never alike, and writes grades into them.

    Parameters
    ----------
    folder: where the rows are.
    kept: rows of earlier evaluations, whose notebooks keep their names.
    """

    def __init__(self, folder: Path, kept: Iterable[Row]) -> None:
        self._folder = folder
        self._names: dict[int, str] = {}
        self._begun: set[tuple[int, int]] = set()
        self._lock = Lock()
        for row in kept:
            if row.notebook:
                stem = PurePosixPath(row.notebook).stem
                self._names[row.task_index] = stem.removesuffix(_sample(row.sample))

    def name(self, episode: Episode, task_index: int, sample: int) -> str:
        """Name the notebook of an episode that begins; any thread may ask."""
        with self._lock:
            if task_index not in self._names:
                self._names[task_index] = self._free(episode.task.id, task_index)
            self._begun.add((task_index, sample))
            return f"{self._names[task_index]}{_sample(sample)}.ipynb"

    def _free(self, task_id: str, task_index: int) -> str:
        name = file_name(task_id) or f"task-{task_index:04d}"
        taken = {_key(each) for each in self._names.values()}
        while _key(name) in taken:
            name = f"{name}-{task_index:04d}"
        return name

    def path(self, task_index: int, sample: int) -> str:
        """Give a notebook's path relative to the rows, or "" where none was begun."""
        if (task_index, sample) not in self._begun:
            return ""
        return f"{FOLDER}/{self._names[task_index]}{_sample(sample)}.ipynb"

    def write(self, episode: Episode, task_index: int, sample: int) -> None:
        """Write an episode that knows its grade over the one that did not; blocks.

        Raises
        ------
        RecordError: it cannot be written.
        """
        if path := self.path(task_index, sample):
            save(episode, self._folder / path)


def file_name(task_id: str) -> str:
    """Make a file's name of a task's id, without what some file systems do not take."""
    name = re.sub(r"[^\w.-]+", "-", task_id).strip(".-")
    return name.encode()[:_LONGEST].decode(errors="ignore")


def _key(name: str) -> str:
    """Give what two names have in common that may be one file's."""
    # Some file systems take "A" and "a" for one, and a task's name may look like a sample's.
    return re.sub(r"(-sample-\d+)+$", "", name.casefold())


def _sample(sample: int) -> str:
    return f"-sample-{sample:02d}" if sample else ""
