"""Kernels that end by themselves, at any moment, and what is said about it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nbrefine.errors import KernelDeadError, KernelStartError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.outputs import CellResult, Stream


def test_a_kernel_killed_in_a_cell_is_noticed_at_once_and_explained() -> None:
    with Kernel.start() as kernel:
        # The pause lets the words leave the process; what is still in it dies with it.
        source = (
            "import os, time\nprint('last words', flush=True)\ntime.sleep(.3)\n"
            "os.kill(os.getpid(), 9)"
        )
        result = kernel.run(source, timeout=60).result(30)
        assert result.status == "died"
        assert result.outputs == (Stream("stdout", "last words\n"),)
        assert result.death is not None
        assert (result.death.signal, result.death.exit_code) == ("SIGKILL", None)
        assert str(result.death) == "the kernel died (killed by SIGKILL)"
        assert result.death.peak_memory is not None
        # A bare ipykernel has 55 MB resident; the interpreter alone has 8.
        assert 20e6 < result.death.peak_memory < 2e9
        assert not kernel.alive
        assert kernel.death == result.death


def test_what_was_flushed_has_been_sent_before_the_cell_goes_on() -> None:
    """Else a cell that goes on in C, and keeps all other threads waiting, keeps it to itself."""
    with Kernel.start() as kernel:
        slowly = (
            "import time\nthread = get_ipython().kernel.iopub_thread\n"
            "sent = []\n"
            "def slow(frames, send=thread._really_send, sent=sent, **options):\n"
            "    time.sleep(.1)\n    send(frames, **options)\n    sent.extend(map(bytes, frames))\n"
            "thread._really_send = slow"
        )
        assert kernel.run(slowly).result().ok
        cell = "print('wo' + 'rds', flush=True); assert any(b'words' in each for each in sent)"
        assert kernel.run(cell).result().ok
        with kernel.branch() as trial:
            assert trial.run(slowly).result().ok
            assert trial.run(cell).result().ok


def test_an_exit_code_is_told() -> None:
    with Kernel.start() as kernel:
        result = kernel.run("import os; os._exit(3)").result(30)
        assert result.death is not None
        assert (result.death.exit_code, result.death.signal) == (3, "")


def test_a_signal_without_a_name_ends_a_kernel_like_any_other() -> None:
    with Kernel.start() as kernel:
        # 35 is the second real-time signal of Linux, for which Python has no name.
        result = kernel.run("import os; os.kill(os.getpid(), 35)", timeout=20).result(60)
        assert result.status == "died"
        assert str(result.death) == "the kernel died (killed by signal 35)"


def test_a_crash_shows_the_python_stack() -> None:
    with Kernel.start() as kernel:
        source = "import ctypes\ndef the_culprit():\n    ctypes.string_at(0)\nthe_culprit()"
        result = kernel.run(source).result(30)
        assert result.death is not None
        assert result.death.signal == "SIGSEGV"
        assert "in the_culprit" in result.death.stack


def test_a_kernel_that_dies_between_cells_is_noticed_without_asking(
    until: Callable[..., None],
) -> None:
    with Kernel.start() as kernel:
        assert kernel.info.pid is not None
        os.kill(kernel.info.pid, signal.SIGKILL)
        until(lambda: kernel.death)
        with pytest.raises(KernelDeadError, match=r"killed by SIGKILL.*restart\(\)"):
            kernel.run("1").result(30)


def test_a_dead_kernel_starts_again_and_names_what_was_lost() -> None:
    with Kernel.start() as kernel:
        kernel.run("table = 1\nimport os").result()
        kernel.run("os._exit(1)").result(30)
        assert kernel.restart().result(60) == ("table", "os")
        assert kernel.alive
        assert kernel.death is None
        assert kernel.run("'new'").result().text == "'new'\n"
        assert kernel.restart().result(60) == ()


def test_restart_keeps_the_object_and_its_settings(tmp_path: object) -> None:
    with Kernel.start(cwd=str(tmp_path), env={"MINE": "yes"}, seed=5) as kernel:
        kernel.run("x = 1").result()
        before = kernel.info.pid
        assert kernel.restart().result(60) == ("x",)
        assert kernel.info.pid != before
        source = "import os; print(os.getcwd(), os.environ['MINE'], os.environ['PYTHONHASHSEED'])"
        assert kernel.run(source).result().text == f"{tmp_path} yes 5\n"
        count = kernel.run("1").result().execution_count
        assert count == 2


def test_restart_ends_a_running_cell(until: Callable[..., None]) -> None:
    with Kernel.start() as kernel:
        running = kernel.run("while True: pass", timeout=None)
        until(lambda: kernel.core.running is not None)
        kernel.restart().result(60)
        result = running.result(60)
        assert result.status == "interrupted"
        assert kernel.run("'new'").result().text == "'new'\n"


def test_after_shutdown_a_kernel_says_so() -> None:
    kernel = Kernel.start().result()
    kernel.shutdown().result()
    kernel.shutdown().result()
    with pytest.raises(KernelDeadError, match="was shut down"):
        kernel.run("1").result()
    with pytest.raises(KernelDeadError, match="was shut down"):
        kernel.restart().result()


def test_a_kernel_that_ends_while_it_starts_is_quoted(kernelspec: Callable[..., str]) -> None:
    code = "import sys; print('no licence found', file=sys.stderr); raise SystemExit(4)"
    name = kernelspec("broken", sys.executable, "-c", code)
    started = time.monotonic()
    with pytest.raises(KernelStartError, match=r"(?s)exit code 4.*no licence found"):
        Kernel.start(name).result(60)
    assert time.monotonic() - started < 20


def test_a_kernel_that_never_answers_is_given_up(kernelspec: Callable[..., str]) -> None:
    name = kernelspec("mute", sys.executable, "-c", "import time; time.sleep(100)")
    with pytest.raises(KernelStartError, match="did not answer within 1 s"):
        Kernel.start(name, timeout=1).result(60)


def test_a_command_that_does_not_exist_is_named(kernelspec: Callable[..., str]) -> None:
    name = kernelspec("absent", "/no/such/program", "{connection_file}")
    with pytest.raises(KernelStartError, match=r"ended before it answered|could not be started"):
        Kernel.start(name).result(60)


def test_an_unknown_kernelspec_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no kernelspec 'nosuch'; there are: .*python3"):
        Kernel.start("nosuch").result(60)


def test_a_missing_working_folder_is_the_callers_mistake() -> None:
    with pytest.raises(UsageError, match="/no/such/folder"):
        Kernel.start(cwd="/no/such/folder").result(60)


def test_a_cell_whose_kernel_cannot_start_again_has_its_result_all_the_same(
    kernelspec: Callable[..., str],
    tmp_path: Path,
    stopped: Callable[[Kernel, str], CellResult],
    impatient: None,
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    code = (
        "import os, runpy, sys\n"
        f"if not os.path.exists({str(gate)!r}): raise SystemExit('the disk is full')\n"
        "runpy.run_module('ipykernel_launcher', run_name='__main__')"
    )
    name = kernelspec("once", sys.executable, "-c", code, "-f", "{connection_file}")
    with Kernel.start(name) as kernel:
        kernel.run("table = 1").result()
        gate.unlink()
        deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        result = stopped(kernel, f"{deaf}print('so far', flush=True)\nsum(range(10**12))")
        assert result.status == "interrupted"
        assert result.text.startswith("so far\n")
        assert result.lost == ("table",)
        assert "could not be started again" in result.notes[-1]
        assert "the disk is full" in result.notes[-1]
        with pytest.raises(KernelDeadError, match=r"restart\(\)"):
            kernel.run("1").result(30)
        gate.touch()
        kernel.restart().result(60)
        assert kernel.run("'new'").result().text == "'new'\n"
