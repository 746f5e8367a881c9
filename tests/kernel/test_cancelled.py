"""What is left when a caller gives up in the middle."""

from __future__ import annotations

import time

import pytest

from nbrefine.errors import RunStopped
from nbrefine.kernel import Kernel


@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
def test_a_restart_whose_caller_gave_up_leaves_a_kernel_that_runs(seconds: float) -> None:
    with Kernel.start() as kernel:
        assert kernel.run("x = 1").result(60).ok
        restart = kernel.restart()
        time.sleep(seconds)
        restart.stop()
        with pytest.raises(RunStopped):
            restart.result(60)
        assert kernel.run("1 + 1").result(60).text == "2\n"


def test_a_kernel_closes_in_the_middle_of_a_restart_whose_caller_gave_up() -> None:
    kernel = Kernel.start().result(60)
    restart = kernel.restart()
    time.sleep(0.1)
    restart.stop()
    kernel.shutdown().result(60)
    assert not kernel.alive
