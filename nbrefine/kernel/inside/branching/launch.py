"""The program of a template or of a cold keeper: build a kernel, and fork it on request.

    python launch.py --connection FD --role keeper|template [--preload pandas,numpy]

It is started by path in the environment of a Python kernelspec, which need not have nbrefine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

PACKAGE = "_nbrefine_branching"


def main() -> NoReturn:
    """Build, say so, and serve the connection until it ends."""
    started = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connection", type=int, required=True)
    parser.add_argument("--role", choices=("keeper", "template"), required=True)
    parser.add_argument("--preload", default="")
    given = parser.parse_args()
    _hide()
    _load()
    from _nbrefine_branching import wire

    connection = socket.socket(fileno=given.connection)
    connection.set_inheritable(False)
    try:
        from _nbrefine_branching.app import UnsuitableError, build

        app = build([name for name in given.preload.split(",") if name])
        built = {
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "ipykernel": _version(),
            "seconds": time.perf_counter() - started,
        }
    except Exception as error:  # noqa: BLE001 - the controller is told, in one line
        why = (
            str(error) if isinstance(error, UnsuitableError) else f"{type(error).__name__}: {error}"
        )
        wire.send(connection, {"broken": " ".join(why.split())})
        sys.exit(70)
    wire.send(connection, {"built": built})
    _serve(connection, given.role, app)


def _serve(connection: socket.socket, role: Any, app: Any) -> NoReturn:
    from _nbrefine_branching.nursery import Nursery
    from _nbrefine_branching.serving import Server, surround

    server = Server(app)
    order = Nursery(connection, role).run()
    if order.role == "keeper":
        surround(order.spawn)
        order = Nursery(order.line, "keeper", order.spawn.get("folder") or "").run()
    server.begin(order, fresh=True)
    server.serve()


def _hide() -> None:
    """Look like ipykernel's own launcher: neither this folder nor these arguments are seen."""
    if sys.path and sys.path[0] == str(Path(__file__).parent):
        del sys.path[0]
    launcher = importlib.util.find_spec("ipykernel_launcher")
    sys.argv = [str(launcher.origin) if launcher is not None else sys.argv[0]]


def _load() -> None:
    """Load the files beside this one as a package, without a way to them on `sys.path`."""
    folder = str(Path(__file__).parent)
    spec = importlib.util.spec_from_file_location(
        PACKAGE, f"{folder}/__init__.py", submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _version() -> str:
    import ipykernel

    return str(ipykernel.__version__)


if __name__ == "__main__":
    main()
