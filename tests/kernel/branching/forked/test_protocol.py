"""What a client may ask of a forked kernel, of its branch and of a branch of a branch."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from nbrefine.kernel.inside.branching import wire
from tests.kernel.branching.forked.nests import OURS, Forked, Nest


def test_cells_in_any_kernel(any_kernel: Forked, until: Callable[..., None]) -> None:
    assert any_kernel.run("print(kept); kept += 1\nkept") == "41\n42"
    assert any_kernel.run("await asyncio.sleep(0.01, 'slept')") == "'slept'"
    assert any_kernel.run("!echo from a shell").strip() == "from a shell"
    # A thread of ipykernel's reads the descriptor, at times after the cell has ended.
    until(lambda: "raw\n" in any_kernel.run("os.write(1, b'raw\\n');"))
    assert any_kernel.run("1 / 0") == "ZeroDivisionError: division by zero"
    thread = "import threading; t = threading.Thread(target=print, args=('other',)); t.start()"
    assert any_kernel.run(f"{thread}; t.join()") == "other\n"


def test_requests_in_any_kernel(any_kernel: Forked) -> None:
    ask = any_kernel.ask
    assert "kept" in ask("complete_request", {"code": "kep", "cursor_pos": 3})["matches"]
    found = ask("inspect_request", {"code": "kept", "cursor_pos": 4, "detail_level": 0})
    assert "int" in found["data"]["text/plain"]
    assert ask("is_complete_request", {"code": "if 1:"})["status"] == "incomplete"
    tail = {"hist_access_type": "tail", "n": 1, "output": False, "raw": True}
    assert "kept = 41" in ask("history_request", {**tail, "n": 5})["history"][0][2]
    assert ask("kernel_info_request", {})["implementation"] == "ipython"
    assert ask("connect_request", {})["shell_port"] == 1
    assert ask("usage_request", {}, "control")["pid"] == any_kernel.pid


def test_subshells_in_any_kernel(any_kernel: Forked) -> None:
    made = any_kernel.ask("create_subshell_request", {}, "control")
    busy = any_kernel.begin(
        "while 'done' not in globals(): time.sleep(0.01)", lambda kind, _: kind == "execute_input"
    )
    ended = any_kernel.ask(
        "execute_request", {"code": "done = kept"}, subshell_id=made["subshell_id"]
    )
    assert ended["status"] == "ok"
    assert any_kernel.reply_to(busy)["status"] == "ok"
    assert any_kernel.checkpoint().fork().wait().run("done") == "41"


@pytest.mark.parametrize("how", ["signal", "message"])
def test_interrupts_in_any_kernel(any_kernel: Forked, how: str, until: Callable[..., None]) -> None:
    request = any_kernel.begin(
        "print('on', flush=True)\nwhile True: time.sleep(0.01)", lambda kind, _: kind == "stream"
    )
    if how == "signal":
        os.killpg(any_kernel.pid, signal.SIGINT)
    else:
        assert any_kernel.ask("interrupt_request", {}, "control")["status"] == "ok"
    assert any_kernel.reply_to(request)["ename"] == "KeyboardInterrupt"
    os.kill(any_kernel.pid, signal.SIGINT)
    # An idle kernel does not mind, and one that is slow to hear of it has begun a cell by then.
    until(lambda: any_kernel.run("kept") == "41")


def test_input_in_any_kernel(any_kernel: Forked) -> None:
    client = any_kernel.client
    request = client.execute("print(input('name? ') * 2)", allow_stdin=True)
    asked = client.get_stdin_msg(timeout=20)
    assert asked["content"]["prompt"] == "name? "
    client.input("ab")
    assert any_kernel.reply_to(request)["status"] == "ok"
    texts: list[str] = []
    while not texts:
        message = client.get_iopub_msg(timeout=20)
        if message["msg_type"] == "stream":
            texts.append(message["content"]["text"])
    assert texts == ["abab\n"]


def test_comms_in_any_kernel(kernel: Forked) -> None:
    kernel.run(
        "import ipywidgets\nslider = ipywidgets.IntSlider(3)\n"
        "seen = []\nslider.observe(lambda change: seen.append(change['new']), 'value')"
    )
    for each in (kernel, kernel.branch()):
        comm = each.run("print(slider.comm.comm_id)").strip()
        assert comm in each.ask("comm_info_request", {})["comms"]
        data = {"method": "update", "state": {"value": 9}, "buffer_paths": []}
        update = each.client.session.msg("comm_msg", {"comm_id": comm, "data": data})
        each.client.shell_channel.send(update)
        assert each.run("seen, slider.value") == "([9], 9)"
        request = each.begin("slider.value = 5", lambda kind, _: kind == "comm_msg")
        assert each.reply_to(request)["status"] == "ok"


def test_inline_plots_in_any_kernel(kernel: Forked) -> None:
    kernel.run("import matplotlib.pyplot as plt")
    for each in (kernel, kernel.branch()):
        request = each.begin(
            "plt.plot([1, 2]);", lambda kind, content: "image/png" in content.get("data", {})
        )
        assert each.reply_to(request)["status"] == "ok"


def test_the_debugger_answers_in_any_kernel(any_kernel: Forked) -> None:
    pytest.importorskip("debugpy")
    request = {"type": "request", "seq": 1, "command": "debugInfo", "arguments": {}}
    assert any_kernel.ask("debug_request", request, "control")["body"]["isStarted"] is False


def test_the_heart_beats_in_any_kernel(any_kernel: Forked, until: Callable[..., None]) -> None:
    until(any_kernel.client.is_alive)


def test_a_prepared_kernel_and_its_branch_keep_their_streams_and_stay(
    keeper: Nest, tmp_path: Path
) -> None:
    kernel = keeper.fork(arguments=OURS, nonce="first", crash=str(tmp_path / "one")).wait()
    kernel.run("x = 6 * 7\nx")
    branch = kernel.branch(nonce="second", crash=str(tmp_path / "two"))
    for each, nonce in ((kernel, "first"), (branch, "second")):
        marked = {"nbrefine": nonce}
        assert each.run("_") == "42"
        request = each.client.execute("import sys; sys.stdout = None")
        assert each.reply_to(request)["status"] == "ok"
        while (note := each.client.get_iopub_msg(timeout=20))["msg_type"] != "display_data":
            pass
        assert note["content"]["metadata"] == marked
        assert each.run("print('back', '\\udc80')").startswith("back ")
        assert each.ask("execute_request", {"code": "exit()"})["payload"][0]["keepkernel"] is True
        assert each.run("x") == "42"
        flood = "from IPython.display import display\nfor n in range(3000): display(n)"
        assert each.run(flood).endswith("2999")
    for each, name in ((kernel, "one"), (branch, "two")):
        each.client.execute("import os; os.abort()")
        assert wire.receive(each.line) == (None, [])
        assert "Fatal Python error: Aborted" in (tmp_path / name).read_text()
