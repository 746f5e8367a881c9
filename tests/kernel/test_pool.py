"""Kernels that wait to be taken."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import psutil
import pytest

from nbrefine.errors import KernelStartError, UsageError
from nbrefine.kernel.pool import KernelPool


def ready(pool: KernelPool) -> list[int | None]:
    """The processes of the kernels that wait."""
    done = [each for each in list(pool._slots) if each.done() and each.exception() is None]
    return [each.result().info.pid for each in done]


def test_a_pool_hands_out_fresh_kernels_that_answer_and_keeps_as_many_ready(
    until: Callable[..., None],
) -> None:
    with KernelPool(preload=("colorsys",), size=2) as pool:
        until(lambda: len(ready(pool)) == 2)
        waiting = ready(pool)
        with pool.take() as one, pool.take() as two:
            assert [one.info.pid, two.info.pid] == waiting
            source = "import sys; print('colorsys' in sys.modules, 'x' in globals())"
            for kernel in (one, two):
                assert kernel.run(source).result().text == "True False\n"
                kernel.run("x = 1").result()
            until(lambda: len(ready(pool)) == 2)
            assert not {one.info.pid, two.info.pid} & set(ready(pool))
        with pool.take() as three:
            assert three.run(source).result().text == "True False\n"


def test_more_than_are_ready_can_be_taken_at_once() -> None:
    with KernelPool(size=1, starting=1) as pool:
        kernels = [each.result(60) for each in [pool.take() for _ in range(4)]]
        assert len({each.info.pid for each in kernels}) == 4
        assert len(pool._slots) == 1
        for each in kernels:
            each.close()


def test_a_kernel_that_died_while_it_waited_is_not_handed_out(
    until: Callable[..., None],
) -> None:
    with KernelPool(size=1) as pool:
        until(lambda: ready(pool))
        (dead,) = ready(pool)
        os.kill(dead or 0, signal.SIGKILL)
        (slot,) = pool._slots
        until(lambda: not slot.result().alive)
        with pool.take() as kernel:
            assert kernel.info.pid != dead
            assert kernel.run("6 * 7").result().text == "42\n"


def test_what_is_wrong_shows_when_a_kernel_is_taken(kernelspec: Callable[..., str]) -> None:
    code = "import sys; print('no licence found', file=sys.stderr); raise SystemExit(4)"
    name = kernelspec("broken", sys.executable, "-c", code)
    with KernelPool(name, size=1) as pool:
        for _ in range(2):
            with pytest.raises(KernelStartError, match=r"(?s)exit code 4.*no licence found"):
                pool.take().result(60)
    with KernelPool("nosuch", size=1) as pool, pytest.raises(UsageError, match="nosuch"):
        pool.take().result(60)


def test_a_closed_pool_leaves_no_kernel_and_hands_out_none(until: Callable[..., None]) -> None:
    own = psutil.Process()
    with KernelPool(size=1) as pool, pool.take() as kernel:
        kernel.run("1").result()
    before = {each.pid for each in own.children(recursive=True)}
    pool = KernelPool(size=3)
    until(lambda: ready(pool))  # and others are starting
    kernel = pool.take().result()
    pool.close()
    pool.close()
    below = {each.pid for each in own.children(recursive=True)} - before
    assert kernel.info.pid in below
    assert kernel.run("6 * 7").result().text == "42\n"  # it is its taker's
    kernel.close()
    until(lambda: {each.pid for each in own.children(recursive=True)} <= before)
    with pytest.raises(UsageError, match="closed"):
        pool.take().result(60)


def test_a_take_that_is_stopped_leaves_the_kernel_to_the_next(until: Callable[..., None]) -> None:
    with KernelPool(size=1) as pool:
        taking = pool.take()
        taking.stop()
        with pytest.raises(Exception, match="stopped"):
            taking.result(60)
        with pool.take() as kernel:
            assert kernel.run("6 * 7").result().text == "42\n"
        until(lambda: len(pool._slots) == 1)


@pytest.mark.parametrize("settings", [{"size": 0}, {"starting": 0}])
def test_a_pool_of_nothing_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="whole numbers from 1"):
        KernelPool(**settings)  # type: ignore[arg-type]
