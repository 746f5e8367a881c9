"""Branches of stock kernels that jupyter_client started and somebody else owns."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from nbrefine._portal import Run
from nbrefine.errors import BranchRefused, KernelError
from nbrefine.kernel import Kernel
from nbrefine.kernel.helper import ask
from nbrefine.kernel.inside import branching
from nbrefine.outputs import Display


@pytest.fixture(scope="module", params=["tcp", "ipc"])
def stock(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KernelManager]:
    folder = tmp_path_factory.mktemp("k")
    manager = KernelManager(
        kernel_name="python3",
        connection_file=str(folder / "kernel.json"),
        transport=request.param,
    )
    if request.param == "ipc":
        manager.ip = str(folder / "c")
    environment = {
        **os.environ,
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "OPENBLAS_NUM_THREADS": "1",  # or a user's thread would forbid the fork
    }
    environment.pop("PYTEST_CURRENT_TEST", None)
    with (folder / "log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log, env=environment)
        yield manager
        manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(stock: KernelManager) -> Iterator[Kernel]:
    if not stock.is_alive():
        stock.restart_kernel(now=True)
    with Kernel.connect(stock.connection_file) as connected:
        yield connected


def children(pid: int) -> set[int]:
    """Give the children of a process, zombies included."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(word) for each in found for word in each.read_text().split()}


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def kernel_descriptors(kernel: Kernel) -> Counter[str]:
    """Count the kernel's descriptors by what they are, such as sockets and event counters."""
    listing = "for f in sorted(p.iterdir()):\n    if f.is_symlink(): print(f.readlink())"
    shown = kernel.run(f"import pathlib; p = pathlib.Path('/proc/self/fd')\n{listing}").result()
    return Counter(re.sub(r"\d+", "N", line) for line in shown.text.splitlines())


def kernel_pid(kernel: Kernel) -> int:
    return int(kernel.run("import os; os.getpid()").result().text)


def test_a_branch_has_the_whole_state_and_leaves_none_behind(kernel: Kernel) -> None:
    kernel.run(
        "values = [1]; alias = values\n"
        "def numbers():\n    yield 1\n    yield 2\n"
        "steps = numbers(); first = next(steps); double = lambda n: 2 * n"
    ).result()
    with kernel.branch() as trial:
        assert trial.owned
        changed = trial.run("alias.append(2); del first; values, next(steps), double(4)").result()
        assert changed.text == "([1, 2], 2, 8)\n"
    assert kernel.run("values, alias is values, first, next(steps)").result().text == (
        "([1], True, 1, 2)\n"
    )


def test_a_cell_in_a_branch_is_numbered_as_the_next_one_of_the_kernel(kernel: Kernel) -> None:
    count = kernel.run("'last'").result().execution_count
    assert count is not None
    with kernel.branch() as trial:
        result = trial.run("In[-2], _i, Out.get(len(In) - 2), _").result()
    assert result.execution_count == count + 1
    assert result.text == "(\"'last'\", \"'last'\", 'last', 'last')\n"


def test_a_branch_is_a_whole_kernel(kernel: Kernel) -> None:
    with kernel.branch() as trial:
        assert trial.run("import asyncio\nawait asyncio.sleep(0.01); 'awaited'").result().text == (
            "'awaited'\n"
        )
        failed = trial.run("1 / 0").result()
        assert failed.error is not None
        assert failed.error.ename == "ZeroDivisionError"
        assert trial.run("print('printed')").result().text == "printed\n"
        raw = trial.run("import os; os.system('echo raw')\nNone").result().text
        late = "" if raw else trial.run("None").result().text  # it passes through a pipe
        assert raw + late == "raw\n"
        assert trial.run("!echo shell").result().text == "shell\n"
        assert trial.run("%%capture kept\nprint(3)").result().ok
        assert trial.run("kept.stdout").result().text == "'3\\n'\n"
        (shown,) = trial.run("from IPython.display import HTML; HTML('<b>x</b>')").result().outputs
        assert isinstance(shown, Display)
        assert shown.data["text/html"] == "<b>x</b>"
        stopped = trial.run("while True: pass", timeout=0.5).result(60)
        assert stopped.status == "timeout"
        assert trial.alive


def test_a_branch_branches_again_at_its_cell_boundaries(kernel: Kernel) -> None:
    kernel.run("level = [0]").result()
    with kernel.branch() as trial:
        trial.run("level.append(1)").result()
        with trial.branch() as second:
            assert second.run("level.append(2); level").result().text == "[0, 1, 2]\n"
        assert trial.run("level").result().text == "[0, 1]\n"
    assert kernel.run("level").result().text == "[0]\n"


def test_what_another_client_ran_meanwhile_is_in_the_next_branch(
    kernel: Kernel, stock: KernelManager
) -> None:
    """A copy of somebody else's kernel is never used twice, as nobody tells when it is old."""
    kernel.run("seen = 1").result()
    with kernel.branch() as trial:
        assert trial.run("seen").result().text == "1\n"
    with Kernel.connect(stock.connection_file) as other:
        other.run("seen = 2").result()
    with kernel.branch() as trial:
        assert trial.run("seen").result().text == "2\n"


@pytest.mark.parametrize(
    "cell",
    [
        "data.append(1); 1 / 0",
        "data.append(1); import os; os.kill(os.getpid(), 9)",
        "data.append(1)\nwhile True: pass",
        "data.append(1); import sys; sys.stdout = None",
    ],
    ids=["error", "kill", "loop", "broken stdout"],
)
def test_the_kernel_is_never_half_changed(kernel: Kernel, cell: str) -> None:
    kernel.run("data = []; same = data").result()
    with kernel.branch() as trial:
        trial.run(cell, timeout=0.5).result(60)
    assert kernel.run("data, same is data").result().text == "([], True)\n"


def test_random_draws_of_a_branch_are_those_the_kernel_would_have_made(kernel: Kernel) -> None:
    kernel.run("import random; random.seed(7)").result()
    with kernel.branch() as trial:
        drawn = trial.run("random.random()").result().text
    assert kernel.run("random.random()").result().text == drawn


def test_open_files_widgets_and_plots_go_along(kernel: Kernel, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one\ntwo\n")
    kernel.run(
        f"file = open({str(text)!r}); line = file.readline()\n"
        "%matplotlib inline\n"
        "import matplotlib.pyplot as plt, ipywidgets\n"
        "slider = ipywidgets.IntSlider(3)"
    ).result()
    with kernel.branch() as trial:
        assert trial.run("file.readline()").result().text == "'two\\n'\n"
        assert trial.run("slider.value = 5; slider.value").result().text == "5\n"
        (plot,) = trial.run("plt.plot([1, 2]); plt.show()").result().outputs
        assert isinstance(plot, Display)
        assert "image/png" in plot.data
    assert kernel.run("file.readline(), slider.value").result().text == "('two\\n', 3)\n"
    kernel.run("file.close(); slider.close()").result()


def test_threads_and_tasks_of_the_kernel_are_told_and_go_on_there(kernel: Kernel) -> None:
    kernel.run(
        "import asyncio, threading\n"
        "ticks = []; stop = threading.Event()\n"
        "def tick():\n"
        "    while not stop.wait(0.01): ticks.append(1)\n"
        "thread = threading.Thread(target=tick, name='ticker'); thread.start()\n"
        "async def never(): await asyncio.sleep(1000)\n"
        "task = asyncio.get_running_loop().create_task(never())\n"
        "await asyncio.sleep(0)"
    ).result()
    with kernel.checkpoint() as kept:
        lost = [each.detail for each in kept.hazards if each.verdict == "lost"]
        assert any("ticker" in detail for detail in lost)
        assert any("never" in detail for detail in lost)
        with kept.branch() as trial:
            still = trial.run("before = len(ticks); stop.wait(0.1); len(ticks) - before").result()
            assert still.text == "0\n"
            assert trial.run("thread.is_alive()").result().text == "False\n"
    grown = kernel.run(
        "n = len(ticks); stop.wait(0.2); more = len(ticks) > n; stop.set(); thread.join()\n"
        "task.cancel(); more"
    ).result()
    assert grown.text == "True\n"


def test_a_refused_branch_names_its_reason_and_harms_nothing(kernel: Kernel) -> None:
    kernel.run(
        "import sys, types\n"
        "torch = sys.modules['torch'] = types.ModuleType('torch')\n"
        "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)"
    ).result()
    with pytest.raises(BranchRefused, match="CUDA") as refused:
        kernel.branch().result()
    assert [each.verdict for each in refused.value.hazards].count("refuse") == 1  # type: ignore[attr-defined]
    assert kernel.run("del sys.modules['torch']; 'well'").result().text == "'well'\n"


def test_a_kernel_that_cannot_reach_our_socket_is_on_another_host(
    kernel: Kernel, tmp_path: Path
) -> None:
    package = str(Path(str(branching.__file__)).parent)
    asked = ask(kernel.core, "checkpoint", "take", package, str(tmp_path / "none"), "")
    told = Run(asked).result()
    assert told["status"] == "refused"
    assert told["hazards"][0]["detail"].startswith("it does not run on this host")


def test_a_kernel_of_another_language_is_refused(bash_kernel: str, tmp_path: Path) -> None:
    manager = KernelManager(kernel_name=bash_kernel, connection_file=str(tmp_path / "kernel.json"))
    with (tmp_path / "log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log)
        try:
            with (
                Kernel.connect(manager.connection_file) as kernel,
                pytest.raises(BranchRefused, match="only Python kernels can be copied"),
            ):
                kernel.branch().result()
        finally:
            manager.shutdown_kernel(now=True)


def test_thirty_branches_leave_no_process_no_descriptor_and_no_folder(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    pid = kernel_pid(kernel)
    with kernel.branch() as trial:
        folder = Path(trial.connection_file).parent
        trial.run("1").result()
    until(lambda: not children(pid))
    theirs, own = kernel_descriptors(kernel), descriptors()
    for _ in range(30):
        with kernel.branch() as trial:
            assert trial.run("1 + 1").result().text == "2\n"
    until(lambda: not children(pid))
    # ipykernel gives a thread that shows something for the first time a pipe of its own.
    more = kernel_descriptors(kernel) - theirs
    assert more.total() < 3, more
    until(lambda: descriptors() <= own)
    assert not list(folder.parent.glob(f"{folder.name}*"))


def test_a_session_process_that_left_its_group_ends_with_its_branch(
    kernel: Kernel, until: Callable[..., None], is_running: Callable[[int], bool]
) -> None:
    with kernel.branch() as trial:
        started = "import subprocess\nsubprocess.Popen(['sleep', '99'], start_new_session=True).pid"
        sleeper = int(trial.run(started).result().text)
        assert is_running(sleeper)
    until(lambda: not is_running(sleeper))


def test_an_accepted_cell_runs_once_in_the_kernel(kernel: Kernel) -> None:
    kernel.run("runs = 0; rows = [3, 1, 2]").result()
    source = "runs += 1; rows.sort(); total = sum(rows); print(total)"
    with kernel.branch() as trial:
        assert trial.run(source).result().ok
        committed = kernel.commit(trial, source).result()
    assert committed.same
    assert committed.differences == ()
    assert committed.result.text == "6\n"
    assert kernel.run("runs, rows, total").result().text == "(1, [1, 2, 3], 6)\n"


def test_a_commit_that_ends_elsewhere_names_what_differs(kernel: Kernel) -> None:
    kernel.run("import os; base = 1").result()
    source = "process = os.getpid(); base += 1"
    with kernel.branch() as trial:
        trial.run(source).result()
        committed = kernel.commit(trial, source).result()
    assert not committed.same
    assert committed.result.ok
    assert committed.differences == ("process has another value",)


def test_a_commit_that_fails_is_a_value(kernel: Kernel) -> None:
    kernel.run("ready = True").result()
    source = "assert ready; done = 1"
    with kernel.branch() as trial:
        trial.run(source).result()
        kernel.run("ready = False").result()
        committed = kernel.commit(trial, source).result()
    assert not committed.same
    assert committed.result.status == "error"
    assert "done is missing" in committed.differences


def test_a_commit_whose_kernel_cannot_tell_what_it_holds_has_run_all_the_same(
    kernel: Kernel,
) -> None:
    process = kernel.run("import os, sys; ran = 0; os.getpid()").result().text.strip()
    source = f"""\
ran += 1
if os.getpid() == {process}:
    helpers = next(m for n, m in sys.modules.items() if n.startswith("_nbrefine_"))
    call, helpers.link.call = helpers.link.call, None
"""
    with kernel.branch() as trial:
        trial.run(source).result()
        committed = kernel.commit(trial, source).result()
    assert kernel.run("helpers.link.call = call; ran").result().text == "1\n"
    assert committed.result.ok
    assert not committed.same
    (told,) = committed.differences
    assert "what it holds now could not be read: A call into the kernel failed" in told


def test_a_branch_ends_with_the_kernel_that_its_owner_ends(
    kernel: Kernel, stock: KernelManager, until: Callable[..., None]
) -> None:
    """Killed or restarted by its server: the branch is ours and lives until it is closed."""
    kernel.run("kept = 'state'").result()
    with kernel.branch() as trial:
        os.kill(kernel_pid(kernel), signal.SIGKILL)
        until(lambda: not kernel.alive)
        assert trial.run("kept").result().text == "'state'\n"


def test_a_kernel_that_lacks_what_a_copy_needs_goes_on_without_one(kernel: Kernel) -> None:
    before = children(kernel.info.pid or 0)
    kernel.run("import os\nwas, os.pidfd_open = os.pidfd_open, None").result()
    try:
        with pytest.raises(KernelError, match="'NoneType' object is not callable"):
            kernel.branch().result(20)  # the copy is there already
        assert children(kernel.info.pid or 0) == before
        assert kernel.run("1 + 1").result(20).text == "2\n"
    finally:
        kernel.run("os.pidfd_open = was").result()


def test_a_kernel_without_standard_streams_is_branched(kernel: Kernel) -> None:
    kernel.run("kept, saved = [os.dup(each) for each in range(3)], 5").result()
    kernel.run("for each in range(3): os.close(each)").result()
    try:
        with kernel.branch() as trial:
            assert trial.run("saved").result(20).text == "5\n"
    finally:
        kernel.run("for each in range(3): os.dup2(kept[each], each)").result()
