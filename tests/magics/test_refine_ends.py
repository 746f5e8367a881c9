"""How `%%refine` is ended by a person: ■, and the panel's buttons, on several ipykernels."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

import nbrefine
from nbrefine.notebook import load
from tests.kernel import environments
from tests.kernel.environments import RUNNING, CannotBeMade
from tests.magics.kernels import environment, until

# The first test of an environment waits until its packages are there.
pytestmark = pytest.mark.timeout(600)

SPIN = "```python\\nbegun = 1\\nwhile True: pass\\n```"
IDLE = "```python\\nimport asyncio\\nawait asyncio.sleep(600)\\n```"
VIEW = "application/vnd.jupyter.widget-view+json"
VERSIONS = ["6.31", "7.1", "7.3", "newest"]


class Client:
    """A front end in short: it runs cells, interrupts, presses buttons, and notes what comes."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager = manager
        self.client = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.states: dict[str, dict[str, Any]] = {}
        self.opened: set[str] = set()
        self.closed: set[str] = set()
        self.shown: dict[str, Any] = {}
        """What stands below the cell."""
        self.errors = ""
        self.asked = ""
        self.deaf = False
        """Whether its kernel hears of no button while a cell runs."""
        self._subshell: str | None = None

    def begin(self, source: str, *, widgets: bool = False) -> None:
        """Ask for a cell, as an editor does that shows widgets, or as a runner of notebooks."""
        content = {
            "code": source,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        self.shown, self.errors = {}, ""
        message = self.client.session.msg(
            "execute_request", content, metadata={"cellId": "one"} if widgets else {}
        )
        self.client.shell_channel.send(message)
        self.asked = message["header"]["msg_id"]

    def listen(self, wanted: str = "", seconds: float = 60) -> None:
        """Take in what comes until a widget shows the words, or the cell has ended."""
        deadline = time.monotonic() + seconds
        while not (wanted and any(wanted in text for text in self.texts())):
            message = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            if self._take(message):
                assert not wanted, f"the cell has ended: {self.errors}"
                return

    def _take(self, message: dict[str, Any]) -> bool:
        """Take a message in, and tell whether the cell has ended with it."""
        kind, content = message["msg_type"], message["content"]
        if kind == "comm_open":
            self.opened.add(content["comm_id"])
            self.states[content["comm_id"]] = content["data"].get("state", {})
        elif kind == "comm_close":
            self.closed.add(content["comm_id"])
            self.states.pop(content["comm_id"], None)
        elif kind == "comm_msg":
            state = self.states.setdefault(content["comm_id"], {})
            state.update(content["data"].get("state", {}))
        if message["parent_header"].get("msg_id") != self.asked:
            return False
        if kind in ("display_data", "update_display_data"):
            self.shown = content["data"]
        elif kind == "stream":
            self.errors += content["text"]
        elif kind == "error":
            self.errors += f"{content['ename']}: {content['evalue']}\n"
        return kind == "status" and bool(content["execution_state"] == "idle")

    def texts(self) -> list[str]:
        """Give what the widgets show, without tags."""
        values = (state.get("value") for state in self.states.values())
        return [re.sub("<[^>]*>", " ", value) for value in values if isinstance(value, str)]

    def open_subshell(self) -> None:
        """Have what is pressed go to a subshell, as JupyterLab does where a kernel has them."""
        control, session = self.client.control_channel, self.client.session
        control.send(session.msg("create_subshell_request", {}))
        self._subshell = control.get_msg(timeout=60)["content"]["subshell_id"]

    def _tell(self, comm: str, data: dict[str, Any]) -> None:
        message = self.client.session.msg("comm_msg", {"comm_id": comm, "data": data})
        if self._subshell is not None:
            message["header"]["subshell_id"] = self._subshell
        self.client.shell_channel.send(message)

    def press(self, button: str) -> None:
        """Press a button."""
        (pressed,) = (
            key for key, state in self.states.items() if state.get("description") == button
        )
        self._tell(pressed, {"method": "custom", "content": {"event": "click"}})

    def choose(self, name: str, **values: Any) -> None:
        """Set traits of the widget of a description, as a person does by choosing."""
        (key,) = (each for each, state in self.states.items() if state.get("description") == name)
        self._tell(key, {"method": "update", "state": values, "buffer_paths": []})

    def run(self, source: str) -> str:
        """Run a cell to its end, and give the text of its value."""
        self.begin(source)
        values: list[str] = []
        ended = False
        while not ended:
            message = self.client.get_iopub_msg(timeout=60)
            own = message["parent_header"].get("msg_id") == self.asked
            if own and message["msg_type"] == "execute_result":
                values.append(message["content"]["data"]["text/plain"])
            ended = self._take(message)
        return "".join(values)


def _command(version: str) -> list[str]:
    """Give what starts a kernel of an ipykernel version, which finds all else in this one."""
    if version == "newest":
        return [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    try:
        made = environments.environment(RUNNING, f"ipykernel=={version}.*")
    except CannotBeMade as error:
        pytest.skip(str(error))
    assert made is not None
    paths = [str(Path(nbrefine.__file__).parents[1]), *filter(None, sys.path)]
    start = "from ipykernel.kernelapp import launch_new_instance as begin; begin()"
    start = f"import sys; sys.path += {paths}; {start}"
    return [made.python, "-c", start, "-f", "{connection_file}"]


@pytest.fixture(scope="module", params=VERSIONS)
def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("k")
    spec = folder / "kernels" / "tried" / "kernel.json"
    spec.parent.mkdir(parents=True)
    command = _command(request.param)
    spec.write_text(json.dumps({"argv": command, "display_name": "x", "language": "python"}))
    manager = KernelManager(
        kernel_name="tried",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(folder / "kernels")]),
        connection_file=str(folder / "kernel.json"),
    )
    with (folder / "log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log, env=environment(folder), cwd=str(folder))
        try:
            client = Client(manager)
            client.deaf = request.param.startswith("6")
            if not client.deaf:
                client.open_subshell()
            client.run(f"%load_ext nbrefine\nspin = ['{SPIN}'] * 9; idle = ['{IDLE}'] * 9")
            yield client
            client.client.stop_channels()
        finally:
            manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("model", ["spin", "idle"])
def test_an_interrupt_ends_cell_attempt_and_record(front: Client, model: str) -> None:
    front.begin(f"%%refine --model {model} --record {model}.ipynb\nGo on.", widgets=True)
    front.listen("unning the code")
    pressed = time.monotonic()
    front.manager.interrupt_kernel()
    front.listen(seconds=30)
    assert time.monotonic() - pressed < 10  # it is a matter of tenths on a machine at rest
    assert front.errors.endswith("UsageError: interrupted\n")
    assert "stopped by a person" in front.shown["text/plain"]
    assert VIEW not in front.shown
    folder = Path(front.run("import os; os.getcwd()").strip("'"))
    recorded = load(folder / f"{model}.ipynb")
    assert recorded.stop is not None
    assert recorded.stop.reason == "stopped"
    assert front.run("1 + 1") == "2"


def test_stop_now_ends_it_where_the_kernel_hears_of_it(front: Client) -> None:
    front.begin("%%refine --model spin\nGo on.", widgets=True)
    front.listen("unning the code")
    if front.deaf:
        assert any("■ (interrupt the kernel) ends the work" in text for text in front.texts())
        front.manager.interrupt_kernel()
        front.listen(seconds=30)
        return
    front.press("Stop now")
    front.listen(seconds=30)
    assert front.errors == ""  # a person who stops the agent does not stop Run All
    assert "stopped by a person" in front.shown["text/plain"]


def test_the_panel_leaves_no_widget(front: Client) -> None:
    front.opened.clear()
    front.closed.clear()
    front.begin("%%refine --model spin --timeout 0.5 --max-turns 1\nGo on.", widgets=True)
    front.listen()
    assert front.opened
    until(lambda: front.opened == front.closed)
    assert sorted(front.shown) == ["text/html", "text/plain"]
    assert "rejected (timeout)" in front.shown["text/plain"]
    assert front.run("len(get_ipython().kernel.comm_manager.comms)") == "0"


def test_who_runs_notebooks_gets_no_widget(front: Client) -> None:
    front.opened.clear()
    front.begin("%%refine --model spin --timeout 0.5 --max-turns 1\nGo on.")
    front.listen()
    assert front.opened == set()
    assert sorted(front.shown) == ["text/html", "text/plain"]
