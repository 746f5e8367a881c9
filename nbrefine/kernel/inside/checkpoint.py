"""Have this kernel copied, for a controller that listens on a socket of this host."""

from __future__ import annotations

import importlib
import importlib.util
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from .link import Emit

_NAME = "_nbrefine_branching"


def take(emit: Emit, package: str, address: str, folder: str) -> dict[str, Any]:
    """Fork a copy and give the controller the way to it; the answer is `incell.checkpoint`'s.

    Parameters
    ----------
    package: where the files of the package `branching` are.
    address: path of the controller's socket.
    folder: what the copy removes at its end.
    """
    try:
        incell = load(package, "incell")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dialled:
            dialled.connect(address)
            near, far = load(package, "wire").pair()
            with near:
                socket.send_fds(dialled, [b"{}"], [near.fileno()])
    except OSError as error:
        detail = f"it does not run on this host, or cannot reach what is there ({error})"
        refusal = {"kind": "kernel", "verdict": "refuse", "detail": detail}
        return {"status": "refused", "hazards": [refusal]}
    told: dict[str, Any] = incell.checkpoint(far, folder=folder)
    return told


def load(folder: str, part: str) -> ModuleType:
    """Import a module of the package `branching` by its place, as `launch` does."""
    package = sys.modules.get(_NAME)
    if package is None or list(package.__path__) != [folder]:
        initial = Path(folder) / "__init__.py"
        spec = importlib.util.spec_from_file_location(
            _NAME, initial, submodule_search_locations=[folder]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"{_NAME}.{part}")
