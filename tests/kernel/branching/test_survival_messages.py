"""A branch is a whole Jupyter kernel: a stock client finds everything that it may ask for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from nbrefine.kernel import Kernel, core

Value = Callable[..., str]


@pytest.fixture(scope="module")
def branch(shared: Kernel) -> Iterator[Kernel]:
    """One branch for all; its kernel has shown a widget and named something."""
    setup = """
import math, ipywidgets
alpha_beta = 1
slider = ipywidgets.IntSlider(3)
display(slider)
"""
    assert shared.run(setup, timeout=60).result().ok
    with shared.branch().result() as trial:
        yield trial


class Client(BlockingKernelClient):
    """A stock client, and a way to ask for what it has no method for."""

    def ask(self, channel: str, kind: str, **content: Any) -> dict[str, Any]:
        message = self.session.msg(kind, content)
        at = getattr(self, f"{channel}_channel")
        at.send(message)
        while True:
            reply = at.get_msg(timeout=20)
            if reply["parent_header"]["msg_id"] == message["header"]["msg_id"]:
                told: dict[str, Any] = reply["content"]
                return told

    def outputs(self, request: str) -> Iterator[dict[str, Any]]:
        """Give what is published for a request until the kernel is idle again."""
        while True:
            message = self.get_iopub_msg(timeout=20)
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["content"].get("execution_state") == "idle":
                return
            yield message


@pytest.fixture(scope="module")
def client(branch: Kernel) -> Iterator[Client]:
    made = Client(connection_file=branch.connection_file)
    made.load_connection_file()
    made.start_channels()
    made.wait_for_ready(timeout=30)
    yield made
    made.stop_channels()


def test_names_are_completed_and_inspected(client: Client) -> None:
    completed = client.ask("shell", "complete_request", code="alpha_b", cursor_pos=7)
    assert completed["matches"] == ["alpha_beta"]
    inspected = client.ask("shell", "inspect_request", code="math", cursor_pos=4, detail_level=0)
    assert inspected["found"]
    complete = client.ask("shell", "is_complete_request", code="for x in y:")
    assert complete["status"] == "incomplete"


def test_history_is_told(client: Client) -> None:
    told = client.ask(
        "shell", "history_request", hist_access_type="tail", n=3, raw=True, output=False
    )
    assert told["status"] == "ok"


def test_comms_are_told(client: Client, branch: Kernel, value: Value) -> None:
    told = client.ask("shell", "comm_info_request")
    assert value(branch, "print(slider.comm.comm_id)") in told["comms"]


def test_memory_and_subshells_are_told(client: Client) -> None:
    assert client.ask("control", "usage_request")["kernel_memory"] > 0
    made = client.ask("control", "create_subshell_request")
    assert made["status"] == "ok"
    listed = client.ask("control", "list_subshell_request")
    assert listed["subshell_id"] == [made["subshell_id"]]
    client.ask("control", "delete_subshell_request", subshell_id=made["subshell_id"])


def test_input_is_asked_for(client: Client, branch: Kernel, value: Value) -> None:
    request = client.execute("name = input('name? ')", allow_stdin=True)
    asked = client.get_stdin_msg(timeout=20)
    assert asked["content"]["prompt"] == "name? "
    client.input("bob")
    list(client.outputs(request))
    assert value(branch, "name") == "'bob'"


def test_widgets_speak_in_both_directions(client: Client, branch: Kernel, value: Value) -> None:
    identity = value(branch, "print(slider.comm.comm_id)")
    request = client.execute("slider.value = 9")
    sent = [
        each["content"]["data"]["state"]
        for each in client.outputs(request)
        if each["msg_type"] == "comm_msg" and each["content"]["comm_id"] == identity
    ]
    assert sent == [{"value": 9}]
    update = {"method": "update", "state": {"value": 42}, "buffer_paths": []}
    message = client.session.msg("comm_msg", {"comm_id": identity, "data": update})
    client.shell_channel.send(message)
    assert value(branch, "slider.value") == "42"


def test_widgets_are_the_branchs_own(shared: Kernel, branch: Kernel, value: Value) -> None:
    value(branch, "slider.value = 11; slider.value")
    assert value(shared, "slider.value") == "3"


def test_an_output_widget_captures(client: Client) -> None:
    """A frontend puts into the widget what is printed while it has the request's identity."""
    request = client.execute("box = ipywidgets.Output()\nwith box: print('captured')")
    seen = []
    for message in client.outputs(request):
        if message["msg_type"] == "stream":
            seen.append(message["content"]["text"])
        elif "msg_id" in message["content"].get("data", {}).get("state", {}):
            seen.append(message["content"]["data"]["state"]["msg_id"])
    assert seen[-3:] == [request, "captured\n", ""]


def test_a_cell_is_interrupted(client: Client) -> None:
    request = client.execute("print('begun', flush=True)\nwhile True: pass")
    outputs = client.outputs(request)
    next(each for each in outputs if each["msg_type"] == "stream")
    begun = time.monotonic()
    client.ask("control", "interrupt_request")
    failed = next(each for each in outputs if each["msg_type"] == "error")
    assert failed["content"]["ename"] == "KeyboardInterrupt"
    assert time.monotonic() - begun < 10
    list(outputs)


def debug(client: Client, command: str, **arguments: Any) -> dict[str, Any]:
    request = {"type": "request", "seq": 1, "command": command, "arguments": arguments}
    told = client.ask("control", "debug_request", **request)
    assert told["success"], told
    body: dict[str, Any] = told.get("body", {})
    return body


START = {"clientID": "x", "adapterID": "", "pathFormat": "path"}


def test_a_debugger_is_attached_to_a_branch(client: Client) -> None:
    debug(client, "debugInfo")
    debug(client, "initialize", linesStartAt1=True, columnsStartAt1=True, **START)
    debug(client, "attach")
    debug(client, "disconnect", restart=False, terminateDebuggee=False)


def test_the_debugger_of_the_kernel_does_not_stop_a_branch(value: Value) -> None:
    """At its breakpoint a branch would wait for ever, as nobody is connected to it."""
    with Kernel.start() as kernel:
        client = Client(connection_file=kernel.connection_file)
        client.load_connection_file()
        client.start_channels()
        client.wait_for_ready(timeout=30)
        debug(client, "initialize", linesStartAt1=True, columnsStartAt1=True, **START)
        debug(client, "attach")
        code = "x = 1\nx += 1\nx"
        path = debug(client, "dumpCell", code=code)["sourcePath"]
        at = {"source": {"path": path}, "sourceModified": False, "breakpoints": [{"line": 2}]}
        assert debug(client, "setBreakpoints", **at)["breakpoints"][0]["verified"]
        debug(client, "configurationDone")
        with kernel.checkpoint().result() as checkpoint:
            assert [(each.kind, each.verdict) for each in checkpoint.hazards] == [
                ("debugger", "lost")
            ]
            with checkpoint.branch().result() as trial:
                assert value(trial, code) == "2"
                assert value(trial, THREAD) == "ran"
        request = client.execute(code)
        while client.get_iopub_msg(timeout=20)["content"].get("event") != "stopped":
            pass
        debug(client, "continue", threadId=1)
        list(client.outputs(request))
        client.stop_channels()


THREAD = """
import threading
thread = threading.Thread(target=print, args=("ran",))
thread.start(); thread.join()
"""


def test_a_branch_that_is_shut_down_does_its_own_exit_work_only(
    shared: Kernel, value: Value, until: Callable[..., None], tmp_path: Path
) -> None:
    setup = f"""
        import atexit, tempfile
        folder = tempfile.TemporaryDirectory(dir={str(tmp_path)!r})
        def on_exit(name): atexit.register(lambda: open(f"{tmp_path}/{{name}}", "w"))
        on_exit("kernel")
    """
    value(shared, setup)
    folder = Path(value(shared, "print(folder.name)"))
    with shared.branch().result() as trial:
        value(trial, "on_exit('branch')")
        client = Client(connection_file=trial.connection_file)
        client.load_connection_file()
        client.start_channels()
        client.wait_for_ready(timeout=30)
        assert client.ask("control", "shutdown_request", restart=False)["status"] == "ok"
        until(lambda: not trial.alive)
        client.stop_channels()
        assert trial.death is not None
        assert trial.death.exit_code == 0
    assert (tmp_path / "branch").exists()
    assert not (tmp_path / "kernel").exists()
    assert folder.is_dir()
    value(shared, "folder.cleanup()")


def test_an_adopted_branch_removes_what_the_kernel_would_have_removed(
    value: Value, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "_GRACE", 60.0)  # exit handlers take as long as the host is busy
    with Kernel.start() as kernel:
        made = "import tempfile\nfolder = tempfile.TemporaryDirectory()\nprint(folder.name)"
        before = Path(value(kernel, made))
        for _ in range(2):
            with kernel.branch() as trial:
                value(trial, "other = tempfile.TemporaryDirectory()")
                kernel.adopt(trial).result()
        after = Path(value(kernel, "print(other.name)"))
        assert before.is_dir()
        assert after.is_dir()
    assert not before.exists()
    assert not after.exists()
