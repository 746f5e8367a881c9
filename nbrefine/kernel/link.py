"""One life of a kernel as its controller sees it: reached, asked, listened to, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import platform
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any
from uuid import uuid4

from nbrefine.errors import KernelDeadError, KernelStartError, UsageError
from nbrefine.kernel.messages.attention import Attention
from nbrefine.kernel.messages.channels import Channel, Channels
from nbrefine.kernel.messages.collect import OutputLimits
from nbrefine.kernel.messages.direct import Direct
from nbrefine.kernel.messages.execution import Execution, private_nonce
from nbrefine.kernel.processes.forked import ForkedKernel
from nbrefine.kernel.processes.keeper import Keeper
from nbrefine.kernel.processes.line import tell_to_quit
from nbrefine.kernel.processes.process import KernelProcess, Launch, start_process
from nbrefine.outputs import Death
from nbrefine.values import KernelInfo

_PROBE = 0.5  # seconds between questions to a kernel that comes up
_WELCOME = 0.1  # seconds in which a kernel that is up must have greeted its first subscriber
_LAST_WORDS = 0.25  # seconds from a process's exit in which its last messages are waited for

_NEEDED = {"transport", "ip", "key", "shell_port", "control_port", "iopub_port"}

# A cell with a top-level `await` passes by the code that wants sys.stdout to be there.
_REPAIR = """
[setattr(__import__("sys"), name, getattr(get_ipython().kernel, "_" + name))
 for name in ("stdout", "stderr")
 if not hasattr(getattr(__import__("sys"), name), "flush")]
await __import__("asyncio").sleep(0)
"""

Late = Callable[[str, dict[str, Any]], object]


class Link:
    """Connected channels, the process behind them if it is ours, and who waits for what.

    Parameters
    ----------
    process: the process to link with, started; None for a kernel that somebody else owns.
    connection: what its connection file says.
    on_late: takes kind and content of outputs whose request has ended.
    """

    def __init__(
        self, process: KernelProcess | None, connection: dict[str, Any], on_late: Late
    ) -> None:
        loop = asyncio.get_running_loop()
        self.process = process
        self.info = KernelInfo()
        self.died: asyncio.Future[Death] = loop.create_future()
        self._on_late = on_late
        self._nonce = (process.nonce if process else "") or uuid4().hex
        self._notes: list[str] = []  # for the next result
        self._pending: dict[str, Execution] = {}
        self._requests: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._probes: set[str] = set()
        self._heard = False  # IOPub reaches us
        # The reply to a probe, where it is not known beforehand.
        self._introduction = process.introduction if process else None
        self._introduced_by = ""  # the kernel's session id
        self._progress = asyncio.Event()
        self.died.add_done_callback(lambda _: self._progress.set())
        self._broken = asyncio.Event()  # the kernel's end of IOPub is gone
        self._channels: Channels | Direct
        direct = process.direct if isinstance(process, ForkedKernel) else None
        if direct is not None:
            # From here on its reader alone closes it: one that is closed while the loop reads it
            # leaves the next socket of its number unread.
            own = socket.socket(fileno=direct.detach())
            self._channels = Direct(own, self._deliver)
            self._heard = True
        else:
            self._channels = Channels(connection, self._deliver, reconnect=10 if process else 100)
        self._attention = Attention(self._channels.nudge)
        self._vigil = loop.create_task(self._watch()) if process else None
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, launch: Launch, limit: float, on_late: Late, keeper: Keeper | None = None
    ) -> Link:
        """Start a kernel's process and wait until it answers.

        Parameters
        ----------
        keeper: of an earlier kernel of the session, from which it is started if that is possible.
        """
        process = await start_process(launch, limit, keeper)
        async with _ended_on_error(process):
            link = cls(process, process.connection, on_late)
        try:
            await link._ready(limit, launch.name)
            await link._prepare(limit)
        except BaseException:
            await link.close()
            raise
        return link

    @classmethod
    async def connect(cls, path: Path, limit: float, on_late: Late) -> Link:
        """Connect to a kernel that runs and wait until it answers."""
        link = cls(None, _read_connection(path), on_late)
        try:
            await link._ready(limit, path.name)
        except BaseException:
            await link.close()
            raise
        return link

    @classmethod
    async def join(
        cls, branch: KernelProcess, origin: KernelInfo, limit: float, on_late: Late
    ) -> Link:
        """Connect to a branch that was forked from a kernel known already."""
        async with _ended_on_error(branch):
            link = cls(branch, branch.connection, on_late)
        try:
            await link._ready(limit, origin.name)
        except BaseException:
            await link.close()
            raise
        link.info = replace(origin, pid=branch.pid)
        return link

    async def _ready(self, limit: float, name: str) -> None:
        """Wait until both directions work: a reply on shell, and IOPub subscribed.

        The welcome of IOPub goes to the first subscriber only, so a status that answers our
        own question counts as well; what was asked before the subscription is not heard.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit
        known = self._introduction is not None  # its sockets are there, so they need no probe
        next_probe = loop.time() + (_WELCOME if known else 0)
        while not self._heard or self._introduction is None:
            if self.died.done():
                raise _start_error(name, self.died.result())
            if loop.time() >= deadline:
                why = f", and {self._notes[-1]}" if self._notes else ""
                raise KernelStartError(
                    f"Kernel {name!r} did not answer within {limit:g} s{why}",
                    hint="Give it a longer timeout, or see whether it is busy or stuck",
                )
            if loop.time() >= next_probe:
                self._probes.add(self._ask("kernel_info_request", {}))
                next_probe = loop.time() + _PROBE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(next_probe, deadline)):
                    await self._progress.wait()
            self._progress.clear()
        if self._introduction:
            self.info = _kernel_info(self._introduction, self.process, name)

    async def _prepare(self, limit: float) -> None:
        """Run our own first cell in an IPython kernel that is ours."""
        if self.info.implementation != "ipython" or (self.process and self.process.nonce):
            return  # it is another's, or a forked kernel, which is prepared before it starts
        code = resources.files("nbrefine.kernel.inside").joinpath("prepare.py").read_text()
        source = f"exec({code!r}, {{'NONCE': {self._nonce!r}}})"
        execution = Execution(source, limits=OutputLimits(), redact=str)
        self.execute(execution, store_history=False)
        if not await execution.ended(limit) or execution.death is not None:
            raise KernelStartError(
                "The kernel answered, and then did not run a first cell",
                hint="Run its command by hand to see more",
            )
        if (error := (await execution.result()).error) is not None:
            self._notes.append(f"the kernel could not be prepared: {error}")

    def execute(self, execution: Execution, *, store_history: bool) -> None:
        """Ask the kernel to run a cell."""
        content = {
            "code": execution.source,
            "silent": False,
            "store_history": store_history,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        execution.listen(self._nonce, lambda note: execution.notes.append(str(note)))
        execution.notes += self._notes
        self._notes.clear()
        self._pending = {key: each for key, each in self._pending.items() if not each.done}
        self._pending[self._ask("execute_request", content)] = execution

    def _ask(self, kind: str, content: dict[str, Any]) -> str:
        """Send a request on shell, see to it that it is heard, and give its id."""
        return self._attention.asked(self._channels.send("shell", kind, content))

    async def request(self, kind: str, content: dict[str, Any], limit: float) -> dict[str, Any]:
        """Ask on shell, behind every cell, and give the content of the reply.

        Raises
        ------
        KernelDeadError: the kernel ended instead.
        TimeoutError: nothing came within `limit` seconds.
        """
        reply = asyncio.get_running_loop().create_future()
        message_id = self._ask(kind, content)
        self._requests[message_id] = reply
        try:
            async with asyncio.timeout(limit):
                answer: dict[str, Any] = await reply
        finally:
            self._requests.pop(message_id, None)
            self._attention.heard(message_id)
        return answer

    @property
    def occupied(self) -> bool:
        """Whether a cell has not ended yet."""
        return any(not execution.done for execution in self._pending.values())

    def restore_streams(self) -> Execution:
        """Ask a Python kernel to put the streams it started with back in place."""
        repair = Execution(_REPAIR, limits=OutputLimits(), redact=str)
        self.execute(repair, store_history=False)
        return repair

    def poke(self) -> None:
        """Send a message on shell, which wakes a kernel's idle event loop."""
        self._channels.nudge()

    async def interrupt(self) -> None:
        """Interrupt what the kernel runs, by signal or by message as it wants it."""
        if self.process is None or self.process.interrupts_by_message:
            self._channels.send("control", "interrupt_request", {})
        else:
            await self.process.interrupt()

    async def close(self, *, grace: float = 0.0, leave: bool = False) -> None:
        """Shut an owned kernel down, or let go of another's; nothing is left of the link.

        A caller that is cancelled does not leave it half done, and a second one waits with it.

        Parameters
        ----------
        grace: seconds an owned kernel gets to shut down by itself.
        leave: whether what its cells have started goes on, because a branch takes its place.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(grace, leave))
        await asyncio.shield(self._closing)

    async def part(self) -> None:
        """Let go of a process that lives on without sockets, as the copy of its state."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._part())
        await asyncio.shield(self._closing)

    async def _part(self) -> None:
        assert isinstance(self.process, ForkedKernel)
        if self._vigil is not None:
            self._vigil.cancel()
        await self.process.part()
        await self._channels.close()
        self._end(Death(exit_code=None, stderr="its process has become a copy of its state"))

    async def _close(self, grace: float, leave: bool) -> None:
        try:
            if self.process is not None:
                if grace and not self.died.done():
                    self._ask_to_end(self.process)
                await self.process.close(grace=grace, leave=leave)
                if self._vigil is not None and self.process.exited.done():
                    await self._vigil
        finally:
            if self._vigil is not None:
                self._vigil.cancel()
            await self._channels.close()
        self._end(Death(exit_code=None, stderr="the controller has closed the connection"))

    def _ask_to_end(self, process: KernelProcess) -> None:
        if process.line is not None:
            tell_to_quit(process.line)  # a message would take a thread and an answer more
        else:
            self._channels.send("control", "shutdown_request", {"restart": False})

    async def _watch(self) -> None:
        assert self.process is not None
        death = await asyncio.shield(self.process.exited)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._broken.wait()
        self._end(death)

    def _end(self, death: Death) -> None:
        self._attention.close()
        if not self.died.done():
            self.died.set_result(death)
        while self._pending:
            self._pending.popitem()[1].die(death)
        for reply in self._requests.values():
            if not reply.done():
                reply.set_exception(KernelDeadError(f"There was no answer: {death}"))

    def _deliver(self, channel: Channel, message: dict[str, Any]) -> None:
        if channel == "lost":
            self._broken.set()
            if self.process is None:
                self._end(Death(exit_code=None, stderr="the kernel has closed the connection"))
            return
        if channel == "unreadable":
            self._note(f"a message could not be read: {message['reason']}")
            return
        parent = message["parent_header"]
        request = parent.get("msg_id")
        self._attention.heard(request)
        execution = self._pending.get(request) if request else None
        if execution is not None and execution.done:
            execution = None  # what still comes is late
        ours = parent.get("session") == self._channels.session_id
        for each in self._pending.values():
            each.sequence.count(message, ours=ours and each is execution)
        if channel == "iopub":
            self._on_iopub(message, parent, execution)
        else:
            self._on_reply(message, str(request), execution)

    def _on_reply(self, message: dict[str, Any], request: str, execution: Execution | None) -> None:
        if message["msg_type"] == "execute_reply" and execution is not None:
            execution.on_reply(message)
        elif (reply := self._requests.get(request)) is not None:
            if not reply.done():
                reply.set_result(message["content"])
        elif message["msg_type"] == "kernel_info_reply":
            self._introduction = self._introduction or message["content"]
            self._introduced_by = str(message["header"].get("session", ""))
            self._progress.set()

    def _is_another(self, message: dict[str, Any], state: Any) -> bool:
        """Tell whether a status is that of a kernel in this one's place.

        A kernel that has just come up may answer before it is heard to be starting.
        """
        new = message["header"].get("session") != self._introduced_by
        return bool(state == "restarting" or (state == "starting" and new))

    def _note(self, note: str) -> None:
        """Tell it in the result of the cell that runs, or else in the next one, and once."""
        running = [each.notes for each in self._pending.values() if not each.done]
        for notes in running or [self._notes]:
            if note not in notes:
                notes.append(note)

    def _on_iopub(
        self, message: dict[str, Any], parent: dict[str, Any], execution: Execution | None
    ) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "iopub_welcome" or parent.get("msg_id") in self._probes:
            self._heard = True
            self._progress.set()
        if execution is not None:
            execution.on_iopub(message)
        elif kind == "status":
            state = content.get("execution_state")
            if self.process is None and self._introduction and self._is_another(message, state):
                self._end(Death(exit_code=None, stderr="its owner has restarted it"))
        elif parent.get("session") not in (self._channels.session_id, None):
            pass  # another client's
        elif kind != "clear_output" and not private_nonce(kind, content):
            self._on_late(kind, content)


@contextlib.asynccontextmanager
async def _ended_on_error(process: KernelProcess) -> AsyncIterator[None]:
    """End a process that no link could be made to, for want of descriptors for one."""
    try:
        yield
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(process.close()))
        raise


def _read_connection(path: Path) -> dict[str, Any]:
    try:
        connection: dict[str, Any] = json.loads(path.read_text())
        missing = _NEEDED - connection.keys()
    except FileNotFoundError:
        raise UsageError(
            f"There is no connection file {str(path)!r}",
            hint="`jupyter --runtime-dir` shows where running kernels keep theirs",
        ) from None
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{str(path)!r} cannot be read as a connection file: {error}",
            hint="Give the JSON file the kernel was started with",
        ) from error
    if missing:
        raise UsageError(
            f"{str(path)!r} is no connection file: it has no {', '.join(sorted(missing))}",
            hint="Give the JSON file the kernel was started with",
        )
    return connection


def _start_error(name: str, death: Death) -> KernelStartError:
    said = f"It wrote last:\n{death.stderr}" if death.stderr else ""
    return KernelStartError(
        f"Kernel {name!r} ended before it answered: {death}",
        hint=said or "It wrote nothing; run its command by hand to see more",
    )


def _kernel_info(reply: dict[str, Any], process: KernelProcess | None, name: str) -> KernelInfo:
    language = reply.get("language_info") or {}
    return KernelInfo(
        name=name if process else "",
        display_name=process.display_name if process else "",
        language=str(language.get("name", "")),
        language_version=str(language.get("version", "")),
        implementation=str(reply.get("implementation", "")),
        implementation_version=str(reply.get("implementation_version", "")),
        protocol_version=str(reply.get("protocol_version", "")),
        file_extension=str(language.get("file_extension", "")),
        mimetype=str(language.get("mimetype", "")),
        pid=process.pid if process else None,
        owned=process is not None,
        platform=platform.platform() if process else "",
    )
