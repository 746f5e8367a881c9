"""The kernelspecs of this machine, and those of ours that are added to them."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import keyword
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from traitlets import TraitError

from nbrefine._portal import Run
from nbrefine.errors import KernelStartError, UsageError
from nbrefine.kernel.processes.environment import kernel_environment
from nbrefine.kernel.processes.evidence import recorded
from nbrefine.kernel.processes.keeper import Keeper
from nbrefine.kernel.processes.launch import (
    FORKING,
    Launch,
    Unforkable,
    python_command,
    spec_environment,
)

_AT_A_TIME = 2  # interpreters that are tried


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernelspec."""

    name: str
    display_name: str
    language: str
    interpreter: str
    """The program that is started."""
    branching: bool
    """Whether its kernels can branch."""
    reason: str
    """Why they cannot, or ""."""


def survey() -> Run[tuple[Entry, ...]]:
    """Look at every kernelspec, and try those that run ipykernel."""
    return Run(_survey())


def kernelspec(name: str, preload: tuple[str, ...]) -> dict[str, Any]:
    """Make a kernelspec for the running interpreter whose kernels are forked.

    Raises
    ------
    UsageError: one of the packages is not there, or is no name of a module.
    """
    for package in preload:
        if not all(_is_name(part) for part in package.split(".")):
            raise UsageError(
                f"{package!r} is no name of a module",
                hint="Name modules with commas between them: numpy,pandas",
            )
    missing = [package for package in preload if not _is_there(package)]
    if missing:
        raise UsageError(
            f"{sys.executable} has no {', '.join(missing)}",
            hint=f"Run: {sys.executable} -m pip install {' '.join(missing)}",
        )
    return {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"Python {sys.version_info[0]} ({name})",
        "language": "python",
        "metadata": {
            "debugger": True,
            "kernel_provisioner": {
                "provisioner_name": FORKING,
                "config": {"preload": list(preload)},
            },
        },
    }


def install(spec: dict[str, Any], name: str, prefix: str | None) -> Path:
    """Install a kernelspec in place of an earlier one of that name, and give its folder.

    Parameters
    ----------
    prefix: the folder above share/jupyter/kernels; None installs for the user.

    Raises
    ------
    UsageError: the name is none, or nothing can be written there.
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "nbrefine")
        source.mkdir()
        Path(source, "kernel.json").write_text(json.dumps(spec, indent=1) + "\n")
        try:
            return Path(
                KernelSpecManager().install_kernel_spec(
                    str(source), name, user=prefix is None, prefix=prefix
                )
            )
        except ValueError as error:
            raise UsageError(
                f"A kernelspec cannot be named {name!r}",
                hint="Use letters, digits, '-', '_' and '.'",
            ) from error
        except OSError as error:
            raise UsageError(
                f"The kernelspec cannot be written: {error}",
                hint="Install it with --user, or below a folder of yours with --prefix",
            ) from error


async def _survey() -> tuple[Entry, ...]:
    manager = KernelSpecManager()
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def look(name: str) -> Entry:
        async with turns:
            try:
                spec = manager.get_kernel_spec(name)
            except (ValueError, OSError, TraitError) as error:
                return Entry(name, "", "", "", False, f"its kernel.json cannot be read: {error}")
            return await _entry(name, spec)

    names = sorted(manager.find_kernel_specs())
    return tuple(await asyncio.gather(*(look(name) for name in names)))


async def _entry(name: str, spec: KernelSpec) -> Entry:
    interpreter, reason = spec.argv[0] if spec.argv else "", ""
    try:
        command = python_command(Launch(name), spec)
        interpreter = command.python[0]
        environment = spec_environment(spec, kernel_environment(None, seed=0))
        keeper = await Keeper.start(command.python, environment)
        reason = recorded(keeper) or ""
        await keeper.close()
    except (Unforkable, KernelStartError) as error:
        reason = " ".join(str(error).split())
    return Entry(name, spec.display_name, spec.language, interpreter, not reason, reason)


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False
