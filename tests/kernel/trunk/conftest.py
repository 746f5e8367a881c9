"""A kernel with a little state, for each test its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbrefine.kernel import Kernel


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with Kernel.start() as started:
        started.run("import os\nitems = [1, 2]\nsame = items").result()
        yield started
