"""Kernels forked from a keeper, from their checkpoints and from those of their branches.

They are spoken to as any client would, over the sockets of their connection file, and to their
nurseries in the messages of `wire`.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel

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


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fk") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def shared_keeper(folder: Path) -> Iterator[Nest]:
    said, connection, process = launch()
    assert said.keys() == {"built"}, said
    keeper = Nest(connection, folder, said["built"]["pid"])
    yield keeper
    keeper.close()
    assert process.wait(20) == 0


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What a test has opened, closed at its end."""
    found: list[Any] = []
    for kind in (Nest, Forked):
        made = kind.__init__

        def note(self: Any, *given: Any, made: Any = made) -> None:
            made(self, *given)
            found.append(self)

        monkeypatch.setattr(kind, "__init__", note)
    yield found
    for each in reversed(found):
        each.close()


@pytest.fixture
def keeper(shared_keeper: Nest, opened: list[Any]) -> Nest:
    return shared_keeper


@pytest.fixture
def kernel(keeper: Nest) -> Forked:
    return keeper.fork().wait()


@pytest.fixture(params=["kernel", "branch", "branch of a branch"])
def any_kernel(request: pytest.FixtureRequest, kernel: Forked) -> Forked:
    kernel.run("import os, sys, signal, asyncio, time\nkept = 41")
    if request.param == "kernel":
        return kernel
    branch = kernel.branch()
    branch.run("kept")
    return branch if request.param == "branch" else branch.branch()


def descriptors(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


# A fresh kernel


def test_a_forked_kernel_looks_like_a_stock_one(keeper: Nest) -> None:
    arguments = ["--HistoryManager.hist_file=:memory:"]
    kernel = keeper.fork(
        connection_file=str(keeper.folder / "kernel.json"), arguments=arguments
    ).wait()
    code = """if True:
        import sys, os, threading, signal
        argv = [os.path.basename(sys.argv[0]), sys.argv[1], *sys.argv[3:]]
        names = sorted(n for n in globals() if n not in ("sys", "os", "threading", "signal"))
        main = vars(sys.modules["__main__"]) is globals()
        kinds = {type(t).__name__ + str(t.daemon) for t in threading.enumerate()}
        threads = sorted(kinds - {"ParentPollerUnixTrue"})
        handlers = str([signal.getsignal(n) for n in (2, 15, 17)])
        print(names, argv, sys.path, main, handlers, threads,
              get_ipython().execution_count, In[-1:], Out, _, hasattr(sys, "last_value"),
              type(sys.stdout), os.environ.get("MPLBACKEND"))
        """
    manager, client = start_new_kernel(extra_arguments=arguments, env=plain_environment())
    try:
        shown: list[Message] = []
        client.execute_interactive(code, output_hook=shown.append, timeout=30)
        stock = "".join(m["content"]["text"] for m in shown if m["msg_type"] == "stream")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.context.destroy()
    assert kernel.run(code) == stock


def test_cells_count_print_show_and_fail(kernel: Forked) -> None:
    assert kernel.ready["pid"] == kernel.pid
    assert kernel.ready["ports"]["hb_port"] == 5
    assert kernel.run("x = 20\nprint('hi')\nx * 2") == "hi\n40"
    assert kernel.run("_ + 2, Out, get_ipython().execution_count") == "(42, {1: 40}, 3)"
    assert kernel.run("{}['x']") == "KeyError: 'x'"
    assert kernel.ask("execute_request", {"code": "1"})["execution_count"] == 4


def test_a_second_kernel_of_the_keeper_knows_nothing_of_the_first(keeper: Nest) -> None:
    first, second = keeper.fork().wait(), keeper.fork().wait()
    first.run("import random, json; json.mark = x = 1; random.seed(0)")
    code = "import json, random; 'x' in globals(), hasattr(json, 'mark')"
    assert second.run(code) == "(False, False)"
    draws = {each.run("import random; random.random()") for each in (second, keeper.fork().wait())}
    assert len(draws) == 2


def test_environment_folder_and_connection_file_are_those_of_the_request(
    keeper: Nest, tmp_path: Path
) -> None:
    path = tmp_path / "kernel.json"
    kernel = keeper.fork(
        environ={"PATH": os.environ["PATH"], "ONE": "1", "GONE": "1"},
        variables={"TWO": "2", "GONE": None},
        cwd=str(tmp_path),
        connection_file=str(path),
    ).wait()
    names = "('ONE', 'TWO', 'GONE', 'HOME')"
    code = f"import os; print(os.getcwd(), *[os.environ.get(name) for name in {names}])"
    assert kernel.run(code) == f"{tmp_path} 1 2 None None\n"
    client = BlockingKernelClient(connection_file=str(path))
    client.load_connection_file()
    assert client.session.key == kernel.connection["key"].encode()
    branch = kernel.branch()
    assert branch.run(code) == kernel.run(code)


def test_a_port_of_0_is_chosen_and_told(keeper: Nest, tmp_path: Path) -> None:
    settings = {"transport": "tcp", "ip": "127.0.0.1", "key": "k"}
    kernel = keeper.fork(connection={**settings, "shell_port": 0}).wait()
    kernel.connection.update(kernel.ready["ports"])
    assert len(set(kernel.ready["ports"].values())) == 5
    assert kernel.run("6 * 7") == "42"
    branch = kernel.branch(connection=settings)
    branch.connection.update(branch.ready["ports"])
    assert not set(branch.ready["ports"].values()) & set(kernel.ready["ports"].values())
    assert branch.run("_ * 1") == "42"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--InteractiveShell.xmode=Plain"], "('Plain', 1000, True)"),
        (OURS, "('Context', 0, False)"),
        ([*OURS, "--InteractiveShell.xmode=Minimal"], "('Minimal', 0, False)"),
        (["--HistoryManager.enabled=False"], "('Context', 1000, False)"),
    ],
)
def test_arguments_of_ipykernel_take_effect(keeper: Nest, arguments: list[str], shown: str) -> None:
    kernel = keeper.fork(arguments=arguments).wait()
    code = "s = get_ipython(); s.InteractiveTB.mode, s.displayhook.cache_size, s.history_manager"
    assert kernel.run(code + ".enabled") == shown
    assert kernel.branch().run(code + ".enabled") == shown


def test_arguments_that_run_code_run_it(keeper: Nest, tmp_path: Path) -> None:
    arguments = ["--IPKernelApp.exec_lines=answer = 42", "--IPKernelApp.extensions=autoreload"]
    kernel = keeper.fork(arguments=arguments).wait()
    magics = "get_ipython().magics_manager.magics['line']"
    assert kernel.run(f"answer, 'autoreload' in {magics}") == "(42, True)"


def test_a_kernel_that_cannot_be_attached_says_why(keeper: Nest) -> None:
    kernel = keeper.fork(cwd="/nonexistent")
    message, _ = wire.receive(kernel.line)
    assert message is not None
    assert "FileNotFoundError" in message["broken"]
    assert keeper.status_of(kernel.pid) == 70


# The protocol, in kernel, branch and branch of a branch


def test_cells_in_any_kernel(any_kernel: Forked, until: Callable[..., None]) -> None:
    assert any_kernel.run("print(kept); kept += 1\nkept") == "41\n42"
    assert any_kernel.run("await asyncio.sleep(0.01, 'slept')") == "'slept'"
    assert any_kernel.run("!echo from a shell").strip() == "from a shell"
    # A thread of ipykernel's reads the descriptor, at times after the cell has ended.
    until(lambda: "raw\n" in any_kernel.run("os.write(1, b'raw\\n');"))
    assert any_kernel.run("1 / 0") == "ZeroDivisionError: division by zero"
    thread = "import threading; t = threading.Thread(target=print, args=('other',)); t.start()"
    assert any_kernel.run(f"{thread}; t.join()") == "other\n"


def test_requests_in_any_kernel(any_kernel: Forked) -> None:
    ask = any_kernel.ask
    assert "kept" in ask("complete_request", {"code": "kep", "cursor_pos": 3})["matches"]
    found = ask("inspect_request", {"code": "kept", "cursor_pos": 4, "detail_level": 0})
    assert "int" in found["data"]["text/plain"]
    assert ask("is_complete_request", {"code": "if 1:"})["status"] == "incomplete"
    tail = {"hist_access_type": "tail", "n": 1, "output": False, "raw": True}
    assert "kept = 41" in ask("history_request", {**tail, "n": 5})["history"][0][2]
    assert ask("kernel_info_request", {})["implementation"] == "ipython"
    assert ask("connect_request", {})["shell_port"] == 1
    assert ask("usage_request", {}, "control")["pid"] == any_kernel.pid


def test_subshells_in_any_kernel(any_kernel: Forked) -> None:
    made = any_kernel.ask("create_subshell_request", {}, "control")
    busy = any_kernel.begin(
        "while 'done' not in globals(): time.sleep(0.01)", lambda kind, _: kind == "execute_input"
    )
    ended = any_kernel.ask(
        "execute_request", {"code": "done = kept"}, subshell_id=made["subshell_id"]
    )
    assert ended["status"] == "ok"
    assert any_kernel.reply_to(busy)["status"] == "ok"
    assert any_kernel.checkpoint().fork().wait().run("done") == "41"


@pytest.mark.parametrize("how", ["signal", "message"])
def test_interrupts_in_any_kernel(any_kernel: Forked, how: str) -> None:
    request = any_kernel.begin(
        "print('on', flush=True)\nwhile True: time.sleep(0.01)", lambda kind, _: kind == "stream"
    )
    if how == "signal":
        os.killpg(any_kernel.pid, signal.SIGINT)
    else:
        assert any_kernel.ask("interrupt_request", {}, "control")["status"] == "ok"
    assert any_kernel.reply_to(request)["ename"] == "KeyboardInterrupt"
    os.kill(any_kernel.pid, signal.SIGINT)  # an idle kernel does not mind
    assert any_kernel.run("kept") == "41"


def test_input_in_any_kernel(any_kernel: Forked) -> None:
    client = any_kernel.client
    request = client.execute("print(input('name? ') * 2)", allow_stdin=True)
    asked = client.get_stdin_msg(timeout=20)
    assert asked["content"]["prompt"] == "name? "
    client.input("ab")
    assert any_kernel.reply_to(request)["status"] == "ok"
    texts: list[str] = []
    while not texts:
        message = client.get_iopub_msg(timeout=20)
        if message["msg_type"] == "stream":
            texts.append(message["content"]["text"])
    assert texts == ["abab\n"]


def test_comms_in_any_kernel(kernel: Forked) -> None:
    kernel.run(
        "import ipywidgets\nslider = ipywidgets.IntSlider(3)\n"
        "seen = []\nslider.observe(lambda change: seen.append(change['new']), 'value')"
    )
    for each in (kernel, kernel.branch()):
        comm = each.run("print(slider.comm.comm_id)").strip()
        assert comm in each.ask("comm_info_request", {})["comms"]
        data = {"method": "update", "state": {"value": 9}, "buffer_paths": []}
        update = each.client.session.msg("comm_msg", {"comm_id": comm, "data": data})
        each.client.shell_channel.send(update)
        assert each.run("seen, slider.value") == "([9], 9)"
        request = each.begin("slider.value = 5", lambda kind, _: kind == "comm_msg")
        assert each.reply_to(request)["status"] == "ok"


def test_inline_plots_in_any_kernel(kernel: Forked) -> None:
    kernel.run("import matplotlib.pyplot as plt")
    for each in (kernel, kernel.branch()):
        request = each.begin(
            "plt.plot([1, 2]);", lambda kind, content: "image/png" in content.get("data", {})
        )
        assert each.reply_to(request)["status"] == "ok"


def test_the_debugger_answers_in_any_kernel(any_kernel: Forked) -> None:
    pytest.importorskip("debugpy")
    request = {"type": "request", "seq": 1, "command": "debugInfo", "arguments": {}}
    assert any_kernel.ask("debug_request", request, "control")["body"]["isStarted"] is False


def test_the_heart_beats_in_any_kernel(any_kernel: Forked, until: Callable[..., None]) -> None:
    until(any_kernel.client.is_alive)


# Branches


def test_a_branch_changes_nothing_in_its_parent(kernel: Forked) -> None:
    kernel.run("import numpy as np\nxs = np.zeros(1000)\nalias = xs\nlist_ = [1]")
    branch = kernel.branch()
    branch.run("alias[:] = 1; list_.append(2); del np")
    assert branch.run("xs.sum(), list_, 'np' in globals()") == "(np.float64(1000.0), [1, 2], False)"
    assert kernel.run("xs.sum(), list_, 'np' in globals()") == "(np.float64(0.0), [1], True)"


def test_a_branch_continues_random_numbers_files_and_generators(
    kernel: Forked, tmp_path: Path
) -> None:
    path = tmp_path / "numbers"
    path.write_text("1\n2\n3\n")
    kernel.run(
        f"import random; random.seed(5); numbers = open({str(path)!r}); next(numbers)\n"
        "import numpy; numpy.random.seed(5)\n"
        "squares = (n * n for n in range(9)); next(squares)"
    )
    code = "random.random(), numpy.random.rand(), next(numbers), next(squares), execution_count"
    code = code.replace("execution_count", "get_ipython().execution_count")
    checkpoint = kernel.checkpoint()
    first, second = checkpoint.fork().wait().run(code), checkpoint.fork().wait().run(code)
    assert first == second == kernel.run(code)
    assert "'2\\n', 1, 3)" in first
    assert checkpoint.fork(reseed=True).wait().run("random.random()") != first.partition(",")[0][1:]


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 11)", "os._exit(4)", "os.abort()"])
def test_the_death_of_a_branch_is_told_and_leaves_the_rest_alone(kernel: Forked, end: str) -> None:
    kernel.run("import os")
    checkpoint = kernel.checkpoint()
    branch, other = checkpoint.fork().wait(), checkpoint.fork().wait()
    branch.client.execute(end)
    assert checkpoint.status_of(branch.pid) in (-signal.SIGSEGV, 4, -signal.SIGABRT)
    assert kernel.run("1 + 1") == other.run("1 + 1") == checkpoint.fork().wait().run("1 + 1") == "2"


def test_a_checkpoint_outlives_its_kernel(kernel: Forked, keeper: Nest) -> None:
    kernel.run("x = 7")
    checkpoint = kernel.checkpoint()
    os.killpg(kernel.pid, signal.SIGKILL)
    assert keeper.status_of(kernel.pid) == -signal.SIGKILL
    assert checkpoint.fork().wait().run("x") == "7"


def test_exit_work_of_a_parent_is_not_done_by_a_branch(kernel: Forked) -> None:
    made = kernel.run(
        "import atexit, pathlib, tempfile\nheld = tempfile.TemporaryDirectory()\n"
        "atexit.register(pathlib.Path(held.name, 'parent').touch)\nprint(held.name)"
    ).strip()
    branch = kernel.branch()
    branch.run("atexit.register(pathlib.Path(held.name, 'branch').touch);")
    assert branch.ask("shutdown_request", {"restart": False}, "control")["status"] == "ok"
    assert wire.receive(branch.line) == (None, [])
    assert [each.name for each in Path(made).iterdir()] == ["branch"]
    kernel.ask("shutdown_request", {"restart": False}, "control")
    assert wire.receive(kernel.line) == (None, [])
    assert not Path(made).exists()


def test_a_fork_that_would_hang_is_refused_unless_forced(kernel: Forked) -> None:
    kernel.run(
        "import polars\npolars.DataFrame({'x': [2]}).lazy().filter(polars.col.x > 1).collect()"
    )
    reply = kernel.ask("checkpoint_request", {"id": "c"})
    assert reply["status"] == "refused"
    refused = [each["kind"] for each in reply["hazards"] if each["verdict"] == "refuse"]
    assert refused == ["polars-pool"]
    assert kernel.run("2") == "2"
    assert kernel.checkpoint(force=True).fork().wait().run("3") == "3"


def test_a_copy_that_nobody_waits_for_is_not_made(kernel: Forked) -> None:
    past, future = time.time() - 1, time.time() + 60
    for content in ({}, {"rest": True}):
        reply = kernel.ask("checkpoint_request", {"id": "c", "deadline": past, **content})
        assert reply["status"] == "refused"
        assert [(each["kind"], each["verdict"]) for each in reply["hazards"]] == [
            ("busy", "refuse")
        ]
    assert kernel.checkpoint(deadline=future).fork().wait().run("1") == "1"


@pytest.mark.parametrize("where", ["before", "while the loop stops", "scan", "flush"])
def test_an_interrupt_while_a_kernel_is_copied_changes_nothing(kernel: Forked, where: str) -> None:
    kernel.run(
        "import os, signal, sys\n"
        "app = get_ipython().kernel.parent\n"
        "hazards = sys.modules['_nbrefine_branching.hazards']\n"
        "server = app.kernel.shell_handlers['checkpoint_request'].__self__\n"
        "def interrupting(owner, name):\n"
        "    plain = getattr(owner, name)\n"
        "    def interrupted(*given):\n"
        "        setattr(owner, name, plain)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        result = plain(*given)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        return result\n"
        "    setattr(owner, name, interrupted)\n"
    )
    owner, name = {
        "before": ("app.kernel", "should_handle"),
        "while the loop stops": ("app.io_loop", "stop"),
        "scan": ("hazards", "scan"),
        "flush": ("server.plumbing", "flush"),
    }[where]
    kernel.run(f"interrupting({owner}, {name!r}); x = 1")
    assert kernel.checkpoint().fork().wait().run("x") == "1"
    assert kernel.run("x + 1") == "2"
    # A cell can be interrupted as before.
    kernel.run("import time")
    request = kernel.begin("print('on'); time.sleep(30)", lambda kind, _: kind == "stream")
    os.killpg(kernel.pid, signal.SIGINT)
    assert kernel.reply_to(request)["ename"] == "KeyboardInterrupt"


def test_an_adopted_branch_is_told_what_it_has_lost(kernel: Forked) -> None:
    kernel.run(
        "import asyncio, gc, threading\nstop = threading.Event()\n"
        "threading.Thread(target=stop.wait, name='worker', daemon=True).start()\n"
        "async def wait_long(): await asyncio.sleep(60)\ntask = asyncio.ensure_future(wait_long())"
    )
    branch = kernel.branch()
    assert int(branch.run("print(gc.get_freeze_count())")) > 10_000
    wire.send(branch.line, {"op": "adopted"})
    answer, _ = wire.receive(branch.line)
    assert answer is not None
    lost = answer["adopted"]
    assert len(lost["lost_threads"]) == len(lost["lost_tasks"]) == 1
    assert "worker" in lost["lost_threads"][0]
    assert "wait_long" in lost["lost_tasks"][0]
    assert branch.run("print(gc.get_freeze_count()); gc.collect(); task.done()") == "0\nFalse"
    assert kernel.run("stop.set(); threading.active_count() > 6") == "True"


def test_checkpoints_and_branches_leave_nothing_behind(
    kernel: Forked, keeper: Nest, opened: list[Any], until: Callable[..., None]
) -> None:
    def round_of_three() -> None:
        checkpoint = kernel.checkpoint()
        branches = [checkpoint.fork() for _ in range(3)]
        for branch in branches:
            assert branch.wait().run("x * 2") == "42"
        ended: list[Forked | Nest] = [*branches, checkpoint]
        for each in ended:
            each.close()
            opened.remove(each)
        until(lambda: kernel.run("x") == "21" and not children(kernel.pid))

    kernel.run("x = 21")
    round_of_three()
    before = descriptors(kernel.pid), descriptors(keeper.pid), children(keeper.pid)
    for _ in range(20):
        round_of_three()
    assert (descriptors(kernel.pid), descriptors(keeper.pid), children(keeper.pid)) == before


def test_a_chain_of_adoptions_keeps_its_size(
    keeper: Nest, kernel: Forked, opened: list[Any], until: Callable[..., None]
) -> None:
    kernel.run("x = 0")
    counts = []
    for _ in range(20):
        checkpoint = kernel.checkpoint()
        branch = checkpoint.fork().wait()
        assert branch.run("x += 1") == ""
        kernel.close()
        wire.send(checkpoint.connection, {"op": "leave"})
        assert wire.receive(checkpoint.connection)[0] is None
        for each in (kernel, checkpoint):
            each.close()
            opened.remove(each)
        kernel = branch
        counts.append(descriptors(kernel.pid))
    assert kernel.run("x") == "20"
    assert max(counts) - min(counts) < 5  # one each would be 19; a client may just be connecting
    until(lambda: str(kernel.pid) in children(keeper.pid))  # once the last checkpoint is gone


# The end of a kernel, and of its controller


def test_shutdown_and_signals_end_a_kernel_with_their_status(keeper: Nest) -> None:
    first, second, third = (keeper.fork().wait() for _ in range(3))
    first.run("print('something')")
    reply = first.ask("shutdown_request", {"restart": False}, "control")
    assert reply == {"status": "ok", "restart": False}
    assert keeper.status_of(first.pid) == 0
    os.kill(second.pid, signal.SIGTERM)
    assert keeper.status_of(second.pid) == -signal.SIGTERM
    third.client.execute("exit")
    assert keeper.status_of(third.pid) == 0


def test_the_end_of_its_line_kills_a_kernel_and_its_group(
    keeper: Nest, kernel: Forked, until: Callable[..., None], is_running: Callable[[int], bool]
) -> None:
    child = int(kernel.run("import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"))
    request = kernel.client.execute("while True: pass")
    with pytest.raises(Empty):
        kernel.client.get_shell_msg(timeout=0.1)
    assert request
    kernel.close()
    assert keeper.status_of(kernel.pid) == -signal.SIGKILL
    until(lambda: not is_running(child))


_CONTROLLER = """
import os, sys
sys.path[:0] = {path!r}
import importlib.util
spec = importlib.util.spec_from_file_location("forked", {file!r})
forked = importlib.util.module_from_spec(spec)
sys.modules["forked"] = forked
spec.loader.exec_module(forked)
from pathlib import Path
folder = Path({folder!r})
said, connection, process = forked.launch("--folder", {folder!r})
keeper = forked.Nest(connection, folder, said["built"]["pid"])
kernel = keeper.fork().wait()
daemon = "import os, subprocess\\nsubprocess.Popen(['sleep', '60'], start_new_session=True).pid"
daemons = [kernel.run(daemon)]
checkpoints = [kernel.checkpoint() for _ in range(2)]
branches = [each.fork().wait() for each in checkpoints for _ in range(2)]
daemons += [each.run(daemon) for each in branches]
inner = branches[0].branch()
pids = [each.pid for each in (keeper, kernel, *checkpoints, *branches, inner)]
print(*pids, *daemons, flush=True)
inner.client.execute("while True: pass")
sys.stdin.read()
"""


def test_a_killed_controller_leaves_no_process_and_no_folder(
    until: Callable[..., None], is_running: Callable[[int], bool]
) -> None:
    private = tempfile.mkdtemp(prefix="fk")
    program = _CONTROLLER.format(path=sys.path, file=__file__, folder=private)
    controller = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert controller.stdin is not None
    assert controller.stdout is not None
    with controller.stdin, controller.stdout:
        pids = [int(word) for word in controller.stdout.readline().split()]
        assert len(pids) == 14
        assert all(is_running(pid) for pid in pids)
        controller.kill()
        controller.wait()
        until(lambda: not any(is_running(pid) for pid in pids), 2)
        until(lambda: not Path(private).exists(), 2)


# Kernels of our own controller, which give a nonce


def test_a_prepared_kernel_and_its_branch_keep_their_streams_and_stay(
    keeper: Nest, tmp_path: Path
) -> None:
    kernel = keeper.fork(arguments=OURS, nonce="first", crash=str(tmp_path / "one")).wait()
    kernel.run("x = 6 * 7\nx")
    branch = kernel.branch(nonce="second", crash=str(tmp_path / "two"))
    for each, nonce in ((kernel, "first"), (branch, "second")):
        marked = {"nbrefine": nonce}
        assert each.run("_") == "42"
        request = each.client.execute("import sys; sys.stdout = None")
        assert each.reply_to(request)["status"] == "ok"
        while (note := each.client.get_iopub_msg(timeout=20))["msg_type"] != "display_data":
            pass
        assert note["content"]["metadata"] == marked
        assert each.run("print('back', '\\udc80')").startswith("back ")
        assert each.ask("execute_request", {"code": "exit()"})["payload"][0]["keepkernel"] is True
        assert each.run("x") == "42"
        flood = "from IPython.display import display\nfor n in range(3000): display(n)"
        assert each.run(flood).endswith("2999")
    for each, name in ((kernel, "one"), (branch, "two")):
        each.client.execute("import os; os.abort()")
        assert wire.receive(each.line) == (None, [])
        assert "Fatal Python error: Aborted" in (tmp_path / name).read_text()


# What cannot be built


def test_a_package_that_cannot_be_imported_is_named() -> None:
    said, connection, process = launch("--preload", "json,no_such_package")
    connection.close()
    assert said["broken"] == (
        "no_such_package could not be imported: "
        "ModuleNotFoundError(\"No module named 'no_such_package'\")"
    )
    assert process.wait(20) == 70


def test_an_old_ipykernel_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    package = tmp_path / "ipykernel"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '6.30.1'\n")
    (package / "kernelapp.py").write_text("class IPKernelApp: pass\n")
    environment = {**plain_environment(), "PYTHONPATH": str(tmp_path)}
    said, connection, process = launch(env=environment)
    connection.close()
    assert process.wait(20) == 70
    assert said["broken"].startswith("ipykernel 6.30.1 has no ")
    assert "IPKernelApp.init_sockets" in said["broken"]
    assert "ipykernel.shellchannel" in said["broken"]


def test_packages_are_preloaded_and_the_namespace_stays_empty(
    folder: Path, opened: list[Any]
) -> None:
    said, connection, process = launch("--preload", "pandas,colorsys", role="template")
    template = Nest(connection, folder, said["built"]["pid"])
    line, theirs = wire.pair()
    with theirs, Path(os.devnull).open("r+b") as nothing:
        spawn = {
            "environ": {**plain_environment(), "MARK": "keeper"},
            "cwd": str(folder),
            "folder": "",
        }
        request = {"op": "fork", "id": 1, "role": "keeper", "spawn": spawn}
        wire.send(connection, request, [theirs.fileno(), *[nothing.fileno()] * 2, 2])
    answer, fds = template.next()
    wire.close(fds)
    keeper = Nest(line, folder, answer["pid"])
    kernel = keeper.fork().wait()
    code = "import sys, os\n'pd' in globals(), {'pandas', 'colorsys'} <= {*sys.modules}, os.environ"
    code += "['MARK']"
    assert kernel.run(code) == "(False, True, 'keeper')"
    begun = time.perf_counter()
    branch = kernel.branch()
    assert branch.run("import pandas; pandas.Series([1, 2]).sum()") == "np.int64(3)"
    assert time.perf_counter() - begun < 5
    template.close()
    assert process.wait(20) == 0
    assert keeper.fork().wait().run("1") == "1"
