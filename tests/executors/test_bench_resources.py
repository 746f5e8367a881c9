"""Nothing is left of a check or of a bench: no process, no descriptor, no folder."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from nbrefine.errors import ExecutorError, RunStopped, UsageError
from nbrefine.executors import Bench
from tests.conftest import missing

ADD = "def add(a, b):\n    return a + b"
TEST = "assert add(1, 2) == 3"
FOREVER = "while True: pass"


def family(pid: int | None = None) -> set[int]:
    """The processes beneath one, this one where none is given."""
    return {each.pid for each in psutil.Process(pid).children(recursive=True)}


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for a condition, with a limit far beyond what it should take."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def name_of(pid: int) -> str:
    """How a process calls itself; "" where it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else process.name()
    return ""


def gone(pids: set[int]) -> bool:
    return not any(map(name_of, pids))


_others: set[int] = set()
"""Processes beneath this one that were there before a test, as of a bench of another file's."""


def named(name: str) -> set[int]:
    """The processes beneath this one that call themselves so, since the test began."""
    return {pid for pid in family() - _others if name_of(pid) == name}


@pytest.fixture(scope="module")
def warm() -> None:
    """Have what is made once and stays: the portal, and what its first uses import."""
    with Bench(workers=1) as bench:
        bench.check(ADD, TEST).result()


@pytest.fixture
def others() -> set[int]:
    """The processes beneath this one that are none of the test's."""
    _others.clear()
    _others.update(family())
    return _others


@pytest.fixture
def clean(
    warm: None, others: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder for temporary files that must be as empty afterwards, like all that is held."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    descriptors = psutil.Process().num_fds()
    yield tmp_path
    until(lambda: family() <= others)
    until(lambda: psutil.Process().num_fds() <= descriptors)
    assert list(tmp_path.iterdir()) == []


def test_many_checks_and_a_close_leave_nothing(clean: Path) -> None:
    with Bench(workers=2) as bench:
        assert bench.check(ADD, TEST).result().verdict == "solved"
        descriptors = psutil.Process().num_fds()
        runs = [bench.check(ADD, TEST) for _ in range(20)]
        assert [run.result().verdict for run in runs] == ["solved"] * 20
        until(lambda: psutil.Process().num_fds() <= descriptors)
        # A fork has the name of its nursery until it gives itself one.
        until(lambda: len(named("nb-candidates") | named("nb-testers")) == 2)
        nurseries = named("nb-candidates") | named("nb-testers")
        until(lambda: {each for pid in nurseries for each in family(pid)} <= named("nb-room"))
        bench.close()  # and once more by the block


def test_one_check_after_the_other_is_in_the_same_room(clean: Path) -> None:
    def reused() -> bool:  # unless a busy host kept the code from leaving by itself
        rooms = named("nb-room")
        bench.check(ADD, TEST).result()
        return bool(rooms) and named("nb-room") == rooms

    with Bench(workers=1) as bench:
        result = bench.check(ADD, TEST).result()
        if not any("(namespaces)" in words for words in result.isolation):
            missing("a namespace of one's own")
        until(reused)


def test_tests_that_do_not_end_by_themselves_are_ended(clean: Path) -> None:
    tests = f"""
import sys, time
class Endless:
    def write(self, text): pass
    def flush(self): time.sleep(600)
sys.stdout = Endless()
{TEST}
"""
    with Bench(workers=1) as bench:
        assert bench.check(ADD, tests).result(60).verdict == "solved"
        until(lambda: not named("nb-tester"))


def test_nothing_is_started_before_the_first_check(clean: Path) -> None:
    before = family()
    with Bench():
        assert family() <= before


def test_a_closed_bench_refuses(clean: Path) -> None:
    bench = Bench(workers=1)
    bench.close()
    with pytest.raises(UsageError, match="closed"):
        bench.check(ADD, TEST).result()


def test_closing_stops_the_checks_that_run_and_those_that_wait(clean: Path) -> None:
    bench = Bench(workers=1)
    runs = [bench.check(FOREVER, TEST, timeout=3600) for _ in range(3)]
    until(lambda: family(min(named("nb-testers"), default=None)))
    bench.close()
    for run in runs:
        with pytest.raises(RunStopped):
            run.result(10)


def test_a_run_that_is_stopped_leaves_room_for_the_next(clean: Path) -> None:
    with Bench(workers=1) as bench:
        bench.check(ADD, TEST).result()
        (testers,) = named("nb-testers")
        run = bench.check(FOREVER, TEST, timeout=3600)
        until(lambda: family(testers))
        run.stop()
        with pytest.raises(RunStopped):
            run.result(10)
        until(lambda: not family(testers))
        assert bench.check(ADD, TEST).result(30).verdict == "solved"


def test_a_bench_that_nobody_refers_to_goes_away(clean: Path, others: set[int]) -> None:
    bench = Bench(workers=1)
    bench.check(ADD, TEST).result()
    processes = family() - others
    del bench
    gc.collect()
    until(lambda: gone(processes))


LEFT_BEHIND = """
import os, signal, subprocess, sys, time
def leave(how):
    if how == "daemon":
        subprocess.Popen(["setsid", "sleep", "3600"])
    elif how == "orphan":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                signal.pause()
            os._exit(0)
        os.wait()
    elif how == "storm":
        while True:
            try:
                os.fork()
            except OSError:
                pass
    return True
"""


@pytest.mark.parametrize("how", ["daemon", "orphan"])
def test_what_the_code_has_left_running_ends_with_it(clean: Path, how: str) -> None:
    with Bench(workers=1) as bench:
        assert bench.check(LEFT_BEHIND, f"assert leave({how!r})").result().verdict == "solved"
        (candidates,) = named("nb-candidates")
        until(lambda: family(candidates) <= named("nb-room"))
        assert bench.check(ADD, TEST).result().verdict == "solved"


def test_a_storm_of_processes_ends_with_its_time(clean: Path) -> None:
    with Bench(workers=1) as bench:
        result = bench.check(LEFT_BEHIND, "assert leave('storm')", timeout=1).result(60)
        assert result.verdict == "timeout"
        (candidates,) = named("nb-candidates")
        until(lambda: family(candidates) <= named("nb-room"))
        assert bench.check(ADD, TEST).result(60).verdict == "solved"


def test_files_of_the_code_are_gone(clean: Path) -> None:
    code = "import pathlib\ndef f():\n    pathlib.Path('left').write_text('x')\n    return 1"
    tests = (
        "import os\n"
        "open('by the tests', 'w').close()\n"
        "assert f() == 1\n"
        "assert os.listdir() == ['by the tests']"
    )
    with Bench(workers=1) as bench:
        for _ in range(2):
            assert bench.check(code, tests).result().verdict == "solved"


@pytest.mark.parametrize("which", ["nb-candidates", "nb-testers"])
def test_a_nursery_that_is_killed_between_checks_is_replaced(clean: Path, which: str) -> None:
    with Bench(workers=1) as bench:
        bench.check(ADD, TEST).result()
        (nursery,) = named(which)
        os.kill(nursery, signal.SIGKILL)
        until(lambda: nursery not in named(which))
        assert bench.check(ADD, TEST).result(60).verdict == "solved"


def test_a_guard_that_is_killed_takes_all_with_it(
    others: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of it alone a folder is left, which is swept away some day."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Bench(workers=1) as bench:
        run = bench.check(FOREVER, TEST, timeout=3600)
        until(lambda: named("nb-candidate"))
        before = family() - others
        for pid in named("nb-guard"):
            os.kill(pid, signal.SIGKILL)
        until(lambda: gone(before))
        run.stop()
        assert bench.check(ADD, TEST).result(60).verdict == "solved"


@pytest.mark.parametrize("which", ["nb-candidates", "nb-testers"])
def test_a_check_whose_nursery_is_killed_is_done_again(
    clean: Path, tmp_path_factory: pytest.TempPathFactory, which: str
) -> None:
    """The first time the test waits to be killed, the second time it finds its own mark."""
    mark = tmp_path_factory.mktemp("mark") / "begun"
    tests = (
        f"import pathlib, time\nmark = pathlib.Path({str(mark)!r})\n"
        "def once():\n"
        "    if mark.exists():\n"
        "        return True\n"
        "    mark.touch()\n"
        "    time.sleep(3600)\n"
        "assert once() and add(1, 2) == 3"
    )
    with Bench(workers=1) as bench:
        run = bench.check(ADD, tests, timeout=60)
        until(mark.exists)
        (nursery,) = named(which)
        os.kill(nursery, signal.SIGKILL)
        assert run.result(60).verdict == "solved"


def test_a_check_that_is_lost_twice_is_the_hosts_trouble(
    clean: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    marks = tmp_path_factory.mktemp("marks")
    tests = (
        "import os, pathlib, time\n"
        f"(pathlib.Path({str(marks)!r}) / str(os.getpid())).touch()\n"
        "def wait():\n    time.sleep(3600)\n"
        "assert wait()"
    )
    with Bench(workers=1) as bench:
        run = bench.check(ADD, tests, timeout=60)
        for times in (1, 2):
            until(lambda times=times: len(list(marks.iterdir())) == times)  # type: ignore[misc]
            for pid in named("nb-testers"):
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(ExecutorError, match="twice"):
            run.result(60)


CONTROLLER = """
import sys
from nbrefine.executors import Bench
bench = Bench(workers=1)
bench.check("x = 1", "assert x == 1").result()
run = bench.check("while True: pass", "assert True", timeout=3600)
print("ready", flush=True)
run.result()
"""


def test_a_controller_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    words = [sys.executable, "-c", CONTROLLER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"ready\n"
        until(lambda: len(family(controller.pid)) >= 6)
        processes = family(controller.pid)
        controller.kill()
    until(lambda: gone(processes))
    until(lambda: list(tmp_path.iterdir()) == [])


def test_a_controller_that_ends_without_closing_leaves_nothing(tmp_path: Path) -> None:
    script = CONTROLLER.replace("run.result()", "").replace('print("ready", flush=True)', "")
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    words = [sys.executable, "-W", "error", "-c", script]
    ran = subprocess.run(words, env=environment, capture_output=True, check=True, timeout=60)
    assert ran.stderr == b""
    assert list(tmp_path.iterdir()) == []


FORKED = """
import os
from nbrefine.executors import Bench
bench = Bench(workers=1)
assert bench.check("x = 1", "assert x == 1").result().verdict == "solved"
pid = os.fork()
verdict = bench.check("x = 1", "assert x == 1").result().verdict
bench.close()
if pid == 0:
    os._exit(0 if verdict == "solved" else 1)
assert os.waitpid(pid, 0)[1] == 0
assert verdict == "solved"
"""


def test_a_fork_of_the_controller_has_a_bench_of_its_own(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", FORKED], env=environment, check=True, timeout=60)
    assert list(tmp_path.iterdir()) == []
