"""Cells that print faster than anybody reads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from nbrefine.kernel import Kernel, OutputLimits

# More than twice the 1000 messages that ZeroMQ keeps at either end of a connection unless it is
# told otherwise, and what the system's buffers hold between them.
LINES = 6000

READER = f"""
    import sys
    from nbrefine.kernel import Kernel
    with Kernel.start() as kernel:
        assert kernel.run(sys.argv[1]).result().ok
        result = kernel.run(sys.argv[2], timeout=None).result()
        lines = result.text.split()
        print(lines == [str(n) for n in range({LINES})], *result.notes)
"""

# It waits until its reader has been stopped.
FLOOD = f"""
import pathlib, time
pathlib.Path("begun").touch()
while not pathlib.Path("stopped").exists():
    time.sleep(.01)
for n in range({LINES}):
    print(n, flush=True)
pathlib.Path("printed").touch()
"""


def flood(folder: Path, before: str, until: Callable[..., None]) -> str:
    """Run the flood while its controller is stopped, as a laptop that sleeps stops it."""
    reader = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(READER), before, FLOOD],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        until((folder / "begun").exists, 60)
        os.kill(reader.pid, signal.SIGSTOP)
        (folder / "stopped").touch()
        until((folder / "printed").exists, 120)
    finally:
        os.kill(reader.pid, signal.SIGCONT)
    return reader.communicate(timeout=120)[0]


@pytest.mark.slow
def test_what_is_printed_while_nobody_reads_arrives_complete(
    tmp_path: Path, until: Callable[..., None]
) -> None:
    assert flood(tmp_path, "pass", until) == "True\n"


@pytest.mark.slow
def test_what_a_kernel_drops_all_the_same_is_counted(
    tmp_path: Path, until: Callable[..., None]
) -> None:
    limit = """
        import zmq
        thread = get_ipython().kernel.iopub_thread
        thread.schedule(lambda: thread.socket.set(zmq.SNDHWM, 1000))
    """
    told = flood(tmp_path, textwrap.dedent(limit), until)
    lost = re.search(r"([0-9]+) messages of the kernel were lost on the way", told)
    assert lost is not None
    assert told.startswith("False ")
    assert 0 < int(lost[1]) < LINES


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_flushed_prints_arrive_complete() -> None:
    with Kernel.start(limits=OutputLimits(cell=2_000_000)) as kernel:
        source = "for n in range(100_000):\n    print(n, flush=True)"
        result = kernel.run(source, timeout=500).result()
    assert result.status == "ok"
    assert (result.cut, result.notes) == ((), ())
    assert result.text == "".join(f"{n}\n" for n in range(100_000))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_flood_beyond_the_limit_is_read_on_counted_and_bounded(kernel: Kernel) -> None:
    source = "for n in range(1_000_000):\n    print(n)\nprint('end')"
    result = kernel.run(source, timeout=250).result()
    total = sum(len(str(n)) + 1 for n in range(1_000_000)) + len("end\n")
    assert result.status == "ok"
    (cut,) = result.cut
    assert (cut.where, cut.kept + cut.dropped) == ("stdout", total)
    assert cut.kept <= 1_000_000
    assert result.text.startswith("0\n1\n2\n")
    assert result.text.endswith("999999\nend\n")
