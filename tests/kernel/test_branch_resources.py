"""What branches use goes away with them, however they end and however many there were."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbrefine.errors import KernelDeadError
from nbrefine.kernel import Kernel

MANY = Path(__file__).with_name("many_branches.py")

STATE = 100e6
"""Bytes of the state in `many_branches.py`: its table, its words, and numpy."""


def many(kind: str, count: int) -> dict[str, Any]:
    """Branch often within 256 descriptors, and give what is there before, afterwards and left."""
    done = subprocess.run(
        [sys.executable, MANY, kind, str(count)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    told: dict[str, Any] = json.loads(done.stdout)
    return told


SHARE = 1 if os.environ.get("NBREFINE_FULL") == "1" else 3
"""By what the counts below are divided; a leak of any thing per branch shows in either."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "count"), [("siblings", 1500), ("fresh", 500)])
def test_two_thousand_siblings_leave_nothing(kind: str, count: int) -> None:
    """Of one checkpoint, eight at a time; and of a checkpoint each.

    A third of them unless NBREFINE_FULL=1 is set: all take minutes.
    """
    told = many(kind, count // SHARE)
    assert told["after"] == told["before"]
    assert told["after"]["zombies"] == 0
    assert told["pss"] <= STATE + 100e6
    assert told["left"] == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_chain_of_five_hundred_adoptions_leaves_nothing() -> None:
    """A third of them unless NBREFINE_FULL=1 is set."""
    told = many("chain", 500 // SHARE)
    assert told["after"] == told["before"]
    assert told["after"]["processes"] == {"nb-keeper": 1, "nb-kernel": 1}
    assert told["pss"] <= STATE + 100e6
    assert told["left"] == {}


@pytest.fixture(scope="module")
def owner() -> Any:
    others.update(beneath())
    with Kernel.start(preload=()) as kernel:
        kernel.run("import os, subprocess\nn = 1").result()
        yield kernel


others: dict[int, str] = {}
"""Processes of other files' tests, with their names."""


def family(owner: Kernel) -> dict[int, str]:
    """Give the processes beneath this one that are not the kernel's own, with their names."""
    return {
        pid: name
        for pid, name in beneath().items()
        if pid != owner.info.pid and pid not in others and name not in ("nb-template", "nb-keeper")
    }


def beneath() -> dict[int, str]:
    """Give the processes beneath this one, with their names."""
    found = {os.getpid()}
    names: dict[int, str] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            parents[int(entry.name)] = int(tail.split()[1])
            names[int(entry.name)] = head.partition("(")[2]
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return {pid: names[pid] for pid in found - {os.getpid()}}


@pytest.fixture
def nothing_left(owner: Kernel, until: Callable[..., None]) -> Callable[[], None]:
    """Wait until there is nothing but the kernel and its own things."""

    def facts() -> tuple[int, int]:
        folder = Path(owner.connection_file).parent
        return len(list(Path("/proc/self/fd").iterdir())), len(list(folder.rglob("*")))

    owner.branch().result().close()

    def wait() -> None:
        assert owner.run("n").result().text == "1\n"  # what was there is no copy of it any more
        until(lambda: family(owner) == {})

    wait()
    before = facts()

    def check() -> None:
        wait()
        until(lambda: facts() == before)

    return check


def test_an_exception_in_the_block_ends_the_branch(
    owner: Kernel, nothing_left: Callable[[], None]
) -> None:
    trials: list[Kernel] = []

    def work() -> None:
        with owner.branch() as trial:
            trials.append(trial)
            trial.run("n = 2; subprocess.Popen(['sleep', '97'], start_new_session=True)").result()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with pytest.raises(KernelDeadError):
        trials[0].run("n").result()
    nothing_left()


@pytest.mark.parametrize("moment", [0.0, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05])
def test_a_branch_that_is_given_up_while_it_is_made_leaves_nothing(
    owner: Kernel, nothing_left: Callable[[], None], moment: float
) -> None:
    async def give_up() -> None:
        await owner.run("n = 1")  # so that a checkpoint is made anew
        making = asyncio.ensure_future(made())
        await asyncio.sleep(moment)
        making.cancel()
        await asyncio.wait({making})
        if not making.cancelled():  # it was there already
            await making.result().aclose()

    async def made() -> Kernel:
        return await owner.branch()

    asyncio.run(give_up())
    nothing_left()


def test_a_cell_that_is_cancelled_in_a_branch_leaves_nothing(
    owner: Kernel, nothing_left: Callable[[], None]
) -> None:
    async def cancelled() -> None:
        async with owner.branch() as trial:
            running = asyncio.ensure_future(endless(trial))
            await asyncio.sleep(0.1)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert (await trial.run("n")).text == "1\n"

    async def endless(trial: Kernel) -> None:
        await trial.run("while True: pass", timeout=None)

    asyncio.run(cancelled())
    nothing_left()


def test_a_kernel_that_dies_leaves_its_branches_alive_and_both_end_with_it(
    until: Callable[..., None], is_running: Callable[[int], bool]
) -> None:
    with Kernel.start(preload=()) as kernel:
        kernel.run("n = 1").result()
        with kernel.checkpoint().result() as safe, kernel.branch() as trial:
            assert kernel.run("import os; os._exit(1)").result().status == "died"
            assert trial.run("n").result().text == "1\n"
            with safe.branch() as another:
                assert another.run("n").result().text == "1\n"
            pids = [trial.info.pid, safe.copy.pid]
    until(lambda: not any(is_running(pid) for pid in pids if pid))


CONTROLLER = """
    import os, subprocess, sys
    from nbrefine.kernel import Kernel

    start = (
        "import os, subprocess\\n"
        "p = subprocess.Popen(['sleep', '98'], start_new_session=True)\\n"
        "q = subprocess.Popen(['sleep', '98'])\\n"
        "print(os.getpid(), p.pid, q.pid)"
    )
    try:
        with Kernel.start() as kernel:
            pids = kernel.run(start).result().text
            with kernel.checkpoint().result() as first:
                kernel.run("x = 1").result()
                with kernel.checkpoint().result() as second, kernel.branch() as trial:
                    pids += trial.run(start).result().text
                    with trial.branch() as inner, first.branch() as other:
                        pids += inner.run(start).result().text + other.run(start).result().text
                        print(*pids.split(), first.copy.pid, second.copy.pid, flush=True)
                        print(os.path.dirname(kernel.connection_file), flush=True)
                        inner.run("while True: pass", timeout=None).result()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_controller_that_is_interrupted_or_killed(
    tmp_path: Path,
    until: Callable[..., None],
    is_running: Callable[[int], bool],
    number: signal.Signals,
) -> None:
    """Kernel, two checkpoints, three branches, and what cells have started, in sessions too."""
    log = tmp_path / "errors.txt"
    with log.open("w") as errors:
        controller = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CONTROLLER)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with controller:
        assert controller.stdout is not None
        pids = [int(pid) for pid in controller.stdout.readline().split()]
        assert len(pids) == 14, log.read_text()
        folder = Path(controller.stdout.readline().strip())
        assert all(is_running(pid) for pid in pids)
        assert folder.is_dir()
        controller.send_signal(number)
        until(lambda: not any(is_running(pid) for pid in pids))
        until(lambda: not folder.exists())
        assert controller.wait(30) == (0 if number == signal.SIGINT else -number)
        assert controller.stdout.read() == ("interrupted\n" if number == signal.SIGINT else "")
    assert "Traceback" not in log.read_text()


def test_a_branch_that_started_processes_leaves_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    cell = """
        import multiprocessing
        with multiprocessing.get_context("forkserver").Pool(1) as pool:
            print(pool.map(abs, [-1, -2]))
        with multiprocessing.get_context("fork").Manager() as manager:
            print(manager.list([3]))
    """
    with Kernel.start() as kernel:
        with kernel.branch() as trial:
            result = trial.run(textwrap.dedent(cell)).result()
            assert result.text == "[1, 2]\n[3]\n"
        assert [each.name for each in tmp_path.glob("pymp-*")] == []
        assert kernel.run(textwrap.dedent(cell)).result().text == "[1, 2]\n[3]\n"
    assert list(tmp_path.iterdir()) == []
