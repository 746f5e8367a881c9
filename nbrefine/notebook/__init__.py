"""The record: an episode as a notebook that anyone can read and run, and its journal."""

from __future__ import annotations

from nbrefine.notebook.document import from_notebook, to_notebook
from nbrefine.notebook.recorder import Recorder, load, save

__all__ = ["Recorder", "from_notebook", "load", "save", "to_notebook"]
