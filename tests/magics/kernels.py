"""Kernels as Jupyter starts them, asked as a person asks them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

import nbrefine
from nbrefine.kernel import Kernel
from nbrefine.outputs import CellResult
from tests.conftest import missing
from tests.kernel import environments
from tests.kernel.environments import RUNNING, CannotBeMade


def environment(folder: Path) -> dict[str, str]:
    """Variables of a kernel, whose temporary files go to the folder."""
    ours = {"PYDEVD_DISABLE_FILE_VALIDATION": "1", "OPENBLAS_NUM_THREADS": "1"}
    variables = {**os.environ, **ours, "TMPDIR": str(folder)}
    variables.pop("PYTEST_CURRENT_TEST", None)
    return variables


@contextmanager
def stock(folder: Path) -> Iterator[Kernel]:
    """Start a kernel as Jupyter does, with the magics."""
    manager = KernelManager(kernel_name="python3", connection_file=str(folder / "kernel.json"))
    with (folder / "log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log, env=environment(folder))
        with Kernel.connect(manager.connection_file) as kernel:
            kernel.run("%load_ext nbrefine").result()
            yield kernel
        manager.shutdown_kernel(now=True)


def run(kernel: Kernel, source: str, **settings: Any) -> CellResult:
    return kernel.run(source, timeout=60, **settings).result()


def value(kernel: Kernel, expression: str) -> str:
    return run(kernel, expression).text.strip()


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def children(pid: int) -> set[int]:
    """Give the children of a process, zombies included."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(word) for each in found for word in each.read_text().split()}


def command(version: str) -> list[str]:
    """Give what starts a kernel of an ipykernel version, which finds all else in this one."""
    if version == "newest":
        return [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    try:
        made = environments.environment(RUNNING, f"ipykernel=={version}.*")
    except CannotBeMade as error:
        missing(f"an environment with ipykernel {version} ({error})")
        raise
    assert made is not None
    paths = [str(Path(nbrefine.__file__).parents[1]), *filter(None, sys.path)]
    start = "from ipykernel.kernelapp import launch_new_instance as begin; begin()"
    start = f"import sys; sys.path += {paths}; {start}"
    return [made.python, "-c", start, "-f", "{connection_file}"]
