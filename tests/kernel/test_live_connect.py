"""Kernels of somebody else, and two clients on one kernel."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from nbrefine.errors import KernelError, KernelStartError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.outputs import Display, Stream


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelManager]:
    """A kernel that jupyter_client started and owns, over TCP."""
    folder = tmp_path_factory.mktemp("stock")
    manager = KernelManager(kernel_name="python3", connection_file=str(folder / "kernel.json"))
    with (folder / "log").open("w") as log:
        # Without the variable ipykernel's debugger warns on stderr as long as it starts.
        environment = {**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        environment.pop("PYTEST_CURRENT_TEST", None)
        manager.start_kernel(stdout=log, stderr=log, env=environment)
        yield manager
        manager.shutdown_kernel(now=True)


@pytest.fixture
def guest(stock: KernelManager) -> Iterator[Kernel]:
    with Kernel.connect(stock.connection_file) as kernel:
        yield kernel


def test_a_stock_kernel_runs_cells_and_outlives_us(stock: KernelManager) -> None:
    with Kernel.connect(stock.connection_file) as kernel:
        assert not kernel.owned
        assert kernel.info.language == "python"
        assert kernel.run("left_behind = 6 * 7; left_behind").result().text == "42\n"
    assert stock.is_alive()
    with Kernel.connect(stock.connection_file) as kernel:
        assert kernel.run("left_behind").result().text == "42\n"


def test_a_second_client_gets_no_welcome_and_connects_all_the_same(
    guest: Kernel, stock: KernelManager
) -> None:
    with Kernel.connect(stock.connection_file, timeout=20) as second:
        assert second.run("1 + 1").result().text == "2\n"
    assert guest.run("2 + 2").result().text == "4\n"


def test_two_clients_never_see_each_others_outputs(guest: Kernel, stock: KernelManager) -> None:
    with Kernel.connect(stock.connection_file) as second:
        mine = [guest.run(f"print('guest', {n})") for n in range(20)]
        theirs = [second.run(f"print('second', {n})") for n in range(20)]
        for n in range(20):
            assert mine[n].result().outputs == (Stream("stdout", f"guest {n}\n"),)
            assert theirs[n].result().outputs == (Stream("stdout", f"second {n}\n"),)
        assert guest.late().result() == ()


def test_an_error_of_another_client_aborts_nothing_of_ours(
    guest: Kernel, stock: KernelManager
) -> None:
    """Another client's failing cell makes the kernel refuse what is queued; that is asked again."""
    client = stock.client()
    client.start_channels()
    try:
        client.execute("import time; time.sleep(1); 1/0", stop_on_error=True)
        result = guest.run("'ran'").result(60)
    finally:
        client.stop_channels()
    assert result.status == "ok"
    assert result.text == "'ran'\n"


def test_an_interrupt_reaches_a_kernel_that_is_not_ours(guest: Kernel) -> None:
    result = guest.run("import time; time.sleep(60)", timeout=1).result(60)
    assert result.status == "timeout"
    assert guest.run("import asyncio; await asyncio.sleep(60)", timeout=1).result(60).rungs[1:] == (
        "shell poke",
    )
    assert guest.run("'next'").result().text == "'next'\n"


def test_a_kernel_that_is_not_ours_is_not_restarted(guest: Kernel) -> None:
    with pytest.raises(KernelError, match="restarted"):
        guest.restart().result()


def test_broken_streams_of_a_stock_kernel_are_repaired_from_outside(guest: Kernel) -> None:
    assert guest.run("import sys; sys.stdout = None").result().ok
    mute = guest.run("print('lost')").result(60)
    assert mute.error is not None
    assert mute.error.ename == "NoReply"
    assert mute.notes == ("sys.stdout and sys.stderr were restored",)
    assert guest.run("print('back')").result().text == "back\n"


def test_a_surrogate_in_a_stock_kernel_leaves_an_error_in_the_result(guest: Kernel) -> None:
    """Its session cannot send the text; the reply is all there is (jupyter_client #778)."""
    result = guest.run("raise ValueError('\\ud800')").result(60)
    assert result.status == "error"
    assert result.error is not None
    assert result.outputs[-1:] == (result.error,)


def test_the_death_and_the_restart_of_a_foreign_kernel_are_noticed(
    stock: KernelManager, until: Callable[..., None]
) -> None:
    with Kernel.connect(stock.connection_file) as kernel:
        running = kernel.run("import time; time.sleep(100)")
        until(lambda: kernel.core.running is not None)
        stock.restart_kernel(now=True)
        result = running.result(60)
        assert result.status == "died"
        assert result.death is not None
        assert not kernel.alive
        with pytest.raises(KernelError, match="Connect again"):
            kernel.run("1").result()


def test_a_missing_file_and_a_wrong_one_are_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no connection file"):
        Kernel.connect(tmp_path / "none.json").result()
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    with pytest.raises(UsageError, match="it has no control_port"):
        Kernel.connect(wrong).result()
    wrong.write_text("no json")
    with pytest.raises(UsageError, match="cannot be read"):
        Kernel.connect(wrong).result()


def test_a_connection_nobody_answers_is_given_up(tmp_path: Path) -> None:
    file = tmp_path / "dead.json"
    ports = dict.fromkeys(("shell_port", "iopub_port", "control_port", "stdin_port", "hb_port"), 1)
    file.write_text(
        json.dumps({"transport": "ipc", "ip": str(tmp_path / "k"), "key": "k", **ports})
    )
    with pytest.raises(KernelStartError, match="did not answer within 1 s"):
        Kernel.connect(file, timeout=1).result(60)


def test_a_wrong_key_is_told_from_silence(stock: KernelManager, tmp_path: Path) -> None:
    connection: dict[str, Any] = json.loads(Path(stock.connection_file).read_text())
    file = tmp_path / "forged.json"
    file.write_text(json.dumps({**connection, "key": "forged"}))
    with pytest.raises(KernelStartError, match="its signature is not the kernel's"):
        Kernel.connect(file, timeout=2).result(60)


def test_pictures_of_a_stock_kernel_come_as_usual(guest: Kernel) -> None:
    (shown,) = guest.run("from IPython.display import HTML; HTML('<b>x</b>')").result().outputs
    assert isinstance(shown, Display)
    assert shown.data["text/html"] == "<b>x</b>"
