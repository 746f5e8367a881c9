"""What is left of processes, threads, descriptors, files and folders once the work has ended."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from nbrefine.errors import NbrefineError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.solving import resume, solve, start_solving
from nbrefine.values import Message

STEP = "```python\nitems = ['a']\nopen('out.txt', 'a').write('x')\n```"
MORE = "```python\nitems.append('b')\nopen('out.txt', 'a').write('y')\n```"
FAILS = "```python\nitems.clear()\n1 / 0\n```"
HANGS = "```python\nwhile True: pass\n```"
STEPS = [{"goal": "Begin.", "check": "len(items) == 1"}, {"goal": "Go on.", "check": "items[1]"}]


def held() -> Counter[str]:
    """Count what this process has: threads and descriptors by kind, and processes beneath it."""
    found = Counter(thread.name.rstrip("0123456789_") for thread in threading.enumerate())
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[str(entry.readlink()).partition(":")[0]] += 1
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found["process"] += process.status() != psutil.STATUS_ZOMBIE
    return found


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, held()
        time.sleep(0.05)


@pytest.fixture(scope="module", autouse=True)
def _made_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have what stays for the next run: the portal, its workers, imports."""
    solve("Begin.", subtasks=STEPS, model=[STEP, MORE], cwd=tmp_path_factory.mktemp("made"))


@pytest.fixture
def _nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    base = tmp_path / "temporary"
    base.mkdir()
    monkeypatch.setenv("TMPDIR", str(base))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    before = held()
    yield
    # Workers are made as they are needed, and stay.
    until(lambda: not {name for name in held() - before if name != "nbrefine-worker"})
    until(lambda: not list(base.iterdir()))


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


@pytest.mark.usefixtures("_nothing_left")
def test_after_a_goal_was_reached_the_record_and_its_files_are_there_and_nothing_else() -> None:
    assert solve("Begin.", subtasks=STEPS, model=[STEP, FAILS, MORE], record="e.ipynb").solved
    assert names() == ["e.ipynb", "out.txt"]


@pytest.mark.usefixtures("_nothing_left")
def test_after_a_stop_within_a_cell_and_a_resumption_nothing_else_is_there() -> None:
    run = start_solving("Begin.", subtasks=STEPS, model=[STEP, HANGS], record="e.ipynb")
    until(lambda: ((now := run.activity).doing, now.turn) == ("running", 2))
    run.stop()
    assert run.result().stop is not None
    assert names() == ["e.ipynb", "out.txt"]
    assert resume("e.ipynb", model=[FAILS, MORE]).solved
    assert names() == ["e.ipynb", "out.txt"]
    assert Path("out.txt").read_text() == "xy"


@pytest.mark.usefixtures("_nothing_left")
def test_after_trouble_and_refusals_nothing_else_is_there() -> None:
    def model(messages: Sequence[Message]) -> str:
        raise OSError("the network is gone")

    with pytest.raises(OSError, match="the network is gone"):
        solve("Begin.", subtasks=STEPS, model=model, record="e.ipynb")
    assert names() == ["e.ipynb"]
    for _ in range(3):
        with pytest.raises(UsageError):
            resume("e.ipynb", model="nonsense:x")
        with pytest.raises(UsageError):
            resume("e.ipynb", model=[STEP], kernel="no-such-kernel")
        with pytest.raises(UsageError):
            solve("Begin.", model=[STEP], record="f.ipynb", style="spoken")  # type: ignore[arg-type]
    with pytest.raises(NbrefineError):
        solve("Begin.", subtasks=STEPS, model=[STEP], setup="1 / 0", record="f.ipynb")
    assert names() == ["e.ipynb"]


@pytest.mark.usefixtures("_nothing_left")
def test_after_work_in_a_kernel_that_was_handed_in_that_kernel_is_there_and_nothing_else() -> None:
    with Kernel.start() as kernel:
        until(lambda: kernel.alive)
        assert solve("Begin.", subtasks=STEPS, model=[STEP, MORE], kernel=kernel).solved
        assert kernel.run("items").result().text == "['a', 'b']\n"
