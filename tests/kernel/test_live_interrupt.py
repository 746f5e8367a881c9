"""Every way in which a cell may refuse to end, and which rungs it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from nbrefine._portal import Run
from nbrefine.errors import KernelError
from nbrefine.kernel import Kernel
from nbrefine.outputs import CellResult, Stream

ROUND = ("SIGINT", "shell poke")
END = (*ROUND, *ROUND, "SIGKILL", "restart")


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "import time; time.sleep(60)",
        "import threading; threading.Event().wait()",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "!sleep 60",
        "import re; re.match('(a+)+b', 'a' * 60)",
    ],
)
def test_what_python_can_interrupt_is_interrupted_and_keeps_its_state(
    kernel: Kernel, source: str
) -> None:
    kernel.run("kept = 'state'").result()
    result = kernel.run(source, timeout=1).result(60)
    assert result.status == "timeout"
    assert result.rungs[0] == "SIGINT"
    assert "SIGKILL" not in result.rungs
    assert kernel.run("kept").result().text.endswith("'state'\n")


def test_an_idle_await_is_woken_by_a_message(
    kernel: Kernel, stopped: Callable[[Kernel, str], CellResult]
) -> None:
    """SIGINT alone waits for the event loop to wake by itself (ipykernel #881)."""
    started = time.monotonic()
    source = "import asyncio; print('on', flush=True); await asyncio.sleep(60)"
    result = stopped(kernel, source)
    assert result.status == "interrupted"
    assert result.rungs == ROUND
    assert time.monotonic() - started < 20
    assert kernel.run("'alive'").result().text == "'alive'\n"


def test_output_before_the_limit_is_in_the_result(kernel: Kernel) -> None:
    source = "print('before', flush=True)\nwhile True: pass"
    result = kernel.run(source, timeout=4).result(60)
    assert result.status == "timeout"
    assert result.outputs[0] == Stream("stdout", "before\n")
    assert result.error is not None
    assert result.error.ename == "KeyboardInterrupt"


def test_code_that_catches_the_first_interrupt_gets_a_second(
    kernel: Kernel, stopped: Callable[[Kernel, str], CellResult]
) -> None:
    source = (
        "import time\ntry:\n    print('on', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(60)"
    )
    result = stopped(kernel, source)
    assert result.rungs[:3] == (*ROUND, "SIGINT")
    assert "SIGKILL" not in result.rungs


@pytest.mark.parametrize(
    "stubborn",
    [
        (
            "while True:\n    try:\n        print('on', flush=True)\n        time.sleep(.2)\n"
            "    except KeyboardInterrupt: pass"
        ),
        "signal.signal(signal.SIGINT, signal.SIG_IGN); print('on', flush=True); time.sleep(60)",
        (
            "while True:\n    try:\n        print('on', flush=True)\n        sum(range(10**12))\n"
            "    except KeyboardInterrupt: pass"
        ),
        "async def f():\n    print('on', flush=True)\n    while True: time.sleep(.1)\nawait f()",
    ],
    ids=["eats KeyboardInterrupt", "ignores SIGINT", "long in C", "blocks in a coroutine"],
)
def test_what_cannot_be_interrupted_is_killed_and_the_loss_is_named(
    stubborn: str, stopped: Callable[[Kernel, str], CellResult], impatient: None
) -> None:
    with Kernel.start() as kernel:
        kernel.run("import time, signal\ntable, model = [1], {}").result()
        assert kernel.epoch == 1
        result = stopped(kernel, stubborn)
        assert (result.status, result.rungs) == ("interrupted", END)
        assert result.lost == ("time", "signal", "table", "model")
        assert result.death is None
        assert kernel.alive
        assert kernel.epoch == 2
        assert kernel.run("'table' in globals()").result().text == "False\n"


def test_a_child_that_never_exits_is_ended_with_the_cell(
    kernel: Kernel,
    stopped: Callable[[Kernel, str], CellResult],
    is_running: Callable[[int], bool],
    until: Callable[..., None],
) -> None:
    source = (
        "import subprocess\n"
        "p = subprocess.Popen(['sh', '-c', 'while :; do sleep 1; done'], start_new_session=True)\n"
        "print(p.pid, flush=True)\np.wait()"
    )
    result = stopped(kernel, source)
    pid = int(result.text.split()[0])
    assert result.status == "interrupted"
    assert is_running(pid)  # the session may go on with it
    kernel.restart().result()
    until(lambda: not is_running(pid))


def test_interrupt_gives_the_rungs_and_the_cell_says_who_did_it(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    running = kernel.run("print('on', flush=True)\nwhile True: pass", timeout=None)
    until(lambda: kernel.core.running is not None)
    rungs = kernel.interrupt().result(60)
    result = running.result(60)
    assert result.status == "interrupted"
    assert result.rungs == rungs
    assert rungs[0] == "SIGINT"


def test_interrupting_an_idle_kernel_does_nothing_to_the_next_cell(kernel: Kernel) -> None:
    assert kernel.interrupt().result() == ()
    assert kernel.run("'next'").result().text == "'next'\n"


def test_stopping_a_run_gives_what_there_is(kernel: Kernel, until: Callable[..., None]) -> None:
    seen: list[object] = []
    running = kernel.run(
        "print('partial', flush=True)\nwhile True: pass", timeout=None, on_output=seen.append
    )
    until(lambda: seen)
    running.stop()
    result = running.result(60)
    assert result.status == "interrupted"
    assert result.outputs[0] == Stream("stdout", "partial\n")
    assert kernel.run("'next'").result().text == "'next'\n"


def test_cancelling_the_awaiting_task_interrupts_the_cell_first(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    async def work() -> None:
        task = asyncio.ensure_future(_awaited(kernel))
        await asyncio.to_thread(until, lambda: kernel.core.running is not None)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert kernel.core.running is None
    assert kernel.run("'next'").result().text == "'next'\n"


async def _awaited(kernel: Kernel) -> None:
    await kernel.run("while True: pass", timeout=None)


def test_cancelling_helper_code_on_the_portal_leaves_no_cell_running(
    kernel: Kernel, until: Callable[..., None]
) -> None:
    helper = Run(kernel.core.execute("while True: pass", timeout=None, store_history=False))
    until(lambda: kernel.core.running is not None)
    helper.stop()
    until(helper.done)
    assert kernel.run("'next'").result().text == "'next'\n"


def test_interrupts_at_a_cells_very_end_do_not_reach_the_next_one(kernel: Kernel) -> None:
    for delay in (0.0, 0.002, 0.004, 0.006, 0.008):
        first = kernel.run(f"import time; time.sleep({delay})")
        kernel.interrupt().result(60)
        assert first.result(60).status in ("ok", "interrupted")
        second = kernel.run("'next'").result(60)
        assert second.status == "ok"
        assert second.text.endswith("'next'\n")


def test_a_kernel_that_is_not_ours_is_never_killed(
    stopped: Callable[[Kernel, str], CellResult], impatient: None, until: Callable[..., None]
) -> None:
    with Kernel.start() as owner, Kernel.connect(owner.connection_file) as guest:
        source = (
            "import time\nend = time.monotonic() + 6\nwhile time.monotonic() < end:\n"
            "    try:\n        print('on', flush=True)\n        time.sleep(.1)\n"
            "    except KeyboardInterrupt: pass\n"
        )
        with pytest.raises(KernelError, match="reacted to no interrupt"):
            stopped(guest, source)
        with pytest.raises(KernelError, match="still runs an earlier cell"):
            guest.run("1").result(60)
        assert owner.alive
        # The owner's cell waits for the stubborn one; afterwards the guest may go on too.
        assert owner.run("'survived'").result(60).text == "'survived'\n"
        until(lambda: not guest.core.link.occupied)  # which is told by another connection
        assert guest.run("'again'").result(60).text == "'again'\n"
