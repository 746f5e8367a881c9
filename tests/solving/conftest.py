"""An episode to go on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.solving.leaving import BEGIN, ON, WRONG, left


@pytest.fixture(scope="module")
def two_done(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Give what copies an episode that was left after two steps, and its folder, elsewhere."""
    record = left(tmp_path_factory.mktemp("two"), BEGIN, WRONG, ON, rebuild_limit=7.0)
    parts = {path.name: path.read_bytes() for path in record.parent.iterdir()}

    def copied(folder: Path) -> Path:
        for name, part in parts.items():
            (folder / name).write_bytes(part)
        return folder / record.name

    return copied
