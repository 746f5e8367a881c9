"""Notebooks of other people, and a record of one's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nbrefine import notebook
from nbrefine.values import Episode


@pytest.fixture
def others(shared_data: Path, tmp_path: Path) -> Path:
    """A copy of the awkward notebooks."""
    folder = tmp_path / "others"
    shutil.copytree(shared_data / "notebooks", folder)
    return folder


@pytest.fixture
def record(tmp_path: Path, repaired: Episode) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    notebook.save(repaired, folder / "episode.ipynb")
    return folder / "episode.ipynb"
