"""A real HTTP server on loopback that plays a script of answers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from nbrefine.models.openai import OpenAIModel

Script = Callable[["Exchange"], None]
Make = Callable[..., OpenAIModel]


@dataclass(frozen=True)
class Request:
    """What the client sent."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Exchange(BaseHTTPRequestHandler):
    """One request, and the means to answer it well or badly."""

    protocol_version = "HTTP/1.1"
    server: LoopbackServer

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        body = json.loads(self.rfile.read(size))
        self.server.requests.append(
            Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        )
        self.server.script.pop(0)(self)

    def do_GET(self) -> None:
        if self.server.listing is not None:
            self.server.listing(self)
            return
        names = self.server.models
        self.json({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

    def json(self, body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.bytes(json.dumps(body).encode(), "application/json", status, headers)

    def bytes(
        self, body: bytes, kind: str, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def start_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, event: Any) -> None:
        data = event if isinstance(event, str) else json.dumps(event)
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def say(self, text: str) -> None:
        self.event(chunk({"content": text}))

    def end(self, reason: str = "stop", usage: dict[str, Any] | None = None) -> None:
        self.event(chunk({}, finish=reason))
        if usage is not None:
            self.event({"id": "c", "model": "served", "choices": [], "usage": usage})
        self.event("[DONE]")

    def client_hung_up(self, limit: float) -> bool:
        """Wait until the other side has closed its socket."""
        self.connection.settimeout(limit)
        try:
            return not self.connection.recv(1)
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def log_message(self, format: str, *args: object) -> None:
        pass


def chunk(delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
    """One event of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "model": "served", "object": "chat.completion.chunk", "choices": [choice]}


class LoopbackServer(ThreadingHTTPServer):
    """Plays `script`, one entry a request, and keeps the `requests`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.script: list[Script] = []
        self.requests: list[Request] = []
        self.key = "sk-test-0123456789abcdefghij"
        self.models = ["served", "other"]
        self.listing: Script | None = None
        """Answers a question for the models, in place of `models`."""
        self._open = 0
        self._changed = threading.Condition()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self._count(1)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._changed:
            self._open += change
            self._changed.notify_all()

    def all_closed(self, limit: float = 30.0) -> bool:
        """Wait until no connection is open."""
        with self._changed:
            return self._changed.wait_for(lambda: self._open == 0, limit)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @staticmethod
    def reply(*pieces: str, finish: str = "stop", usage: dict[str, Any] | None = None) -> Script:
        """Answer with a whole streamed reply."""

        def play(exchange: Exchange) -> None:
            exchange.start_stream()
            for piece in pieces:
                exchange.say(piece)
            exchange.end(finish, usage)

        return play

    @staticmethod
    def error(status: int, message: str = "no", *, code: str = "", **headers: str) -> Script:
        """Answer with an error; a header's name is written with underscores."""
        body = {"error": {"message": message, "code": code or None}}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return lambda exchange: exchange.json(body, status=status, headers=named)

    @staticmethod
    def events(*events: Any) -> Script:
        """Answer with these events of a stream and end the connection."""

        def play(exchange: Exchange) -> None:
            exchange.start_stream()
            for event in events:
                exchange.event(event)

        return play

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up mid-reply is what some tests are about."""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def make(server: LoopbackServer) -> Iterator[Make]:
    """Makes models on the server, and closes them."""
    made: list[OpenAIModel] = []

    def build(model: str = "served", **options: Any) -> OpenAIModel:
        options = {"base_url": server.url, "api_key": server.key, "backoff": 0.01, **options}
        made.append(OpenAIModel(model, **options))
        return made[-1]

    yield build
    for model in made:
        asyncio.run(model.aclose())


@pytest.fixture
def closed_port() -> int:
    """A port of loopback at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "NBREFINE_MODEL"):
        monkeypatch.delenv(name, raising=False)
