"""The portal: started work, one spelling for every caller, and clean endings."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self

import pytest

from nbrefine._portal import Closing, Run, blocking, call_user, on_portal
from nbrefine.errors import RunStopped, UsageError
from nbrefine.evaluation import (
    arun_evaluation,
    arun_multi_evaluation,
    run_evaluation,
    run_multi_evaluation,
)
from nbrefine.loop import refine, start
from nbrefine.sampling import sample, start_sampling
from nbrefine.solving import (
    branch_off,
    resume,
    solve,
    start_branching,
    start_resuming,
    start_solving,
)


async def value(seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    return "value"


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        ended.append("cleaned up")


def test_plain_code_asks_for_the_result() -> None:
    assert Run(value()).result() == "value"


def test_a_coroutine_on_any_loop_awaits_it() -> None:
    async def main() -> str:
        return await Run(value(0.01))

    assert asyncio.run(main()) == "value"


def test_work_begins_before_anyone_waits() -> None:
    began = threading.Event()

    async def work() -> None:
        began.set()

    run = Run(work())
    assert began.wait(10)
    run.result()
    assert run.done()


def test_an_exception_of_the_work_reaches_every_way_of_asking() -> None:
    async def fail() -> NoReturn:
        raise LookupError("gone")

    run = Run(fail())
    with pytest.raises(LookupError, match="gone"):
        run.result()

    async def main() -> None:
        await run

    with pytest.raises(LookupError, match="gone"):
        asyncio.run(main())


def test_stop_cancels_the_work_which_cleans_up_before_the_result_is_told() -> None:
    ended: list[str] = []
    began = threading.Event()

    async def work() -> None:
        began.set()
        await forever(ended)

    run = Run(work())
    assert began.wait(10)
    run.stop()
    with pytest.raises(RunStopped):
        run.result(10)
    assert ended == ["cleaned up"]


def test_on_stop_lets_the_work_end_by_itself_with_a_result() -> None:
    asked = asyncio.Event()

    async def until_asked() -> str:
        await asked.wait()
        return "ended by itself"

    run = Run(until_asked(), on_stop=asked.set)
    run.stop()
    assert run.result(10) == "ended by itself"


def test_cancelling_the_waiting_task_stops_the_work_and_waits_for_its_end() -> None:
    ended: list[str] = []
    began = threading.Event()

    async def work() -> None:
        began.set()
        await forever(ended)

    async def main() -> None:
        task = asyncio.create_task(Run(work())._wait())
        await asyncio.sleep(0)
        while not began.is_set():  # noqa: ASYNC110 - the event belongs to another thread
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended == ["cleaned up"]


def test_a_time_out_of_the_caller_leaves_the_work_running() -> None:
    run = Run(value(0.2))
    with pytest.raises(TimeoutError):
        run.result(0.01)
    assert run.result(10) == "value"


def test_asking_for_a_result_on_the_portal_is_refused_instead_of_hanging() -> None:
    async def ask() -> str:
        return Run(value()).result()

    with pytest.raises(UsageError, match="Await the run"):
        Run(ask()).result(10)


class Resource:
    """Something that is entered and left."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def __aenter__(self) -> Self:
        self.events.append("aenter")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.events.append("aexit")

    def __enter__(self) -> Self:
        self.events.append("enter")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.events.append("exit")


async def open_resource() -> Resource:
    return Resource()


def test_with_waits_for_the_thing_enters_and_leaves_it() -> None:
    with Run(open_resource()) as resource:
        assert resource.events == ["enter"]
    assert resource.events == ["enter", "exit"]


def test_async_with_does_the_same() -> None:
    async def main() -> list[str]:
        async with Run(open_resource()) as resource:
            assert resource.events == ["aenter"]
        return resource.events

    assert asyncio.run(main()) == ["aenter", "aexit"]


def test_user_functions_run_off_the_portal_plain_and_async() -> None:
    async def where_async() -> bool:
        await asyncio.sleep(0)
        return on_portal()

    async def main() -> tuple[bool, bool, bool]:
        return on_portal(), await call_user(on_portal), await call_user(where_async)

    assert Run(main()).result(10) == (True, False, False)


def _exit() -> NoReturn:
    raise SystemExit(3)


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt


def _stop_iteration() -> NoReturn:
    raise StopIteration(1)


async def _cancel() -> NoReturn:
    raise asyncio.CancelledError


@pytest.mark.parametrize("function", [_exit, _interrupt, _stop_iteration, _cancel])
def test_what_a_user_function_raises_is_an_error_and_the_portal_lives_on(
    function: Callable[[], object],
) -> None:
    async def main() -> None:
        await call_user(function)

    with pytest.raises(RuntimeError, match="the function raised"):
        Run(main()).result(10)
    assert Run(value()).result(10) == "value"


def test_the_heartbeat_wakes_an_idle_loop_that_waits() -> None:
    """A selector that never wakes would not see an interrupt; count the wake-ups instead."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        wakeups = 0
        original = loop._run_once  # type: ignore[attr-defined]

        def counted() -> None:
            nonlocal wakeups
            wakeups += 1
            original()

        loop._run_once = counted  # type: ignore[attr-defined]
        await Run(value(1.0))
        return wakeups

    assert asyncio.run(main()) >= 5


def test_a_forked_child_gets_a_portal_of_its_own() -> None:
    Run(value()).result()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if Run(value()).result(10) == "value" else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


CTRL_C = """
import asyncio, os, signal, threading, time
from nbrefine._portal import Run

async def work():
    try:
        await asyncio.sleep(3600)
    finally:
        print("cleaned up", flush=True)

def press():
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press).start()
try:
    Run(work()).result()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_stops_the_work_before_it_is_raised() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split("\n")[:2] == ["cleaned up", "interrupted"]


def test_a_user_function_that_never_returns_does_not_keep_the_process_alive() -> None:
    code = (
        "import time\n"
        "from nbrefine._portal import Run, call_user\n"
        "async def main(): await call_user(time.sleep, 3600)\n"
        "try: Run(main()).result(0.2)\n"
        "except TimeoutError: print('left')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "left\n"


class Held(Closing):
    """Something that holds what must be released."""

    def __init__(self) -> None:
        self.closed = False

    async def _close(self) -> None:
        self.closed = True


def test_what_is_made_although_nobody_waits_any_more_is_closed() -> None:
    made = Held()

    async def work() -> Held:
        with contextlib.suppress(asyncio.CancelledError):  # it is too late to stop
            await asyncio.sleep(3600)
        return made

    async def wait() -> None:
        await Run(work())

    async def main() -> None:
        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert made.closed

    asyncio.run(main())


def test_what_a_stopped_run_has_made_is_for_who_asks_for_it() -> None:
    begun = threading.Event()

    async def work() -> Held:
        with contextlib.suppress(asyncio.CancelledError):
            begun.set()
            await asyncio.sleep(3600)
        return Held()

    run = Run(work())
    assert begun.wait(10)
    run.stop()
    assert not run.result().closed


def test_threads_of_ours_are_told_by_their_name() -> None:
    """Where the controller lives in a user's kernel, they are no hazard to its branches."""

    async def work() -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    assert Run(work()).result().startswith("nbrefine-")


def started(first: int, *, more: int = 1) -> Run[int]:
    async def work() -> int:
        return first + more

    return Run(work())


@blocking(started)
def waited() -> None:
    """Give the sum."""


def test_what_blocks_takes_and_says_what_the_started_form_does() -> None:
    assert waited(1) + waited(2, more=3) == 7
    assert inspect.signature(waited).parameters == inspect.signature(started).parameters
    assert (waited.__name__, waited.__doc__) == ("waited", "Give the sum.")
    with pytest.raises(TypeError, match=r"^waited\(\) got an unexpected keyword argument 'mroe'"):
        waited(1, mroe=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^waited\(\) missing .*\. Did you mean \"first\"\?$"):
        waited(firts=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"argument 'colour'$"):
        waited(1, colour=2)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("waits", "begins"),
    [
        (refine, start),
        (sample, start_sampling),
        (run_evaluation, arun_evaluation),
        (run_multi_evaluation, arun_multi_evaluation),
        (solve, start_solving),
        (resume, start_resuming),
        (branch_off, start_branching),
    ],
)
def test_every_pair_takes_the_same(
    waits: Callable[..., object], begins: Callable[..., object]
) -> None:
    assert inspect.signature(waits).parameters == inspect.signature(begins).parameters
    with pytest.raises(TypeError, match=waits.__name__):
        waits(nonsense=1)
