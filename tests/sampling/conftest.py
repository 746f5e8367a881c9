"""A kernel for a file's tests, from whose state candidates begin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbrefine.kernel import Kernel


@pytest.fixture(scope="module")
def live() -> Iterator[Kernel]:
    with Kernel.start() as kernel:
        yield kernel
