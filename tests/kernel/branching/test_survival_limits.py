"""What a branch has not, and what forbids one: it is said, and the live kernel is unharmed."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nbrefine.errors import BranchRefused
from nbrefine.kernel import Kernel
from nbrefine.outputs import Hazard

Value = Callable[..., str]

two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="OpenBLAS starts no threads on one core"
)


@pytest.fixture(scope="module")
def single() -> Iterator[Kernel]:
    """A kernel whose linear algebra has one thread, so that threads of the user's may run."""
    with Kernel.start(env={"OPENBLAS_NUM_THREADS": "1"}) as started:
        yield started


def hazards(kernel: Kernel) -> dict[str, Hazard]:
    """Give one hazard of each kind that a copy of the kernel's present state has."""
    with kernel.checkpoint().result() as checkpoint:
        return {each.kind: each for each in checkpoint.hazards}


def refusal(kernel: Kernel) -> Hazard:
    """Give the one hazard that forbids a branch."""
    with pytest.raises(BranchRefused) as caught:
        kernel.branch().result()
    (found,) = (
        each
        for each in caught.value.hazards
        if isinstance(each, Hazard) and each.verdict == "refuse"
    )
    assert found.detail in str(caught.value)
    return found


def test_a_thread_stops_and_what_it_held_stays_locked(single: Kernel, value: Value) -> None:
    setup = """
        import threading
        lock, held, end, ticks = threading.Lock(), threading.Event(), threading.Event(), []
        def work():
            with lock:
                held.set()
                while not end.wait(0.001): ticks.append(1)
        thread = threading.Thread(target=work, name="ticker", daemon=True)
        thread.start(); held.wait()
    """
    value(single, setup)
    assert "'ticker'" in hazards(single)["thread"].detail
    with single.branch().result() as trial:
        assert value(trial, "thread.is_alive(), lock.acquire(timeout=0.1)") == "(False, False)"
        assert value(trial, "before = len(ticks); end.wait(0.1); len(ticks) == before") == "True"
    value(single, "before = len(ticks)\nwhile len(ticks) == before: end.wait(0.001)")
    assert value(single, "end.set(); thread.join(); lock.acquire(timeout=5)") == "True"


def test_a_task_stops_and_new_ones_run(single: Kernel, value: Value) -> None:
    setup = """
        import asyncio
        beats = 0
        async def beat():
            global beats
            while True:
                beats += 1
                await asyncio.sleep(0.001)
        task = asyncio.create_task(beat())
        await asyncio.sleep(0.01)
    """
    value(single, setup)
    lost = hazards(single)["asyncio-task"]
    assert lost.verdict == "lost"
    assert "'beat'" in lost.detail
    grows = "before = beats\nwhile beats == before: await asyncio.sleep(0.001)"
    with single.branch().result() as trial:
        stands = "before = beats\nawait asyncio.sleep(0.1)\nbeats == before, task.done()"
        assert value(trial, stands) == "(True, False)"
        assert value(trial, "await asyncio.create_task(asyncio.sleep(0.01, 5))") == "5"
    value(single, grows)
    assert value(single, "task.done(), task.cancel()") == "(False, True)"


def test_a_process_is_the_live_kernels_child(single: Kernel, value: Value) -> None:
    value(single, "import subprocess\nchild = subprocess.Popen(['sleep', '600'])")
    assert "'sleep'" in hazards(single)["process"].detail
    with single.branch().result() as trial:
        ran = "subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout"
        assert value(trial, ran) == r"'hi\n'"
        assert value(trial, "child.poll()") == "0"  # wrong, and all that Python can tell
    assert value(single, "print(child.poll()); child.kill(); child.wait()") == "None\n-9"


def test_a_pool_of_processes_says_that_it_is_not_the_branchs(single: Kernel, value: Value) -> None:
    value(single, "import multiprocessing\npool = multiprocessing.Pool(2)\npool.map(abs, [-1])")
    lost = hazards(single)["multiprocessing"]
    assert lost.verdict == "lost"
    assert "ForkPoolWorker" in lost.detail
    with single.branch().result() as trial:
        result = trial.run("pool.map(abs, [-1])", timeout=20).result()
        assert result.error is not None
        assert result.error.ename == "ValueError"
        new = "with multiprocessing.Pool(2) as other: mapped = other.map(abs, [-2])\nmapped"
        assert value(trial, new) == "[2]"
    assert value(single, "pool.map(abs, [-3])") == "[3]"
    value(single, "pool.terminate(); pool.join()")


def test_a_connection_forbids_a_branch(single: Kernel, value: Value, web: str) -> None:
    host, port = web.split(":")
    value(single, f"import socket\nopened = socket.create_connection(({host!r}, {port}))")
    assert web in refusal(single).detail
    ask = "opened.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); opened.recv(15)"
    assert value(single, ask) == "b'HTTP/1.1 200 OK'"
    value(single, "opened.close()")
    with single.branch().result() as trial:
        assert value(trial, "40 + 2") == "42"


def test_a_branch_that_is_forced_cannot_disturb_what_forbade_it(
    single: Kernel, value: Value, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = web.split(":")
    value(single, f"import socket\nopened = socket.create_connection(({host!r}, {port}))")

    link = single.core.link
    ask_for = link.request

    async def force(kind: str, content: dict[str, Any], limit: float) -> dict[str, Any]:
        return await ask_for(kind, {**content, "force": True}, limit)

    monkeypatch.setattr(link, "request", force)
    with single.branch().result() as trial:
        failed = trial.run("opened.sendall(b'nonsense')").result().error
        assert failed is not None
        assert failed.ename == "BrokenPipeError"
    ask = "opened.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'); opened.recv(15)"
    assert value(single, ask) == "b'HTTP/1.1 200 OK'"
    value(single, "opened.close()")


def test_an_initialised_gpu_forbids_a_branch(single: Kernel, value: Value) -> None:
    """A stub stands for torch: no GPU is needed to be asked for it."""
    stub = """
        import sys, types
        ready = True
        cuda = types.SimpleNamespace(is_initialized=lambda: ready)
        sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
    """
    value(single, stub)
    assert refusal(single).kind == "cuda"
    value(single, "ready = False")
    with single.branch().result() as trial:
        assert value(trial, "40 + 2") == "42"
    value(single, "del sys.modules['torch']")


def test_memory_that_is_mapped_for_writing_forbids_a_branch(
    single: Kernel, value: Value, tmp_path: Path
) -> None:
    path = str(tmp_path / "numbers")
    value(single, f"import numpy\nmapped = numpy.memmap({path!r}, 'u1', 'w+', shape=10)")
    found = refusal(single)
    assert found.kind == "shared-memory"
    assert path in found.detail
    value(single, "del mapped")


def test_polars_that_was_used_forbids_a_branch(value: Value) -> None:
    with Kernel.start() as kernel:
        used = "polars.DataFrame({'a': [1, 2]}).filter(polars.col('a') > 1).height"
        value(kernel, f"import polars\n{used}")
        assert refusal(kernel).kind == "polars-pool"
        assert value(kernel, used) == "1"


HAMMERS = """
import threading, logging, json, sqlite3, io, numpy
stop = threading.Event()
logger = logging.getLogger("hammer")
logger.addHandler(logging.StreamHandler(io.StringIO())); logger.propagate = False
def log():
    while not stop.is_set(): logger.warning("x" * 1000)
def parse():
    while not stop.is_set(): json.loads(json.dumps([1] * 500))
def query():
    database = sqlite3.connect(":memory:")
    while not stop.is_set(): database.execute("select 1").fetchall()
def multiply():
    while not stop.is_set(): numpy.random.rand(200, 200) @ numpy.random.rand(200, 200)
hammers = [threading.Thread(target=each, daemon=True) for each in (log, parse, query, multiply)]
for each in hammers: each.start()
"""


@two_cores
def test_threads_in_openblas_forbid_a_branch_if_it_has_several(
    shared: Kernel, value: Value
) -> None:
    value(shared, HAMMERS)
    with pytest.raises(BranchRefused, match="OPENBLAS_NUM_THREADS=1") as caught:
        shared.branch().result()
    assert all(each.kind == "blas-thread" for each in caught.value.hazards[:4])  # type: ignore[attr-defined]
    value(shared, "stop.set()\nfor each in hammers: each.join()")
    with shared.branch().result() as trial:
        assert value(trial, "40 + 2") == "42"


def test_hammering_threads_harm_no_branch_if_openblas_has_one(single: Kernel, value: Value) -> None:
    value(single, HAMMERS)
    check = """
        logger.warning("y"); numpy.ones((300, 300)) @ numpy.ones((300, 300))
        sqlite3.connect(":memory:").execute("select 1").fetchall(), json.loads("[7]")
    """
    for _ in range(10):
        value(single, "0")  # so that the next branch is of a new copy
        with single.branch().result() as trial:
            assert value(trial, check) == "([(1,)], [7])"
    value(single, "stop.set()\nfor each in hammers: each.join()")


def test_a_thread_that_prints_without_pause_harms_no_branch(single: Kernel, value: Value) -> None:
    setup = """
        import threading
        quiet = threading.Event()
        def talk():
            while not quiet.wait(0.0005): print(".", end="")
        talker = threading.Thread(target=talk, daemon=True)
        talker.start()
    """
    assert single.run(textwrap.dedent(setup)).result().ok
    for _ in range(20):
        assert single.run("0;").result().ok
        with single.branch().result() as trial:
            assert value(trial, "6 * 7") == "42"
    assert single.run("quiet.set(); talker.join()").result().ok


def test_a_thread_that_imports_libraries_does_not_block_a_branch(
    single: Kernel, value: Value, tmp_path: Path
) -> None:
    """The loader of libraries holds a lock of its own, and an import Python's as well."""
    setup = f"""
        import importlib.util, itertools, pathlib, shutil, threading
        from importlib.machinery import ExtensionFileLoader
        library, enough = importlib.util.find_spec("_bisect").origin, threading.Event()
        def load():
            for number in itertools.takewhile(lambda _: not enough.is_set(), range(20_000)):
                copied = pathlib.Path({str(tmp_path)!r}, f"_bisect.{{number}}.so")
                shutil.copy(library, copied)
                loader = ExtensionFileLoader("_bisect", str(copied))
                importlib.util.module_from_spec(importlib.util.spec_from_loader("_bisect", loader))
                copied.unlink(); enough.wait(0.001)
        loading = threading.Thread(target=load, daemon=True)
        loading.start()
    """
    value(single, setup)
    for _ in range(10):
        value(single, "0")  # so that the next branch is of a new copy
        with single.branch().result() as trial:
            assert value(trial, "6 * 7") == "42"
    value(single, "enough.set(); loading.join()")
