"""What branches of a forked kernel share with it, and what they leave alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbrefine.kernel.inside.branching import wire
from tests.kernel.branching.forked.nests import Forked, Nest


def descriptors(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_branch_changes_nothing_in_its_parent(kernel: Forked) -> None:
    kernel.run("import numpy as np\nxs = np.zeros(1000)\nalias = xs\nlist_ = [1]")
    branch = kernel.branch()
    branch.run("alias[:] = 1; list_.append(2); del np")
    assert branch.run("xs.sum(), list_, 'np' in globals()") == "(np.float64(1000.0), [1, 2], False)"
    assert kernel.run("xs.sum(), list_, 'np' in globals()") == "(np.float64(0.0), [1], True)"


def test_a_branch_continues_random_numbers_files_and_generators(
    kernel: Forked, tmp_path: Path
) -> None:
    path = tmp_path / "numbers"
    path.write_text("1\n2\n3\n")
    kernel.run(
        f"import random; random.seed(5); numbers = open({str(path)!r}); next(numbers)\n"
        "import numpy; numpy.random.seed(5)\n"
        "squares = (n * n for n in range(9)); next(squares)"
    )
    code = "random.random(), numpy.random.rand(), next(numbers), next(squares), execution_count"
    code = code.replace("execution_count", "get_ipython().execution_count")
    checkpoint = kernel.checkpoint()
    first, second = checkpoint.fork().wait().run(code), checkpoint.fork().wait().run(code)
    assert first == second == kernel.run(code)
    assert "'2\\n', 1, 3)" in first
    assert checkpoint.fork(reseed=True).wait().run("random.random()") != first.partition(",")[0][1:]


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 11)", "os._exit(4)", "os.abort()"])
def test_the_death_of_a_branch_is_told_and_leaves_the_rest_alone(kernel: Forked, end: str) -> None:
    kernel.run("import os")
    checkpoint = kernel.checkpoint()
    branch, other = checkpoint.fork().wait(), checkpoint.fork().wait()
    branch.client.execute(end)
    assert checkpoint.status_of(branch.pid) in (-signal.SIGSEGV, 4, -signal.SIGABRT)
    assert kernel.run("1 + 1") == other.run("1 + 1") == checkpoint.fork().wait().run("1 + 1") == "2"


def test_a_checkpoint_outlives_its_kernel(kernel: Forked, keeper: Nest) -> None:
    kernel.run("x = 7")
    checkpoint = kernel.checkpoint()
    os.killpg(kernel.pid, signal.SIGKILL)
    assert keeper.status_of(kernel.pid) == -signal.SIGKILL
    assert checkpoint.fork().wait().run("x") == "7"


def test_exit_work_of_a_parent_is_not_done_by_a_branch(kernel: Forked) -> None:
    made = kernel.run(
        "import atexit, pathlib, tempfile\nheld = tempfile.TemporaryDirectory()\n"
        "atexit.register(pathlib.Path(held.name, 'parent').touch)\nprint(held.name)"
    ).strip()
    branch = kernel.branch()
    branch.run("atexit.register(pathlib.Path(held.name, 'branch').touch);")
    assert branch.ask("shutdown_request", {"restart": False}, "control")["status"] == "ok"
    assert wire.receive(branch.line) == (None, [])
    assert [each.name for each in Path(made).iterdir()] == ["branch"]
    kernel.ask("shutdown_request", {"restart": False}, "control")
    assert wire.receive(kernel.line) == (None, [])
    assert not Path(made).exists()


def test_a_fork_that_would_hang_is_refused_unless_forced(kernel: Forked) -> None:
    kernel.run(
        "import polars\npolars.DataFrame({'x': [2]}).lazy().filter(polars.col.x > 1).collect()"
    )
    reply = kernel.ask("checkpoint_request", {"id": "c"})
    assert reply["status"] == "refused"
    refused = [each["kind"] for each in reply["hazards"] if each["verdict"] == "refuse"]
    assert refused == ["polars-pool"]
    assert kernel.run("2") == "2"
    assert kernel.checkpoint(force=True).fork().wait().run("3") == "3"


def test_a_copy_that_nobody_waits_for_is_not_made(kernel: Forked) -> None:
    past, future = time.time() - 1, time.time() + 60
    for content in ({}, {"rest": True}):
        reply = kernel.ask("checkpoint_request", {"id": "c", "deadline": past, **content})
        assert reply["status"] == "refused"
        assert [(each["kind"], each["verdict"]) for each in reply["hazards"]] == [
            ("busy", "refuse")
        ]
    assert kernel.checkpoint(deadline=future).fork().wait().run("1") == "1"


@pytest.mark.parametrize("where", ["before", "while the loop stops", "scan", "flush"])
def test_an_interrupt_while_a_kernel_is_copied_changes_nothing(kernel: Forked, where: str) -> None:
    kernel.run(
        "import os, signal, sys\n"
        "app = get_ipython().kernel.parent\n"
        "hazards = sys.modules['_nbrefine_branching.hazards']\n"
        "server = app.kernel.shell_handlers['checkpoint_request'].__self__\n"
        "def interrupting(owner, name):\n"
        "    plain = getattr(owner, name)\n"
        "    def interrupted(*given):\n"
        "        setattr(owner, name, plain)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        result = plain(*given)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        return result\n"
        "    setattr(owner, name, interrupted)\n"
    )
    owner, name = {
        "before": ("app.kernel", "should_handle"),
        "while the loop stops": ("app.io_loop", "stop"),
        "scan": ("hazards", "scan"),
        "flush": ("server.plumbing", "flush"),
    }[where]
    kernel.run(f"interrupting({owner}, {name!r}); x = 1")
    assert kernel.checkpoint().fork().wait().run("x") == "1"
    assert kernel.run("x + 1") == "2"
    # A cell can be interrupted as before.
    kernel.run("import time")
    request = kernel.begin("print('on'); time.sleep(30)", lambda kind, _: kind == "stream")
    os.killpg(kernel.pid, signal.SIGINT)
    assert kernel.reply_to(request)["ename"] == "KeyboardInterrupt"


def test_an_adopted_branch_is_told_what_it_has_lost(kernel: Forked) -> None:
    kernel.run(
        "import asyncio, gc, threading\nstop = threading.Event()\n"
        "threading.Thread(target=stop.wait, name='worker', daemon=True).start()\n"
        "async def wait_long(): await asyncio.sleep(60)\ntask = asyncio.ensure_future(wait_long())"
    )
    branch = kernel.branch()
    assert int(branch.run("print(gc.get_freeze_count())")) > 10_000
    wire.send(branch.line, {"op": "adopted"})
    answer, _ = wire.receive(branch.line)
    assert answer is not None
    lost = answer["adopted"]
    assert len(lost["lost_threads"]) == len(lost["lost_tasks"]) == 1
    assert "worker" in lost["lost_threads"][0]
    assert "wait_long" in lost["lost_tasks"][0]
    assert branch.run("print(gc.get_freeze_count()); gc.collect(); task.done()") == "0\nFalse"
    assert kernel.run("stop.set(); threading.active_count() > 6") == "True"


def test_checkpoints_and_branches_leave_nothing_behind(
    kernel: Forked, keeper: Nest, opened: list[Any], until: Callable[..., None]
) -> None:
    def round_of_three() -> None:
        checkpoint = kernel.checkpoint()
        branches = [checkpoint.fork() for _ in range(3)]
        for branch in branches:
            assert branch.wait().run("x * 2") == "42"
        ended: list[Forked | Nest] = [*branches, checkpoint]
        for each in ended:
            each.close()
            opened.remove(each)
        until(lambda: kernel.run("x") == "21" and not children(kernel.pid))

    kernel.run("x = 21")
    round_of_three()
    before = descriptors(kernel.pid), descriptors(keeper.pid), children(keeper.pid)
    for _ in range(20):
        round_of_three()
    assert (descriptors(kernel.pid), descriptors(keeper.pid), children(keeper.pid)) == before


def test_a_chain_of_adoptions_keeps_its_size(
    keeper: Nest, kernel: Forked, opened: list[Any], until: Callable[..., None]
) -> None:
    kernel.run("x = 0")
    counts = []
    for _ in range(20):
        checkpoint = kernel.checkpoint()
        branch = checkpoint.fork().wait()
        assert branch.run("x += 1") == ""
        kernel.close()
        wire.send(checkpoint.connection, {"op": "leave"})
        assert wire.receive(checkpoint.connection)[0] is None
        for each in (kernel, checkpoint):
            each.close()
            opened.remove(each)
        kernel = branch
        counts.append(descriptors(kernel.pid))
    assert kernel.run("x") == "20"
    assert max(counts) - min(counts) < 5  # one each would be 19; a client may just be connecting
    until(lambda: str(kernel.pid) in children(keeper.pid))  # once the last checkpoint is gone
