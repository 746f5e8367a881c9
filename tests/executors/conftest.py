"""A bench and bare pairs of processes for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbrefine.executors import Bench
from tests.executors.bare import Bare


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(workers=2) as bench:
        yield bench


@pytest.fixture(scope="module")
def bare() -> Iterator[Bare]:
    with Bare() as started:
        yield started
