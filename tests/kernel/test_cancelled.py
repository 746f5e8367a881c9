"""What is left when a caller gives up in the middle."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from nbrefine._portal import Run
from nbrefine.errors import RunStopped
from nbrefine.kernel import Kernel
from nbrefine.outputs import Output


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.03, 0.3])
def test_a_restart_whose_caller_gave_up_leaves_a_kernel_that_runs(seconds: float) -> None:
    with Kernel.start() as kernel:
        assert kernel.run("x = 1").result(60).ok
        restart = kernel.restart()
        time.sleep(seconds)
        restart.stop()
        with suppress(RunStopped):  # it may have been sooner
            restart.result(60)
        assert kernel.run("1 + 1").result(60).text == "2\n"


def test_a_kernel_closes_in_the_middle_of_a_restart_whose_caller_gave_up() -> None:
    kernel = Kernel.start().result(60)
    restart = kernel.restart()
    time.sleep(0.1)
    restart.stop()
    kernel.shutdown().result(60)
    assert not kernel.alive


STUBBORN = """
import time
while True:
    try:
        print("on", flush=True)
        time.sleep(.1)
    except KeyboardInterrupt:
        pass
"""


def test_a_caller_that_gives_up_twice_leaves_a_kernel_that_runs(
    until: Callable[..., None], impatient: None
) -> None:
    with Kernel.start() as kernel:
        told: list[Output] = []
        helper = Run(kernel.core.execute(STUBBORN, timeout=None, on_output=told.append))
        until(lambda: told)
        running = kernel.core.running
        assert running is not None
        helper.stop()
        until(lambda: running.rungs)
        helper.stop()
        with pytest.raises(RunStopped):
            helper.result(60)
        assert kernel.run("1 + 1").result(60).text == "2\n"
        assert running.rungs[-2:] == ["SIGKILL", "restart"]


def test_a_cell_that_waits_is_taken_back_at_once_by_a_caller_that_gives_up(
    until: Callable[..., None],
) -> None:
    with Kernel.start() as kernel:
        busy = kernel.run("while True: pass", timeout=None)
        until(lambda: kernel.core.running is not None)
        waiting = Run(kernel.core.execute("touched = True", timeout=None))
        waiting.stop()
        with pytest.raises(RunStopped):
            waiting.result(60)
        assert not busy.done()
        kernel.interrupt().result(60)
        assert kernel.run("'touched' in globals()").result(60).text == "False\n"


def test_a_restart_whose_caller_gave_up_while_a_cell_ran_is_finished_all_the_same(
    until: Callable[..., None],
) -> None:
    with Kernel.start() as kernel:
        running = kernel.run("while True: pass", timeout=None)
        until(lambda: kernel.core.running is not None)
        restart = kernel.restart()
        until(lambda: kernel.core.running is None or kernel.core.running.rungs)
        restart.stop()
        assert running.result(60).status == "interrupted"
        assert kernel.run("1 + 1").result(60).text == "2\n"
        assert kernel.epoch == 2


def test_a_restart_during_the_end_of_a_stubborn_cell_does_not_start_two_kernels(
    until: Callable[..., None],
) -> None:
    with Kernel.start() as kernel:
        told: list[Output] = []
        running = kernel.run(STUBBORN, timeout=None, on_output=told.append)
        until(lambda: told)
        running.stop()
        until(lambda: kernel.core.running is not None and kernel.core.running.rungs)
        kernel.restart().result(60)
        assert running.result(60).status == "interrupted"
        assert kernel.run("1 + 1").result(60).text == "2\n"
        assert kernel.epoch == 2
