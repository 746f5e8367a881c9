"""Forked kernels under jupyter_client's own managers, nbclient, and a Jupyter server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_core.utils import ensure_event_loop
from nbclient import NotebookClient

from nbrefine.kernel import provisioner
from nbrefine.kernel.processes.forking import Forked

ARGV = (sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")


@pytest.fixture
def install(kernelspec: Callable[..., str]) -> Callable[..., str]:
    """Install a kernelspec whose kernels are forked."""

    def install(*preload: str, name: str = "fast", **fields: Any) -> str:
        config = {"preload": list(preload)}
        metadata = {"provisioner_name": "nbrefine-fork", "config": config}
        return kernelspec(name, *ARGV, metadata={"kernel_provisioner": metadata}, **fields)

    return install


@pytest.fixture
def fast(install: Callable[..., str]) -> str:
    return install()


@pytest.fixture(autouse=True)
def quiet_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings that were told once are told again in the next test."""
    monkeypatch.setattr(provisioner, "_told", set())


class Session:
    """A kernel manager with a client that blocks."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.manager = KernelManager(kernel_name=name)
        settings.setdefault("stdout", subprocess.DEVNULL)
        settings.setdefault("stderr", subprocess.DEVNULL)
        self.manager.start_kernel(**settings)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, source: str) -> str:
        """Run a cell and give what it printed, or its error."""
        said: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            said.append(message["content"].get("text", "") or message["content"].get("ename", ""))

        self.client.execute_interactive(source, timeout=60, output_hook=hear)
        return "".join(said)

    @property
    def provisioner(self) -> Any:
        return self.manager.provisioner

    @property
    def pid(self) -> int:
        return int(self.provisioner.pid)

    @property
    def forked(self) -> bool:
        return isinstance(self.provisioner.process, Forked)

    def end(self, *, now: bool = True) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=now)
        ensure_event_loop().close()  # jupyter_client leaves this thread's open


@pytest.fixture
def start() -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def start(name: str, **settings: Any) -> Session:
        sessions.append(Session(name, **settings))
        return sessions[-1]

    yield start
    for each in sessions:
        if each.manager.has_kernel:
            each.end()


def test_a_manager_starts_restarts_and_ends_a_forked_kernel(
    fast: str, start: Callable[..., Session], is_running: Callable[[int], bool]
) -> None:
    session = start(fast)
    assert session.forked
    first = session.pid
    assert session.manager.is_alive()
    session.run("x = 1; import json; json.mine = 1")
    assert session.run("import os; print(os.getpid(), os.environ.get('JPY_PARENT_PID'))") == (
        f"{first} None\n"
    )
    for now in (False, True):
        session.manager.restart_kernel(now=now)
        session.client.wait_for_ready(timeout=60)
        assert session.forked
        assert session.pid != first
        source = "import json; print('x' in globals(), hasattr(json, 'mine'))"
        assert session.run(source) == "False False\n"
    assert not is_running(first)
    last, file = session.pid, Path(session.manager.connection_file)
    assert file.is_file()
    session.end(now=False)
    assert not is_running(last)
    assert not session.manager.has_kernel
    assert not file.exists()


@pytest.mark.parametrize("mode", ["signal", "message"])
def test_a_forked_kernel_is_interrupted(
    install: Callable[..., str], start: Callable[..., Session], mode: str
) -> None:
    session = start(install(interrupt_mode=mode))
    source = "import time\nprint('in it', flush=True)\ntime.sleep(60)"
    # Otherwise a cell that is sent at once may be aborted because of the error before it.
    request = session.client.execute(source, stop_on_error=False)
    while session.client.get_iopub_msg(timeout=60)["msg_type"] != "stream":
        pass
    session.manager.interrupt_kernel()
    while True:
        reply = session.client.get_shell_msg(timeout=30)
        if reply["parent_header"]["msg_id"] == request:
            break
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    assert session.run("print('goes on')") == "goes on\n"


@pytest.mark.parametrize(
    ("source", "status"),
    [("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("os.abort()", -6)],
)
def test_the_exit_status_is_that_of_a_process(
    fast: str, start: Callable[..., Session], until: Callable[..., None], source: str, status: int
) -> None:
    session = start(fast)
    session.client.execute(f"import os; {source}")
    until(lambda: not session.manager.is_alive())
    assert asyncio.run(session.provisioner.poll()) == status
    assert asyncio.run(session.provisioner.wait()) == status
    assert not session.manager.has_kernel
    session.manager.restart_kernel()
    session.client.wait_for_ready(timeout=60)
    assert session.run("print('back')") == "back\n"


def test_a_request_to_end_that_was_sent_before_a_kernel_was_there_is_not_for_it(
    fast: str, start: Callable[..., Session], until: Callable[..., None]
) -> None:
    session = start(fast)
    client = session.client
    for age, ends in ((60, False), (0, True)):
        message = client.session.msg("shutdown_request", {"restart": True})
        message["header"]["date"] -= timedelta(seconds=age)
        client.control_channel.send(message)
        if ends:
            until(lambda: not session.manager.is_alive())
        else:
            assert session.run("print('here')") == "here\n"
            # The control channel is read in order, so that this comes after it.
            client.control_channel.send(client.session.msg("kernel_info_request"))
            assert client.control_channel.get_msg(timeout=60)["msg_type"] == "kernel_info_reply"
            assert session.manager.is_alive()


def test_a_kernel_that_ignores_what_it_is_asked_is_ended(
    fast: str, start: Callable[..., Session], is_running: Callable[[int], bool]
) -> None:
    session = start(fast)
    session.manager.shutdown_wait_time = 1.0
    pid = session.pid
    session.run(
        "import signal\n"
        "for each in (signal.SIGTERM, signal.SIGINT): signal.signal(each, signal.SIG_IGN)\n"
        "get_ipython().kernel.control_handlers.clear()"
    )
    session.end(now=False)
    assert not is_running(pid)


def test_what_a_kernel_has_started_ends_with_it(
    fast: str, start: Callable[..., Session], is_running: Callable[[int], bool]
) -> None:
    session = start(fast)
    source = (
        "import subprocess\n"
        "print(subprocess.Popen(['sleep', '91'], env={}, start_new_session=True).pid)"
    )
    first = int(session.run(source))
    session.manager.restart_kernel()
    session.client.wait_for_ready(timeout=60)
    assert not is_running(first)
    second = int(session.run(source))
    session.end()
    assert not is_running(second)


def test_the_streams_that_are_given_are_the_kernels(
    fast: str, start: Callable[..., Session], tmp_path: Path
) -> None:
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        session = start(fast, stdout=out, stderr=err.fileno(), cwd=str(tmp_path))
    assert session.forked
    source = "import os, sys\nos.write(sys.__stdout__.fileno(), b'')\nprint(os.getcwd())"
    assert session.run(source) == f"{tmp_path}\n"
    session.run("get_ipython().kernel.log.warning('from the log')")
    session.end(now=False)
    assert b"from the log" in (tmp_path / "err").read_bytes()


def test_variables_change_with_a_restart(fast: str, start: Callable[..., Session]) -> None:
    session = start(fast, env={**os.environ, "MINE": "1"})
    look = "import os; print(os.environ['MINE'])"
    assert session.run(look) == "1\n"
    session.manager.update_env(env={"MINE": "2"})
    session.manager.restart_kernel()
    session.client.wait_for_ready(timeout=60)
    assert session.run(look) == "2\n"


def test_the_provisioner_tells_of_its_process(fast: str, start: Callable[..., Session]) -> None:
    session = start(fast)
    told = asyncio.run(session.provisioner.get_provisioner_info())
    assert (told["pid"], told["pgid"]) == (session.pid, session.pid)
    assert told["connection_info"]["transport"] == "tcp"
    json.dumps({**told, "connection_info": {**told["connection_info"], "key": ""}})


def test_an_asynchronous_manager_starts_many_at_once(fast: str) -> None:
    async def one() -> int:
        manager = AsyncKernelManager(kernel_name=fast)
        await manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        client = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        forked: Any = manager.provisioner
        pid = int(forked.pid)
        client.stop_channels()
        await manager.shutdown_kernel(now=True)
        return pid

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(one() for _ in range(4)))

    assert len(set(asyncio.run(all_of_them()))) == 4


def test_several_threads_start_kernels_at_once(fast: str) -> None:
    answers: list[str] = []

    def work() -> None:
        session = Session(fast)
        answers.append(session.run("print(6 * 7)"))
        session.end(now=False)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert answers == ["42\n"] * 3


@pytest.mark.parametrize("settings", [{"independent": True}, {"start_new_session": True}])
def test_what_a_fork_cannot_give_is_started_plainly_and_said_once(
    fast: str,
    start: Callable[..., Session],
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any],
) -> None:
    for _ in range(2):
        session = start(fast, **settings)
        assert not session.forked
        assert session.run("print(6 * 7)") == "42\n"
        session.end()
    said = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert len(said) == 1
    assert "without forking" in said[0]


def test_a_package_that_is_missing_is_left_out_and_said_once(
    install: Callable[..., str], start: Callable[..., Session], caplog: pytest.LogCaptureFixture
) -> None:
    name = install("colorsys", "no_such_package")
    for _ in range(2):
        session = start(name)
        assert session.forked
        assert session.run("import sys; print('colorsys' in sys.modules)") == "True\n"
        session.end()
    (said,) = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert "no_such_package could not be imported" in said


def test_nothing_is_left_of_managers_and_their_kernels(
    fast: str, until: Callable[..., None]
) -> None:
    def cycle() -> None:
        session = Session(fast)
        session.run("x = 1")
        session.manager.restart_kernel()
        session.client.wait_for_ready(timeout=60)
        session.end(now=False)

    def held() -> tuple[int, int, int]:
        own = psutil.Process()
        return own.num_fds(), threading.active_count(), len(own.children(recursive=True))

    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        cycle()  # what stays: the portal, the template, pyzmq's own
        cycle()
        before = held()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", folder)
            for _ in range(5):
                cycle()
        until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
        assert list(Path(folder).glob("nbrefine-*")) == []


def notebook() -> Any:
    """200 cells of every kind of output whose outputs are the same in every kernel."""
    cells = [
        "import sys, warnings\nimport numpy as np\nimport pandas as pd\ntotal = 0",
        "from IPython.display import HTML, Markdown, display, update_display",
        "display(HTML('<b>bold</b>'), metadata={'a': 1}); display(Markdown('*x*'), display_id='m')",
        "update_display(Markdown('*y*'), display_id='m')",
        "print('out'); print('err', file=sys.stderr); total",
        "frame = pd.DataFrame({'n': range(4), 'square': np.arange(4) ** 2}); frame",
        "import asyncio\nawait asyncio.sleep(0.01)\n'awaited'",
        "warnings.warn('careful', stacklevel=1)",
        "1 / 0",
        "frame['cube']",
        "len(In), sorted(Out)[:3], _",
        "%history -n 1-2",
        "!echo from the shell",
        "%%capture held\nprint('held')",
        "held.stdout",
        "class S:\n  __repr__ = lambda self: 's'\n  _repr_html_ = lambda self: '<i>s</i>'\nS()",
        "%matplotlib inline",
        "from matplotlib import pyplot as plt\nplt.plot([1, 2, 3]);",
        "import ipywidgets; slider = ipywidgets.IntSlider(7); slider.value",
        "exit_code = get_ipython().run_line_magic('precision', '3'); 2 / 3",
    ]
    while len(cells) < 200:
        n = len(cells)
        cells.append(f"total += {n}\nprint('cell', {n})\ntotal")
    v4: Any = nbformat.v4
    return v4.new_notebook(cells=[v4.new_code_cell(each) for each in cells])


def outputs(name: str, folder: Path) -> list[list[dict[str, Any]]]:
    """Run the notebook and give its outputs without what has a process's number in it."""
    book = notebook()
    NotebookClient(
        book,
        kernel_name=name,
        timeout=120,
        allow_errors=True,
        coalesce_streams=True,  # when a stream is flushed is a matter of time
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    for cell in book.cells:
        for each in cell.outputs:
            if each.output_type == "error":
                each.traceback = [line for line in each.traceback if "ipykernel_" not in line]
            elif "text" in each:
                each.text = "".join(
                    line for line in each.text.splitlines(True) if "ipykernel_" not in line
                )
    return [[dict(each) for each in cell.outputs] for cell in book.cells]


@pytest.mark.slow
def test_nbclient_runs_200_cells_with_the_same_outputs(
    install: Callable[..., str], kernelspec: Callable[..., str], tmp_path: Path
) -> None:
    stock = kernelspec("stock", *ARGV)
    fast = install("numpy", "pandas")
    expected, found = (outputs(name, tmp_path) for name in (stock, fast))
    assert len(expected) == 200
    assert [kind for cell in expected for kind in cell if kind["output_type"] == "error"]
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert other == one, notebook().cells[number].source


def test_a_killed_program_leaves_no_kernel(
    fast: str, is_running: Callable[[int], bool], until: Callable[..., None]
) -> None:
    script = f"""
import subprocess
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name={fast!r})
manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
client = manager.blocking_client()
client.start_channels()
client.wait_for_ready(timeout=60)
source = "p = subprocess.Popen(['sleep', '90'], env={{}}, start_new_session=True)"
source = "import subprocess; " + source
client.execute_interactive(source, timeout=60)
print("up", flush=True)
client.execute_interactive("sum(range(10**12))")
"""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": folder},
        )
        with process:
            assert process.stdout is not None
            while (line := process.stdout.readline()) != "up\n":
                assert line, "the program has ended"
            below = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            assert len(below) == 4  # template, keeper, kernel, sleep
        until(lambda: not any(is_running(each.pid) for each in below))
        until(lambda: list(Path(folder).glob("nbrefine-*")) == [])
