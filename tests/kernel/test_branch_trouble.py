"""Branches of sessions whose cells have taken away what a copy needs."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from nbrefine.errors import KernelError, KernelStartError
from nbrefine.kernel import Kernel
from nbrefine.kernel.inside.branching import wire


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with Kernel.start() as started:
        started.run("import os\nkept = 1").result()
        yield started


def value(kernel: Kernel, expression: str) -> str:
    result = kernel.run(expression, timeout=10).result(40)
    assert result.ok, result.error
    return result.text.strip()


def children(pid: int | None) -> set[int]:
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(word) for each in found for word in each.read_text().split()}


EXHAUST = """
import resource
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, limit[1]))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range({free}):
    os.close(taken.pop())
"""


@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_session_without_descriptors_refuses_and_goes_on(kernel: Kernel, free: int) -> None:
    kernel.run(EXHAUST.format(free=free)).result()
    with pytest.raises(KernelError, match="Too many open files"):
        kernel.branch().result(20)
    assert value(kernel, "kept") == "1"
    kernel.run("for each in taken: os.close(each)").result()
    with kernel.branch() as trial:
        assert value(trial, "kept") == "1"


@pytest.mark.parametrize(
    "cell",
    [
        "import socket\nsocket.socket = None",
        "os.listdir = None",
        "os.pidfd_open = None",  # when the copy is there already
    ],
)
def test_a_session_that_lacks_what_a_copy_needs_goes_on_without_one(
    kernel: Kernel, cell: str
) -> None:
    kernel.run(cell).result()
    with pytest.raises(KernelError, match="could not copy itself: 'NoneType'"):
        kernel.branch().result(20)
    assert value(kernel, "kept") == "1"
    assert children(kernel.info.pid) == set()


def test_an_adopted_session_that_cannot_rest_goes_on(kernel: Kernel) -> None:
    with kernel.branch() as trial:
        kernel.adopt(trial).result()
    kernel.run("import socket\nwas, socket.socket = socket.socket, None").result()
    with pytest.raises(KernelError, match="could not copy itself"):
        kernel.branch().result(20)
    assert value(kernel, "kept") == "1"
    kernel.run("socket.socket = was").result()
    with kernel.branch() as trial:
        assert value(trial, "kept") == "1"


@pytest.mark.parametrize("closed", [(0,), (0, 1, 2)])
def test_a_session_without_standard_streams_is_branched_and_goes_on_in_a_branch(
    kernel: Kernel, closed: tuple[int, ...]
) -> None:
    kernel.run(f"for each in {closed}: os.close(each)").result()
    for _ in range(2):  # the second is made by a process that comes to rest
        with kernel.branch() as trial:
            assert value(trial, "print('heard'); kept") == "heard\n1"
            kernel.adopt(trial).result()
        assert value(kernel, "kept") == "1"


def test_a_session_with_a_umask_of_its_own_is_branched_and_keeps_it(kernel: Kernel) -> None:
    kernel.run("os.umask(0o777)").result()
    with kernel.branch() as trial:
        assert value(trial, "os.umask(0o777) == 0o777") == "True"


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("os.setuid(65534)", "PermissionError"),
        ("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))", "File too large"),
        (
            "import shutil\nshutil.rmtree(os.path.dirname(os.environ['NBREFINE_KERNEL']))",
            "FileNotFoundError",
        ),
    ],
    ids=["user", "limit", "folder"],
)
def test_why_a_branch_could_not_be_set_up_is_one_line(kernel: Kernel, cell: str, why: str) -> None:
    if "setuid" in cell and os.getuid() != 0:
        pytest.skip("only root becomes another user")
    kernel.run(cell).result()
    with pytest.raises(KernelStartError, match=why) as raised:
        kernel.branch().result(20)
    assert raised.value.message.startswith("A branch could not be set up: ")
    assert "\n" not in str(raised.value)
    assert value(kernel, "kept") == "1"


def test_a_checkpoint_that_was_stopped_is_noticed_soon(kernel: Kernel) -> None:
    with kernel.checkpoint() as kept:
        os.kill(kept.copy.pid, signal.SIGSTOP)
        begun = time.monotonic()
        with pytest.raises(KernelStartError, match="does not react"):
            kept.branch().result(20)
        assert time.monotonic() - begun < 10
        assert value(kernel, "kept") == "1"


@pytest.mark.parametrize(
    "cell",
    [
        "import json\njson.dumps = json.loads = lambda *given, **named: 1 / 0",
        "import threading\nthreading.Thread = None",
    ],
    ids=["json", "threads"],
)
def test_a_session_whose_cells_replace_what_the_kernel_uses_goes_on(
    kernel: Kernel, cell: str
) -> None:
    result = kernel.run(cell, timeout=5).result(40)
    assert result.status == "ok"
    assert value(kernel, "kept") == "1"


def test_a_session_whose_messages_are_packed_as_before_is_branched(kernel: Kernel) -> None:
    kernel.run("import json\njson.dumps = json.loads = None").result()
    with kernel.branch() as trial:
        assert value(trial, "kept") == "1"
        kernel.adopt(trial).result()
    assert value(kernel, "kept") == "1"


def test_streams_that_raise_are_replaced_before_the_kernel_fails_with_them(kernel: Kernel) -> None:
    result = kernel.run(
        "import sys\n"
        "class Bad:\n"
        "    def write(self, text): raise RuntimeError\n"
        "    def flush(self): raise RuntimeError\n"
        "sys.stdout = sys.stderr = Bad()",
        timeout=5,
    ).result(40)
    assert result.status == "ok"
    assert "sys.stdout was set to a Bad; it is restored" in result.notes
    assert value(kernel, "print('heard'); kept") == "heard\n1"


def test_a_checkpoint_that_was_killed_has_ended(kernel: Kernel) -> None:
    with kernel.checkpoint() as kept:
        os.kill(kept.copy.pid, signal.SIGKILL)
        with pytest.raises(KernelStartError, match="The process to fork from has ended"):
            kept.branch().result(20)
        assert value(kernel, "kept") == "1"


def test_a_session_outlives_its_checkpoint_that_speaks_as_it_is_told_to_leave(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kernel.checkpoint().result()
    kernel.adopt(kept.branch().result()).result()
    nursery = kept.copy._nursery
    with monkeypatch.context() as patched:
        patched.setattr(nursery, "_take", lambda: None)  # what it says next comes too late
        wire.send(nursery._connection, {"op": "ping"})
        assert select.select([nursery._connection], [], [], 20)[0]
        os.kill(kept.copy.pid, signal.SIGSTOP)
        kept.close()
        with suppress(ProcessLookupError):  # Linux may have hung up on it, as it lost its parent
            os.kill(kept.copy.pid, signal.SIGCONT)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{kept.copy.pid}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert value(kernel, "kept") == "1"
