"""Real kernels for the tests of this folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbrefine.kernel import Kernel, interrupt
from nbrefine.outputs import CellResult, Output


@pytest.fixture(scope="module")
def shared_kernel() -> Iterator[Kernel]:
    with Kernel.start() as started:
        yield started


@pytest.fixture
def kernel(shared_kernel: Kernel) -> Kernel:
    """One kernel for a file's tests; a test that ends it gives the next one a fresh one."""
    if not shared_kernel.alive:
        shared_kernel.restart().result()
    return shared_kernel


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for a condition, with a limit far beyond what it should take."""

    def wait(condition: Callable[[], object], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.01)

    return wait


@pytest.fixture
def stopped(until: Callable[..., None]) -> Callable[[Kernel, str], CellResult]:
    """Interrupt a cell when it has printed something, so that it is under way on any host."""

    def stop(kernel: Kernel, source: str) -> CellResult:
        told: list[Output] = []
        run = kernel.run(source, timeout=None, on_output=told.append)
        until(lambda: told or run.done())
        run.stop()
        return run.result(60)

    return stop


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill sooner, for cells that react to no interrupt however long they are given."""
    monkeypatch.setattr(interrupt, "PATIENCE", 0.6)


def running(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture
def is_running() -> Callable[[int], bool]:
    return running
