"""Find what a fork of this kernel would break, before it is forked.

`scan` looks at threads, descriptors, memory maps and loaded libraries, never at the heap. Each
hazard names the thing and says in plain words what becomes of it:

- refuse: a fork would hang, or the branch would change the live kernel's data; no fork.
- lost: gone in the branch, the live kernel keeps it.
- shared: both sides have it, and what one does to it the other sees.
- repaired: it works in the branch, perhaps with a limit.
- note: nothing is known to go wrong.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import Any

from . import descriptors

Hazard = dict[str, str]

OWN_THREADS = {
    "MainThread",
    "IOPub",
    "Control",
    "Heartbeat",
    "Shell channel",
    "IPythonHistorySavingThread",
    "tqdm_monitor",
}
OWN_PACKAGES = {"ipykernel", "IPython", "tornado", "zmq", "nbrefine", "_nbrefine_branching"}


def scan(app: Any) -> list[Hazard]:
    """List the hazards of forking the kernel of `app` now; never raises."""
    found: list[Hazard] = []
    for look in (_pools, _gpu, _threads, _tasks, _children, _sockets):
        try:
            found += look(app)
        except Exception as error:  # noqa: BLE001  a scan that fails must not fail the cell
            text = f"{look.__name__.strip('_')} could not be looked at: {error!r}"
            found.append(hazard("unknown", "note", text))
    return found


def hazard(kind: str, verdict: str, detail: str) -> Hazard:
    """Make one entry of a scan."""
    return {"kind": kind, "verdict": verdict, "detail": detail}


def _pools(app: Any) -> list[Hazard]:
    """Rayon's threads, which polars never starts again."""
    names = _native_threads()
    if any(name.startswith(("polars", "rayon")) for name in names):
        text = "polars has run in this kernel; its threads do not survive a fork, and it would hang"
        return [hazard("polars-pool", "refuse", text)]
    return []


def _native_threads() -> set[str]:
    names = set()
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as file:
                names.add(file.read().strip())
        except OSError:
            continue
    return names


def _gpu(app: Any) -> list[Hazard]:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        text = "torch has initialised CUDA; a GPU context does not survive a fork"
        return [hazard("cuda", "refuse", text)]
    return []


def _threads(app: Any) -> list[Hazard]:
    own = {id(getattr(stream, "watch_fd_thread", None)) for stream in (sys.stdout, sys.stderr)}
    names = [
        thread.name
        for thread in threading.enumerate()
        if thread.name not in OWN_THREADS
        and not thread.name.startswith(("nbrefine-", "pydevd.", "subshell-"))
        and id(thread) not in own
    ]
    text = "thread {!r} does not run in the branch"
    return [hazard("thread", "lost", text.format(name)) for name in names]


def _tasks(app: Any) -> list[Hazard]:
    loop = app.io_loop.asyncio_loop
    found = []
    for task in asyncio.all_tasks(loop):
        code = getattr(task.get_coro(), "cr_frame", None)
        module = code.f_globals.get("__name__", "") if code is not None else ""
        if module.partition(".")[0] not in OWN_PACKAGES:
            name = getattr(task.get_coro(), "__qualname__", repr(task))
            text = f"asyncio task {name!r} does not go on in the branch"
            found.append(hazard("asyncio-task", "lost", text))
    return found


def _children(app: Any) -> list[Hazard]:
    module = sys.modules.get("multiprocessing.process")
    children = getattr(module, "_children", None)
    if not children:
        return []
    text = f"{len(children)} multiprocessing workers serve the live kernel only"
    return [hazard("multiprocessing", "lost", text)]


def _sockets(app: Any) -> list[Hazard]:
    found = []
    for descriptor, target in descriptors.table().items():
        if not target.startswith("socket:"):
            continue
        with descriptors.as_socket(descriptor) as opened:
            try:
                peer = descriptors.address_text(opened.getpeername())
            except OSError:
                continue
            if not peer or is_own(app, opened.getsockname()):
                continue
        text = f"the connection to {peer} is shared with the live kernel"
        found.append(hazard("connection", "shared", text))
    return found


def is_own(app: Any, name: Any) -> bool:
    """Tell whether a socket's own address is one of the kernel's channels."""
    if isinstance(name, tuple):
        channels = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
        return name[1] in {getattr(app, channel, 0) for channel in channels}
    return isinstance(name, str) and name.startswith(f"{app.ip}-")
