"""Copy a kernel that somebody else has started, from inside a cell that it runs.

Such a kernel has no loop of ours around it that could be left before the fork.  So it is forked
where its main thread stands: deep in a cell, or in a callback of its loop while a cell awaits.
The copy never returns there.  What the cell has begun is undone, as if it had not been asked for
yet, and the branches run a loop of their own on top of the old frames.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import os
import posix
import signal
import socket
import sys
import threading
import traceback
import warnings
from typing import Any, NoReturn

from . import descriptors, hazards
from .app import lacking
from .carry import Carried
from .nursery import Nursery
from .plumbing import Plumbing, end
from .serving import Server

_KEPT: list[Any] = []
"""What belongs to the life before the fork; it is neither used nor collected any more."""

_plumbing: Plumbing | None = None
"""That of a kernel which no `Server` of ours serves."""


def checkpoint(connection: socket.socket, *, folder: str = "") -> dict[str, Any]:
    """Fork a dormant copy of this kernel, which serves the connection; the main thread calls it.

    Gives `status` "ok" with the copy's `pid` and working folder, or "refused"; and `hazards`, as
    `hazards.scan` has them.  This end of the connection is closed here in any case.

    Parameters
    ----------
    folder: removed by the copy at its end, as a keeper would do.

    Raises
    ------
    OSError: the system does not fork.
    """
    with connection:
        app, why = _kernel()
        if why:
            refusal = {"kind": "kernel", "verdict": "refuse", "detail": why}
            return {"status": "refused", "hazards": [refusal]}
        found = hazards.scan(app)
        if any(each["verdict"] == "refuse" for each in found):
            return {"status": "refused", "hazards": found}
        plumbing = _plumbing_of(app)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            plumbing.flush()
            own = plumbing.descriptors()
            carried = Carried(own | _logs(app, plumbing) | {connection.fileno()})
            pid = _fork()
            if pid == 0:
                nursery = Nursery(connection, "checkpoint", folder)
                _live_on(app, nursery, own, carried, mask)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            plumbing.reap_later(pid)
        except BaseException:
            end(pid)
            raise
    return {"status": "ok", "pid": pid, "cwd": _folder(), "hazards": found}


def _kernel() -> tuple[Any, str]:
    """Give this process's ipykernel application, and why it cannot be forked from here, or ""."""
    from ipykernel.kernelapp import IPKernelApp
    from IPython.core.getipython import get_ipython

    kernel: Any = getattr(get_ipython(), "kernel", None)
    app: Any = getattr(kernel, "parent", None)
    if not isinstance(app, IPKernelApp) or app.kernel is not kernel:
        return None, "this is no kernel that ipykernel's own application has started"
    if why := lacking():
        return None, why
    if app.shell_channel_thread is None:
        return None, "its kernel's class has no subshells, whose threads a copy is built around"
    if not sys.platform.startswith("linux"):
        return None, "only Linux kernels can be forked"
    if threading.current_thread() is not threading.main_thread():
        return None, "the cell runs in a subshell or another thread, not in the main one"
    if app.kernel.eventloop is not None:
        return None, "the event loop of a graphical toolkit runs in it (%gui)"
    if getattr(app, "trio_loop", False):
        return None, "it runs trio's event loop"
    return app, ""


def _plumbing_of(app: Any) -> Plumbing:
    global _plumbing  # noqa: PLW0603 - a process has one kernel
    server = _server_of(app)
    if server is not None:
        return server.plumbing
    if _plumbing is None or _plumbing.app is not app:
        _plumbing = Plumbing(app)
    return _plumbing


def _server_of(app: Any) -> Server | None:
    """Give what serves a kernel that was forked for its controller."""
    handler = app.kernel.shell_handlers.get("checkpoint_request")
    server = getattr(handler, "__self__", None)
    return server if isinstance(server, Server) else None


def _logs(app: Any, plumbing: Plumbing) -> set[int]:
    """Give the descriptors of the history and of the server's log, which are not the session's.

    What is open for writing is searched for among all objects, for which they are not worth it.
    """
    history = str(getattr(app.shell.history_manager, "hist_file", ""))
    copies = {getattr(each, "_original_stdstream_copy", -1) for each in plumbing.streams}
    return copies | {
        each for each, target in descriptors.table().items() if history and target == history
    }


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _fork() -> int:
    with warnings.catch_warnings():
        # From Python 3.12 on it warns of threads; what comes of them is seen to here.
        warnings.simplefilter("ignore", DeprecationWarning)
        return posix.fork()  # a debugger takes the child of `os.fork` for one more to attach to


def _live_on(app: Any, nursery: Nursery, own: set[int], carried: Carried, mask: Any) -> NoReturn:
    """Be the copy, and in forks of it the branches; nothing returns into the old frames."""
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _leave_loop(app)
        _end_cell(app)
        _leave_history(app.shell)
        server = _server_of(app) or Server(app)
        server.sleep(nursery, own, carried)
        server.serve()
    except BaseException:  # noqa: BLE001 - whatever it was, the old frames are not ours
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(70)


def _leave_loop(app: Any) -> None:
    """Let the thread have no loop and no task; those it has are the live kernel's."""
    loop = app.io_loop.asyncio_loop
    _KEPT.append((loop, asyncio.all_tasks(loop)))
    task = asyncio.current_task(loop)
    if task is not None:
        asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)
    signal.set_wakeup_fd(-1)


def _end_cell(app: Any) -> None:
    """Undo what the running cell has begun, so that this is the kernel before it."""
    kernel, shell = app.kernel, app.shell
    request = kernel.get_parent("shell")
    _forget_input(shell, request)
    if builtins.input == kernel.raw_input:
        kernel._restore_input()
    for trap in (shell.builtin_trap, shell.display_trap):
        if trap._nested_level:
            trap._nested_level = 1
            trap.__exit__(None, None, None)
    shell.displayhook.exec_result = None
    shell.payload_manager.clear_payload()
    sys.excepthook = shell._orig_sys_module_state.get("excepthook", sys.__excepthook__)
    _restore_outputs(app)
    for channel in ("shell", "control"):
        kernel.set_parent([], {}, channel)


def _forget_input(shell: Any, request: dict[str, Any]) -> None:
    """Take the running cell out of the history and the count."""
    content = request.get("content", {})
    if request.get("msg_type") != "execute_request" or not content.get("store_history"):
        return
    history, result = shell.history_manager, shell.displayhook.exec_result
    number = getattr(result, "execution_count", None)
    if number is None or content.get("silent"):
        return
    shell.execution_count = number
    if history is None or history.input_hist_raw[-1] != str(content["code"]).rstrip("\n"):
        return  # it was not kept, as with exit()
    for inputs in (history.input_hist_raw, history.input_hist_parsed):
        inputs.pop()
    shell.user_ns.pop(f"_i{number}", None)
    last = ["", "", "", *history.input_hist_raw]
    history._i00, history._i, history._ii, history._iii = last[:-5:-1]
    shell.user_ns.update(_i=history._i, _ii=history._ii, _iii=history._iii)


def _restore_outputs(app: Any) -> None:
    """End what captures the cell's outputs, such as `%%capture`."""
    kernel, shell = app.kernel, app.shell
    for stream in (kernel._stdout, kernel._stderr):
        _untee(stream)
    own = next(each for each in shell.configurables if isinstance(each, shell.display_pub_class))
    if shell.display_pub is not own:
        shell.display_pub = own
        sys.stdout, sys.stderr = kernel._stdout, kernel._stderr


def _untee(stream: Any) -> None:
    """Take off the `write` by which IPython keeps a cell's text in its history."""
    while getattr(stream.__dict__.get("write"), "__qualname__", "").endswith(
        "._tee.<locals>.write"
    ):
        write = stream.__dict__.pop("write")
        inner = dict(zip(write.__code__.co_freevars, write.__closure__, strict=True))
        original = inner["original_write"].cell_contents
        if getattr(original, "__func__", None) is not type(stream).write:
            stream.write = original


def _leave_history(shell: Any) -> None:
    """Let the history file be; its connection and its thread are the live kernel's."""
    history = shell.history_manager
    if history is None or not history.enabled or str(history.hist_file) == ":memory:":
        return
    from IPython.core.history import DummyDB

    _KEPT.append((history.db, history.save_thread))
    history.enabled = False
    history.db = DummyDB()
    history.save_thread = None
    history.db_input_cache_lock = threading.Lock()
