"""Sessions: what belongs to one ends with it, and what belongs to a branch ends with the branch."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbrefine._portal import Run
from nbrefine.errors import KernelStartError, RunStopped
from nbrefine.kernel import Kernel
from nbrefine.kernel.processes import forking
from nbrefine.kernel.processes.forked import Fresh
from nbrefine.kernel.processes.forking import forked_pids, nurseries
from nbrefine.kernel.processes.keeper import Keeper


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the test's own, short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.fixture
def kernel(base: Path) -> Iterator[Kernel]:
    with Kernel.start() as started:
        yield started


def keeper_of(kernel: Kernel) -> Keeper:
    process = kernel.core.link.process
    assert process is not None
    assert process.keeper is not None
    return process.keeper


START = """
import os, subprocess
child = subprocess.Popen(["sleep", "93"])
leader = subprocess.Popen(["sleep", "94"], start_new_session=True)
middle = subprocess.run(
    ["sh", "-c", "setsid sleep 95 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True
)
print(child.pid, leader.pid, middle.stdout.strip())
"""
"""Starts a child, one with a session of its own, and one whose parent has ended."""


def start_three(kernel: Kernel) -> list[int]:
    result = kernel.run(START).result()
    assert result.ok, result
    return [int(pid) for pid in result.text.split()]


def test_a_session_counts_its_kernels_and_ends_with_the_last(
    kernel: Kernel, base: Path, is_running: Callable[[int], bool]
) -> None:
    keeper = keeper_of(kernel)
    assert is_running(keeper.nursery.pid)
    branch = kernel.branch().result()
    branch.close()
    assert is_running(keeper.nursery.pid)
    started = start_three(kernel)
    kernel.shutdown().result()
    assert [pid for pid in (keeper.nursery.pid, *started) if is_running(pid)] == []
    assert list(base.iterdir()) == []
    assert keeper.nursery not in nurseries


def test_a_closed_branch_takes_what_it_started_and_nothing_of_others(
    kernel: Kernel, is_running: Callable[[int], bool], until: Callable[..., None]
) -> None:
    of_kernel = start_three(kernel)
    with kernel.branch() as one, kernel.branch() as other:
        of_one, of_other = start_three(one), start_three(other)
        with one.branch() as below:
            of_below = start_three(below)
            one.close()
            until(lambda: not any(map(is_running, of_one)))
            assert all(map(is_running, [*of_kernel, *of_other, *of_below]))
            assert below.run("child.pid").result().text == f"{of_below[0]}\n"
        until(lambda: not any(map(is_running, of_below)))
        assert all(map(is_running, [*of_kernel, *of_other]))
    until(lambda: not any(map(is_running, of_other)))
    assert all(map(is_running, of_kernel))


def test_a_closed_branch_leaves_no_file_in_the_sessions_folder(kernel: Kernel) -> None:
    kernel.branch().result().close()
    before = sorted(keeper_of(kernel).folder.iterdir())
    with kernel.branch() as branch:
        branch.run("1").result()
        assert len(branch.connection_file) < 107
        assert Path(branch.connection_file).is_file()
        assert sorted(keeper_of(kernel).folder.iterdir()) != before
    assert sorted(keeper_of(kernel).folder.iterdir()) == before


def test_a_branch_that_is_stopped_while_it_is_made_leaves_no_file_and_no_note_of_it(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    folder = keeper_of(kernel).folder
    with kernel.checkpoint().result() as checkpoint:
        checkpoint.branch().result().close()
        nursery = next(each for each in nurseries if each.pid == checkpoint.copy.pid)
        before, known = sorted(folder.iterdir()), set(forked_pids)
        for milliseconds in (0, 2, 4, 6, 8, 10, 12, 15, 20, 25, 30, 40):
            starting = checkpoint.branch()
            time.sleep(milliseconds / 1000)  # a moment within the start
            starting.stop()
            with contextlib.suppress(RunStopped):
                starting.result(30).close()
        until(lambda: sorted(folder.iterdir()) == before)
        assert forked_pids == known
        assert Run(nursery.answers(10)).result()
        assert nursery._exits == {}


def test_what_a_replaced_kernel_has_started_goes_on_until_the_session_ends(
    kernel: Kernel, is_running: Callable[[int], bool], until: Callable[..., None]
) -> None:
    started = start_three(kernel)
    old = kernel.info.pid
    branch = kernel.branch().result()
    kernel.adopt(branch).result()
    assert kernel.info.pid != old
    until(lambda: not is_running(old or 0))
    assert all(map(is_running, started))
    kernel.shutdown().result()
    assert not any(map(is_running, started))


def test_what_a_crashed_branch_has_forked_ends_with_it_also_in_a_session_of_its_own(
    kernel: Kernel, is_running: Callable[[int], bool], until: Callable[..., None]
) -> None:
    source = "import os, time\npid = os.fork()\nif pid == 0: os.setsid(); time.sleep(60)\npid"
    with kernel.branch() as branch:
        pid = int(branch.run(source).result().text)
        assert branch.run("os._exit(1)").result().status == "died"
        assert is_running(pid)
    until(lambda: not is_running(pid))
    assert kernel.run("6 * 7").result().text == "42\n"


def test_the_exit_of_an_adopted_branch_is_known(kernel: Kernel) -> None:
    kernel.adopt(kernel.branch().result()).result()
    kernel.run("1").result()
    result = kernel.run("import os; os._exit(7)").result(30)
    assert result.death is not None
    assert (result.death.exit_code, result.death.signal) == (7, "")
    assert result.death.peak_memory is not None


def test_the_exit_of_a_session_below_a_checkpoint_that_is_held_is_known_at_once(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forking, "_EXIT", 60.0)  # how long one waits for who tells it
    with kernel.checkpoint().result() as held:
        kernel.rollback(held).result()
        began = time.monotonic()
        died = kernel.run("import os; os._exit(3)").result()
        assert died.death is not None
        assert died.death.exit_code == 3
        assert time.monotonic() - began < 30


def test_a_restart_is_forked_from_the_same_keeper_with_nothing_of_before(kernel: Kernel) -> None:
    keeper = keeper_of(kernel)
    kernel.run("import json; json.mine = 1; x = 1").result()
    kernel.restart().result()
    assert keeper_of(kernel) is keeper
    source = "import json; hasattr(json, 'mine'), 'x' in globals(), len(In)"
    assert kernel.run(source).result().text == "(False, False, 2)\n"


def test_a_kernel_outlives_its_keeper_and_its_restart_has_a_new_one(
    kernel: Kernel, is_running: Callable[[int], bool], until: Callable[..., None]
) -> None:
    old = keeper_of(kernel)
    os.kill(old.nursery.pid, signal.SIGKILL)
    assert kernel.run("6 * 7").result().text == "42\n"
    started = start_three(kernel)
    kernel.restart().result()
    new = keeper_of(kernel)
    assert new is not old
    assert is_running(new.nursery.pid)
    assert kernel.run("6 * 7").result().text == "42\n"
    until(lambda: not any(map(is_running, started)))
    assert not old.folder.exists()


def test_each_kernel_of_a_session_has_a_mark_of_its_own(kernel: Kernel) -> None:
    look = "import os; print(os.environ['NBREFINE_KERNEL'], 'JPY_PARENT_PID' in os.environ)"
    with kernel.branch() as branch:
        marks = [each.run(look).result().text.split() for each in (kernel, branch)]
    (own, _), (other, _) = marks
    assert Path(own).parent == Path(other).parent == keeper_of(kernel).folder
    assert own != other
    assert [seen for _, seen in marks] == ["False", "False"]


def test_many_branches_leave_no_descriptor_process_or_number(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    keeper = keeper_of(kernel)

    def held() -> tuple[int, int, int, int]:
        below = psutil.Process(keeper.nursery.pid).children(recursive=True)
        own, theirs = (psutil.Process(pid).num_fds() for pid in (os.getpid(), keeper.nursery.pid))
        return len(below), own, len(forked_pids), theirs

    def branch() -> None:
        with kernel.branch() as trial:
            trial.run("1").result()
        kernel.run("1").result()  # so that the next branch comes from a new checkpoint

    for _ in range(3):
        branch()
    until(lambda: held()[0] == 1)  # the kernel itself
    before = held()
    for _ in range(20):
        branch()
    until(lambda: held() == before)


@pytest.mark.parametrize("branches", [False, True])
def test_what_cannot_be_connected_to_is_ended(
    base: Path, monkeypatch: pytest.MonkeyPatch, until: Callable[..., None], branches: bool
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with contextlib.ExitStack() as stack:
        kernel = stack.enter_context(Kernel.start()) if branches else None
        start = kernel.branch if kernel else Kernel.start
        if kernel:
            kernel.branch().result().close()
        before, kernels = set(forked_pids), set(base.iterdir())
        with monkeypatch.context() as patch:
            patch.setattr("nbrefine.kernel.link.Channels", full)
            with pytest.raises((OSError, KernelStartError), match="Too many"):
                start().result(60)
        until(lambda: forked_pids == before and set(base.iterdir()) == kernels)


def test_a_program_that_is_no_interpreter_is_started_plainly(
    kernelspec: Callable[..., str], tmp_path: Path
) -> None:
    """What `python -m ipykernel` runs is not known before it is tried."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho no licence >&2\nexit 4\n")
    script.chmod(0o755)
    name = kernelspec("script", str(script), "-m", "ipykernel", "-f", "{connection_file}")
    with pytest.raises(Exception, match=r"(?s)exit code 4.*no licence"):
        Kernel.start(name).result(60)


def test_options_environment_and_arguments_of_a_kernelspec_hold(
    kernelspec: Callable[..., str],
) -> None:
    argv = (sys.executable, "-X", "dev", "-m", "ipykernel", "-f", "{connection_file}")
    name = kernelspec(
        "special",
        *argv,
        "--InteractiveShell.xmode=Minimal",
        env={"GREETING": "hello ${USERNAME_FOR_TEST}", "SAME": "1"},
    )
    with Kernel.start(name, env={"USERNAME_FOR_TEST": "you"}) as kernel:
        assert keeper_of(kernel).alive
        source = (
            "import os, sys\n"
            "print(os.environ['GREETING'], sys.flags.dev_mode, get_ipython().InteractiveTB.mode)"
        )
        assert kernel.run(source).result().text == "hello you True Minimal\n"


def test_why_a_kernel_cannot_branch_is_kept(
    bash_kernel: str, kernelspec: Callable[..., str]
) -> None:
    def reason(kernel: Kernel) -> str:
        process = kernel.core.link.process
        assert process is not None
        assert (process.keeper is None) == bool(process.unbranchable)
        return process.unbranchable

    with Kernel.start() as kernel:
        assert reason(kernel) == ""
    with Kernel.start(plain=True) as kernel:
        assert reason(kernel) == "it was started plainly"
    with Kernel.start(bash_kernel) as kernel:
        assert reason(kernel) == "it is not started by `python -m ipykernel`"


def test_an_interpreter_that_cannot_fork_is_started_plainly_and_says_why_not(
    tmp_path: Path, kernelspec: Callable[..., str]
) -> None:
    # What ipykernel 6 lacks is taken away where kernels are forked, as its own program needs it.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if any(word.endswith('launch.py') for word in sys.orig_argv):\n"
        "    sys.modules['ipykernel.shellchannel'] = None\n"
    )
    argv = (sys.executable, "-m", "ipykernel", "-f", "{connection_file}")
    name = kernelspec("old", *argv, env={"PYTHONPATH": str(tmp_path)})
    with Kernel.start(name) as kernel:
        process = kernel.core.link.process
        assert process is not None
        assert process.keeper is None
        assert "ipykernel.shellchannel; ipykernel 7.2 has" in process.unbranchable
        assert kernel.run("6 * 7").result().text == "42\n"


def test_the_portal_is_never_held_up_while_branches_are_closed(kernel: Kernel) -> None:
    pauses: list[float] = []

    async def beat() -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.001)
            pauses.append(loop.time() - before - 0.001)

    async def measure() -> None:
        branches = [await kernel.branch() for _ in range(4)]
        beating = asyncio.ensure_future(beat())
        await asyncio.sleep(0)
        for each in branches:
            await each.aclose()
        beating.cancel()

    Run(measure()).result()
    # A limit for a busy machine; on a quiet one the longest pause is 3 ms.
    assert max(pauses) < 0.25


def test_a_kernel_that_cannot_be_set_up_in_a_fork_is_started_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernelspec: Callable[..., str]
) -> None:
    monkeypatch.setattr("nbrefine.kernel.processes.evidence._known", {})
    # A change of ipykernel that is noticed only when the sockets are made.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "from ipykernel import iostream\n"
        "plain = iostream.IOPubThread.__init__\n"
        "def changed(*given, **settings):\n"
        "    if sys._getframe(1).f_globals['__name__'].startswith('_nbrefine'):\n"
        "        raise TypeError('an argument too many')\n"
        "    plain(*given, **settings)\n"
        "iostream.IOPubThread.__init__ = changed\n"
    )
    argv = (sys.executable, "-m", "ipykernel", "-f", "{connection_file}")
    name = kernelspec("changed", *argv, env={"PYTHONPATH": str(tmp_path)})
    forks = []
    start = Fresh.start

    async def counted(*given: Any, **settings: Any) -> Fresh:
        forks.append(given)
        return await start(*given, **settings)

    monkeypatch.setattr(Fresh, "start", counted)
    for _ in range(2):
        with Kernel.start(name) as kernel:
            process = kernel.core.link.process
            assert process is not None
            assert process.keeper is None
            assert process.unbranchable.endswith("set up: TypeError: an argument too many")
            assert kernel.run("6 * 7").result().text == "42\n"
    assert len(forks) == 1  # the second start knows
