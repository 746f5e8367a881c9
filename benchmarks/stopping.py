"""How soon a cell of `%%refine` ends that a person stops: by ■, and by the panel's button.

python benchmarks/stopping.py [PYTHON ...]

Each PYTHON has an ipykernel, which is the one that is measured, and finds all else where this
runs; without any, it is the one that runs this.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from figures import Figures, Row, show, spread
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

import nbrefine

ROUNDS = 7
GOAL = 0.5
RUNS = 0.3  # seconds for which the cell of the attempt has run when it is stopped
REPLIES = {
    "a loop": "```python\nwhile True: pass\n```",
    "an idle await": "```python\nimport asyncio\nawait asyncio.sleep(600)\n```",
}
START = "from ipykernel.kernelapp import launch_new_instance as begin; begin()"


class Person:
    """A front end in short: it asks for a cell, waits for a sentence, and stops it."""

    def __init__(self, manager: KernelManager) -> None:
        self._manager = manager
        self._client = manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)
        self._buttons: dict[str, str] = {}
        self._asked = ""
        self._subshell = self._new_subshell()

    def _new_subshell(self) -> str | None:
        """Make what JupyterLab sends clicks to; None where the kernel has no such thing."""
        control, session = self._client.control_channel, self._client.session
        control.send(session.msg("kernel_info_request", {}))
        told = control.get_msg(timeout=60)["content"]
        if "kernel subshells" not in told.get("supported_features", ()):
            return None
        control.send(session.msg("create_subshell_request", {}))
        found: str = control.get_msg(timeout=60)["content"]["subshell_id"]
        return found

    def run(self, source: str, wanted: str = "") -> str:
        """Ask for a cell, take in what comes until a widget shows the words, or to its end."""
        session, content = self._client.session, {"code": source, "silent": False}
        message = session.msg("execute_request", content, metadata={"cellId": "one"})
        self._client.shell_channel.send(message)
        self._asked = message["header"]["msg_id"]
        return self._listen(wanted)

    def _listen(self, wanted: str = "") -> str:
        text = ""
        while True:
            message = self._client.get_iopub_msg(timeout=60)
            kind, content = message["msg_type"], message["content"]
            if kind == "comm_open":
                self._buttons[content["data"]["state"].get("description", "")] = content["comm_id"]
            if wanted and wanted in json.dumps(content):
                return text
            if message["parent_header"].get("msg_id") != self._asked:
                continue
            text += content.get("text", "") if kind == "stream" else ""
            if kind == "status" and content["execution_state"] == "idle":
                # Before 7.4 what comes before the reply may be overlooked (ipykernel #1554).
                self._client.get_shell_msg(timeout=60)
                return text

    def interrupt(self) -> float:
        """Press ■, and give the seconds until the cell has ended."""
        started = time.perf_counter()
        self._manager.interrupt_kernel()
        self._listen()
        return time.perf_counter() - started

    def press(self) -> float:
        """Press the panel's button, and give the seconds as above."""
        session = self._client.session
        data = {"method": "custom", "content": {"event": "click"}}
        comm = {"comm_id": self._buttons["Stop now"], "data": data}
        message = session.msg("comm_msg", comm)
        message["header"]["subshell_id"] = self._subshell
        started = time.perf_counter()
        self._client.shell_channel.send(message)
        self._listen()
        return time.perf_counter() - started


@contextmanager
def kernel(python: str) -> Iterator[Person]:
    """Start a kernel of an interpreter, with the magics and the replies of the model."""
    here = [str(Path(nbrefine.__file__).parents[1]), *filter(None, sys.path)]
    start = f"import sys; sys.path += {here}; {START}"
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder, "kernels", "measured", "kernel.json")
        spec.parent.mkdir(parents=True)
        argv = [python, "-c", start, "-f", "{connection_file}"]
        spec.write_text(json.dumps({"argv": argv, "display_name": "x", "language": "python"}))
        found = KernelSpecManager(kernel_dirs=[str(spec.parents[1])])
        manager = KernelManager(kernel_name="measured", kernel_spec_manager=found)
        manager.start_kernel(cwd=folder, stderr=subprocess.DEVNULL)
        try:
            person = Person(manager)
            person.run("%load_ext nbrefine")
            yield person
        finally:
            manager.shutdown_kernel(now=True)


def stopped(person: Person, reply: str, *, by_button: bool, option: str) -> float:
    """Ask an agent whose cell never ends, stop it, and give the seconds that took."""
    person.run(f"replies = [{reply!r}]")
    cell = f"%%refine {option} --model replies --record e.ipynb --overwrite\nGo on."
    person.run(cell, "unning the code")
    time.sleep(RUNS)
    return person.press() if by_button else person.interrupt()


def version(python: str) -> tuple[int, ...]:
    """Give the version of an interpreter's ipykernel."""
    code = "import ipykernel; print(ipykernel.__version__)"
    told = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout
    return tuple(int(part) for part in told.strip().split(".")[:2])


def measure(pythons: Sequence[str] = (sys.executable,)) -> Figures:
    rows, raw = [], {}
    for python in pythons:
        number = version(python)
        ways = [("■", False), *([("Stop now", True)] if number >= (7, 0) else [])]
        options = ["", *(["--here"] if number >= (7, 2) else [])]
        with kernel(python) as person:
            for (way, by_button), option, (what, reply) in product(ways, options, REPLIES.items()):
                taken = [
                    stopped(person, reply, by_button=by_button, option=option)
                    for _ in range(ROUNDS)
                ]
                where = ", in this kernel" if option else ""
                name = f"{'.'.join(map(str, number))}, {way}, {what}{where}"
                raw[name] = taken
                found = statistics.median(taken)
                rows.append(Row(name, spread(taken, "s"), "", "", f"≤ {GOAL} s", found <= GOAL))
    return Figures(
        title="Stopping an agent",
        how=f"{ROUNDS} times each: a `%%refine` cell whose attempt never ends is stopped {RUNS} s "
        "after it has begun, by interrupting the kernel or by the panel's button; until the cell "
        "has ended, with its record written and its summary shown. Named by the ipykernel of the "
        "notebook.",
        rows=tuple(rows),
        raw=raw,
    )


if __name__ == "__main__":
    show(lambda: measure(sys.argv[1:] or (sys.executable,)))
