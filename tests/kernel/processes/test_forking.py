"""The controller's end of nurseries, with real ones at the other end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from nbrefine._portal import Run
from nbrefine.errors import KernelStartError, RunStopped
from nbrefine.kernel.inside.branching import wire
from nbrefine.kernel.processes.forking import Forked, Nursery
from nbrefine.kernel.processes.keeper import Keeper


async def new_keeper() -> Keeper:
    keeper = await Keeper.start([sys.executable], os.environ)
    keeper.acquire()
    return keeper


async def end(keeper: Keeper) -> None:
    keeper.release()
    await keeper.ended()


@pytest.fixture(scope="module")
def shared_keeper() -> Iterator[Keeper]:
    keeper = Run(new_keeper()).result()
    yield keeper
    Run(end(keeper)).result()


@pytest.fixture
def keeper(shared_keeper: Keeper) -> Keeper:
    assert shared_keeper.alive
    return shared_keeper


def spawn(keeper: Keeper, **changes: Any) -> dict[str, Any]:
    number = keeper.number()
    ports = {f"{name}_port": n for n, name in enumerate(("shell", "iopub", "stdin", "hb"), 1)}
    return {
        "connection": {
            "transport": "ipc",
            "ip": f"{keeper.folder}/k{number}",
            "key": "k",
            "signature_scheme": "hmac-sha256",
            "control_port": 5,
            **ports,
        },
        "connection_file": "",
        "arguments": [],
        "variables": keeper.variables(number),
        "reseed": True,
        **changes,
    }


async def fork(keeper: Keeper, **changes: Any) -> Forked:
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        stdio = (nothing, nothing, nothing)
        return await keeper.nursery.fork("kernel", spawn(keeper, **changes), stdio)
    finally:
        os.close(nothing)


@pytest.fixture
def forked(keeper: Keeper) -> Iterator[Forked]:
    process = Run(fork(keeper)).result()
    assert Run(process.ready(30)).result()["pid"] == process.pid
    yield process
    process.kill()
    process.close()


def children(keeper: Keeper) -> list[int]:
    return [each.pid for each in psutil.Process(keeper.nursery.pid).children()]


def test_a_forked_process_is_handled_like_a_child_of_our_own(forked: Forked) -> None:
    states: list[int | None] = [forked.poll(), forked.returncode]
    assert states == [None, None]
    with pytest.raises(subprocess.TimeoutExpired):
        forked.wait(0.01)
    forked.kill()
    assert forked.wait(10) == -signal.SIGKILL
    assert forked.poll() == forked.returncode == -signal.SIGKILL
    assert forked.exit is not None
    assert 10e6 < forked.exit.peak_memory < 2e9  # a Python interpreter; not in kilobytes
    forked.kill()  # nothing happens
    forked.send_group_signal(signal.SIGKILL)


def test_an_end_is_seen_on_several_loops_at_once(forked: Forked) -> None:
    async def elsewhere() -> tuple[bool, bool]:
        on_portal = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(forked.ended(), loop))
        here = asyncio.ensure_future(forked.ended(20))
        assert not await forked.ended(0.05)
        forked.kill()
        return await here, await on_portal

    async def portal() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    loop = Run(portal()).result()
    assert asyncio.run(elsewhere()) == (True, True)
    assert forked.returncode == -signal.SIGKILL


def test_a_process_whose_line_is_closed_ends_itself(
    keeper: Keeper, until: Callable[..., None]
) -> None:
    process = Run(fork(keeper)).result()
    Run(process.ready(30)).result()
    process.close()
    until(lambda: children(keeper) == [])


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_a_fork_that_nobody_waits_for_any_more_leaves_nothing(
    keeper: Keeper, until: Callable[..., None], turns: int
) -> None:
    descriptors = psutil.Process().num_fds()

    async def cancel() -> None:
        task = asyncio.ensure_future(fork(keeper))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).close()

    Run(cancel()).result()
    assert Run(keeper.nursery.answers(10)).result()  # whatever was forked was told before
    until(lambda: children(keeper) == [])
    until(lambda: psutil.Process().num_fds() <= descriptors)


def test_what_a_nursery_refuses_is_an_error_and_it_goes_on(keeper: Keeper) -> None:
    async def refused() -> None:
        await keeper.nursery.fork("keeper", {}, (0, 1, 2))

    with pytest.raises(KernelStartError, match="A keeper forks no keeper"):
        Run(refused()).result()
    assert Run(keeper.nursery.answers(10)).result()


def test_a_request_that_a_nursery_could_not_read_is_answered() -> None:
    near, far = wire.pair()

    async def ask() -> None:
        nursery = Nursery(near, 0)
        wire.send(far, {"failed": None, "why": "OSError: no descriptor is left"})
        try:
            await nursery.fork("kernel", {}, (0, 0, 0), limit=20)
        finally:
            nursery.close()

    with far, pytest.raises(KernelStartError, match="no descriptor is left"):
        Run(ask()).result()


def test_a_kernel_that_cannot_be_set_up_says_why(keeper: Keeper) -> None:
    async def start() -> None:
        process = await fork(keeper, connection={"transport": "carrier-pigeon"})
        try:
            await process.ready(30)
        finally:
            process.close()

    with pytest.raises(KernelStartError, match=r"(?s)could not be set up:.*carrier-pigeon"):
        Run(start()).result()


def test_a_kernel_that_dies_or_hangs_before_it_is_ready_is_given_up(keeper: Keeper) -> None:
    async def start(number: int) -> None:
        process = await fork(keeper)
        process.send_signal(number)
        try:
            await process.ready(0.5)
        finally:
            process.kill()
            process.close()

    with pytest.raises(KernelStartError, match="ended before it was ready"):
        Run(start(signal.SIGKILL)).result()
    with pytest.raises(KernelStartError, match=r"not ready within 0\.5 s"):
        Run(start(signal.SIGSTOP)).result()


def test_a_nursery_that_has_ended_forks_nothing_and_does_not_hold_up_who_asks() -> None:
    keeper = Run(new_keeper()).result()
    try:
        process = Run(fork(keeper)).result()
        os.kill(keeper.nursery.pid, signal.SIGKILL)
        with pytest.raises(KernelStartError, match=r"has ended|cannot be asked"):
            Run(fork(keeper)).result()
        assert not keeper.alive
        assert not Run(keeper.nursery.answers(10)).result()
        process.kill()
        assert process.wait(10) == -signal.SIGKILL  # though nobody is left to tell
        assert process.exit is None
        process.close()
    finally:
        Run(end(keeper)).result()


def test_a_stopped_nursery_is_noticed(keeper: Keeper) -> None:
    os.kill(keeper.nursery.pid, signal.SIGSTOP)
    try:
        assert not Run(keeper.nursery.answers(0.1)).result()
        starting = Run(fork(keeper))
        starting.stop()
        with pytest.raises(RunStopped):
            starting.result(20)
    finally:
        os.kill(keeper.nursery.pid, signal.SIGCONT)
    assert Run(keeper.nursery.answers(10)).result()


def test_a_fork_of_the_controller_does_not_keep_its_kernels_alive(
    tmp_path: Path, is_running: Callable[[int], bool], until: Callable[..., None]
) -> None:
    script = """
        import os, sys, time
        from nbrefine.kernel import Kernel
        kernel = Kernel.start().result()
        keeper = kernel.core.link.process.keeper.nursery.pid
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        print(keeper, kernel.info.pid, child, flush=True)
        time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        keeper, kernel, child = map(int, process.stdout.readline().split())
        process.kill()
        try:
            until(lambda: not is_running(keeper) and not is_running(kernel))
            assert is_running(child)
        finally:
            os.kill(child, signal.SIGKILL)
