"""A kernel of another language runs, records and is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nbrefine.kernel import Kernel
from nbrefine.outputs import Stream


@pytest.fixture
def bash(bash_kernel: str) -> Iterator[Kernel]:
    with Kernel.start(bash_kernel) as kernel:
        yield kernel


def test_a_bash_kernel_runs_and_keeps_state(bash: Kernel) -> None:
    assert bash.info.language == "bash"
    assert bash.run("greeting=hello").result().status == "ok"
    result = bash.run("echo $greeting").result()
    assert result.outputs == (Stream("stdout", "hello\n"),)


def test_its_failures_are_errors_though_they_have_no_name(bash: Kernel) -> None:
    result = bash.run("ls /no/such/file").result()
    assert result.status == "error"
    assert result.error is not None
    assert result.error.ename == ""
    assert "No such file" in result.text


def test_it_is_interrupted_and_goes_on(bash: Kernel) -> None:
    result = bash.run("sleep 60", timeout=1).result(60)
    assert result.status == "timeout"
    assert bash.run("echo next").result(60).text.endswith("next\n")


def test_it_restarts_and_dies_like_any_other(bash: Kernel) -> None:
    assert bash.restart().result(60) == ()
    assert bash.run("echo new").result().text == "new\n"
    result = bash.run("kill -9 $PPID", timeout=20).result(60)
    assert result.status == "died"
    assert result.death is not None
    assert result.death.signal == "SIGKILL"


def test_a_kernelspec_that_wants_messages_is_interrupted_by_message(
    kernelspec: Callable[..., str],
) -> None:
    import sys

    argv = (sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")
    name = kernelspec("messages", *argv, interrupt_mode="message")
    with Kernel.start(name) as kernel:
        result = kernel.run("while True: pass", timeout=1).result(60)
        assert result.status == "timeout"
        assert "SIGKILL" not in result.rungs
        assert kernel.run("'next'").result().text == "'next'\n"
