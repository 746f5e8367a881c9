"""What this machine has for nbrefine, found out by trying, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Literal, TypeVar

from nbrefine._portal import Run
from nbrefine._version import __version__
from nbrefine.errors import NbrefineError

if TYPE_CHECKING:
    from nbrefine.kernel import Kernel
    from nbrefine.models import Model
    from nbrefine.outputs import CellResult

PACKAGES = ("jupyter_client", "ipykernel", "ipython", "nbformat", "openai", "pandas")
"""Whose versions explain most differences between two machines."""

START_LIMIT = 60.0
"""Seconds that a kernel may take to start and answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at."""

    name: str
    status: Literal["ok", "absent", "problem"]
    """`absent`: something optional is not there; `problem`: nbrefine cannot work."""
    detail: str
    hint: str = ""
    """What to do, where something is to be done."""


def examine() -> tuple[Finding, ...]:
    """Look at everything a run needs, by trying it where that is possible."""
    from nbrefine.models import weights

    memory = f"{weights.available_memory() / 1e9:.1f} GB of memory free"
    return (
        Finding("nbrefine", "ok", __version__),
        Finding("Python", "ok", f"{platform.python_version()} ({sys.executable})"),
        Finding("system", "ok", f"{platform.platform()}, {os.cpu_count()} cores, {memory}"),
        _packages(),
        *_kernelspecs(),
        *_kernel(),
        _containers(),
        _local_model(),
        _server(),
    )


def _packages() -> Finding:
    found = {name: _installed(name) for name in PACKAGES}
    detail = ", ".join(f"{name} {version or '(absent)'}" for name, version in found.items())
    if found["pandas"] is None:
        return Finding(
            "packages", "absent", detail, "For the examples: pip install 'nbrefine[data]'"
        )
    return Finding("packages", "ok", detail)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _kernelspecs() -> Iterator[Finding]:
    from jupyter_client.kernelspec import KernelSpecManager

    names = sorted(KernelSpecManager().find_kernel_specs())
    if "python3" in names:
        yield Finding("kernels", "ok", ", ".join(names))
    else:
        yield Finding(
            "kernels",
            "problem",
            f"no kernelspec python3 (found: {', '.join(names) or 'none'})",
            "Run: python -m ipykernel install --sys-prefix",
        )


def _kernel() -> Iterator[Finding]:
    """Start a kernel, and see what an attempt in it would be isolated by."""
    from nbrefine.kernel import Kernel

    began = time.monotonic()
    try:
        with Kernel.start("python3", timeout=START_LIMIT) as kernel:
            result = kernel.run("print(6 * 7)").result()
            seconds = time.monotonic() - began
            yield _first_cell(kernel, result, seconds)
            if result.ok:
                yield _isolation(kernel)
    except NbrefineError as error:
        yield Finding("kernel start", "problem", error.message, error.hint)


def _first_cell(kernel: Kernel, result: CellResult, seconds: float) -> Finding:
    if not result.ok:
        return Finding("kernel start", "problem", f"a first cell ended with {result.status}")
    info = kernel.info
    return Finding(
        "kernel start",
        "ok",
        f"{info.implementation} {info.implementation_version} started and answered "
        f"in {seconds:.1f} s",
    )


def _isolation(kernel: Kernel) -> Finding:
    try:
        kernel.branch().result().close()  # the first one tests the interpreter as well
        kernel.run("1").result()
        began = time.monotonic()
        with kernel.branch() as trial:
            trial.run("1").result()
            seconds = time.monotonic() - began
    except NbrefineError as error:
        return Finding(
            "isolation",
            "absent",
            f"rebuild: a rejected attempt costs a fresh kernel. {error.message}",
            error.hint,
        )
    return Finding(
        "isolation",
        "ok",
        f"fork: a branch of a live kernel has answered after {1000 * seconds:.0f} ms",
    )


def _containers() -> Finding:
    """Ask what could run code in a container; without it, confined processes do."""
    from nbrefine.executors import runtime

    asked = [runtime.ask(command) for command in ("podman", "docker")]
    found = [str(each) for each in asked if isinstance(each, runtime.Engine)]
    if found:
        return Finding("containers", "ok", ", ".join(found))
    return Finding(
        "containers",
        "absent",
        f"{'; '.join(map(str, asked))}; code runs in confined processes",
        "For containers: install podman, or start docker's daemon",
    )


def _local_model() -> Finding:
    from nbrefine.models.local import LocalModel

    return _checked("local model", LocalModel, lambda model: f"{model.name}, {model.path}")


def _server() -> Finding:
    """Ask the server that the environment points at; the key itself is never shown."""
    if not os.environ.get("OPENAI_BASE_URL") and not os.environ.get("OPENAI_API_KEY"):
        return Finding(
            "server",
            "absent",
            "none is configured; the local model needs none",
            "For one: set OPENAI_BASE_URL and OPENAI_API_KEY",
        )

    from nbrefine.models.openai import OpenAIModel

    return _checked("server", lambda: OpenAIModel("any"), lambda model: f"{model.url} is there")


M = TypeVar("M", bound="Model")


def _checked(name: str, make: Callable[[], M], told: Callable[[M], str]) -> Finding:
    """Make a model and check it; a trouble is told in its own words."""

    async def check(model: M) -> None:
        try:
            await model.check()
        finally:
            await model.aclose()

    try:
        model = make()
        Run(check(model)).result()
    except NbrefineError as error:
        return Finding(name, "absent", error.message, error.hint)
    return Finding(name, "ok", told(model))
