"""What a caller hands in beside the task: data files, by the names that code in a kernel uses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from nbrefine.errors import UsageError
from nbrefine.redaction import clean_text


def data_files(data: str | Path | Iterable[str | Path], folder: Path) -> tuple[str, ...]:
    """Give the paths of data files relative to a kernel's folder, with `/`.

    Raises
    ------
    UsageError: a file is missing, or its name cannot be written down.
    """
    files = [Path(file) for file in ((data,) if isinstance(data, str | Path) else data)]
    for file in files:
        if not os.path.exists(file):  # noqa: PTH110 - false for what no path can be
            raise UsageError(f"There is no data file {file}", hint="Check the path")
        if (name := str(file)) != clean_text(name):
            raise UsageError(f"The name of the data file {name!r} is no UTF-8", hint="Rename it")
    return tuple(Path(os.path.relpath(file, folder)).as_posix() for file in files)


DATA_SUFFIXES = (
    *(".csv", ".tsv", ".txt", ".json", ".jsonl", ".parquet", ".feather", ".arrow", ".xls", ".xlsx"),
    *(".ods", ".db", ".sqlite", ".h5", ".hdf5", ".pkl", ".npy", ".npz", ".xml", ".html", ".ipynb"),
    *(".py", ".gz", ".zip"),
)
"""How names of files end that a caller may give in the place of words."""


def in_words(told: str, what: str) -> str:
    """Give what is asked, where it is no name of a file.

    Raises
    ------
    UsageError: it is one: a file of that name is there, or a single word ends as data files do.
    """
    name = told.strip()
    one_word = len(name.split()) == 1 and Path(name).suffix.lower() in DATA_SUFFIXES
    if one_word or names_file(name):
        raise UsageError(
            f"{name} is the name of a file, and no {what}",
            hint="Say in words what is wanted, and give the file beside it: --data, or data=",
        )
    return told


def names_file(text: str) -> bool:
    """Tell whether a text is the path of a file, and not what no path can be."""
    return os.path.isfile(text)  # noqa: PTH113 - pathlib raises for a text that is too long


def within(folder: Path, paths: Iterable[Path]) -> tuple[str, ...]:
    """Give those paths that lie in a folder, relative to it."""
    folder = folder.resolve()
    return tuple(str(path.relative_to(folder)) for path in paths if path.is_relative_to(folder))


def one_of(name: str, of_task: str, given: str) -> str:
    """Give a part of a task that may be given in it or beside it.

    Raises
    ------
    UsageError: it is given in both places, and not the same.
    """
    if of_task and given and of_task != given:
        raise UsageError(f"The task has {name} of its own", hint=f"Give {name} only once")
    return of_task or given
