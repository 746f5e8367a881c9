"""Run a kernel, and fork it at a cell boundary: from kernel to checkpoint to branch."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import fcntl
import gc
import importlib.util
import multiprocessing.process
import os
import posix
import random
import signal
import socket
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from . import direct, hazards, overlay, wire
from .app import configure, start_up
from .carry import Carried, resume_exit_work
from .nursery import Nursery, Order, has_children
from .plumbing import Plumbing, end

_BROKEN = 70  # exit code of a kernel that could not be attached, as sysexits.h has it
_LATE = [
    {"kind": "busy", "verdict": "refuse", "detail": "a cell ran for longer than the copy may wait"}
]


def _beside(name: str) -> Any:
    """Import a module of the folder above, which is sent as a cell to kernels we do not fork."""
    path = Path(__file__).parents[1] / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{__package__}.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_prepare = _beside("prepare")


@dataclass
class _Request:
    content: dict[str, Any]
    reply: asyncio.Future[dict[str, Any]]
    context: contextvars.Context
    """What the cells have set in context variables, `decimal`'s precision for one."""


class Server:
    """Serves one kernel, in the process it is built in and in all that are forked from it."""

    def __init__(self, app: Any) -> None:
        self._requests: list[_Request] = []
        self._lost: list[hazards.Hazard] = []
        self._take(app)

    def _take(self, app: Any) -> None:
        self.app = app
        self.plumbing = Plumbing(app)
        self.plumbing.operations["adopted"] = self._adopted
        self.plumbing.operations["leave_overlay"] = _leave_overlay
        self.plumbing.operations["quit"] = self._quit
        app.kernel.shell_handlers["checkpoint_request"] = self._checkpoint_request
        app.kernel.pre_handler_hook = partial(_before_handler, app.kernel)

    def begin(self, order: Order, *, fresh: bool) -> None:
        """Make this forked process the kernel that was ordered, or end it.

        Parameters
        ----------
        fresh: the namespace is empty, and the kernel's own arguments are still to be applied.
        """
        try:
            self._begin(order, fresh=fresh)
        except BaseException as error:  # noqa: BLE001 - the controller must hear of it
            told = {
                "broken": traceback.format_exc()[-100_000:],
                "unsuitable": isinstance(error, (AttributeError, ImportError, TypeError)),
            }
            with contextlib.suppress(OSError):  # it has given this process up
                wire.send(order.line, told)
            os._exit(_BROKEN)

    def serve(self) -> NoReturn:
        """Handle messages until the kernel is shut down, and end the process."""
        while True:
            try:
                self.app.io_loop.start()
            except KeyboardInterrupt:  # it came too late for the cell it was meant for
                if not self._requests and not self.app.shell.exit_now:
                    continue
            requests, self._requests = self._requests, []
            if not requests:
                break
            # Here no task and no loop is running.
            for request in requests:
                reply = self._answer(request)
                if reply is None:
                    break  # this is a branch; the requests are its parent's
                if not request.reply.done():
                    request.reply.set_result(reply)
            else:
                if self.app.shell.exit_now:
                    break
        self.plumbing.leave()

    def _answer(self, request: _Request) -> dict[str, Any] | None:
        if _is_late(request.content):
            return {"status": "refused", "id": request.content.get("id"), "hazards": _LATE}
        if request.content.get("rest"):
            return self.rest(request)
        return self.checkpoint(request.content, request.context)

    def checkpoint(
        self, content: dict[str, Any], context: contextvars.Context
    ) -> dict[str, Any] | None:
        """Fork a dormant copy of this process, and give the reply; None in a branch of it.

        It must be called at the top of the stack, with no loop running.  Just before the fork the
        controller is told, as what says no more after that hangs for ever.
        """
        identity = content.get("id")
        if self.plumbing.line is None:
            return _error(ConnectionError("No controller holds this kernel's line"))
        with contextlib.ExitStack() as undo:
            try:
                found = hazards.scan(self.app)
                if any(each["verdict"] == "refuse" for each in found) and not content.get("force"):
                    return {"status": "refused", "id": identity, "hazards": found}
                theirs, ours = (undo.enter_context(each) for each in wire.pair())
                self.plumbing.flush()
                own = self.plumbing.descriptors()
                carried = Carried(own | {theirs.fileno(), ours.fileno()})
                self.plumbing.tell({"forking": {"id": identity}})
                pid = _fork()
            except Exception as error:  # noqa: BLE001 - the kernel goes on
                return _error(error)
            if pid:
                return self._watched(pid, theirs, {"id": identity, "pid": pid, "hazards": found})
            undo.pop_all()
        theirs.close()
        self._lost = [each for each in found if each["verdict"] == "lost"]
        # Cells of the branch will run in a copy of the context in which its sockets are bound.
        context.run(self.sleep, Nursery(ours, "checkpoint"), own, carried)
        return None

    def rest(self, request: _Request) -> dict[str, Any] | None:
        """Become dormant, and give None in a branch; give a refusal where something would be lost.

        A fork takes along, for ever, what the sockets and threads of its parent have in memory.
        A session that is adopted again and again would grow by it; a process that rests first
        does not pass it on.
        """
        identity = request.content.get("id")
        with contextlib.ExitStack() as undo:
            try:
                found = hazards.scan(self.app)
                lost = [each for each in found if each["verdict"] in ("refuse", "lost", "repaired")]
                if lost or has_children() or self.plumbing.line is None:
                    return {"status": "refused", "id": identity, "hazards": found}
                theirs, ours = (undo.enter_context(each) for each in wire.pair())
                own = self.plumbing.descriptors()
                carried = Carried(own | {theirs.fileno(), ours.fileno()})
                told = {"id": identity, "pid": os.getpid(), "hazards": found}
                wire.send(self.plumbing.line, {"resting": told}, (theirs.fileno(),))
            except Exception as error:  # noqa: BLE001 - the kernel goes on
                return _error(error)
            undo.pop_all()
        theirs.close()
        request.reply.set_result({})
        self._requests.clear()
        self.plumbing.close()
        self.plumbing.detach(own)
        # Without what a fork froze, which may be large.
        gc.collect() if gc.get_freeze_count() else gc.collect(1)
        request.context.run(self._sleep, Nursery(ours, "checkpoint"), carried)
        return None

    def _begin(self, order: Order, *, fresh: bool) -> None:
        spawn = order.spawn
        shared = overlay.enter(spawn["overlay"]) if spawn.get("overlay") else []
        surround(spawn)
        _house_multiprocessing()
        if fresh:
            arguments = spawn.get("arguments") or ()
            self._take(configure(self.app, arguments))
            sys.argv[1:] = ["-f", str(spawn.get("connection_file") or ""), *arguments]
        if spawn.get("reseed"):
            _reseed()
        nonce = str(spawn.get("nonce") or "")

        def before_start() -> None:
            if nonce:
                _prepare.prepare(self.app.shell, nonce, str(spawn.get("crash") or ""))
                # A pause after each cell, for clients that take a reply for the end of output.
                self.app.kernel._execute_sleep = 0
            if fresh:
                start_up(self.app)

        if spawn.get("direct"):
            direct.attach(self.app, _from_stdin(), before_start)
        else:
            self.plumbing.attach(
                spawn["connection"],
                str(spawn.get("connection_file") or ""),
                order.line,
                unlimited=bool(nonce),
                before_start=before_start,
            )
        ready = {
            "pid": os.getpid(),
            "ports": self.plumbing.ports,
            "shared": shared,
            "introduction": self.app.kernel.kernel_info if fresh and nonce else {},
        }
        wire.send(order.line, {"ready": ready})

    async def _checkpoint_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        request = _Request(parent["content"], loop.create_future(), context)
        self._requests.append(request)
        self.app.io_loop.stop()
        reply = await request.reply
        if not reply:  # it has been told over the line
            return
        self.app.session.send(stream, "checkpoint_reply", reply, parent, ident)

    def sleep(self, nursery: Nursery, own: set[int], carried: Carried) -> None:
        """Be a checkpoint, in a forked child, until this process is a branch of it."""
        try:
            os.setpgid(0, 0)  # or a signal to the kernel's group would reach its checkpoints
            self._requests.clear()
            self.plumbing.abandon(own)
        except BaseException:  # noqa: BLE001 - it must never return into the parent's stack
            os._exit(_BROKEN)
        self._sleep(nursery, carried)

    def _sleep(self, nursery: Nursery, carried: Carried) -> None:
        try:
            gc.freeze()
            carried.restore()
            order = nursery.run()
            carried.separate()
        except BaseException:  # noqa: BLE001 - as above
            os._exit(_BROKEN)
        self.begin(order, fresh=False)

    def _watched(self, pid: int, connection: socket.socket, told: dict[str, Any]) -> dict[str, Any]:
        """Pass a checkpoint on to the controller, have it reaped when it ends, and give the reply.

        A checkpoint with which that fails is ended.
        """
        # Here, too, as a signal to our group may come before the child gets to run.
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        try:
            assert self.plumbing.line is not None  # it was there before the fork
            pidfd = self.plumbing.reap_later(pid)
            wire.send(self.plumbing.line, {"checkpoint": told}, (connection.fileno(), pidfd))
        except Exception as error:  # noqa: BLE001 - the kernel goes on
            end(pid)
            return _error(error)
        return {"status": "ok", "id": told["id"], "hazards": told["hazards"]}

    def _quit(self, message: dict[str, Any]) -> dict[str, Any]:
        """End in order, as after a `shutdown_request`; the loop is not entered again."""
        self.app.shell.exit_now = True
        self.app.io_loop.stop()
        return {"quitting": os.getpid()}

    def _adopted(self, message: dict[str, Any]) -> dict[str, Any]:
        gc.unfreeze()
        resume_exit_work()
        lost = {
            kind: [each["detail"] for each in self._lost if each["kind"] == hazard]
            for kind, hazard in (("lost_threads", "thread"), ("lost_tasks", "asyncio-task"))
        }
        return {"adopted": lost}


def _before_handler(kernel: Any) -> None:
    """Do as the kernel's own hook, but let no interrupt end the handler that copies the kernel."""
    if kernel.get_parent("shell")["header"]["msg_type"] == "checkpoint_request":
        kernel.saved_sigint_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    else:
        type(kernel).pre_handler_hook(kernel)


def _is_late(content: dict[str, Any]) -> bool:
    """Tell whether nobody waits for the reply any more, by this host's clock."""
    deadline = content.get("deadline")
    return deadline is not None and time.time() > float(deadline)


def _error(error: Exception) -> dict[str, Any]:
    name, text = type(error).__name__, str(error)
    return {"status": "error", "ename": name, "evalue": text or name, "traceback": []}


def _fork() -> int:
    with warnings.catch_warnings():
        # From Python 3.12 on it warns of threads, which are the reason for all that is done here.
        warnings.simplefilter("ignore", DeprecationWarning)
        return posix.fork()  # a debugger takes the child of `os.fork` for one more to attach to


def surround(spawn: dict[str, Any]) -> None:
    """Give this process its environment variables and working folder."""
    environ, zone = spawn.get("environ"), os.environ.get("TZ")
    wanted: dict[str, str | None] = {}
    if environ is not None:  # mostly what is there already, which writes no memory
        wanted = {**dict.fromkeys(os.environ), **environ}
    wanted.update(spawn.get("variables") or {})
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        elif os.environ.get(name) != value:
            os.environ[name] = value
    if os.environ.get("TZ") != zone:
        time.tzset()
    if spawn.get("cwd"):
        os.chdir(spawn["cwd"])


def _from_stdin() -> int:
    """Take the socket that stands where standard input will be, and put nothing there."""
    taken = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    return taken


def _house_multiprocessing() -> None:
    """Have `multiprocessing` put its sockets into the session's folder.

    Otherwise it makes a folder that it removes when its process exits, and a branch is killed.
    """
    process: Any = multiprocessing.process.current_process()
    configuration = process._config
    session = os.path.dirname(os.environ.get("NBREFINE_KERNEL", ""))
    if session and "tempdir" not in configuration:
        folder = os.path.join(session, "mp")
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        configuration["tempdir"] = folder


def _leave_overlay(message: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"left_overlay": {"hazards": overlay.leave(message["overlay"])}}
    except (OSError, KeyError) as error:
        return {"left_overlay": {"failed": f"{type(error).__name__}: {error}"}}


def _reseed() -> None:
    random.seed()
    numpy: Any = sys.modules.get("numpy.random")  # as an attribute of numpy it would be imported
    if numpy is not None:
        numpy.seed()
