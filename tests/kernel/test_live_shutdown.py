"""How a forked kernel ends when it is told to: in order, as after a message that asks for it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbrefine.kernel import Kernel, core
from nbrefine.outputs import Stream


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    monkeypatch.setattr(core, "_GRACE", 60.0)  # exit functions take as long as the host is busy
    with Kernel.start() as kernel:
        yield kernel


def test_exit_functions_run_and_what_they_print_is_heard(
    ending: Kernel, tmp_path: Path, until: Callable[..., None]
) -> None:
    with Kernel.connect(ending.connection_file) as guest:
        touch = f"pathlib.Path({str(tmp_path / 'ran')!r}).touch"
        ending.run(f"import atexit, pathlib\natexit.register({touch})").result()
        guest.run("import atexit\natexit.register(print, 'last words')").result()
        ending.shutdown().result()
        assert (tmp_path / "ran").exists()
        until(lambda: not guest.alive)
        assert guest.late().result() == (Stream("stdout", "last words\n", late=True),)


def test_children_are_asked_to_end_before_they_are_killed(ending: Kernel, tmp_path: Path) -> None:
    told, ready = tmp_path / "told", tmp_path / "ready"
    child = (
        "import pathlib, signal, sys, time\n"
        f"def end(*_): pathlib.Path({str(told)!r}).touch(); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(100)"
    )
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(child)}"
    source = (
        f"import pathlib, subprocess, time\nchild = subprocess.Popen({command!r}, shell=True)\n"
        f"while not pathlib.Path({str(ready)!r}).exists(): time.sleep(0.01)"
    )
    assert ending.run(source).result().ok
    ending.shutdown().result()
    assert told.exists()
