"""What this machine has for nbrefine, found out by trying, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from typing import Literal
from urllib.parse import urlsplit

from nbrefine._version import __version__
from nbrefine.errors import NbrefineError

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
        _kernel_start(),
        Finding(
            "isolation",
            "ok",
            "rebuild: a rejected attempt costs a fresh kernel; copies of a live kernel (fork) "
            "are not built yet",
        ),
        *_local_model(),
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


def _kernel_start() -> Finding:
    from nbrefine.kernel import Kernel

    began = time.monotonic()
    try:
        with Kernel.start("python3", timeout=START_LIMIT) as kernel:
            result = kernel.run("print(6 * 7)").result()
    except NbrefineError as error:
        return Finding("kernel start", "problem", error.message, error.hint)
    seconds = time.monotonic() - began
    if not result.ok:
        return Finding("kernel start", "problem", f"a first cell ended with {result.status}")
    info = kernel.info
    return Finding(
        "kernel start",
        "ok",
        f"{info.implementation} {info.implementation_version} started, answered and ended "
        f"in {seconds:.1f} s",
    )


def _local_model() -> Iterator[Finding]:
    from nbrefine.models import weights

    version = _installed("xllamacpp")
    if version is None:
        yield Finding(
            "local model",
            "absent",
            "xllamacpp is not installed",
            "Run: pip install 'nbrefine[local]'",
        )
    here = [entry.name for entry in weights.catalog() if weights.find(entry.name) is not None]
    if here:
        yield Finding("weights", "ok", ", ".join(here))
    else:
        yield Finding("weights", "absent", "no model is here", "Run: nbrefine models pull")


def _server() -> Finding:
    """Say which server the environment points at; the key itself is never shown."""
    key = "with a key" if os.environ.get("OPENAI_API_KEY") else "without a key"
    url = os.environ.get("OPENAI_BASE_URL")
    if url:
        return Finding("server", "ok", f"{urlsplit(url).hostname or url} (OPENAI_BASE_URL), {key}")
    if os.environ.get("OPENAI_API_KEY"):
        return Finding("server", "ok", "the openai package's default, with a key (OPENAI_API_KEY)")
    return Finding(
        "server",
        "absent",
        "none is configured; the local model needs none",
        "For one: set OPENAI_BASE_URL and OPENAI_API_KEY",
    )
