"""Calls into a kernel leave no trace and survive what sessions do to themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from nbrefine._portal import Run
from nbrefine.errors import KernelDeadError, KernelError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.kernel.helper import ask, call


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with Kernel.start() as started:
        yield started


def asked(kernel: Kernel, module: str, function: str, *args: Any, **options: Any) -> Any:
    return Run(ask(kernel.core, module, function, *args, **options)).result()


def test_a_call_leaves_no_name_no_history_and_no_count(kernel: Kernel) -> None:
    look = "(sorted(globals()), list(In), dict(Out), _, get_ipython().execution_count)"
    kernel.run("6 * 7").result()
    before = kernel.run(f"before = {look}").result()
    assert asked(kernel, "listing", "names") == ["before"]
    after = kernel.run(f"after = {look}").result()
    assert (before.execution_count, after.execution_count) == (2, 3)
    told = kernel.run(
        "sorted(set(after[0]) - set(before[0])), after[1][:-1] == before[1], "
        "after[2] == before[2], after[3] == before[3], after[4] - before[4]"
    ).result()
    # The two cells bound `before` and IPython's name for the third input, and nothing else came.
    assert told.text == "(['_i3', 'before'], True, True, True, 1)\n"


@pytest.mark.parametrize(
    "source",
    [
        "print = len = str = getattr = exec = compile = None",
        "__builtins__ = {}",
        "__builtins__ = None",
        "import builtins\nbuiltins.print = builtins.sum = builtins.repr = None",
        "import sys\nsys.stdout = sys.stderr = None",
        "sys = json = builtins = ast = inspect = None",
        "get_ipython = None\nclass _wrap_close: pass",
        "import sys\nsys.displayhook = None",
        "class Kind(type):\n    __name__ = property(lambda _: 1 / 0)\nclass A(metaclass=Kind): 0",
        "from IPython import get_ipython\nget_ipython().display_pub.publish = None",
        "__name__ = 'elsewhere'\nIn = Out = _ = None",
    ],
)
def test_a_hostile_session_is_still_listed(kernel: Kernel, source: str) -> None:
    kernel.run("ours = 1").result()
    assert asked(kernel, "listing", "names") == ["ours"]
    kernel.run(source).result()
    assert "ours" in asked(kernel, "listing", "names")


def test_the_first_call_may_come_after_the_session_lost_its_builtins(kernel: Kernel) -> None:
    kernel.run("ours = 1\n__builtins__ = {}").result()
    assert asked(kernel, "listing", "names") == ["ours"]


def test_a_restarted_kernel_is_served_again(kernel: Kernel) -> None:
    kernel.run("first = 1").result()
    assert asked(kernel, "listing", "names") == ["first"]
    kernel.restart().result()
    kernel.run("second = 2").result()
    assert asked(kernel, "listing", "names") == ["second"]


def test_messages_arrive_before_the_value_and_never_among_the_outputs(kernel: Kernel) -> None:
    heard: list[Any] = []

    async def work() -> Any:
        await ask(kernel.core, "trial", "load", "t", "print('said')\nassert 1 == 1", "")
        printed = await call(kernel.core, "trial", "run", "t", 0, timeout=30)
        asserted = await call(
            kernel.core, "trial", "run", "t", 1, timeout=30, on_message=heard.append
        )
        return printed, asserted, list(heard)

    printed, asserted, told = Run(work()).result()
    assert told == [{"begin": 0}, {"case": 0, "status": "passed"}]
    assert (printed.value, printed.result.text) == ({"raised": None}, "said\n")
    assert (asserted.value, asserted.result.outputs) == ({"raised": None}, ())


def test_an_error_of_the_function_is_told(kernel: Kernel) -> None:
    with pytest.raises(KernelError, match="A call into the kernel failed: KeyError: 't'"):
        asked(kernel, "trial", "run", "t", 0)


def test_a_call_that_does_not_end_is_interrupted_and_told(kernel: Kernel) -> None:
    async def work() -> None:
        await ask(kernel.core, "trial", "load", "t", "while True: pass\nassert 1", "")
        await ask(kernel.core, "trial", "run", "t", 0, timeout=0.5)

    with pytest.raises(KernelError, match="failed: KeyboardInterrupt"):
        Run(work()).result()
    assert kernel.run("1 + 1").result().ok


def test_a_kernel_that_dies_meanwhile_is_told(kernel: Kernel) -> None:
    async def work() -> None:
        await ask(kernel.core, "trial", "load", "t", "import os\nos._exit(3)\nassert 1", "")
        await ask(kernel.core, "trial", "run", "t", 0)

    with pytest.raises(KernelDeadError, match="exit code 3"):
        Run(work()).result()


def test_secrets_do_not_come_out_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct-horse-battery")
    with Kernel.start() as kernel:
        kernel.run("note = 'the key is correct-horse-battery'").result()
        (note,) = kernel.variables().result()
    assert note.preview == "'the key is [redacted:SOME_API_KEY]'"


def test_a_kernel_of_another_language_is_refused(bash_kernel: str) -> None:
    with Kernel.start(bash_kernel) as kernel, pytest.raises(UsageError, match="speaks bash"):
        asked(kernel, "listing", "names")


def test_calls_from_many_tasks_do_not_mix(kernel: Kernel) -> None:
    async def work() -> list[Any]:
        return await asyncio.gather(*(ask(kernel.core, "listing", "names") for _ in range(8)))

    kernel.run("a = 1").result()
    assert Run(work()).result() == [["a"]] * 8
