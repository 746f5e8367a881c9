"""Processes that scan and fork themselves as a kernel does, kernels to branch, and overlays."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbrefine.kernel import Kernel
from nbrefine.kernel.inside import branching
from tests.kernel.branching.layered import USERS, Session

# Loaded by path and by this name, as in a kernel; `app` has of an `IPKernelApp` what is looked at.
_PRELUDE = '''
import asyncio, importlib.util, json, os, sys, time, traceback, types

def load(folder):
    name = "_nbrefine_branching"
    spec = importlib.util.spec_from_file_location(
        name, folder + "/__init__.py", submodule_search_locations=[folder]
    )
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])

load(sys.argv[1])
from _nbrefine_branching import carry, descriptors, hazards, libraries, memory

told = []
loop = asyncio.new_event_loop()
app = types.SimpleNamespace(
    io_loop=types.SimpleNamespace(asyncio_loop=loop),
    shell=types.SimpleNamespace(history_manager=None),
    kernel=types.SimpleNamespace(debugger=None),
    iopub_thread=None,
    transport="ipc",
    ip="/nowhere/kernel",
)
foreign = set(descriptors.table())  # what the tests have given this process

def scan():
    return hazards.scan(app)

def in_branch(function):
    """Give what a function returns in the second of two branches of a checkpoint."""
    read, write = os.pipe()
    carried = carry.Carried(foreign | {read, write})
    pid = os.fork()
    if pid == 0:
        try:
            carried.restore()
            for number in range(2):
                if os.fork() == 0:
                    carried.separate()
                    value = function()
                    if number == 1:
                        os.write(write, json.dumps({"value": value}).encode())
                    os._exit(0)
                if os.wait()[1] != 0:
                    raise RuntimeError("A branch has failed")
        except BaseException:
            os.write(write, json.dumps({"error": traceback.format_exc()}).encode() + b"\\n")
        os._exit(1)
    os.close(write)
    with open(read) as file:
        told = json.loads(file.readline())
    os.waitpid(pid, 0)
    assert "error" not in told, told["error"]
    return told["value"]
'''


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., list[Any]]:
    """Run code in a process of its own, and give what it put into `told`."""

    def run(code: str, **environment: str) -> list[Any]:
        script = tmp_path / "script.py"
        script.write_text(
            f"{_PRELUDE}\n{textwrap.dedent(code)}\nsys.stdout.write(json.dumps(told))\n"
            "sys.stdout.flush()\nos._exit(0)\n"
        )
        folder = str(Path(str(branching.__file__)).parent)
        done = subprocess.run(
            [sys.executable, str(script), folder],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told: list[Any] = json.loads(done.stdout)
        return told

    return run


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # so that a connection is kept open

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    """Serve "ok" at the address that is given."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def shared() -> Iterator[Kernel]:
    """One kernel for a file's tests, each of which leaves it without hazards."""
    with Kernel.start(env={"OPENBLAS_NUM_THREADS": "2"}) as started:
        yield started


@pytest.fixture
def value() -> Callable[..., str]:
    """Run a cell that must succeed, and give what it showed."""

    def run(kernel: Kernel, code: str, seconds: float = 30.0) -> str:
        result = kernel.run(textwrap.dedent(code), timeout=seconds).result()
        assert result.ok, result
        return result.text.strip()

    return run


@pytest.fixture(params=USERS, ids=lambda user: "nobody" if user else "oneself")
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    made = Session(request.param)
    yield made
    made.end()
