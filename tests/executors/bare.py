"""Checks in bare forked pairs of processes, without a nursery and without what holds code back.

Run as a program, this forks both processes of each job that it reads as a line of JSON, does for
them what the controller does, and writes what came of it as a line.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Self

ROOT = Path(__file__).parents[2] / "nbrefine"


@dataclass
class Told:
    """What the tester said of one check."""

    messages: list[dict[str, Any]]
    printed: str
    """What the code wrote to stdout and stderr."""
    ended: dict[str, int] = field(default_factory=dict)
    """How each process ended, as `os.waitstatus_to_exitcode` has it."""

    @property
    def code(self) -> dict[str, Any]:
        return next(message["code"] for message in self.messages if "code" in message)

    @property
    def cases(self) -> list[dict[str, Any]]:
        return [message for message in self.messages if "case" in message]

    @property
    def statuses(self) -> list[str]:
        return [case["status"] for case in self.cases]

    @property
    def messages_of_cases(self) -> list[str]:
        return [case["message"] for case in self.cases]


class Bare:
    """The program, as a context."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def check(
        self,
        code: str,
        tests: str,
        *,
        entry_point: str = "",
        setup: str = "",
        test_timeout: float = 20.0,
        code_timeout: float = 20.0,
    ) -> Told:
        """Run one check."""
        job = {
            "setup": setup,
            "code": code,
            "tests": tests,
            "entry_point": entry_point,
            "test_timeout": test_timeout,
            "code_timeout": code_timeout,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()
        return Told(**json.loads(self._process.stdout.readline()))


def main() -> None:
    checks, inside = "_nbrefine_checks", "_nbrefine_inside"
    load(checks, ROOT / "executors" / "inside")
    load(inside, ROOT / "kernel" / "inside")
    tester = importlib.import_module(f"{checks}.tester")
    candidate = importlib.import_module(f"{checks}.candidate")
    frames = importlib.import_module(f"{checks}.frames")
    for name in {*tester.PRELOAD, *candidate.PRELOAD}:
        importlib.import_module(name)
    for line in sys.stdin:
        told = check(json.loads(line), tester, candidate, frames)
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


def check(job: dict[str, Any], tester: Any, candidate: Any, frames: Any) -> dict[str, Any]:
    """Fork both processes, and do what the controller does until the tests are done."""
    calls, far_calls = socket.socketpair()
    report, far_report = socket.socketpair()
    reading, printing = os.pipe()
    code = os.fork()
    if code == 0:
        os.setpgid(0, 0)
        for each in (far_calls, report, far_report):
            each.close()
        redirect(os.open(os.devnull, os.O_RDONLY), 0)
        redirect(printing, 1, 2)
        left(candidate.serve, calls)
    tests = os.fork()
    if tests == 0:
        redirect(os.open(os.devnull, os.O_WRONLY), 1)
        for each in (calls, report):
            each.close()
        os.close(printing)
        left(tester.serve, far_report, far_calls)
    for each in (calls, far_calls, far_report):
        each.close()
    os.close(printing)
    frames.send(report, job)
    messages, printed = followed(report, reading, code, frames)
    report.close()
    ended = {"tests": waited(tests), "code": waited(code)}
    while more := os.read(reading, 1 << 16):
        printed += more
    os.close(reading)
    return {"messages": messages, "printed": printed.decode(errors="replace"), "ended": ended}


def followed(
    report: socket.socket, reading: int, code: int, frames: Any
) -> tuple[list[dict[str, Any]], bytes]:
    """Read what both processes say until the tests are done; signal the code when asked to."""
    messages: list[dict[str, Any]] = []
    printed = b""
    poll = select.poll()
    poll.register(report, select.POLLIN)
    poll.register(reading, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if reading in ready:
            more = os.read(reading, 1 << 16)
            printed += more
            if not more:
                poll.unregister(reading)
        if report.fileno() not in ready:
            continue
        message = frames.receive(report)
        if message is None or "done" in message:
            return messages, printed
        messages.append(message)
        if "interrupt" in message:
            os.kill(code, signal.SIGINT)
        if "kill" in message:
            os.kill(code, signal.SIGKILL)


def redirect(source: int, *targets: int) -> None:
    for target in targets:
        os.dup2(source, target)


def left(serve: Any, *sockets: socket.socket) -> None:
    status = 1
    try:
        serve(*sockets)
        status = 0
    except BaseException:  # noqa: BLE001  shown, and told by the exit code
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(status)


def waited(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def load(name: str, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
