"""Real mounts in real processes: as whoever runs the tests and, where that is root, as nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nbrefine.kernel.inside.branching import overlay
from nbrefine.kernel.workspace.overlays import Layer, Workspace

ROOT = os.geteuid() == 0
NOBODY = 65534
USERS = [None, NOBODY] if ROOT else [None]

# A process that runs what it is told and forks on request, as a kernel and its checkpoint do.
DRIVER = """
import json, os, signal, socket, sys, types
line = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
names = {}
while True:
    data, fds, _, _ = socket.recv_fds(line, 1 << 20, 1)
    if not data:
        os._exit(0)
    request = json.loads(data)
    if fds:
        child = os.fork()
        if child == 0:
            line.close()
            line = socket.socket(fileno=fds[0])
            continue
        os.close(fds[0])
        reply = {"result": child}
    else:
        names.update(request["values"], result=None)
        try:
            exec(request["code"], names)
            reply = {"result": names["result"]}
        except BaseException as error:
            reply = {"error": repr(error)}
    line.send(json.dumps(reply).encode())
"""

BOOT = """
import os, sys, types
overlay = types.ModuleType("overlay")
exec(source, overlay.__dict__)
"""


class Process:
    """The test's end of a process that runs `DRIVER`."""

    def __init__(self, line: socket.socket, pid: int) -> None:
        self.line, self.pid = line, pid

    def run(self, code: str, **values: Any) -> Any:
        self.line.send(json.dumps({"code": code, "values": values}).encode())
        reply = json.loads(self.line.recv(1 << 20))
        if "error" in reply:
            raise AssertionError(reply["error"])
        return reply["result"]

    def fork(self) -> Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(self.line, [b"{}"], [theirs.fileno()])
        ours.settimeout(60)
        return Process(ours, json.loads(self.line.recv(1 << 20))["result"])

    def enter(self, layer: Layer) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.run(
            "result = overlay.enter(settings)", settings=layer.settings
        )
        return found

    def close(self) -> None:
        self.line.close()


class Session:
    """A working folder, a private folder, and the first process of a line, of one user."""

    def __init__(self, user: int | None, name: str | bytes = "work", private: str = "/tmp") -> None:
        self.user = user
        self.place = Path(tempfile.mkdtemp(prefix="overlay-test-", dir="/tmp"))
        self.private = Path(tempfile.mkdtemp(prefix="overlay-private-", dir=private))
        self.folder = self.place / os.fsdecode(name)
        self.processes: list[Process] = []
        for path in (self.place, self.private):
            os.chown(path, user or -1, user or -1)
        with self.acting():
            self.folder.mkdir()
            self.workspace = Workspace(self.folder, self.private, mode="report")

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Do in this process what the user's controller would do."""
        if self.user is None:
            yield
            return
        os.setegid(self.user)
        os.seteuid(self.user)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)

    def start(self) -> Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(60)
        who: dict[str, Any] = {}
        if self.user is not None:
            who = {"user": self.user, "group": self.user, "extra_groups": []}
        with theirs:
            child = subprocess.Popen(
                [interpreter(self.user), "-I", "-S", "-c", DRIVER, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=self.folder,
                **who,
            )
        process = self.keep(Process(ours, child.pid))
        self.child = child
        process.run(BOOT, source=Path(overlay.__file__).read_text(encoding="utf-8"))
        return process

    def keep(self, process: Process) -> Process:
        self.processes.append(process)
        return process

    def branch(self, of: Process, below: Layer | None = None) -> tuple[Process, Layer]:
        with self.acting():
            layer = self.workspace.layer(below)
        process = self.keep(of.fork())
        assert process.enter(layer) == []
        return process, layer

    def changes(self, layer: Layer) -> str:
        with self.acting():
            return layer.changes().describe()

    def adopt(self, process: Process, layer: Layer) -> str:
        """Commit and leave; gives what was told."""

        async def leave(settings: dict[str, Any]) -> list[dict[str, str]]:
            found: list[dict[str, str]] = process.run(
                "result = overlay.leave(settings)", settings=settings
            )
            return found

        with self.acting():
            return asyncio.run(layer.adopt(leave)).describe()

    def end(self) -> None:
        for process in self.processes:
            process.close()
        if hasattr(self, "child"):
            self.child.wait(20)
        for path in (self.private, self.place):
            overlay.remove(str(path))


def interpreter(user: int | None) -> str:
    """Give a Python that the user may run: root's own may lie where nobody else may look."""
    if user is None:
        return sys.executable
    for candidate in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            check = "import sys; sys.exit(sys.version_info < (3, 10))"
            subprocess.run([candidate, "-I", "-c", check], check=True, user=user, cwd="/")
            return candidate
    text = "no Python that nobody may run"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def tree(folder: Path, *, times: bool = True) -> dict[str, Any]:
    """Take a folder's content by other means than the code under test."""
    found: dict[str, Any] = {}
    for path, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            inner = Path(path, name)
            facts = inner.lstat()
            content: Any = None
            if stat.S_ISLNK(facts.st_mode):
                content = str(inner.readlink())
            elif stat.S_ISREG(facts.st_mode):
                content = inner.read_bytes().decode("latin-1")
            key = os.fsdecode(os.fsencode(inner.relative_to(folder)))
            found[key] = [facts.st_mode, content, facts.st_mtime_ns if times else 0]
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
