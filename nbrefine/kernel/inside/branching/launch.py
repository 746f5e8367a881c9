"""The program of a template or of a cold keeper: build a kernel, and fork it on request.

    python launch.py --connection FD --role keeper|template [--preload a,b] [--folder PATH]

It is started by path in the environment of a Python kernelspec, which need not have nbrefine.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import sys
from pathlib import Path
from typing import Any

PACKAGE = "_nbrefine_branching"

_BROKEN = 70  # EX_SOFTWARE of sysexits.h


def main() -> None:
    """Build, say so, and serve the connection until it ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connection", type=int, required=True)
    parser.add_argument("--role", choices=("keeper", "template"), required=True)
    parser.add_argument("--folder", default="", help="what a keeper removes at its end")
    parser.add_argument("--preload", default="", help="packages to import first")
    given = parser.parse_args()
    _hide()
    _load()
    wire, app = _part("wire"), _part("app")
    connection = socket.socket(fileno=given.connection)
    connection.set_inheritable(False)
    try:
        built = app.build([name for name in given.preload.split(",") if name])
        server = _part("serving").Server(built)
    except Exception as error:  # noqa: BLE001 - the controller is told, in one line
        suitable = not isinstance(error, app.UnsuitableError)
        why = f"{type(error).__name__}: {error}" if suitable else str(error)
        package = getattr(error, "package", "")
        wire.send(connection, {"broken": " ".join(why.split()), "package": package})
        sys.exit(_BROKEN)
    about = {
        "pid": os.getpid(),
        "python": sys.version.split()[0],
        "ipykernel": app.version(),
    }
    wire.send(connection, {"built": about})
    nursery = _part("nursery").Nursery
    order = nursery(connection, given.role, given.folder).run()
    if order.role == "keeper":
        _part("serving").surround(order.spawn)
        order = nursery(order.line, "keeper", order.spawn.get("folder") or "").run()
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


def _part(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


if __name__ == "__main__":
    main()
