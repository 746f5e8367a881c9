"""Nothing is left behind: no process, thread, descriptor or folder, however a kernel ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nbrefine.errors import KernelStartError, RunStopped
from nbrefine.kernel import Kernel
from nbrefine.kernel.inside.branching import overlay
from nbrefine.kernel.processes import runtime
from nbrefine.kernel.processes.runtime import MARK, RuntimeFolder


@pytest.fixture
def base(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A temporary folder of the test's own, short enough for sockets."""
    tmp_path_factory.getbasetemp()  # pytest's own stays where it is
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def marked(base: Path) -> list[int]:
    """Processes whose environment names a runtime folder below `base`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={base}/".encode() in environment:
                found.append(int(entry.name))
    return found


def ledger() -> Counter[str]:
    """What this process holds: threads by name, descriptors by kind."""
    held = Counter(thread.name for thread in threading.enumerate())
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            held[str(entry.readlink()).partition(":")[0]] += 1
    return held


@pytest.fixture
def nothing_left(base: Path, until: Callable[..., None]) -> Iterator[None]:
    with Kernel.start():  # the portal, the ZeroMQ context and imports stay for the next kernel
        pass
    before = ledger()

    def settled() -> bool:
        nonlocal before
        earlier, before = before, ledger()  # ZeroMQ closes in a thread of its own
        time.sleep(0.1)
        return earlier == before

    until(settled)
    yield
    until(lambda: marked(base) == [])
    assert list(base.glob("nbrefine-*")) == []
    until(lambda: not ledger() - before)


@pytest.mark.usefixtures("nothing_left")
def test_after_a_block_nothing_is_left() -> None:
    with Kernel.start() as kernel:
        kernel.run("x = 1").result()
        kernel.restart().result()


@pytest.mark.usefixtures("nothing_left")
def test_after_an_exception_in_the_block_nothing_is_left() -> None:
    with pytest.raises(ZeroDivisionError), Kernel.start() as kernel:  # noqa: PT012
        kernel.run("x = 1").result()
        raise ZeroDivisionError


@pytest.mark.usefixtures("nothing_left")
def test_after_a_block_left_while_a_cell_runs_nothing_is_left() -> None:
    with Kernel.start() as kernel:
        running = kernel.run("while True: pass", timeout=None)
    assert running.result(30).status in ("interrupted", "died")


@pytest.mark.usefixtures("nothing_left")
def test_after_a_death_and_a_shutdown_nothing_is_left() -> None:
    with Kernel.start() as kernel:
        kernel.run("import os; os._exit(1)").result()


@pytest.mark.usefixtures("nothing_left")
def test_after_a_failed_start_nothing_is_left(kernelspec: Callable[..., str]) -> None:
    name = kernelspec("broken", sys.executable, "-c", "raise SystemExit(1)")
    with pytest.raises(KernelStartError):
        Kernel.start(name).result()


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.3])
def test_after_a_cancelled_start_nothing_is_left(delay: float) -> None:
    starting = Kernel.start()
    time.sleep(delay)  # a moment within the start; which one does not matter
    starting.stop()
    with contextlib.suppress(RunStopped):
        starting.result(30).shutdown().result()


@pytest.mark.usefixtures("nothing_left")
def test_connecting_and_letting_go_leaves_nothing() -> None:
    with Kernel.start() as owner:
        for _ in range(3):
            with Kernel.connect(owner.connection_file) as guest:
                guest.run("1").result()


@pytest.mark.usefixtures("nothing_left")
def test_children_that_left_the_session_end_with_the_kernel() -> None:
    with Kernel.start() as kernel:
        source = (
            "import subprocess\n"
            "one = subprocess.Popen(['sleep', '98'], start_new_session=True)\n"
            "two = subprocess.Popen(['sleep', '99'], env={}, start_new_session=True)\n"
            "subprocess.run(['sh', '-c', 'setsid sleep 97 & exit'])"
        )
        assert kernel.run(source).result().ok


def test_a_kernels_folder_is_private_and_its_streams_are_not_the_controllers(
    base: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Kernel.start() as kernel:
        (folder,) = base.glob("nbrefine-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        kernel.run("import os; os.system('echo to the terminal?; echo err >&2'); print(1)").result()
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_kernel_keeps_no_value_it_has_shown_and_no_history_on_disk() -> None:
    source = "import weakref\nclass Big: pass\nbig = Big()\nref = weakref.ref(big)\nbig"
    with Kernel.start() as kernel:
        assert kernel.run(source).result().ok
        kernel.run("del big").result()
        for n in range(3):  # IPython has three names for the last three
            kernel.run(f"print({n})\n{n}").result()
        look = "h = get_ipython().history_manager; ref(), h.enabled, len(Out), len(h.outputs)"
        assert kernel.run(look).result().text == "(None, False, 0, 0)\n"


def test_waiting_for_a_long_cell_costs_the_controller_nothing() -> None:
    with Kernel.start() as kernel:
        before = time.process_time()
        kernel.run("import time; time.sleep(3)").result()
        assert time.process_time() - before < 1


def test_many_kernels_start_at_once_and_each_is_its_own() -> None:
    starting = [Kernel.start() for _ in range(6)]
    kernels = [each.result(120) for each in starting]
    try:
        told = [each.run("import os; os.getpid()") for each in kernels]
        pids = {int(each.result().text) for each in told}
        assert pids == {each.info.pid for each in kernels}
        assert len(pids) == 6
    finally:
        for each in kernels:
            each.shutdown().result()


@contextlib.contextmanager
def controller(script: str, *, base: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a controller of its own that says when its kernel is up; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(base)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


OPEN = """
    from nbrefine.kernel import Kernel
    kernel = Kernel.start().result()
    source = "import subprocess; subprocess.Popen(['sleep', '96'], start_new_session=True)"
    assert kernel.run(source).result().ok
    print("up", flush=True)
"""


def test_a_controller_that_forgets_its_kernel_takes_it_along(
    base: Path, until: Callable[..., None]
) -> None:
    with controller(OPEN, base=base) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "up\n", "")
    until(lambda: marked(base) == [])
    assert list(base.glob("nbrefine-*")) == []


def test_ctrl_c_in_a_running_cell_leaves_nothing(base: Path, until: Callable[..., None]) -> None:
    script = """
        import sys
        from nbrefine.kernel import Kernel
        try:
            with Kernel.start() as kernel:
                print("up", flush=True)
                kernel.run("while True: pass", timeout=None).result()
        except KeyboardInterrupt:
            print("interrupted")
    """
    with controller(script, base=base) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        time.sleep(0.3)  # into the cell
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "interrupted\n", "")
    until(lambda: marked(base) == [])
    assert list(base.glob("nbrefine-*")) == []


BUSY = '    kernel.run("sum(range(10**12))", timeout=None).result()\n'


def test_sigkill_of_the_controller_leaves_nothing_of_a_busy_kernel(
    base: Path, until: Callable[..., None]
) -> None:
    with controller(OPEN + BUSY, base=base) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert len(marked(base)) == 1  # the child that has left the session
    until(lambda: marked(base) == [])
    until(lambda: list(base.glob("nbrefine-*")) == [])


def test_sigkill_of_the_controller_ends_a_plain_kernel_and_the_next_start_sweeps(
    base: Path, until: Callable[..., None]
) -> None:
    script = OPEN.replace("start()", "start(plain=True)") + BUSY
    with controller(script, base=base) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert len(marked(base)) == 2
    until(lambda: len(marked(base)) == 1)  # the kernel is gone, its child with a session stays
    (folder,) = base.glob("nbrefine-*")
    os.utime(folder, (1, 1))
    fresh = RuntimeFolder()
    try:
        until(lambda: marked(base) == [])
        until(lambda: list(base.glob("nbrefine-*")) == [fresh.path])
    finally:
        fresh.remove()


def test_a_folder_whose_owner_lives_is_not_swept(base: Path) -> None:
    first = RuntimeFolder()
    os.utime(first.path, (1, 1))
    runtime._sweep(base)
    assert first.path.is_dir()
    first.remove()
    first.remove()
    assert list(base.iterdir()) == []


def test_a_sweep_does_nothing_to_what_a_link_leads_to(base: Path) -> None:
    target = base / "another"
    closed = target / "closed"
    closed.mkdir(parents=True)
    closed.chmod(0o500)
    os.utime(target, (1, 1))
    (base / "nbrefine-link").symlink_to(target)
    runtime._sweep(base)
    overlay.remove(str(base / "nbrefine-link"))
    assert (base / "nbrefine-link").is_symlink()
    assert closed.stat().st_mode & 0o777 == 0o500


def test_a_sweep_holds_up_no_start(
    base: Path, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = base / "nbrefine-stale"
    stale.mkdir()
    os.utime(stale, (1, 1))
    started, waited = threading.Event(), []
    remove = overlay.remove

    def once_it_has_started(folder: str) -> None:
        if folder == str(stale):
            waited.append(started.wait(30))
        remove(folder)

    monkeypatch.setattr(overlay, "remove", once_it_has_started)
    fresh = RuntimeFolder()
    started.set()
    until(lambda: waited)
    assert waited == [True]
    fresh.remove()
    until(lambda: list(base.iterdir()) == [])


def test_a_forked_child_of_the_controller_does_not_take_the_kernel_down() -> None:
    script = """
        import os, sys
        from nbrefine.kernel import Kernel
        with Kernel.start() as kernel:
            pid = os.fork()
            if pid == 0:
                sys.exit(0)  # runs the exit handlers it inherited
            os.waitpid(pid, 0)
            print(kernel.run("'alive'").result().text, end="")
    """
    with (
        tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder,
        controller(script, base=Path(folder)) as process,
    ):
        out, err = process.communicate(timeout=60)
    assert (out, err) == ("'alive'\n", "")


def test_whatever_a_forked_child_of_the_controller_asks_for_is_not_its_to_ask() -> None:
    script = """
        import os, time
        from nbrefine.errors import NbrefineError
        from nbrefine.kernel import Kernel
        with Kernel.start() as kernel, kernel.branch() as branch, kernel.checkpoint() as kept:
            running = kernel.run("import time; time.sleep(2)")  # it has the turn
            while kernel.core.running is None:
                time.sleep(0.01)
            pid = os.fork()
            if pid == 0:
                for work in (
                    lambda: kernel.run("1"), kernel.branch, kernel.checkpoint, kernel.variables,
                    kernel.interrupt, kernel.restart, lambda: kernel.adopt(branch),
                    lambda: kernel.rollback(kept), lambda: kernel.commit(branch, "1"),
                    branch.branch, branch.files, kept.branch,
                ):
                    try:
                        work().result(10)
                        print("done", work, flush=True)
                    except NbrefineError as error:
                        said = error.message
                        if "belongs to the process that this one was forked from" not in said:
                            print(work, error, flush=True)
                kept.close()
                branch.close()
                kernel.close()
                os._exit(0)
            os.waitpid(pid, 0)
            running.result()
            print(kernel.run("'alive'").result().text, end="")
            with kept.branch() as another:
                print(another.run("'alive'").result().text, end="")
            print(branch.run("'alive'").result().text, end="")
    """
    with (
        tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder,
        controller(script, base=Path(folder)) as process,
    ):
        out, err = process.communicate(timeout=100)
    assert (out, err) == ("'alive'\n" * 3, "")


def test_a_long_temporary_folder_does_not_break_the_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with Kernel.start() as kernel:
        assert kernel.run("'alive'").result().text == "'alive'\n"
        assert len(kernel.connection_file) < 100
