"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def missing(what: str) -> None:
    """Skip for want of a real part, but fail where CI promises to have it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must have it")
    pytest.skip(f"{what} is missing")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real tasks, recorded answers and awkward notebooks."""
    default = ROOT.parent / "shared" / "data"
    folder = Path(os.environ.get("NBREFINE_SHARED_DATA", default))
    if not folder.is_dir():
        missing(f"the shared data folder ({folder.name})")
    return folder
