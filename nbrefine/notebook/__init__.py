"""The record: an episode as a notebook that anyone can read and run, and its journal."""

from __future__ import annotations

from nbrefine.notebook.document import from_notebook, to_notebook
from nbrefine.notebook.recorder import Recorder, free_name, gaps_of, load, paths_of, save

__all__ = [
    "Recorder",
    "free_name",
    "from_notebook",
    "gaps_of",
    "load",
    "paths_of",
    "save",
    "to_notebook",
]
