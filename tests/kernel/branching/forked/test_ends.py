"""The end of a forked kernel, and of its controller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from queue import Empty

import pytest

from tests.kernel.branching.forked import nests
from tests.kernel.branching.forked.nests import Forked, Nest


def test_shutdown_and_signals_end_a_kernel_with_their_status(keeper: Nest) -> None:
    first, second, third = (keeper.fork().wait() for _ in range(3))
    first.run("print('something')")
    reply = first.ask("shutdown_request", {"restart": False}, "control")
    assert reply == {"status": "ok", "restart": False}
    assert keeper.status_of(first.pid) == 0
    os.kill(second.pid, signal.SIGTERM)
    assert keeper.status_of(second.pid) == -signal.SIGTERM
    third.client.execute("exit")
    assert keeper.status_of(third.pid) == 0


def test_the_end_of_its_line_kills_a_kernel_and_its_group(
    keeper: Nest, kernel: Forked, until: Callable[..., None], is_running: Callable[[int], bool]
) -> None:
    child = int(kernel.run("import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"))
    request = kernel.client.execute("while True: pass")
    with pytest.raises(Empty):
        kernel.client.get_shell_msg(timeout=0.1)
    assert request
    kernel.close()
    assert keeper.status_of(kernel.pid) == -signal.SIGKILL
    until(lambda: not is_running(child))


_CONTROLLER = """
import os, sys
sys.path[:0] = {path!r}
import importlib.util
spec = importlib.util.spec_from_file_location("forked", {file!r})
forked = importlib.util.module_from_spec(spec)
sys.modules["forked"] = forked
spec.loader.exec_module(forked)
from pathlib import Path
folder = Path({folder!r})
said, connection, process = forked.launch("--folder", {folder!r})
keeper = forked.Nest(connection, folder, said["built"]["pid"])
kernel = keeper.fork().wait()
daemon = "import os, subprocess\\nsubprocess.Popen(['sleep', '60'], start_new_session=True).pid"
daemons = [kernel.run(daemon)]
checkpoints = [kernel.checkpoint() for _ in range(2)]
branches = [each.fork().wait() for each in checkpoints for _ in range(2)]
daemons += [each.run(daemon) for each in branches]
inner = branches[0].branch()
pids = [each.pid for each in (keeper, kernel, *checkpoints, *branches, inner)]
print(*pids, *daemons, flush=True)
inner.client.execute("while True: pass")
sys.stdin.read()
"""


def test_a_killed_controller_leaves_no_process_and_no_folder(
    until: Callable[..., None], is_running: Callable[[int], bool]
) -> None:
    private = tempfile.mkdtemp(prefix="fk")
    program = _CONTROLLER.format(path=sys.path, file=nests.__file__, folder=private)
    controller = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert controller.stdin is not None
    assert controller.stdout is not None
    with controller.stdin, controller.stdout:
        pids = [int(word) for word in controller.stdout.readline().split()]
        assert len(pids) == 14
        assert all(is_running(pid) for pid in pids)
        controller.kill()
        controller.wait()
        until(lambda: not any(is_running(pid) for pid in pids), 2)
        until(lambda: not Path(private).exists(), 2)
