"""One kernel of ours for all tests of a module; each test begins with names of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbrefine.kernel import Kernel


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def session(folder: Path) -> Iterator[Kernel]:
    with Kernel.start(cwd=folder) as kernel:
        yield kernel


@pytest.fixture
def kernel(session: Kernel, folder: Path) -> Kernel:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert session.run("%reset -sf").result().ok
    return session
