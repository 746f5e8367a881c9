"""Run once in a kernel that nbrefine starts: keeps its streams and messages whole.

A kernel that was started plainly is sent this as a cell, with a `NONCE` in its namespace, so it
needs no file in the kernel's environment and leaves no name in the user's; a forked one imports
it by path and calls `prepare`.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import os
import pathlib
import sys
import threading
import types
from typing import Any

import zmq
from IPython.core import ultratb
from IPython.core.getipython import get_ipython
from jupyter_client import connect
from jupyter_client import session as messages

MIME = "application/vnd.nbrefine+json"

_LAST: list[Any] = [""]
_ESSENTIAL: dict[str, Any] = {}
_MARK = {"nonce": ""}

_dumps = json.dumps

_LONG = 400  # lines of a source file above which it is not parsed
_DEEP = 50  # frames of a traceback in which repeated ones are collapsed, for which it is parsed


def prepare(shell: Any, nonce: str, crash: str) -> None:
    """Set up what can go wrong without a word; a branch of a prepared kernel calls it again.

    Parameters
    ----------
    nonce: marks notes to the controller.
    crash: path of the file for the stack of a crash, or "".
    """
    thread = shell.kernel.iopub_thread
    # Beyond 1000 waiting messages ZeroMQ drops output without a word when a busy host lets the
    # controller's reader wait.  A socket belongs to its thread.
    thread.schedule(lambda: thread.socket.set(zmq.SNDHWM, 0))
    _send_in_flush(thread)
    if crash:
        with contextlib.suppress(OSError):
            # ipykernel reads descriptor 2 through a pipe of its own, in which a crash's stack is
            # lost.  By number, as a file object would close in a branch what has its number there.
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            faulthandler.enable(file=os.open(crash, flags, 0o600))
    if not _MARK["nonce"]:
        _ESSENTIAL.update(stdout=sys.stdout, stderr=sys.stderr)
        session = shell.kernel.session
        # Whoever asks for the kernel's introduction would draw from the session's `random`: it
        # ends with a tip that is chosen by it.
        shell.enable_tip = False
        type(shell).ask_exit = _stay
        shell.InteractiveTB.get_records = _sparing(shell.InteractiveTB.get_records)
        # By which messages and a branch's connection are written, whatever a cell makes of `json`.
        for module in (messages, connect):
            vars(module)["json"] = types.SimpleNamespace(**vars(json))
        session.pack = _tolerant(session.pack)
        shell.events.register("post_execute", lambda: _after_cell(shell))
        shell.events.register("post_run_cell", lambda result: _keep_last(shell, result))
        atexit.register(_end_control, shell.kernel.parent)
    _MARK["nonce"] = nonce


def _send_in_flush(publisher: Any) -> None:
    """Let what is flushed be sent before `flush` returns, which waits for less.

    ipykernel only asks its thread to send by then: a cell that goes on in C, with the lock that
    threads share, keeps its last words to itself, and they end with it when it is killed.
    """
    if publisher.thread is None:  # it sends at once
        return

    def send(*args: Any, **kwargs: Any) -> None:
        if threading.current_thread() is publisher.thread:
            publisher._really_send(*args, **kwargs)  # noqa: SLF001
        else:
            publisher.schedule(lambda: publisher._really_send(*args, **kwargs))  # noqa: SLF001

    publisher.send_multipart = send


def _send_replies_by_stream(shell: Any) -> None:
    """Send replies by the stream that reads the requests, as ipykernel does from 7.4 on.

    Sent on its bare socket, a reply takes along the only sign that a request has arrived
    meanwhile, as one does that wakes an interrupted `await`.  The kernel then reads no request
    any more until somebody connects anew (ipykernel #1554).
    """
    thread: Any = getattr(shell.kernel, "shell_channel_thread", None)
    if thread is not None and hasattr(thread.manager, "_shell_socket"):
        thread.manager._shell_socket = shell.kernel.shell_stream  # noqa: SLF001


def _end_control(app: Any) -> None:
    """End the control thread before ipykernel closes IOPub, for which its last flush waits 10 s."""
    if app.control_thread is not None and app.control_thread.is_alive():
        app.control_thread.stop()
        app.control_thread.join(5)


def _stay(shell: Any) -> None:
    """Say that exit() was called; IPython would end the kernel a moment later."""
    shell.payload_manager.write_payload({"source": "ask_exit", "keepkernel": True})


def _sparing(get_records: Any) -> Any:
    """Show frames in long files without parsing these.

    IPython parses files of up to 10,000 lines to choose the lines around a frame's own, which
    takes 70 ms for pandas' `KeyError`, and in every branch anew; it has a faster way for longer
    files, which lists the neighbouring lines.
    """
    stock = getattr(ultratb, "FAST_THRESHOLD", 0)

    def records(traceback: Any, *rest: Any) -> Any:
        depth, each = 0, traceback
        while each is not None and depth <= _DEEP:
            depth, each = depth + 1, each.tb_next
        ultratb.FAST_THRESHOLD = stock if depth > _DEEP else min(stock, _LONG)
        try:
            return get_records(traceback, *rest)
        finally:
            ultratb.FAST_THRESHOLD = stock

    return records


def _tolerant(pack: Any) -> Any:
    """Send text with lone surrogates escaped; ipykernel loses it and a traceback of its own."""

    def packed(message: Any) -> Any:
        try:
            return pack(message)
        except UnicodeEncodeError:
            return _dumps(message, default=str).encode("ascii")

    return packed


def _after_cell(shell: Any) -> None:
    """Bring back streams that a cell removed, closed, or replaced by what does not work as one.

    Without `sys.stdout` IPython 9 runs no further cell and ipykernel never replies.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name, None)
        essential = _ESSENTIAL[name]
        closed = getattr(stream, "closed", False)
        if closed or not (stream is essential or _works(stream)):
            if essential.closed:
                essential = _ESSENTIAL[name] = _opened(shell.kernel, name)
            setattr(sys, name, essential)
            what = "closed" if closed else f"set to a {type(stream).__name__}"
            _note(shell.kernel, f"sys.{name} was {what}; it is restored")
    # IPython keeps a copy of all that was ever printed.
    with contextlib.suppress(AttributeError):
        shell.history_manager.outputs.clear()


def _works(stream: Any) -> bool:
    if not (hasattr(stream, "write") and hasattr(stream, "flush")):
        return False
    try:
        stream.flush()  # as ipykernel does before it replies
    except Exception:  # noqa: BLE001  whatever a cell has put there
        return False
    return True


def _keep_last(shell: Any, result: Any) -> None:
    """Let `_` be the last value shown; without a cache of values IPython leaves it empty."""
    namespace = shell.user_ns
    value = getattr(result, "result", None)
    if value is not None and result.info.store_history and namespace.get("_") is _LAST[0]:
        namespace["_"] = _LAST[0] = value


def _opened(kernel: Any, name: str) -> Any:
    old = _ESSENTIAL[name]
    setattr(sys, name, getattr(sys, f"__{name}__"))  # whose descriptor the new stream reads
    new = type(old)(kernel.session, kernel.iopub_thread, name)
    new.set_parent(kernel.get_parent())
    setattr(kernel, f"_{name}", new)  # where ipykernel, and a repair from outside, look for it
    return new


def _note(kernel: Any, text: str) -> None:
    kernel.session.send(
        kernel.iopub_socket,
        "display_data",
        {"data": {MIME: text}, "metadata": {"nbrefine": _MARK["nonce"]}, "transient": {}},
        parent=kernel.get_parent(),
        ident=b"display_data",
    )


if "NONCE" in globals():
    _send_replies_by_stream(get_ipython())
    prepare(
        get_ipython(),
        globals()["NONCE"],
        str(pathlib.Path(os.environ.get("NBREFINE_KERNEL", os.devnull), "crash")),
    )
