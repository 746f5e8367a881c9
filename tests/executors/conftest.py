"""A bench for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbrefine.executors import Bench


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(workers=2) as bench:
        yield bench
