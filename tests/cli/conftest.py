"""A server on loopback that refuses what it is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class _Refusal(BaseHTTPRequestHandler):
    server: _Refusing

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.server.status == 401:
            self.do_POST()
        else:
            self._answer(200, {"object": "list", "data": [{"id": "served", "object": "model"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"] or 0))
        self._answer(self.server.status, {"error": {"message": "not you"}})

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Refusing(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Refusal)
        self.status = status


@pytest.fixture
def refusing() -> Iterator[Callable[[int], str]]:
    """Start a server that answers every call with this status, and give its base URL."""
    with ExitStack() as stack:

        def start(status: int) -> str:
            server = stack.enter_context(_Refusing(status))
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}/v1"

        yield start
