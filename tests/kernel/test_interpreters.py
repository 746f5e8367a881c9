"""Kernels of other interpreters and of other versions of ipykernel, none of which has nbrefine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from nbrefine._portal import Run
from nbrefine.errors import BranchRefused
from nbrefine.kernel import Kernel, provisioner
from nbrefine.kernel.processes import evidence
from nbrefine.kernel.processes.forking import Forked
from nbrefine.kernel.state.digest import digest
from nbrefine.outputs import CellResult, Display
from tests.conftest import missing
from tests.kernel import environments
from tests.kernel.environments import RUNNING, Environment
from tests.kernel.said import value

# The first test of an environment waits until its packages are there.
pytestmark = pytest.mark.timeout(600)

NEWEST = "ipykernel>=7,<8"
OTHERS = [each for each in ("3.10", "3.11", "3.12", "3.13") if each != RUNNING]

BRANCHING = [
    pytest.param((RUNNING, NEWEST), id="newest"),
    pytest.param((RUNNING, "ipykernel==7.3.*"), id="7.3"),
    *(pytest.param((release, NEWEST), id=f"python{release}") for release in OTHERS),
]
OLD = [
    pytest.param((RUNNING, f"ipykernel=={version}.*"), id=version) for version in ("6.31", "7.1")
]

every = pytest.mark.parametrize("environment", [*BRANCHING, *OLD], indirect=True)
branching = pytest.mark.parametrize("environment", BRANCHING, indirect=True)
old = pytest.mark.parametrize("environment", OLD, indirect=True)
threaded = pytest.mark.parametrize("environment", [*BRANCHING, *OLD[1:]], indirect=True)

Contents = dict[str, tuple[int, int]]

# Has the thread of the shell channel say that it is about to send this cell's reply, and send it
# when a request has arrived that it has not read, as happens by chance on a busy host.
_SENDING = """
import pathlib, select
channel = get_ipython().kernel.shell_channel_thread
stream = channel.manager._main_to_shell_channel.to_stream
requests = get_ipython().kernel.shell_stream.socket

def send(message):
    stream.on_recv(channel.manager._send_on_shell_channel, copy=False)
    pathlib.Path("sending").touch()
    arrived, _, _ = select.select([requests.FD], [], [], 20)
    pathlib.Path("new").write_text(str(len(arrived)))
    pathlib.Path("new").rename("arrived")
    channel.manager._send_on_shell_channel(message)

channel.io_loop.add_callback(stream.on_recv, send, copy=False)
"""


@pytest.fixture(scope="module")
def being_made(
    request: pytest.FixtureRequest,
) -> Iterator[dict[tuple[str, str], Future[Environment | None]]]:
    """The environments that this run's tests ask for, made side by side while tests run."""
    items = [
        each for each in request.session.items if each.getparent(pytest.Module) is request.node
    ]
    wanted = dict.fromkeys(each.callspec.params["environment"] for each in items)  # type: ignore[attr-defined]
    with ThreadPoolExecutor(3) as pool:
        yield {each: pool.submit(environments.environment, *each) for each in wanted}


@pytest.fixture(scope="module")
def as_it_was() -> dict[str, Contents]:
    """What was in each environment before its first kernel."""
    return {}


@pytest.fixture(scope="module")
def environment(
    request: pytest.FixtureRequest,
    being_made: dict[tuple[str, str], Future[Environment | None]],
    as_it_was: dict[str, Contents],
) -> Environment:
    release, requirement = request.param
    try:
        made = being_made[request.param].result()
    except environments.CannotBeMade as error:
        missing(f"an environment with {requirement} ({error})")
        raise
    if made is None:
        pytest.skip(f"there is no python{release} on PATH that runs")
    as_it_was.setdefault(made.python, made.contents())
    return made


@pytest.fixture(autouse=True)
def from_elsewhere(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkout is not to be imported from, and no self-test of an earlier run counts."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("NBREFINE_CACHE", str(tmp_path_factory.getbasetemp() / "self-tests"))


@pytest.fixture
def name(environment: Environment, kernelspec: Callable[..., str]) -> str:
    """A kernelspec of the environment."""
    return kernelspec("other", *environment.argv)


@pytest.fixture
def stock(name: str, tmp_path: Path) -> Iterator[Kernel]:
    """A kernel that jupyter_client has started from the kernelspec."""
    manager = KernelManager(kernel_name=name, connection_file=str(tmp_path / "connection.json"))
    variables = {**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1", "OPENBLAS_NUM_THREADS": "1"}
    variables.pop("PYTEST_CURRENT_TEST", None)
    with (tmp_path / "log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log, env=variables)
        try:
            with Kernel.connect(manager.connection_file) as kernel:
                yield kernel
        finally:
            manager.shutdown_kernel(now=True)


def is_interrupted(kernel: Kernel, waits: str) -> None:
    begun = threading.Event()
    source = f"print('in it', flush=True)\n{waits}"
    running = kernel.run(source, on_output=lambda _: begun.set())
    assert begun.wait(30)
    assert "SIGKILL" not in kernel.interrupt().result(60)
    assert running.result(60).status == "interrupted"


def a_request_amid_a_reply(
    kernel: Kernel, until: Callable[..., None]
) -> tuple[Run[CellResult], Run[dict[str, Any]]]:
    value(kernel, "'the first reply over a connection takes nothing along'")
    first = kernel.run(_SENDING, timeout=60)
    until(Path("sending").exists)
    second = Run(kernel.core.link.request("kernel_info_request", {}, 60))
    until(Path("arrived").exists)
    assert Path("arrived").read_text() == "1"
    return first, second


@every
def test_a_kernel_runs_cells_and_is_interrupted_and_restarted(
    environment: Environment, name: str
) -> None:
    with Kernel.start(name) as kernel:
        assert kernel.info.language_version.startswith(f"{environment.release}.")
        assert value(kernel, "import sys; sys.executable") == repr(environment.python)
        look = "import importlib.util; importlib.util.find_spec('nbrefine') is None"
        assert value(kernel, look) == "True"
        failed = kernel.run("print('before')\n{}['x']").result()
        assert failed.error is not None
        assert (failed.error.ename, failed.error.evalue) == ("KeyError", "'x'")
        assert failed.text.startswith("before\n")
        (shown,) = kernel.run("from IPython.display import HTML; HTML('<b>x</b>')").result().outputs
        assert isinstance(shown, Display)
        assert shown.data["text/html"] == "<b>x</b>"
        assert value(kernel, "import asyncio\nawait asyncio.sleep(0.01, 'awaited')") == "'awaited'"
        assert value(kernel, "!echo shell") == "shell"
        is_interrupted(kernel, "import time; time.sleep(60)")
        is_interrupted(kernel, "await asyncio.sleep(60)")
        assert value(kernel, "begun = 1") == ""
        assert "begun" in kernel.restart().result(60)
        assert value(kernel, "'begun' in dir(), 6 * 7") == "(False, 42)"


@threaded
def test_a_message_that_comes_as_a_reply_is_sent_does_not_make_a_kernel_deaf(
    name: str, until: Callable[..., None]
) -> None:
    """As after an `await` that is interrupted: the message that wakes the kernel is on its way."""
    with Kernel.start(name) as kernel:
        first, second = a_request_amid_a_reply(kernel, until)
        assert first.result(60).ok
        assert second.result(60)["status"] == "ok"
        assert value(kernel, "'it hears'") == "'it hears'"


@threaded
def test_a_stock_kernel_that_became_deaf_is_woken(
    stock: Kernel, until: Callable[..., None]
) -> None:
    """A cell without a time limit would otherwise be waited for without end."""
    first, second = a_request_amid_a_reply(stock, until)
    assert first.result(60).ok
    assert second.result(60)["status"] == "ok"
    heard = stock.run("'it hears'").result(60)
    assert (heard.text.strip(), heard.rungs) == ("'it hears'", ())


@every
def test_to_wake_a_stock_kernel_draws_no_random_number(stock: Kernel) -> None:
    async def wake() -> None:
        stock.core.link.poke()

    value(stock, "import random; random.seed(1)")
    for _ in range(3):
        Run(wake()).result()
        value(stock, "'awake'")
    assert value(stock, "random.random()") == "0.13436424411240122"  # the first after that seed


@every
def test_a_death_is_told_with_its_exit_code(name: str) -> None:
    with Kernel.start(name) as kernel:
        result = kernel.run("import os; os._exit(5)").result(60)
        assert result.status == "died"
        assert result.death is not None
        assert result.death.exit_code == 5
        kernel.restart().result(60)
        assert value(kernel, "'new'") == "'new'"


@branching
def test_branches_have_the_state_and_one_becomes_the_session(
    environment: Environment, name: str
) -> None:
    with Kernel.start(name) as kernel:
        value(kernel, "def numbers():\n    yield from range(9)\nsteps = numbers(); items = [1]")
        value(kernel, "alias = items; next(steps)")
        with kernel.branch() as trial:
            assert value(trial, "alias.append(2); items, next(steps)") == "([1, 2], 1)"
            assert value(trial, "import asyncio\nawait asyncio.sleep(0.01, 'slept')") == "'slept'"
            assert value(trial, "!echo shell") == "shell"
            failed = trial.run("1 / 0").result()
            assert failed.error is not None
            assert failed.error.ename == "ZeroDivisionError"
            with trial.branch() as second:
                assert value(second, "alias.append(3); items, next(steps)") == "([1, 2, 3], 2)"
            assert value(trial, "items") == "[1, 2]"
            stopped = trial.run("import time; time.sleep(60)", timeout=0.5).result(60)
            assert stopped.status == "timeout"
            assert value(trial, "items") == "[1, 2]"
        with kernel.branch() as trial:
            died = trial.run("items.clear()\nimport os; os._exit(3)").result(60)
            assert died.death is not None
            assert died.death.exit_code == 3
        assert value(kernel, "items, next(steps), alias is items") == "([1], 1, True)"
        with kernel.branch() as trial:
            value(trial, "import pathlib; alias.append('kept'); pathlib.Path('made').touch()")
            held = trial.files().result()  # None where the host has no overlays
            assert held is None or [each.path for each in held.changes] == ["made"]
            assert Path("made").exists() is (held is None)
            before = kernel.info.pid
            kernel.adopt(trial).result()
        assert Path("made").exists()
        assert kernel.info.pid != before
        assert value(kernel, "items, next(steps), alias is items") == "([1, 'kept'], 2, True)"
        process = kernel.core.link.process
        assert process is not None
        assert process.keeper is not None
        assert process.keeper.ipykernel == environment.ipykernel
        assert evidence.recorded(process.keeper) == ""  # its self-test has passed


@branching
def test_a_kernel_goes_back_to_a_state_that_has_the_same_digest(name: str) -> None:
    with Kernel.start(name) as kernel:
        value(kernel, "import random; items = [1, {'a': 2.5}]; kinds = {'x', 'y'}")
        kept = Run(digest(kernel.core)).result()
        assert {told.name for told in kept.names} == {"random", "items", "kinds"}
        with kernel.checkpoint().result() as checkpoint:
            value(kernel, "items[1]['a'] = 3; random.random(); del kinds")
            assert Run(digest(kernel.core)).result() != kept
            kernel.rollback(checkpoint).result()
            assert Run(digest(kernel.core)).result() == kept
            assert kernel.run("import os; os._exit(1)").result(60).status == "died"
            kernel.rollback(checkpoint).result()
        assert Run(digest(kernel.core)).result() == kept
        assert value(kernel, "items, sorted(kinds)") == "([1, {'a': 2.5}], ['x', 'y'])"


@branching
def test_a_stock_kernel_is_branched_and_what_is_kept_runs_in_it(stock: Kernel) -> None:
    value(stock, "items = [1]; alias = items; steps = iter(range(9))")
    source = "alias.append(2); total = sum(items); next(steps)"
    with stock.branch() as trial:
        assert value(trial, source) == "0"
        with trial.branch() as second:
            assert value(second, "alias.append(3); items, total") == "([1, 2, 3], 3)"
        assert value(stock, "items, 'total' in dir()") == "([1], False)"
        with stock.branch() as other:
            failed = other.run("items.clear(); 1 / 0").result()
            assert failed.error is not None
            assert failed.error.ename == "ZeroDivisionError"
        committed = stock.commit(trial, source).result()
    assert committed.differences == ()
    assert committed.same
    assert value(stock, "items, total, alias is items, next(steps)") == "([1, 2], 3, True, 1)"


def carries_over_what_a_fork_breaks(kernel: Kernel) -> None:
    """Let a kernel have threads, tasks, files and executors, and look at them in a branch."""
    Path("lines").write_text("one\ntwo\n")
    value(
        kernel,
        "import asyncio, concurrent.futures, random, threading\n"
        "random.seed(7)\n"
        "file = open('lines'); line = file.readline()\n"
        "pool = concurrent.futures.ThreadPoolExecutor(2); eight = pool.submit(pow, 2, 3).result()\n"
        "over = threading.Event()\n"
        "thread = threading.Thread(target=over.wait, name='waiter'); thread.start()\n"
        "async def never(): await asyncio.sleep(1000)\n"
        "task = asyncio.get_running_loop().create_task(never()); await asyncio.sleep(0)\n"
        "three = await asyncio.to_thread(int, '3')",
    )
    with kernel.checkpoint().result() as kept:
        lost = [each.detail for each in kept.hazards if each.verdict == "lost"]
        assert any("waiter" in detail for detail in lost)
        assert any("never" in detail for detail in lost)
        with kept.branch() as trial:
            assert value(trial, "pool.submit(pow, 2, 5).result(10)") == "32"
            assert value(trial, "await asyncio.to_thread(int, '4')") == "4"
            assert value(trial, "file.readline()") == r"'two\n'"
            assert value(trial, "thread.is_alive(), eight, three") == "(False, 8, 3)"
            drawn = value(trial, "random.random()")
    assert value(kernel, "file.readline(), thread.is_alive()") == r"('two\n', True)"
    assert value(kernel, "pool.submit(pow, 2, 5).result(10), task.done()") == "(32, False)"
    assert value(kernel, "random.random()") == drawn
    value(kernel, "over.set(); thread.join(); task.cancel(); pool.shutdown(); file.close()")


@branching
def test_a_branch_carries_over_what_a_fork_breaks(name: str) -> None:
    with Kernel.start(name) as kernel:
        carries_over_what_a_fork_breaks(kernel)


@branching
def test_a_branch_of_a_stock_kernel_carries_over_what_a_fork_breaks(stock: Kernel) -> None:
    carries_over_what_a_fork_breaks(stock)


@old
def test_an_old_ipykernel_runs_plainly_and_says_why_it_cannot_branch(
    environment: Environment, name: str
) -> None:
    reason = f"ipykernel {environment.ipykernel} has no .*; ipykernel 7.2 has"
    with Kernel.start(name) as kernel:
        value(kernel, "items = [1]")
        with pytest.raises(BranchRefused, match=reason):
            kernel.branch().result()
        with pytest.raises(BranchRefused, match=reason):
            kernel.checkpoint().result()
        assert value(kernel, "items") == "[1]"
        assert [told.name for told in Run(digest(kernel.core)).result().names] == ["items"]


@old
def test_a_stock_kernel_of_an_old_ipykernel_is_refused_and_unharmed(
    environment: Environment, stock: Kernel
) -> None:
    value(stock, "items = [1]")
    with pytest.raises(BranchRefused, match=f"ipykernel {environment.ipykernel} has no .*; "):
        stock.branch().result()
    assert value(stock, "items") == "[1]"


@every
def test_nbclient_runs_a_notebook_on_the_provisioner(
    environment: Environment,
    kernelspec: Callable[..., str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provisioner, "_told", set())
    metadata = {"provisioner_name": "nbrefine-fork", "config": {"preload": []}}
    name = kernelspec("forked", *environment.argv, metadata={"kernel_provisioner": metadata})
    v4: Any = nbformat.v4
    cells = ["import sys; total = 0", "total += 42\nprint(total)", "sys.executable"]
    book = v4.new_notebook(cells=[v4.new_code_cell(each) for each in cells])
    client: Any = NotebookClient(book, kernel_name=name, timeout=60)
    forked: list[bool] = []

    def look(**_: Any) -> None:
        forked.append(isinstance(client.km.provisioner.process, Forked))

    client.on_notebook_start = look
    client.execute()
    assert book.cells[1].outputs[0].text == "42\n"
    assert book.cells[2].outputs[0].data["text/plain"] == repr(environment.python)
    assert forked == [environment.branches]
    assert ("without forking" in caplog.text) is not environment.branches


@every
def test_nothing_is_written_into_the_environment(
    environment: Environment, name: str, as_it_was: dict[str, Contents]
) -> None:
    """What the tests before this one have done counts as well."""
    with Kernel.start(name) as kernel:
        kernel.run("import json, asyncio, ipykernel.debugger\n1 / 0").result()
        kernel.variables().result()
        Run(digest(kernel.core)).result()
        if environment.branches:
            with kernel.branch() as trial:
                assert value(trial, "6 * 7") == "42"
    assert environment.contents() == as_it_was[environment.python]
