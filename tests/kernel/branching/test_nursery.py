"""Processes that fork on request, here with nothing in them but the nursery itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbrefine.kernel.inside import branching
from nbrefine.kernel.inside.branching import wire

# A "kernel" runs the code of its settings, so that tests say what becomes of it.
_PROGRAM = """
import importlib.util, os, signal, socket, sys, time
folder, connection, role, removed = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    "_nbrefine_branching", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[spec.name])
from _nbrefine_branching import nursery, wire

signal.signal(signal.SIGTERM, lambda *_: os._exit(15))
order = nursery.Nursery(socket.socket(fileno=int(connection)), role, removed).run()
while order.role == "keeper":
    order = nursery.Nursery(order.line, "keeper", order.spawn.get("folder", "")).run()
exec(order.spawn["code"])
os._exit(0)
"""


class Nest:
    """Our end of a nursery."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.exits: dict[int, dict[str, Any]] = {}
        connection.settimeout(20)

    def next(self) -> tuple[dict[str, Any], list[int]]:
        """Give the next message that tells of no exit."""
        while True:
            message, fds = wire.receive(self.connection)
            assert message is not None
            if "exit" not in message:
                return message, fds
            self.exits[message["exit"]["pid"]] = message["exit"]

    def ask(self, **message: Any) -> dict[str, Any]:
        wire.send(self.connection, message)
        answer, fds = self.next()
        wire.close(fds)
        return answer

    def fork(self, code: str = "", role: str = "kernel", **spawn: Any) -> tuple[int, socket.socket]:
        """Fork a process and give its id and our end of its line."""
        line, theirs = wire.pair()
        line.settimeout(20)
        request = {"op": "fork", "id": 7, "role": role, "spawn": {"code": code, **spawn}}
        with Path(os.devnull).open("r+b") as nothing:
            standard = [nothing.fileno()] * 3
            wire.send(self.connection, request, [theirs.fileno(), *standard])
        theirs.close()
        answer, fds = self.next()
        wire.close(fds)
        assert answer.keys() == {"forked", "pid"}, answer
        assert answer["forked"] == 7
        return answer["pid"], line

    def exit_of(self, pid: int) -> dict[str, Any]:
        """Wait until a process is reaped."""
        while pid not in self.exits:
            message, _ = wire.receive(self.connection)
            assert message is not None
            self.exits[message["exit"]["pid"]] = message["exit"]
        return self.exits[pid]


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Callable[..., Nest]]:
    """Start nurseries, and end them."""
    started: list[tuple[subprocess.Popen[bytes], socket.socket]] = []

    def start(role: str = "keeper", folder: Path | None = None) -> Nest:
        here, there = wire.pair()
        source = str(Path(str(branching.__file__)).parent)
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, source, str(there.fileno()), role, str(folder or "")],
            pass_fds=[there.fileno()],
        )
        there.close()
        started.append((process, here))
        return Nest(here)

    yield start
    for process, connection in started:
        connection.close()
        assert process.wait(20) in (0, -signal.SIGKILL)


def test_a_forked_process_has_its_line_its_streams_and_a_group_of_its_own(
    nursery: Callable[..., Nest],
) -> None:
    nest = nursery()
    code = """if True:
    same = os.path.samestat(os.fstat(0), os.stat(os.devnull))
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    fds = [fd for fd in listed if os.path.exists(f"/proc/self/fd/{fd}")]
    wire.send(order.line, {"pid": os.getpid(), "sid": os.getsid(0), "null": same, "fds": fds,
                           "line": order.line.fileno()})
    """
    pid, line = nest.fork(code)
    with line:
        told, _ = wire.receive(line)
    assert told is not None
    assert told["pid"] == told["sid"] == pid
    assert told["null"]
    assert sorted(told["fds"]) == [0, 1, 2, told["line"]]
    exited = nest.exit_of(pid)
    assert exited["status"] == 0
    assert exited["maxrss"] > 1_000_000


@pytest.mark.parametrize(
    ("code", "status"),
    [("os._exit(3)", 3), ("os.abort()", -6), ("os.kill(os.getpid(), 9)", -9)],
)
def test_the_status_of_every_exit_is_told(
    nursery: Callable[..., Nest], code: str, status: int
) -> None:
    nest = nursery("template")
    pid, line = nest.fork(code)
    line.close()
    assert nest.exit_of(pid)["status"] == status


def test_signals_leave_a_nursery_alone_and_its_children_have_their_handlers(
    nursery: Callable[..., Nest],
) -> None:
    nest = nursery()
    pid, line = nest.fork("wire.send(order.line, {}); time.sleep(60)")
    wire.receive(line)
    keeper = nest.ask(op="ping")["pong"]
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(keeper, number)
    assert nest.ask(op="ping") == {"pong": keeper, "children": [pid]}
    os.kill(pid, signal.SIGTERM)
    assert nest.exit_of(pid)["status"] == 15
    line.close()


def test_what_cannot_be_forked_is_refused_with_its_reason(nursery: Callable[..., Nest]) -> None:
    nest = nursery()
    requests: list[tuple[dict[str, Any], str]] = [
        ({"role": "keeper", "spawn": {}}, "ValueError: A keeper forks no keeper"),
        ({"role": "kernel", "spawn": {}}, "ValueError: A kernel needs its settings and 4 desc"),
        ({"op": "fly"}, "There is no 'fly'"),
    ]
    for request, reason in requests:
        answer = nest.ask(**{"op": "fork", "id": 1, **request})
        assert answer["failed"] == 1
        assert answer["why"].startswith(reason)


def test_the_end_of_a_keeper_takes_all_beneath_it_and_its_folder(
    nursery: Callable[..., Nest], tmp_path: Path, until: Callable[..., None], is_running: Any
) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    nest = nursery("keeper", folder)
    code = """if True:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            wire.send(order.line, {"pid": os.getpid()})
            time.sleep(60)
        os._exit(0)
    time.sleep(60)
    """
    pid, line = nest.fork(code)
    told, _ = wire.receive(line)
    assert told is not None
    nest.connection.close()
    until(lambda: not is_running(pid) and not is_running(told["pid"]), 2)
    until(lambda: not folder.exists(), 2)
    line.close()


def test_a_sweep_ends_orphans_but_no_child_and_nothing_that_is_spared(
    nursery: Callable[..., Nest], until: Callable[..., None], is_running: Any
) -> None:
    nest = nursery()
    # The kernel leaves an orphan with the name of a kernel, which leads its group like one, and a
    # nursery of its own as a checkpoint is.
    code = """if True:
    here, there = wire.pair()
    if os.fork() == 0:
        os.setsid()
        wire.send(order.line, {"orphan": os.getpid()})
        order.line.close()
        time.sleep(60)
    wire.receive(order.line)
    if os.fork() == 0:
        here.close()
        nursery.Nursery(there, "checkpoint").run()
    wire.send(order.line, {}, [here.fileno()])
    wire.receive(order.line)
    """
    pid, line = nest.fork(code)
    orphan = (wire.receive(line)[0] or {})["orphan"]
    wire.send(line, {})
    checkpoint = Nest(socket.socket(fileno=wire.receive(line)[1][0]))
    live = checkpoint.ask(op="ping")["pong"]
    other, other_line = nest.fork("time.sleep(60)")
    assert nest.ask(op="sweep", spare=[live]) == {"swept": 0}  # its parent is there
    line.close()
    nest.exit_of(pid)
    assert Path(f"/proc/{orphan}/comm").read_text() == "nb-kernel\n"
    assert nest.ask(op="sweep", spare=[live, orphan]) == {"swept": 0}
    assert nest.ask(op="sweep", spare=[live]) == {"swept": 1}
    assert nest.exit_of(orphan)["status"] == -signal.SIGKILL
    assert checkpoint.ask(op="ping")["pong"] == live
    assert is_running(other)
    checkpoint.connection.close()
    assert nest.exit_of(live)["status"] == 0  # it was left to the keeper
    other_line.close()


def test_a_process_on_which_no_handle_can_be_had_is_ended(nursery: Callable[..., Nest]) -> None:
    nest = nursery()
    code = """if True:
    here, there = wire.pair()
    wire.send(order.line, {}, [here.fileno()])
    here.close()
    def full(pid):
        raise OSError(23, "Too many open files in system")
    os.pidfd_open = full
    nursery.Nursery(there, "checkpoint").run()
    time.sleep(60)
    """
    _, line = nest.fork(code)
    checkpoint = Nest(socket.socket(fileno=wire.receive(line)[1][0]))
    far, near = wire.pair()
    with far, near:
        request = {"op": "fork", "id": 8, "role": "kernel", "spawn": {}}
        wire.send(checkpoint.connection, request, [far.fileno()] * 4)
        answer, _ = checkpoint.next()
    assert answer["failed"] == 8
    assert "Too many open files" in answer["why"]
    while not checkpoint.exits:
        assert "pong" in checkpoint.ask(op="ping")
    assert [each["status"] for each in checkpoint.exits.values()] == [-signal.SIGKILL]
    assert checkpoint.ask(op="ping")["children"] == []
    checkpoint.connection.close()
    line.close()


def test_a_checkpoint_that_leaves_hands_its_branches_to_the_keeper(
    nursery: Callable[..., Nest],
) -> None:
    nest = nursery()
    code = """if True:
    here, there = wire.pair()
    if os.fork() == 0:
        here.close()
        order = nursery.Nursery(there, "checkpoint").run()
        exec(order.spawn["code"])
        os._exit(0)
    there.close()
    wire.send(order.line, {}, [here.fileno()])
    wire.receive(order.line)
    """
    _, line = nest.fork(code)
    checkpoint = Nest(socket.socket(fileno=wire.receive(line)[1][0]))
    branch, branch_line = checkpoint.fork("wire.receive(order.line); os._exit(5)")
    wire.send(checkpoint.connection, {"op": "leave"})
    assert wire.receive(checkpoint.connection) == (None, [])
    checkpoint.connection.close()
    line.close()  # the kernel goes, and so the branch is the keeper's
    branch_line.close()
    assert nest.exit_of(branch)["status"] == 5


def test_a_template_leaves_its_keepers_and_these_their_kernels(
    nursery: Callable[..., Nest], until: Callable[..., None], is_running: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    template = nursery("template")
    keeper, connection = template.fork(role="keeper", folder=str(folder))
    nest = Nest(connection)
    pid, line = nest.fork("wire.receive(order.line)")
    gone = template.ask(op="ping")["pong"]
    template.connection.close()
    until(lambda: not is_running(gone), 2)
    assert nest.ask(op="ping") == {"pong": keeper, "children": [pid]}
    connection.close()
    until(lambda: not is_running(keeper) and not is_running(pid), 2)
    assert not folder.exists()
    line.close()


def test_many_forks_leave_no_descriptor_and_no_process(nursery: Callable[..., Nest]) -> None:
    nest = nursery()
    keeper = nest.ask(op="ping")["pong"]

    def count() -> int:
        return len([*Path(f"/proc/{keeper}/fd").iterdir()])

    before, begun = count(), time.monotonic()
    for _ in range(200):
        pid, line = nest.fork()
        line.close()
        nest.exit_of(pid)
    assert count() == before
    assert nest.ask(op="ping")["children"] == []
    assert time.monotonic() - begun < 20
