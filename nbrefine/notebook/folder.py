"""The records in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nbrefine.errors import RecordError, UsageError
from nbrefine.notebook.reading import AnotherKind
from nbrefine.notebook.recorder import load
from nbrefine.values import Episode


def records_in(folder: Path) -> Iterator[tuple[Path, Episode | RecordError]]:
    """Give the notebooks of a folder and those within it that hold a record, by name.

    Each comes with its episode, or with why its record cannot be read.  Notebooks of another kind
    and checkpoints are passed over.

    Raises
    ------
    UsageError: there is none.
    """
    found = False
    for path in sorted(folder.rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts or not path.is_file():
            continue
        try:
            held: Episode | RecordError = load(path)
        except AnotherKind:
            continue
        except RecordError as error:
            held = error
        found = True
        yield path, held
    if not found:
        raise UsageError(
            f"There is no episode notebook in {folder}", hint="Give the path of an episode"
        )
