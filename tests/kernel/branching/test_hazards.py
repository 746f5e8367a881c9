"""Each hazard is found in a real process that has it, and not in one that only might."""

from __future__ import annotations

import os

import pytest

from tests.kernel.branching.told import Process, kinds

two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="OpenBLAS starts no threads on one core"
)


def test_a_process_with_the_usual_libraries_has_no_hazard(process: Process) -> None:
    """What they only prepare is none: pools that are idle, semaphores of tqdm, worker threads."""
    told = process(
        """
        import numpy, pandas, pyarrow.compute, matplotlib.pyplot, sklearn.ensemble, sqlite3, tqdm
        import polars, multiprocessing
        numpy.ones((300, 300)) @ numpy.ones((300, 300))
        list(tqdm.tqdm(range(3), file=open(os.devnull, "w")))
        lock, database = multiprocessing.Lock(), sqlite3.connect(":memory:")
        told.extend(scan())
        """
    )
    assert told == []


def test_polars_forbids_a_fork_only_once_it_has_run_a_query(process: Process) -> None:
    before, after = process(
        """
        import polars
        frame = polars.DataFrame({"a": [1, 2]})
        told.append(scan())
        frame.filter(polars.col("a") > 1)
        told.append(scan())
        """
    )
    assert before == []
    assert kinds(after)[0] == ("polars-pool", "refuse")
    assert "polars has run a query" in after[0]["detail"]


@pytest.mark.parametrize("initialized", [True, False])
def test_torch_forbids_a_fork_if_it_has_initialised_cuda(
    process: Process, *, initialized: bool
) -> None:
    """A stub stands for torch, which asks its own `torch.cuda.is_initialized` as well."""
    told = process(
        f"""
        cuda = types.SimpleNamespace(is_initialized=lambda: {initialized})
        sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)
        told.extend(scan())
        """
    )
    assert kinds(told) == ([("cuda", "refuse")] if initialized else [])


def test_an_open_gpu_forbids_a_fork_whoever_uses_it(process: Process) -> None:
    told = process(
        """
        real = descriptors.table
        descriptors.table = lambda: {**real(), 99: "/dev/nvidia-uvm"}
        told.extend(hazards._gpu(hazards._Seen(app)))
        """
    )
    assert kinds(told) == [("gpu", "refuse")]
    assert "/dev/nvidia-uvm is open" in told[0]["detail"]


NAMED_THREAD = """
import ctypes, threading

named, end = threading.Event(), threading.Event()

def work():
    ctypes.CDLL(None).prctl(15, b"{name}")
    named.set()
    end.wait()

thread = threading.Thread(target=work, daemon=True)
thread.start()
named.wait()
"""


@pytest.mark.parametrize(
    ("module", "name"), [("grpc", "grpc_global_tim"), ("tensorflow", "tf_Compute")]
)
def test_native_pools_forbid_a_fork_where_their_library_runs(
    process: Process, module: str, name: str
) -> None:
    without, with_it = process(
        NAMED_THREAD.format(name=name)
        + f"""
told.append(scan())
sys.modules["{module}"] = types.ModuleType("{module}")
told.append(scan())
"""
    )
    assert kinds(without) == [("native-thread", "lost"), ("thread", "lost")]
    assert kinds(with_it)[0] == (f"{module}-pool", "refuse")


def test_jax_forbids_a_fork_once_it_has_a_backend(process: Process) -> None:
    before, after = process(
        """
        bridge = sys.modules["jax._src.xla_bridge"] = types.SimpleNamespace(_backends={})
        told.append(scan())
        bridge._backends["cpu"] = object()
        told.append(scan())
        """
    )
    assert before == []
    assert kinds(after) == [("jax-backend", "refuse")]


WAITING_THREAD = """
import threading
end = threading.Event()
thread = threading.Thread(target=end.wait, name="watcher", daemon=True)
thread.start()
"""


def test_a_thread_of_the_users_is_lost_and_named(process: Process) -> None:
    told = process(WAITING_THREAD + "told.extend(scan())")
    assert kinds(told) == [("thread", "lost")]
    assert "thread 'watcher' does not run in the branch" in told[0]["detail"]


@two_cores
@pytest.mark.parametrize("number", ["1", "2"])
def test_a_thread_forbids_a_fork_if_openblas_has_several(process: Process, number: str) -> None:
    told = process(
        WAITING_THREAD + "import numpy\ntold.extend(scan())", OPENBLAS_NUM_THREADS=number
    )
    refusal = [("blas-thread", "refuse")] if number == "2" else []
    assert kinds(told) == [*refusal, ("thread", "lost")]
    assert "OPENBLAS_NUM_THREADS=1" in told[0]["detail"] or number == "1"


@two_cores
def test_a_thread_pool_forbids_a_fork_only_while_it_works(process: Process) -> None:
    idle, busy = process(
        """
        import numpy, threading
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2, "mine")
        pool.submit(abs, -1).result()
        pool._idle_semaphore.acquire()  # the worker waits again
        pool._idle_semaphore.release()
        told.append(scan())
        begun, end = threading.Event(), threading.Event()
        pool.submit(lambda: (begun.set(), end.wait()))
        begun.wait()
        told.append(scan())
        """,
        OPENBLAS_NUM_THREADS="2",
    )
    assert kinds(idle) == [("thread-pool", "repaired")]
    assert "thread pool 'mine' starts new workers" in idle[0]["detail"]
    assert kinds(busy) == [("blas-thread", "refuse"), ("thread-pool", "lost")]
    assert "1 of them" in busy[1]["detail"]


def test_a_pending_task_is_lost_and_named(process: Process) -> None:
    told = process(
        """
        async def tick():
            await asyncio.sleep(60)

        loop.create_task(tick())
        loop.run_until_complete(asyncio.sleep(0))
        told.extend(scan())
        """
    )
    assert kinds(told) == [("asyncio-task", "lost")]
    assert "'tick'" in told[0]["detail"]


def test_what_the_loop_calls_later_is_lost_and_named(process: Process) -> None:
    none, told = process(
        """
        import functools
        from tornado.ioloop import PeriodicCallback

        def shown():
            pass

        def heard():
            pass

        loop.call_later(60, shown).cancel()
        told.append(scan())
        loop.call_later(60, functools.partial(shown))
        loop.add_reader(os.pipe()[0], heard)

        async def begin():
            PeriodicCallback(shown, 60_000).start()

        loop.run_until_complete(begin())
        told.append(scan())
        """
    )
    assert none == []
    assert kinds(told) == [("asyncio-callback", "lost")] * 3
    named = [each["detail"].split("'")[1] for each in told]
    assert named == ["shown", "shown", "heard"]


def test_a_lock_that_was_waited_for_is_named(process: Process) -> None:
    told = process(
        """
        fresh, lock = asyncio.Lock(), asyncio.Lock()

        async def wait():
            async with lock:
                waiting = asyncio.ensure_future(lock.acquire())
                await asyncio.sleep(0)
            await waiting
            lock.release()

        loop.run_until_complete(wait())
        told.extend(scan())
        """
    )
    assert kinds(told) == [("asyncio-loop", "note")]
    assert "'lock' (asyncio.Lock)" in told[0]["detail"]


def test_children_are_named(process: Process) -> None:
    told = process(
        """
        import multiprocessing, subprocess
        fork = multiprocessing.get_context("fork")
        worker = fork.Process(target=time.sleep, args=(60,), name="w")
        worker.start()
        sleeper = subprocess.Popen(["sleep", "60"])
        ended = subprocess.Popen(["true"])
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        told.extend(scan())
        worker.kill()
        sleeper.kill()
        """
    )
    assert kinds(told) == [("multiprocessing", "lost"), ("process", "note")]
    assert "worker 'w'" in told[0]["detail"]
    assert "'sleep'" in told[1]["detail"]


def test_a_process_of_ours_and_who_waits_for_it_are_not_told(process: Process) -> None:
    """Before Python 3.12 asyncio waits in a thread for each process."""
    source = (
        "import ctypes, time; ctypes.CDLL(None).prctl(15, b'nb-model'); "
        "print('up', flush=True); time.sleep(60)"
    )
    told = process(
        f"""
        import asyncio.subprocess
        async def launch():
            made = await asyncio.create_subprocess_exec(
                sys.executable, "-c", {source!r}, stdout=asyncio.subprocess.PIPE
            )
            await made.stdout.readline()
            told.extend(scan())
            made.kill()
            await made.wait()
        asyncio.run(launch())
        """
    )
    assert kinds(told) == []


def test_pools_of_processes_are_told_once(process: Process) -> None:
    """Not their threads and helpers as well; joblib's are no loss, as it starts new ones."""
    told = process(
        """
        import joblib, multiprocessing
        from multiprocessing.pool import ThreadPool
        joblib.Parallel(n_jobs=2)(joblib.delayed(abs)(-n) for n in range(3))
        told.append(scan())
        multiprocessing.get_context("forkserver").Process(target=abs, args=(1,)).start()
        pool, threads = multiprocessing.get_context("fork").Pool(1), ThreadPool(1)
        pool.map(abs, [-1])
        told.append(scan())
        pool.terminate()
        joblib.externals.loky.get_reusable_executor().shutdown(kill_workers=True)
        """
    )
    assert kinds(told[0]) == [("loky", "repaired")]
    assert ("multiprocessing", "lost") in kinds(told[1])
    assert {kind for kind, _ in kinds(told[1])} == {"multiprocessing", "loky"}


MAPPED = """
import mmap, multiprocessing, numpy
from multiprocessing import shared_memory
numpy.memmap("data", dtype="u1", mode="w+", shape=10_000)
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('kept = numpy.memmap("data", dtype="u1", mode="r+")', [("shared-memory", "refuse")]),
        ('kept = numpy.memmap("data", dtype="u1", mode="c")', []),
        ('kept = numpy.memmap("data", dtype="u1", mode="r")', []),
        ("kept = mmap.mmap(-1, 10_000)", []),
        ("kept = multiprocessing.Value('i'), multiprocessing.Queue()", []),
        ("kept = mmap.mmap(-1, memory.LIMIT + 1)", [("shared-memory", "refuse")]),
    ],
)
def test_memory_shared_under_a_name_forbids_a_fork(
    process: Process, code: str, expected: list[tuple[str, str]]
) -> None:
    assert kinds(process(f"{MAPPED}\n{code}\ntold.extend(scan())")) == expected


def test_named_shared_memory_forbids_a_fork(process: Process) -> None:
    told = process(
        """
        from multiprocessing import shared_memory
        block = shared_memory.SharedMemory(create=True, size=1000)
        told.extend(scan())
        told.append(block.name)
        block.close()
        block.unlink()
        """
    )
    name = told.pop()
    assert ("shared-memory", "refuse") in kinds(told)
    assert name in told[0]["detail"]


def test_files_that_both_sides_would_write_are_named(process: Process) -> None:
    told = process(
        """
        import sqlite3
        read, written = open(__file__), open("written.txt", "w")
        database = sqlite3.connect("database")
        database.execute("create table t(x)")
        told.extend(scan())
        """
    )
    assert kinds(told) == [("sqlite", "shared"), ("file", "shared")]
    assert "/database " in told[0]["detail"]
    assert "/written.txt " in told[1]["detail"]


def test_watchers_and_tracers_are_told(process: Process) -> None:
    told = process(
        """
        import ctypes
        ctypes.CDLL(None).inotify_init()
        app.kernel.debugger = types.SimpleNamespace(is_started=True)
        sys.setprofile(lambda *_: None)
        told.extend(scan())
        """
    )
    assert kinds(told) == [("inotify", "lost"), ("debugger", "lost"), ("tracing", "note")]


def test_what_cannot_be_looked_at_is_a_note(process: Process) -> None:
    told = process("app.shell = app.kernel = app.io_loop = None\ntold.extend(scan())")
    assert set(kinds(told)) == {("unknown", "note")}
    assert "could not be looked at" in told[0]["detail"]


def test_many_of_a_kind_are_counted(process: Process) -> None:
    """And looking at them takes no more than a few microseconds each."""
    hazards, seconds = process(
        """
        import resource, threading
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        end = threading.Event()
        for number in range(1000):
            threading.Thread(target=end.wait, name=f"t{number}", daemon=True).start()
        files = [open(os.devnull) for _ in range(1000)]
        scan()
        begun = time.thread_time()
        told.append(scan())
        told.append(time.thread_time() - begun)
        """
    )
    assert len(hazards) == 6
    assert "995 more" in hazards[-1]["detail"]
    assert seconds < 0.1


def test_a_scan_takes_far_less_than_to_go_through_all_objects(process: Process) -> None:
    """Of processor time, the least of several, in a process with the libraries of a session."""
    scanned, walked = process(
        """
        import gc
        import numpy, pandas, pyarrow.compute, sklearn.ensemble, matplotlib.pyplot

        def measured(work):
            begun = time.thread_time()
            work()
            return time.thread_time() - begun

        def walk():
            return sum(isinstance(each, types.GeneratorType) for each in gc.get_objects())

        told += [min(measured(work) for _ in range(10)) for work in (scan, walk)]
        """
    )
    assert scanned < walked / 10
