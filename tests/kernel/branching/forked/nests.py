"""Nurseries and their kernels, spoken to from our end.

The kernels are spoken to as any client would, over the sockets of their connection file, and
their nurseries in the messages of `wire`.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

from nbrefine.kernel.inside import branching
from nbrefine.kernel.inside.branching import wire

LAUNCH = str(Path(str(branching.__file__)).with_name("launch.py"))
OURS = ["--HistoryManager.enabled=False", "--InteractiveShell.cache_size=0"]

Message = dict[str, Any]


def launch(*words: str, role: str = "keeper", **settings: Any) -> tuple[Message, Any, Any]:
    """Start a nursery; give what it says first, our end of its connection, and the process."""
    here, there = wire.pair()
    here.settimeout(30)
    process = subprocess.Popen(
        [sys.executable, LAUNCH, "--connection", str(there.fileno()), "--role", role, *words],
        pass_fds=[there.fileno()],
        env=settings.pop("env", None) or plain_environment(),
        **settings,
    )
    there.close()
    said, _ = wire.receive(here)
    assert said is not None
    return said, here, process


def plain_environment() -> dict[str, str]:
    """Give the environment without the variable at which ipykernel captures less."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


class Nest:
    """Our end of a nursery."""

    numbers = itertools.count(1)

    def __init__(self, connection: socket.socket, folder: Path, pid: int) -> None:
        self.connection = connection
        self.folder = folder
        self.pid = pid
        self.exits: dict[int, Message] = {}
        connection.settimeout(30)

    def fork(self, role: str = "kernel", **spawn: Any) -> Forked:
        """Fork a kernel, whose sockets are bound when this returns."""
        number = next(self.numbers)
        ports = {f"{name}_port": n for n, name in enumerate(_CHANNELS, 1)}
        connection = {
            "transport": "ipc",
            "ip": str(self.folder / f"k{number}"),
            "key": f"key-{number}",
            "signature_scheme": "hmac-sha256",
            **ports,
        }
        settings = {"connection": connection, "connection_file": "", "arguments": [], **spawn}
        line, theirs = wire.pair()
        line.settimeout(30)
        with Path(os.devnull).open("r+b") as nothing:
            request = {"op": "fork", "id": number, "role": role, "spawn": settings}
            fds = [theirs.fileno(), *[nothing.fileno()] * 2, 2]
            wire.send(self.connection, request, fds)
        theirs.close()
        answer, fds = self.next()
        assert answer.get("forked") == number, answer
        wire.close(fds)
        return Forked(self, answer["pid"], line, settings["connection"])

    def next(self) -> tuple[Message, list[int]]:
        """Give the next message that tells of no exit."""
        while True:
            message, fds = wire.receive(self.connection)
            assert message is not None
            if "exit" not in message:
                return message, fds
            self.exits[message["exit"]["pid"]] = message["exit"]

    def status_of(self, pid: int) -> int:
        """Wait until a process is reaped here, and give its exit status."""
        while pid not in self.exits:
            message, _ = wire.receive(self.connection)
            assert message is not None
            self.exits[message["exit"]["pid"]] = message["exit"]
        return int(self.exits[pid]["status"])

    def close(self) -> None:
        self.connection.close()


class Forked:
    """A kernel, its line, and a client of it."""

    def __init__(self, nest: Nest, pid: int, line: socket.socket, connection: Any) -> None:
        self.nest = nest
        self.pid = pid
        self.line = line
        self.connection = connection
        self._client: BlockingKernelClient | None = None
        self._replies: dict[str, Message] = {}
        self.ready: Message = {}

    def wait(self) -> Forked:
        """Wait until it says that its sockets are bound."""
        message, _ = wire.receive(self.line)
        assert message is not None
        assert "ready" in message, message.get("broken")
        self.ready = message["ready"]
        return self

    @property
    def client(self) -> BlockingKernelClient:
        if self._client is None:
            self._client = BlockingKernelClient()
            self._client.load_connection_info(self.connection)
            self._client.start_channels()
            # ipykernel may miss a subscription, and then sends no welcome; a status is as good.
            # To ask for kernel_info would draw from the session's `random`.
            asked = self._client.comm_info()
            while True:
                message = self._client.get_iopub_msg(timeout=20)
                if message["msg_type"] == "iopub_welcome":
                    break
                if message["parent_header"].get("msg_id") == asked:
                    break
        return self._client

    def ask(self, kind: str, content: Message, channel: str = "shell", **header: Any) -> Message:
        """Send a request and give the content of its reply."""
        message = self.client.session.msg(kind, content)
        message["header"].update(header)
        sender = getattr(self.client, f"{channel}_channel")
        sender.send(message)
        return self.reply_to(message["header"]["msg_id"], channel)

    def run(self, code: str, **settings: Any) -> str:
        """Run a cell; give what was printed, shown and raised, as text."""
        shown: list[str] = []

        def note(message: Message) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                shown.append(content["text"])
            elif message["msg_type"] == "error":
                shown.append(f"{content['ename']}: {content['evalue']}")
            elif "data" in content:
                shown.append(content["data"].get("text/plain", ""))

        self.client.execute_interactive(code, output_hook=note, timeout=30, **settings)
        return "".join(shown)

    def begin(self, code: str, until: Callable[[str, Message], bool]) -> str:
        """Send a cell and wait for one of its messages; give the id of the request."""
        request: str = self.client.execute(code)
        while True:
            message = self.client.get_iopub_msg(timeout=20)
            mine = message["parent_header"].get("msg_id") == request
            if mine and until(message["msg_type"], message["content"]):
                return request

    def reply_to(self, request: str, channel: str = "shell") -> Message:
        """Wait for the reply to a request, whatever else comes first, and give its content."""
        while request not in self._replies:
            reply = getattr(self.client, f"{channel}_channel").get_msg(timeout=20)
            self._replies[reply["parent_header"]["msg_id"]] = reply["content"]
        return self._replies.pop(request)

    def checkpoint(self, **content: Any) -> Nest:
        """Take a checkpoint, and give our end of it."""
        reply = self.ask("checkpoint_request", {"id": "c", **content})
        assert reply["status"] == "ok", reply
        assert wire.receive(self.line) == ({"forking": {"id": "c"}}, [])
        message, fds = wire.receive(self.line)
        assert message is not None
        connection, pidfd = fds
        os.close(pidfd)
        told = message["checkpoint"]
        assert told["id"] == reply["id"] == "c"
        return Nest(socket.socket(fileno=connection), self.nest.folder, told["pid"])

    def branch(self, **spawn: Any) -> Forked:
        """Take a checkpoint and fork a branch; the checkpoint ends with the keeper."""
        return self.checkpoint().fork(**spawn).wait()

    def close(self) -> None:
        """End it, as a controller does that lets go of its line."""
        if self._client is not None:
            self._client.stop_channels()
            self._client.context.destroy(linger=0)
            self._client = None
        self.line.close()


_CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
