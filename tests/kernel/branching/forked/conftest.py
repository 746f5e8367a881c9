"""A keeper, and kernels that are forked from it, from its checkpoints and those of branches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.branching.forked.nests import Forked, Nest, launch


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fk") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def shared_keeper(folder: Path) -> Iterator[Nest]:
    said, connection, process = launch()
    assert said.keys() == {"built"}, said
    keeper = Nest(connection, folder, said["built"]["pid"])
    yield keeper
    keeper.close()
    assert process.wait(20) == 0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What a test has opened, closed at its end."""
    found: list[Any] = []
    for kind in (Nest, Forked):
        made = kind.__init__

        def note(self: Any, *given: Any, made: Any = made) -> None:
            made(self, *given)
            found.append(self)

        monkeypatch.setattr(kind, "__init__", note)
    yield found
    for each in reversed(found):
        each.close()


@pytest.fixture
def keeper(shared_keeper: Nest, opened: list[Any]) -> Nest:
    return shared_keeper


@pytest.fixture
def kernel(keeper: Nest) -> Forked:
    return keeper.fork().wait()


@pytest.fixture(params=["kernel", "branch", "branch of a branch"])
def any_kernel(request: pytest.FixtureRequest, kernel: Forked) -> Forked:
    kernel.run("import os, sys, signal, asyncio, time\nkept = 41")
    if request.param == "kernel":
        return kernel
    branch = kernel.branch()
    branch.run("kept")
    return branch if request.param == "branch" else branch.branch()
