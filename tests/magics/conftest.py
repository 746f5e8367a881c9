"""One kernel for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbrefine.kernel import Kernel
from tests.magics.kernels import stock


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel as Jupyter starts it."""
    with stock(tmp_path_factory.mktemp("stock")) as kernel:
        yield kernel


@pytest.fixture
def kernel(shared: Kernel) -> Iterator[Kernel]:
    yield shared
    shared.run("%discard").result()
