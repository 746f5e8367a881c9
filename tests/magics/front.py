"""A front end in short, at a kernel of any command."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from tests.magics.kernels import environment


@contextmanager
def connected(folder: Path, command: list[str], *, deaf: bool = False) -> Iterator[Client]:
    """Start a kernel in a folder, with the magics.

    Parameters
    ----------
    deaf: whether its kernel hears of no button while a cell runs.
    """
    spec = folder / "kernels" / "tried" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": command, "display_name": "x", "language": "python"}))
    manager = KernelManager(
        kernel_name="tried",
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(folder / "kernels")]),
        connection_file=str(folder / "kernel.json"),
    )
    with (folder / "log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log, env=environment(folder), cwd=str(folder))
        try:
            client = Client(manager, deaf=deaf)
            client.run("%load_ext nbrefine")
            yield client
            client.client.stop_channels()
        finally:
            manager.shutdown_kernel(now=True)


class Client:
    """A front end in short: it runs cells, interrupts, presses buttons, and notes what comes."""

    def __init__(self, manager: KernelManager, *, deaf: bool) -> None:
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
        self._heard = True  # the kernel has said something of what was asked
        self.deaf = deaf
        self._subshell = None if deaf else self._new_subshell()

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
        self._heard, self.asked = False, message["header"]["msg_id"]
        self.client.shell_channel.send(message)

    def begin_aside(self, source: str) -> None:
        """Ask a subshell for a cell, whose outputs are not looked at."""
        content = {"code": source, "silent": True, "store_history": False, "allow_stdin": False}
        message = self.client.session.msg("execute_request", content)
        message["header"]["subshell_id"] = self._subshell
        self.client.shell_channel.send(message)

    def listen(self, wanted: str = "", seconds: float = 60) -> None:
        """Take in what comes until a widget shows the words, or the cell has ended."""
        deadline = time.monotonic() + seconds
        while not (wanted and any(wanted in text for text in self.texts())):
            if self._take(self._next(deadline)):
                assert not wanted, f"the cell has ended: {self.errors}"
                return

    def listen_until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Take in what comes after the cell has ended, until something is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            self._take(self._next(deadline))

    def take_what_is_there(self) -> None:
        """Take in what has come."""
        while self.client.iopub_channel.msg_ready():
            self._take(self.client.get_iopub_msg(timeout=1))

    def _next(self, deadline: float) -> dict[str, Any]:
        """Wait for a message, and wake a kernel that has overlooked what was asked."""
        while not self._heard and time.monotonic() < deadline:
            with suppress(Empty):
                return self.client.get_iopub_msg(timeout=2)
            self._wake()
        return self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))

    def _wake(self) -> None:
        """Come and go as another front end, at which ipykernel 7.0 to 7.3 looks again (#1554)."""
        other = BlockingKernelClient(connection_file=self.manager.connection_file)
        other.load_connection_file()
        other.start_channels(iopub=False, stdin=False, hb=False, control=False)
        other.comm_info()
        with suppress(Empty):
            other.get_shell_msg(timeout=5)
        other.stop_channels()

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
        self._heard = True
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

    def _new_subshell(self) -> str:
        """Give a subshell, to which all goes that is pressed, as in JupyterLab."""
        control, session = self.client.control_channel, self.client.session
        control.send(session.msg("create_subshell_request", {}))
        return str(control.get_msg(timeout=60)["content"]["subshell_id"])

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
            message = self._next(time.monotonic() + 60)
            own = message["parent_header"].get("msg_id") == self.asked
            if own and message["msg_type"] == "execute_result":
                values.append(message["content"]["data"]["text/plain"])
            ended = self._take(message)
        return "".join(values)
