"""The program that forks the processes of checks on request.

    python -s nursery.py candidate|tester (--fd N | --connect PATH) [--preload a,b]
        [--readable PATH]…

It is two processes: the nursery, a bare interpreter with one thread and what solutions commonly
import, and a guard, which forked it and clears up when it has ended, however that was.  The
nursery serves one connection; when that ends, all that was forked ends.

Messages, in JSON with descriptors::

    ← {"op": "ready", "python": version, "isolation": [words]}, or {"op": "broken", "why": words}
    → {"op": "fork", "id": n, "limits": {"memory": bytes, "processes": n, "file_size": bytes}}
      with [calls, stdout, stderr] for a candidate, [calls, report] for a tester; for that maybe
      "task": [tests, setup, entry_point], to be compiled once for all testers that get them,
      whose jobs leave them out
    ← {"op": "failed", "id": n, "why": words}, where it cannot be forked
    → {"op": "signal", "id": n, "signal": number}, {"op": "kill", "id": n}
    ← {"op": "ended", "id": n, "status": exit code or minus the signal, "unconfined": words}
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import getopt
import importlib.util
import os
import resource
import socket
import sys
from typing import Any

PACKAGE, INSIDE = "_nbrefine_checks", "_nbrefine_inside"

COMMON = (
    *("abc", "array", "ast", "bisect", "calendar", "cmath", "collections", "collections.abc"),
    *("contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "enum", "fractions"),
    *("functools", "heapq", "inspect", "io", "itertools", "json", "math", "numbers"),
    *("operator", "queue", "random", "re", "statistics", "string", "struct"),
    *("textwrap", "threading", "time", "traceback", "types", "typing", "unicodedata", "uuid"),
)
"""What solutions of HumanEval and MBPP, and their tests, import; but not hashlib, which few do
and whose libraries make each fork dearer."""

_HERE = os.path.dirname(os.path.abspath(__file__))
_KERNEL = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "kernel", "inside")
_BROKEN = 70  # EX_SOFTWARE of sysexits.h


def main() -> None:
    """Fork a nursery and guard it."""
    role, *given = sys.argv[1:]
    # argparse loads libraries that make each fork dearer.
    options, _ = getopt.getopt(given, "", ["fd=", "connect=", "preload=", "readable="])
    chosen = dict(options)
    readable = [path for name, path in options if name == "--readable"]
    _hide()
    _load(PACKAGE, _HERE)
    _load_file(f"{PACKAGE}.wire", f"{_KERNEL}/branching/wire.py")
    connection = _connected(chosen.get("--fd"), chosen.get("--connect"))
    base = _folder()
    # nbrefine sweeps away the folders of processes that were killed, which nobody locks any more.
    fcntl.flock(os.open(base, os.O_RDONLY), fcntl.LOCK_EX)
    packages = [name for name in chosen.get("--preload", "").split(",") if name]
    try:
        nursery = _guarded(role, connection, base, packages, readable)
    except Exception as error:  # noqa: BLE001 - the controller is told, in one line
        words = " ".join(f"{type(error).__name__}: {error}".split())
        with contextlib.suppress(OSError):
            _part("wire").send(connection, {"op": "broken", "why": words})
        _part("folders").remove(base)
        os._exit(_BROKEN)
    nursery.run()


def _guarded(
    role: str, connection: socket.socket, base: str, packages: list[str], readable: list[str]
) -> Any:
    """Give the nursery, in its own process; in the guard, which forks that, never return."""
    prctl, folders = _part("prctl"), _part("folders")
    shelter = None
    if role == "candidate":
        shelter = _part("confine").Shelter(base, [*_places(packages), *readable])
        shelter.enter()
    prctl.adopt_orphans()
    guard = os.getpid()
    pid = os.fork()
    if pid:
        connection.close()
        prctl.name("nb-guard")
        os.waitpid(pid, 0)
        folders.end_orphans({})
        folders.remove(base)
        os._exit(0)
    prctl.die_with_parent(guard)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _part("serving").MOST_DESCRIPTORS
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    prctl.name(f"nb-{role}s")
    if role == "tester":
        _load(INSIDE, _KERNEL)
    hooks = _part("hooks")
    with hooks.held_back():
        _part(role)
        for name in (*COMMON, *getattr(_part(role), "PRELOAD", ())):
            importlib.import_module(name)
    for name in packages:
        importlib.import_module(name)
    _part(role).rehearse()  # before files are hidden, as it may import some
    serve = _part(role).server()
    if shelter is None:
        prctl.hide_memory()
        homes = folders.Folders(base)
    else:
        homes = shelter.settle()  # last, as it hides the files of what was imported
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    gc.collect()
    gc.freeze()  # so that a collection in a child does not write to all that it shares
    return _part("serving").Nursery(
        *(connection, _part("wire"), serve, homes, shelter),
        prepare=getattr(_part(role), "prepare", None),
    )


def _hide() -> None:
    """Let neither this folder nor these arguments be seen by what is imported."""
    if sys.path and os.path.abspath(sys.path[0]) == _HERE:
        del sys.path[0]
    sys.argv = [""]


def _load(package: str, folder: str) -> None:
    """Load the files of a folder as a package, without a way to them on `sys.path`."""
    _load_file(package, f"{folder}/__init__.py", folder)


def _load_file(name: str, path: str, *folders: str) -> None:
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=list(folders) or None
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _part(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


def _connected(number: str | None, path: str | None) -> socket.socket:
    if number is not None:
        connection = socket.socket(fileno=int(number))
        connection.set_inheritable(False)
        return connection
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path or "")
    return connection


def _folder() -> str:
    """Make a folder of our own; `tempfile` loads libraries that make each fork dearer."""
    places = (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp")
    place = next((each for each in places if each and os.access(each, os.W_OK | os.X_OK)), "/tmp")
    folder = f"{place}/nbrefine-check-{os.urandom(8).hex()}"
    os.mkdir(folder, 0o700)
    return folder


def _places(packages: list[str]) -> list[str]:
    """Give the folders of packages, as they need not be among those of the interpreter."""
    places: list[str] = []
    for name in packages:
        spec = importlib.util.find_spec(name.partition(".")[0])
        if spec is not None and spec.submodule_search_locations is not None:
            places += spec.submodule_search_locations
        elif spec is not None and spec.origin is not None and os.path.isabs(spec.origin):
            places.append(spec.origin)
    return places


if __name__ == "__main__":
    main()
