"""Sockets, threads and event loop of a kernel, attached to it in each process anew.

Objects that a session may hold references to (the streams, the IOPub thread, the session) stay
the same and get new insides; everything else is new.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import StringIO
from typing import Any, NoReturn

import zmq
from ipykernel.iostream import IOPubThread
from tornado.ioloop import IOLoop
from zmq.eventloop.zmqstream import ZMQStream

from . import descriptors, wire
from .nursery import has_children

_PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
_JOIN = 2.0  # seconds in which a thread must have ended
_LINGER = 300  # milliseconds in which last messages must have gone

Operation = Callable[[dict[str, Any]], dict[str, Any]]
"""What a message on the line asks for; runs in the main thread, its value is the answer."""


class Plumbing:
    """Attaches an `IPKernelApp`, and detaches it in a forked child.

    Parameters
    ----------
    app: built by `app.build`, or one that was started in the ordinary way.
    """

    def __init__(self, app: Any) -> None:
        self.app = app
        self.line: socket.socket | None = None
        self.operations: dict[str, Operation] = {}
        self.children: dict[int, int] = {}
        """Checkpoint's descriptor -> its process id, until it is reaped."""
        self._made: set[int] = set()
        # Objects of earlier processes. To collect them would be to close what others still use.
        self._graveyard: list[Any] = []

    def attach(
        self,
        connection: Mapping[str, Any],
        connection_file: str,
        line: socket.socket | None,
        *,
        unlimited: bool,
        before_start: Callable[[], None],
    ) -> None:
        """Bind all sockets, start all threads, and let messages be handled by the next loop.

        Parameters
        ----------
        connection: what a connection file says; a port that is 0 is chosen.
        connection_file: where to write it, with the ports that were chosen, or "".
        unlimited: keep any number of outputs for a reader that is late.
        before_start: called when cells could run but no message can come yet.
        """
        app = self.app
        before = _open()
        asyncio.set_event_loop(asyncio.new_event_loop())
        app.io_loop = IOLoop.current()
        self._load(connection, connection_file)
        app.context = None
        app.init_iopub = lambda context: self._init_iopub(context, unlimited=unlimited)
        mask = os.umask(0o077)  # a cell may have set one by which nobody reaches these files
        try:
            app.init_sockets()
            app.init_heartbeat()
            app._ports = {name.removesuffix("_port"): port for name, port in self.ports.items()}
            if connection_file:
                app.write_connection_file()
        finally:
            os.umask(mask)
        self._init_streams()
        app.init_signal()
        self._init_kernel()
        before_start()
        if line is not None:
            self.line = line
            loop = app.control_thread.io_loop.asyncio_loop
            loop.call_soon_threadsafe(loop.add_reader, line.fileno(), self._on_line)
        app.kernel.start()
        copies = {getattr(each, "_original_stdstream_copy", -1) for each in self.streams}
        self._made = _open() - before - copies

    @property
    def streams(self) -> list[Any]:
        """The streams of ipykernel that are open, whatever `sys.stdout` may be by now."""
        return open_streams(self.app.kernel)

    @property
    def ports(self) -> dict[str, int]:
        """Every port, by its name in a connection file."""
        return {name: getattr(self.app, name) for name in _PORTS}

    def tell(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Send a message to the controller, if there is one."""
        if self.line is not None:
            with contextlib.suppress(OSError):  # it has gone, and the control thread sees it
                wire.send(self.line, message, fds)

    def flush(self) -> None:
        """Hand on what was printed."""
        for stream in self.streams:
            stream.flush()

    def descriptors(self) -> set[int]:
        """Give the descriptors that are the kernel's own, not the session's."""
        own = self._made | set(self.children) | set(self._lazily_made())
        own |= {each._fid for each in self.streams if each._fid is not None}
        if self.line is not None:
            own.add(self.line.fileno())
        for fd, target in descriptors.table().items():
            if target.startswith("socket:") and fd not in own and self._is_ours(fd):
                own.add(fd)
        return own

    def reap_later(self, pid: int) -> int:
        """Have a child waited for when it has ended and the loop is free; give its descriptor."""
        pidfd = os.pidfd_open(pid)
        loop = self.app.io_loop.asyncio_loop

        def reap() -> None:
            loop.remove_reader(pidfd)
            del self.children[pidfd]
            os.close(pidfd)
            with contextlib.suppress(ChildProcessError):  # a cell has waited for all children
                os.waitpid(pid, 0)

        loop.add_reader(pidfd, reap)
        self.children[pidfd] = pid
        return pidfd

    def abandon(self, own: set[int]) -> None:
        """Let go, in a forked child, of all that `attach` has made; none of it works here.

        Parameters
        ----------
        own: what `descriptors` gave before the fork.
        """
        app, kernel = self.app, self.app.kernel
        self._graveyard.append(
            [
                dict(vars(app.iopub_thread)),
                [getattr(app, name) for name in _OF_APP],
                [getattr(kernel, name, None) for name in _OF_KERNEL],
                # A coroutine that is collected runs its `finally` blocks.
                [asyncio.all_tasks(loop.asyncio_loop) for loop in self._loops()],
                app.io_loop,
            ]
        )
        self.detach(own)

    def detach(self, own: set[int]) -> None:
        """Have no descriptor of the kernel's, no line and no loop.

        Parameters
        ----------
        own: what `descriptors` gave.
        """
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        for stream in self.streams:
            if stream._should_watch:
                os.dup2(nothing, stream._original_stdstream_copy)
        os.close(nothing)
        wire.close(sorted(own - {0, 1, 2}))
        if self.line is not None:
            self.line.detach()
            self.line = None
        self.children.clear()
        asyncio.set_event_loop(None)
        shell = self.app.shell
        shell.tempfiles, shell.tempdirs = [], []

    def leave(self) -> NoReturn:
        """Deliver what was said last, and end the process without tearing the interpreter down.

        The control thread ends first: a handler of its that flushes the streams waits 10 s for
        an IOPub thread that has ended.
        """
        app = self.app
        try:
            if has_children():  # which have ended already where a message asked for the shutdown
                loop = app.io_loop.asyncio_loop
                loop.run_until_complete(app.kernel._progressively_terminate_all_children())
            threading._shutdown()  # type: ignore[attr-defined]
            for each in (app.close, app.iopub_thread.stop):
                _unregister(each)
            _run_exit_functions()
            self._shut()
        except BaseException:  # noqa: BLE001 - it ends here all the same
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(0)

    def close(self) -> None:
        """End all threads and close all sockets, so that the process has one thread and no trace.

        What a fork abandons stays in memory for ever; what is closed does not.
        """
        app = self.app
        for each in (app.close, app.iopub_thread.stop):
            _unregister(each)
        loop = app.io_loop.asyncio_loop
        if tasks := asyncio.all_tasks(loop):  # those that handle the request to rest
            loop.run_until_complete(asyncio.wait(tasks, timeout=_JOIN))
        self._shut()
        for stream in self.streams:
            if stream._should_watch:  # its thread ends with the pipe's last writer
                os.dup2(stream._original_stdstream_copy, stream._original_stdstream_fd)
                stream.watch_fd_thread.join(_JOIN)
                os.close(stream._fid)
                stream._fid = None
        app.heartbeat.context.term()  # its thread closes its socket
        app.heartbeat.join(_JOIN)
        app.io_loop.close()
        self._forget()

    def _forget(self) -> None:
        """Hold no object that was closed, so that it is collected before others stand on it."""
        app, kernel = self.app, self.app.kernel
        for name in (*_OF_APP, "io_loop"):
            setattr(app, name, None)
        for name in (*_OF_KERNEL, *_OF_BOTH):
            setattr(kernel, name, None)
        for stream in self.streams:
            stream._io_loop = stream.watch_fd_thread = None
        for each in (app.displayhook, kernel.shell.displayhook, kernel.shell.display_pub):
            each.pub_socket = None
        vars(app.iopub_thread).clear()

    def _shut(self) -> None:
        app = self.app
        for thread in (app.control_thread, app.shell_channel_thread):
            if thread is not None and thread.is_alive():
                thread.stop()
                thread.join(_JOIN)
        self.flush()
        app.iopub_thread.stop()
        for name in ("shell", "control", "stdin"):
            getattr(app, f"{name}_socket").close(linger=_LINGER)
        app.iopub_thread.socket.close(linger=_LINGER)
        app.context.destroy(linger=_LINGER)

    def _load(self, connection: Mapping[str, Any], connection_file: str) -> None:
        app, session = self.app, self.app.session
        for name in _PORTS:
            setattr(app, name, 0)
        app.connection_file = connection_file
        for name in ("curve_publickey", "curve_secretkey"):
            if hasattr(app, name):
                setattr(app, name, None)
        app.load_connection_info(dict(connection))
        session.pid = os.getpid()
        session.session = os.urandom(16).hex()
        session.digest_history = set()

    def _init_iopub(self, context: Any, *, unlimited: bool) -> None:
        """Do as `IPKernelApp.init_iopub`, but keep the thread object if there is one."""
        app = self.app
        made = context.socket(zmq.XPUB)
        made.linger = 1000
        if unlimited:
            # Beyond 1000 waiting messages ZeroMQ drops output without a word.
            made.sndhwm = 0
        if hasattr(app, "_apply_curve_server_options"):
            app._apply_curve_server_options(made)
        app.iopub_port = app._bind_socket(made, app.iopub_port)
        if app.iopub_thread is None:
            app.iopub_thread = IOPubThread.__new__(IOPubThread)
        type(app.iopub_thread).__init__(app.iopub_thread, made, pipe=True, session=app.session)
        app.iopub_thread.start()
        app.iopub_socket = app.iopub_thread.background_socket

    def _init_streams(self) -> None:
        app, streams = self.app, self.streams
        if not streams:
            app.init_io()
            app.kernel._stdout, app.kernel._stderr = sys.stdout, sys.stderr
            return
        for stream in streams:
            renew(stream, app.iopub_thread, app.session)
        app.displayhook.session, app.displayhook.pub_socket = app.session, app.iopub_socket

    def _init_kernel(self) -> None:
        """Do as `IPKernelApp.init_kernel`, for a kernel that is there."""
        app, kernel = self.app, self.app.kernel
        control, channel = app.control_thread, app.shell_channel_thread
        shell_stream = ZMQStream(app.shell_socket, channel.io_loop)
        # Before ipykernel 7.4 it is the other one, and a stream for the reason given in `prepare`.
        own = "shell_stream" if hasattr(channel, "shell_stream") else "_shell_socket"
        setattr(channel, own, shell_stream)
        debugpy_stream = ZMQStream(app.debugpy_socket, control.io_loop)
        kernel.control_thread, kernel.shell_channel_thread = control, channel
        kernel.iopub_thread, kernel.iopub_socket = app.iopub_thread, app.iopub_socket
        kernel.stdin_socket = app.stdin_socket
        kernel.shell_stream = shell_stream
        kernel.control_stream = ZMQStream(app.control_socket, control.io_loop)
        kernel.debugpy_stream, kernel.debug_shell_socket = debugpy_stream, app.debug_shell_socket
        kernel._main_asyncio_lock = asyncio.Lock()
        kernel._aborting, kernel._shutdown_message = False, None
        kernel.record_ports(self.ports)
        kernel._process_children = partial(_process_children, kernel)
        _init_debugger(kernel)
        self._hang_up_debugger()
        shell = kernel.shell
        for each in (shell.displayhook, shell.display_pub):
            each.session, each.pub_socket = app.session, app.iopub_socket
        app.displayhook.get_execution_count = lambda: kernel.execution_count
        control.start()
        channel.start()

    def _hang_up_debugger(self) -> None:
        """Leave the debugger's connection with our own shell channel until it is asked for.

        A connection takes 130 kB, which a branch inherits and can never free.
        """
        kernel, shell_socket = self.app.kernel, self.app.debug_shell_socket
        endpoint = self.app.shell_socket.getsockopt(zmq.LAST_ENDPOINT)
        shell_socket.disconnect(endpoint)
        connected = False

        async def debug_request(*request: Any) -> None:
            nonlocal connected
            if not connected:
                connected = True
                shell_socket.connect(endpoint)
            await kernel.debug_request(*request)

        kernel.control_handlers["debug_request"] = debug_request

    def _on_line(self) -> None:
        """Take a message of the controller's, in the control thread."""
        assert self.line is not None
        try:
            message, fds = wire.receive(self.line)
        except (OSError, ValueError):
            return
        wire.close(fds)
        if message is None:
            os.killpg(os.getpgrp(), signal.SIGKILL)  # nobody is there to whom this is of use
            return
        self.app.io_loop.add_callback(self._operate, message)

    def _operate(self, message: dict[str, Any]) -> None:
        operation = self.operations.get(str(message.get("op")))
        if operation is not None:
            self.tell(operation(message))

    def _loops(self) -> list[Any]:
        threads = (self.app.control_thread, self.app.shell_channel_thread)
        return [
            self.app.io_loop,
            self.app.iopub_thread.io_loop,
            *(each.io_loop for each in threads),
        ]

    def _lazily_made(self) -> Iterator[int]:
        """Give the descriptors of sockets that are made when a thread first prints."""
        for each in list(self.app.iopub_thread._event_pipes.values()):
            with contextlib.suppress(zmq.ZMQError):
                yield each.fd

    def _is_ours(self, fd: int) -> bool:
        """Tell whether a socket is one end of a connection with this kernel."""
        # ZeroMQ's own thread may close it at any time.
        with contextlib.suppress(OSError), descriptors.as_socket(fd) as opened:
            names = [opened.getsockname()]
            with contextlib.suppress(OSError):
                names.append(opened.getpeername())
            return any(self._is_our_address(name) for name in names)
        return False

    def _is_our_address(self, name: Any) -> bool:
        if isinstance(name, tuple):
            ports = {getattr(self.app.iopub_thread, "_pipe_port", -1)}
            if self.app.transport == "tcp":
                ports |= set(self.ports.values())
            return name[1] in ports
        paths = {f"{self.app.ip}-{port}" for port in self.ports.values()}
        return isinstance(name, str) and name in paths


_OF_APP = (
    "context",
    "heartbeat",
    "iopub_socket",
    "control_thread",
    "shell_channel_thread",
    "shell_socket",
    "control_socket",
    "stdin_socket",
    "debugpy_socket",
    "debug_shell_socket",
)
_OF_BOTH = (
    "control_thread",
    "shell_channel_thread",
    "iopub_socket",
    "stdin_socket",
    "debug_shell_socket",
)
_OF_KERNEL = ("shell_stream", "control_stream", "debugpy_stream", "debugger")


def open_streams(kernel: Any) -> list[Any]:
    """Give the streams of ipykernel that are open, whatever `sys.stdout` may be by now."""
    found = (kernel._stdout, kernel._stderr)
    return [each for each in found if getattr(each, "pub_thread", None) is not None]


def renew(stream: Any, publisher: Any, session: Any) -> None:
    """Give a stream of ipykernel new insides, and a new thread for what bypasses it.

    Parameters
    ----------
    publisher: an IOPub thread.
    """
    stream.session, stream.pub_thread, stream._io_loop = session, publisher, publisher.io_loop
    stream._master_pid = os.getpid()
    stream._flush_pending = stream._subprocess_flush_pending = False
    stream._buffer_lock, stream._buffers = threading.RLock(), defaultdict(StringIO)
    if stream._should_watch:
        standard = stream._original_stdstream_fd
        os.dup2(standard, stream._original_stdstream_copy, inheritable=False)
        stream._fid, write = os.pipe()
        os.dup2(write, standard)
        os.close(write)
        stream._exc = None
        stream.watch_fd_thread = threading.Thread(target=stream._watch_pipe_fd, daemon=True)
        stream.watch_fd_thread.start()


def end(pid: int) -> None:
    """End a child at once, and wait for it."""
    with contextlib.suppress(OSError):  # a cell has waited for all children
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _open() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own descriptor, which is closed by now
            os.fstat(int(name))
            found.add(int(name))
    return found


def _process_children(kernel: Any) -> list[Any]:
    """Do as the kernel's own method, which reads all of /proc also where there are none."""
    return list(type(kernel)._process_children(kernel)) if has_children() else []


def _init_debugger(kernel: Any) -> None:
    from ipykernel.debugger import _is_debugpy_available

    if _is_debugpy_available:
        kernel.debugger = kernel.debugger_class(
            kernel.log,
            kernel.debugpy_stream,
            kernel._publish_debug_event,
            kernel.debug_shell_socket,
            kernel.session,
            kernel._kernel_modules,
            kernel.debug_just_my_code,
            kernel.filter_internal_frames,
        )


def _unregister(function: Callable[[], object]) -> None:
    import atexit

    atexit.unregister(function)


def _run_exit_functions() -> None:
    import atexit

    atexit._run_exitfuncs()
