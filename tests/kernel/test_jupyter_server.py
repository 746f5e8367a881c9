"""A forked kernel under a real Jupyter server, over its REST and WebSocket interfaces."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from tornado.websocket import WebSocketClientConnection, websocket_connect

ARGV = (sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")
TOKEN = "of-this-test-only"
LIMIT = 60.0  # seconds for each answer


class Server:
    """A Jupyter server of the test's own."""

    def __init__(self, folder: Path) -> None:
        environment = {
            **os.environ,
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        }
        words = [
            *(sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"),
            *("--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", f"--ServerApp.root_dir={folder}"),
            f"--IdentityProvider.token={TOKEN}",
        ]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(words, env=environment, cwd=folder, stderr=log)
        self.address = self._wait_for_address()

    def _wait_for_address(self) -> str:
        """Wait until the server listens at the address it tells."""
        deadline = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < deadline:
            if found := re.search(r"http://(127\.0\.0\.1:[1-9]\d*)/", self.log.read_text()):
                host, port = found[1].split(":")
                with contextlib.suppress(OSError):
                    socket.create_connection((host, int(port))).close()
                    return found[1]
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"http://{self.address}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"token {TOKEN}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=LIMIT) as reply:
            text = reply.read()
        return json.loads(text) if text else None

    def end(self) -> None:
        with self.process:
            self.process.terminate()


@pytest.fixture
def server(tmp_path: Path, kernelspec: Callable[..., str]) -> Iterator[Server]:
    provisioner = {"provisioner_name": "nbrefine-fork", "config": {"preload": []}}
    kernelspec("fast", *ARGV, metadata={"kernel_provisioner": provisioner})
    started = Server(tmp_path)
    yield started
    started.end()


class Channels:
    """A kernel's messages over the server's web socket."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.socket = connection

    @classmethod
    async def connect(cls, server: Server, kernel: str) -> Channels:
        address = f"ws://{server.address}/api/kernels/{kernel}/channels?token={TOKEN}"
        return cls(await websocket_connect(address))

    async def close(self) -> None:
        self.socket.close()
        while await self.socket.read_message() is not None:
            pass

    async def send(self, source: str) -> str:
        message = uuid4().hex
        header = {
            "msg_id": message,
            "msg_type": "execute_request",
            "session": "s",
            "username": "",
            "version": "5.4",
            "date": "2026-01-01T00:00:00Z",
        }
        content = {"code": source, "silent": False, "allow_stdin": False}
        whole = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}}
        await self.socket.write_message(json.dumps({**whole, "content": content}))
        return message

    async def until(self, kind: str, message: str) -> dict[str, Any]:
        """Wait for a message of that kind that answers a request."""
        async with asyncio.timeout(LIMIT):
            while (text := await self.socket.read_message()) is not None:
                told = json.loads(text)
                if told["parent_header"].get("msg_id") == message and told["msg_type"] == kind:
                    content: dict[str, Any] = told["content"]
                    return content
        raise AssertionError("the server has closed the connection")

    async def run(self, source: str) -> str:
        return str((await self.until("stream", await self.send(source)))["text"])

    async def run_as_soon_as_possible(self, source: str) -> str:
        """Ask again until there is an answer: a request is lost while a server reconnects."""
        async with asyncio.timeout(LIMIT):
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2):
                        return await self.run(source)


def test_a_server_starts_runs_interrupts_restarts_and_deletes_a_forked_kernel(
    server: Server, is_running: Callable[[int], bool], until: Callable[..., None]
) -> None:
    pids = "import os; print(os.getpid(), open(f'/proc/{os.getppid()}/comm').read().strip())"

    async def use() -> list[int]:
        kernel = server.ask("POST", "kernels", {"name": "fast"})["id"]
        channels = await Channels.connect(server, kernel)
        first, parent = (await channels.run(pids)).split()
        assert parent == "nb-keeper"
        await channels.until("execute_reply", await channels.send("x = 1"))

        sleeping = await channels.send("import time; print('in it', flush=True); time.sleep(60)")
        await channels.until("stream", sleeping)
        server.ask("POST", f"kernels/{kernel}/interrupt")
        reply = await channels.until("execute_reply", sleeping)
        assert reply["ename"] == "KeyboardInterrupt"

        await asyncio.to_thread(server.ask, "POST", f"kernels/{kernel}/restart")
        await channels.close()
        channels = await Channels.connect(server, kernel)
        second, parent = (await channels.run(pids)).split()
        assert parent == "nb-keeper"
        assert second != first
        assert await channels.run("print('x' in globals())") == "False\n"

        (listed,) = server.ask("GET", "kernels")
        assert listed["id"] == kernel
        server.ask("DELETE", f"kernels/{kernel}")
        assert server.ask("GET", "kernels") == []
        await channels.close()
        return [int(first), int(second)]

    kernels = asyncio.run(use())
    until(lambda: not any(map(is_running, kernels)))
    # Only the template stays, for the next kernel.
    below = psutil.Process(server.process.pid).children(recursive=True)
    assert [each.name() for each in below] == ["nb-template"]
    server.end()
    until(lambda: not is_running(below[0].pid))


def test_a_server_starts_a_kernel_that_died_again(
    server: Server, until: Callable[..., None]
) -> None:
    async def use() -> None:
        kernel = server.ask("POST", "kernels", {"name": "fast"})["id"]
        channels = await Channels.connect(server, kernel)
        first = await channels.run("import os; print(os.getpid())")
        os.kill(int(first), 9)
        seen = ""
        while not seen:
            async with asyncio.timeout(LIMIT):
                text = await channels.socket.read_message()
            told = json.loads(text or "{}")
            seen = "restarting" if told["content"].get("execution_state") == "restarting" else ""
        second = await channels.run_as_soon_as_possible("import os; print(os.getpid())")
        assert second != first
        server.ask("DELETE", f"kernels/{kernel}")
        await channels.close()

    asyncio.run(use())
