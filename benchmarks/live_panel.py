"""What the live panel costs: an episode of many short attempts, with the panel and without.

python benchmarks/live_panel.py
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from figures import Figures, Row, alternate, show, spread
from jupyter_client.manager import KernelManager

ROUNDS = 5
ATTEMPTS = 200
CELL = 0.05
GOAL = 1.05


@contextmanager
def notebook() -> Iterator[Any]:
    """Give the client of a kernel with the magics and the replies of the model."""
    replies = [
        f"```python\nimport time\ntime.sleep({CELL})\nvalue = {number}\nprint(value)\n```"
        for number in range(ATTEMPTS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "replies.json").write_text(json.dumps(replies))
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(cwd=folder)
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            run(client, "%load_ext nbrefine")
            yield client
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def run(client: Any, source: str) -> str:
    """Run a cell, take in all that it shows as a front end does, and give its text."""
    asked, text = client.execute(source), ""
    while True:
        message = client.get_iopub_msg(timeout=600)
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != asked:
            continue
        if kind == "error":
            raise RuntimeError(f"{content['ename']}: {content['evalue']}")
        if kind == "stream":
            text += content["text"]
        if kind == "status" and content["execution_state"] == "idle":
            return text


def episode(client: Any, panel: str) -> float:
    """Run an episode and give its seconds, kernel and record included."""
    started = time.perf_counter()
    run(
        client,
        f"%%refine {panel} --model scripted:replies.json --max-turns {ATTEMPTS} "
        "--tests 'assert value < 0' --record e.ipynb --overwrite\nMake it negative.",
    )
    taken = time.perf_counter() - started
    assert int(run(client, "print(len(episode.attempts))")) == ATTEMPTS
    return taken


def measure() -> Figures:
    with notebook() as client:
        episode(client, "--panel")  # imports
        shown, unseen = alternate(
            ROUNDS, lambda: episode(client, "--panel"), lambda: episode(client, "--no-panel")
        )
    found = statistics.median(shown) / statistics.median(unseen)
    return Figures(
        title="The live panel",
        how=f"{ROUNDS} episodes each, alternating, of {ATTEMPTS} attempts whose cell sleeps "
        f"{CELL * 1000:.0f} ms and fails its test, asked for by `%%refine` in one kernel; whole "
        "episodes, with the kernel's start and the record.",
        rows=(
            Row(
                "an episode with the panel",
                spread(shown, "s"),
                f"{spread(unseen, 's')}, without it",
                f"{found:.3f} of the time without it",
                f"≤ {GOAL}",
                found <= GOAL,
            ),
        ),
        raw={"panel": shown, "no_panel": unseen},
    )


if __name__ == "__main__":
    show(measure)
