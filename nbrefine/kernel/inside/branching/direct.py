"""A kernel's only connection, in place of ZeroMQ's sockets and of the threads that serve them.

Messages are Jupyter's, frame by frame as ZeroMQ would carry them, over one socket to the
controller that had the kernel forked. To attach it takes a third of the time, which is most of
the life of a kernel that runs one cell; but nobody else can connect, and the kernel cannot be
copied, debugged, or asked anything while it runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from tornado.ioloop import IOLoop

from .framing import IOPUB, PACKET, SHELL, Assembler, packets
from .plumbing import open_streams, renew

_FLUSH = 0.2  # seconds for which printed text may wait, as in ipykernel


def attach(app: Any, descriptor: int, before_start: Callable[[], None]) -> None:
    """Have a forked kernel take requests from a socket, and send all that it says there.

    Parameters
    ----------
    descriptor: of the socket, which becomes the kernel's own.
    before_start: called when cells could run but no message can come yet.
    """
    connection = socket.socket(fileno=descriptor)
    asyncio.set_event_loop(asyncio.new_event_loop())
    app.io_loop = IOLoop.current()
    kernel, session, shell = app.kernel, app.session, app.kernel.shell
    session.key = b""  # nobody else has either end
    session.pid = os.getpid()
    session.session = os.urandom(16).hex()
    session.digest_history = set()
    lock = threading.RLock()
    publisher = _Publisher(connection, lock, app.io_loop)
    app.iopub_thread = app.iopub_socket = publisher
    kernel.iopub_thread = kernel.iopub_socket = publisher
    kernel.shell_channel_thread = _ShellChannel(_Outlet(connection, lock, SHELL))
    kernel.control_thread = kernel.stdin_socket = None
    kernel.shell_stream = kernel.control_stream = kernel.debugpy_stream = None
    kernel._main_asyncio_lock = asyncio.Lock()
    kernel._aborting = shell.exit_now = False
    kernel.io_loop = app.io_loop
    kernel.shell_handlers["execute_request"] = _Execute(kernel)
    for stream in open_streams(kernel):
        renew(stream, publisher, session)
        stream._schedule_flush = _flush_in_time(stream)
    for each in (shell.displayhook, shell.display_pub, app.displayhook):
        each.session, each.pub_socket = session, publisher
    app.init_signal()
    before_start()
    _Inlet(connection, kernel, app.io_loop.asyncio_loop)


class _Outlet:
    """Stands where ipykernel has a socket to send by.

    Parameters
    ----------
    lock: held while a message is sent, as any thread may print.
    """

    def __init__(self, connection: socket.socket, lock: threading.RLock, channel: bytes) -> None:
        self._connection, self._lock, self._channel = connection, lock, channel

    def send_multipart(self, frames: Sequence[Any], **_: Any) -> None:
        """Send a message, whole whatever interrupts it."""
        if threading.current_thread() is not threading.main_thread():
            self._send(frames)
            return
        interrupts: list[int] = []
        handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
        try:
            self._send(frames)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN if handler is None else handler)
        if interrupts:
            signal.raise_signal(signal.SIGINT)

    def _send(self, frames: Sequence[Any]) -> None:
        with self._lock:
            for packet in packets(self._channel, [bytes(each) for each in frames]):
                self._connection.send(packet)


class _Publisher(_Outlet):
    """Stands for the IOPub thread, too; what is scheduled on it is done at once."""

    thread = None

    def __init__(self, connection: socket.socket, lock: threading.RLock, loop: IOLoop) -> None:
        super().__init__(connection, lock, IOPUB)
        self.io_loop = loop
        self.socket = self

    def schedule(self, function: Callable[[], object]) -> None:
        function()

    def set(self, option: int, value: object) -> None:
        """Take an option of a ZeroMQ socket, of which this has none."""


class _ShellChannel:
    """Stands for the thread of the shell channel, and for its manager of subshells."""

    def __init__(self, outlet: _Outlet) -> None:
        self.parent_thread = threading.main_thread()
        self.manager = self
        self._outlet = outlet

    def get_subshell_to_shell_channel_socket(self, subshell_id: str | None) -> _Outlet:
        return self._outlet


def _flush_in_time(stream: Any) -> Callable[[], None]:
    """Give what is called whenever something was printed, to send it when that is due."""
    sent = time.monotonic()

    def flush() -> None:
        nonlocal sent
        if (now := time.monotonic()) - sent > _FLUSH:
            sent = now
            stream._flush()

    return flush


class _Execute:
    """Stands for the kernel's own handler of requests to run code.

    What leaves no trace in the history is our controller's own, and where that is an expression it
    needs nothing of what IPython does for a cell, which takes longer than most checks do.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    async def __call__(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        content = parent["content"]
        expression = None if content["store_history"] else _compiled(content["code"])
        if expression is None:
            await self._kernel.execute_request(stream, ident, parent)
            return
        reply = self._evaluate(expression)
        payloads = self._kernel.shell.payload_manager
        reply["payload"] = payloads.read_payload()
        payloads.clear_payload()
        for each in (sys.stdout, sys.stderr):
            if each is not None:
                each.flush()
        self._kernel.session.send(stream, "execute_reply", reply, parent, ident=ident)

    def _evaluate(self, expression: CodeType) -> dict[str, Any]:
        """Evaluate it, for what it does, where a cell would be run, and give the reply."""
        kernel, shell = self._kernel, self._kernel.shell
        kernel._forward_input(False)  # there is nobody to ask
        try:
            shell.events.trigger("pre_execute")
            with shell.builtin_trap, shell.display_trap:
                eval(expression, shell.user_ns)  # noqa: S307 - our own
        except BaseException as error:  # noqa: BLE001 - an interrupt ends it as it ends a cell
            shell.showtraceback(running_compiled_code=True)
            told = {"ename": type(error).__name__, "evalue": str(error)}
            return {"status": "error", "traceback": shell._last_traceback or [], **told}
        finally:
            kernel._restore_input()
            shell.events.trigger("post_execute")
        return {"status": "ok"}


def _compiled(code: str) -> CodeType | None:
    """Compile an expression; None: it is none."""
    try:
        return compile(code, "<nbrefine>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Frame:
    """Stands for a frame that ZeroMQ did not copy."""

    def __init__(self, data: bytes) -> None:
        self.bytes = self.buffer = data


class _Inlet:
    """Takes requests in, and has them handled one after the other."""

    def __init__(
        self, connection: socket.socket, kernel: Any, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._connection, self._kernel, self._loop = connection, kernel, loop
        self._process = os.getpid()
        self._assembler = Assembler()
        self._tasks: set[asyncio.Task[None]] = set()
        loop.add_reader(connection.fileno(), self._read)

    def _read(self) -> None:
        if os.getpid() != self._process:
            # A cell has forked and its child has come back from it: what it reads here would be
            # lost, and what it waits by belongs to its parent too.
            os._exit(0)
        packet = self._connection.recv(PACKET)
        if not packet:  # nobody is there to whom this is of use
            os.killpg(os.getpgrp(), signal.SIGKILL)
        if (taken := self._assembler.take(packet)) is not None:
            message = [_Frame(each) for each in taken[1]]
            task = self._loop.create_task(self._kernel.shell_main(None, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
