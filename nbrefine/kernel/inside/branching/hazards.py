"""Find what a fork of this kernel would break, before it is forked.

`scan` looks at threads, descriptors, memory maps and loaded libraries. Each hazard names the thing
and says in plain words what becomes of it:

- refuse: the fork or the branch would hang, or the branch would reach what is the live kernel's;
  no fork.
- lost: gone in the branch, the live kernel keeps it.
- shared: both sides have it, and what one does to it the other sees.
- repaired: it works in the branch, but is not quite what it was.
- note: nothing is known to go wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
from asyncio import mixins
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from . import connections, debugging, descriptors, imports, libraries, memory, threads
from .nursery import has_children

Hazard = dict[str, str]

_NAMED = 5
"""How many things of one kind are named; of the others their number is told."""

# What only a process with a GPU context has open: NVIDIA's and AMD's memory managers.
_GPU = ("/dev/nvidia-uvm", "/dev/kfd")

# What native threads are called by libraries that cannot be used in a forked child.
_NATIVE_POOLS = {
    "grpc": ("grpc_", "event_engine", "timer_manager", "resolver-execut", "default-executo"),
    "tensorflow": ("tf_", "TF_"),
    "jaxlib": ("tf_XLA", "pjrt", "XLA"),
}
# Native threads that nobody misses: memory allocators, and pools whose libraries start them anew.
_UNMISSED = ("jemalloc_bg_thd", "ZMQbg", "polars-", "iou-", "nb-", "python")
_COMM = 15
"""Characters that the system keeps of a thread's name."""

_TASKS = 64
"""Threads whose children are looked for; one that starts processes is among the first."""

_LOOP_PACKAGES = (*threads.OWN, "tornado")
_BESIDE_SQLITE = ("-wal", "-shm", "-journal")
_LOKY = "joblib.externals.loky.reusable_executor"

# Processes that a branch starts anew when it needs them: module, object, its attribute.
_HELPERS = (
    ("multiprocessing.resource_tracker", "_resource_tracker", "_pid"),
    ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid"),
    ("joblib.externals.loky.backend.resource_tracker", "_resource_tracker", "_pid"),
)


def scan(app: Any) -> list[Hazard]:
    """List the hazards of forking the kernel of `app` now; never raises.

    What can be refused is listed first. Imports of other threads get a moment to end before.
    """
    imports.wait()
    found: list[Hazard] = []
    seen = None
    for look in _LOOKS:
        try:
            seen = seen or _Seen(app)
            found += look(seen)
        except Exception as error:  # noqa: BLE001  a scan that fails must not fail the kernel
            what = look.__name__.strip("_").replace("_", " ")
            found.append(_hazard("unknown", "note", f"{what} could not be looked at: {error!r}"))
    return sorted(found, key=lambda each: each["verdict"] != "refuse")


class _Seen:
    """What several looks need, read once."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.table = descriptors.table()
        self.threads = threads.of_user()
        self.frames = sys._current_frames()
        self.natives = threads.native_names()
        self.mappings = memory.shared()


def _hazard(kind: str, verdict: str, detail: str) -> Hazard:
    return {"kind": kind, "verdict": verdict, "detail": detail}


def _each(kind: str, verdict: str, names: Iterable[str], detail: str) -> list[Hazard]:
    """Make a hazard of each name, which `detail` has as {}; of many, the last tells how many."""
    names = list(names)
    found = [_hazard(kind, verdict, detail.format(name)) for name in names[:_NAMED]]
    if len(names) > _NAMED:
        rest = f"{len(names) - _NAMED:,} more"
        found.append(_hazard(kind, verdict, detail.format(rest)))
    return found


def _native_pools(seen: _Seen) -> list[Hazard]:
    """Libraries whose own threads would be missing, and that do not start them again."""
    found = []
    # Imported is not used: polars starts these threads with its first query.
    if any(name.startswith("polars-") and name[7:].isdigit() for name in seen.natives):
        text = "polars has run a query: its threads do not survive a fork, the next one would hang"
        found.append(_hazard("polars-pool", "refuse", text))
    for module, prefixes in _NATIVE_POOLS.items():
        running = sum(n for name, n in seen.natives.items() if name.startswith(prefixes))
        if module in sys.modules and running:
            text = f"{module} has {running} threads of its own, without which it would hang"
            found.append(_hazard(f"{module}-pool", "refuse", text))
    bridge: Any = sys.modules.get("jax._src.xla_bridge")
    if getattr(bridge, "_backends", None):
        text = "JAX has started a backend, which does not survive a fork"
        found.append(_hazard("jax-backend", "refuse", text))
    return found + _unknown_natives(seen)


def _unknown_natives(seen: _Seen) -> list[Hazard]:
    own = {each.name[:_COMM] for each in threading.enumerate()}  # since Python 3.14 natives' too
    with open("/proc/self/comm") as file:
        own.add(file.read().strip())  # the name of all that took none
    names = [
        f"{name} ({count})"
        for name, count in seen.natives.items()
        if name not in own and not name.startswith(_UNMISSED)
    ]
    return _each("native-thread", "lost", names, "native thread {} does not run in the branch")


def _gpu(seen: _Seen) -> list[Hazard]:
    torch: Any = sys.modules.get("torch")
    reason = ", and a GPU context does not survive a fork"
    if torch is not None and torch.cuda.is_initialized():
        return [_hazard("cuda", "refuse", f"torch has initialised CUDA{reason}")]
    for target in seen.table.values():
        if target in _GPU:
            return [_hazard("gpu", "refuse", f"{target} is open: a GPU is in use{reason}")]
    return []


def _memory(seen: _Seen) -> list[Hazard]:
    """Memory that a branch would change under the live kernel."""
    found = _each(
        "shared-memory",
        "refuse",
        dict.fromkeys(each.path for each in seen.mappings if memory.is_lasting(each)),
        "{} is mapped into memory for writing: what a branch writes there would be the live "
        "kernel's at once",
    )
    size = sum(each.size for each in seen.mappings if memory.is_unnamed(each))
    if size > memory.LIMIT:
        text = f"{size >> 20:,} MB of memory are shared with other processes, too much to copy"
        found.append(_hazard("shared-memory", "refuse", text))
    return found


def _threads(seen: _Seen) -> list[Hazard]:
    pools: dict[int, list[threading.Thread]] = defaultdict(list)
    others, unusable = [], False
    for thread in seen.threads:
        if threads.serves_processes(thread):
            continue
        executor = threads.executor_of(thread)
        if executor is not None:
            pools[id(executor)].append(thread)
        elif threads.is_worker(thread):
            unusable = True
        else:
            others.append(thread)
    found = _calculating(seen)
    found += _each(
        "thread",
        "lost",
        [repr(each.name) for each in others],
        "thread {} does not run in the branch; what it holds locked stays locked there",
    )
    if unusable:
        text = "the thread pools of multiprocessing cannot be used in the branch"
        found.append(_hazard("multiprocessing", "lost", text))
    for pool in pools.values():
        busy = sum(threads.work_of(each, seen.frames) is not None for each in pool)
        name = pool[0].name.rpartition("_")[0] or pool[0].name
        text = f"thread pool {name!r} starts new workers in the branch"
        if busy:
            text += f"; what {busy} of them work at now fails there"
        found.append(_hazard("thread-pool", "lost" if busy else "repaired", text))
    return found


def _calculating(seen: _Seen) -> list[Hazard]:
    """Threads that can be inside OpenBLAS, which stops its workers before a fork and may wait.

    It is the live kernel that would hang, so being asleep for the moment is not enough.
    """
    names = [repr(each.name) for each in seen.threads if threads.may_calculate(each, seen.frames)]
    if not names or (number := libraries.blas_threads()) == 1:
        return []
    text = (
        f"OpenBLAS works with {number} threads, and a fork hangs if {{}} is calculating with it; "
        "the variable OPENBLAS_NUM_THREADS=1 at the kernel's start avoids it"
    )
    return _each("blas-thread", "refuse", names, text)


def _tasks(seen: _Seen) -> list[Hazard]:
    names = []
    for task in asyncio.all_tasks(seen.app.io_loop.asyncio_loop):
        coroutine: Any = task.get_coro()
        frame = getattr(coroutine, "cr_frame", None)
        module = frame.f_globals.get("__name__", "") if frame is not None else ""
        if module.partition(".")[0] not in _LOOP_PACKAGES:
            names.append(repr(getattr(coroutine, "__qualname__", task.get_name())))
    return _each("asyncio-task", "lost", names, "asyncio task {} does not go on in the branch")


def _callbacks(seen: _Seen) -> list[Hazard]:
    """What the loop calls later, or as a descriptor is ready, without a task that waits for it."""
    loop = seen.app.io_loop.asyncio_loop
    handles = [each for each in loop._scheduled if not each.cancelled()]
    for key in loop._selector.get_map().values():
        handles += [each for each in key.data if each is not None]
    called = [_called(each._callback, each._args) for each in handles]
    names = [
        repr(getattr(each, "__qualname__", type(each).__qualname__))
        for each in called
        if _module(each).partition(".")[0] not in (*_LOOP_PACKAGES, "asyncio")
    ]
    return _each("asyncio-callback", "lost", names, "callback {} is not called in the branch")


def _called(callback: Any, arguments: tuple[Any, ...]) -> Any:
    """Give what is called in the end, through what tornado and `functools` put around it."""
    if getattr(callback, "__name__", "") == "_run_callback":
        callback = arguments[0]
    while isinstance(callback, functools.partial):
        callback = callback.func
    repeated: Any = getattr(callback, "__self__", None)
    if type(repeated).__name__ == "PeriodicCallback":
        return repeated.callback
    return callback


def _module(called: Any) -> str:
    return str(getattr(called, "__module__", None) or "")


def _bound(seen: _Seen) -> list[Hazard]:
    """Variables with which a task has waited, and which asyncio has tied to its loop by that."""
    names = [
        f"{name!r} (asyncio.{type(value).__name__})"
        for name, value in list(vars(sys.modules["__main__"]).items())
        if isinstance(value, mixins._LoopBoundMixin) and getattr(value, "_loop", None) is not None
    ]
    text = "{} belongs to the live kernel's event loop: to wait with it fails in the branch"
    return _each("asyncio-loop", "note", names, text)


def _children(seen: _Seen) -> list[Hazard]:
    found = []
    pids = _child_processes()
    for module, instance, name in _HELPERS:
        helper = getattr(sys.modules.get(module), instance, None)
        pids.pop(getattr(helper, name, None) or 0, None)
    process: Any = sys.modules.get("multiprocessing.process")
    workers = {each.pid: each.name for each in getattr(process, "_children", ())}
    names = [repr(name) for pid, name in workers.items() if pid in pids]
    if getattr(sys.modules.get(_LOKY), "_executor", None) is not None:
        names = [name for name in names if not name.startswith("'Loky")]
        found.append(_hazard("loky", "repaired", "joblib starts new processes in the branch"))
    text = "multiprocessing worker {} serves the live kernel only"
    found += _each("multiprocessing", "lost", names, text)
    names = [f"{name!r} ({pid})" for pid, name in pids.items() if pid not in workers]
    text = (
        "process {} goes on as the live kernel's child; the branch can neither wait for it nor "
        "reach it by a pipe"
    )
    return found + _each("process", "note", names, text)


def _child_processes() -> dict[int, str]:
    """Map the living children to their names, but for our own."""
    if not has_children():
        return {}
    found = {}
    tasks = os.listdir("/proc/self/task")
    for task in tasks[:_TASKS]:
        with open(f"/proc/self/task/{task}/children") as file:
            for pid in file.read().split():
                with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
                    name, _, rest = stat.read().partition("(")[2].rpartition(")")
                    if not rest.startswith(" Z") and name not in threads.PROCESSES:
                        found[int(pid)] = name
    return found


def _sockets(seen: _Seen) -> list[Hazard]:
    """Connections, which a branch must not use: it has a closed one in the place of each."""
    found = connections.of_user(seen.app, seen.table)
    outer = {each.descriptor for each in found if not each.listens and not each.inner}
    reopened = connections.reopened_on_demand(outer)
    kinds: dict[str, list[str]] = defaultdict(list)
    for each in found:
        if each.descriptor in reopened:
            kinds["http"].append(each.address)
        elif each.descriptor in outer:
            kinds["connection"].append(each.address)
        else:
            kinds["server" if each.listens else "inner"].append(each.address)
    text = "the connection to {} is the live kernel's: a branch cannot speak over it as well"
    return [
        *_each("connection", "refuse", kinds["connection"], text),
        *_each("server", "lost", kinds["server"], "the branch does not listen at {}"),
        *_each(
            "connection", "lost", kinds["inner"], "the connection to {} is closed in the branch"
        ),
        *_each("http", "repaired", kinds["http"], "the branch opens a connection of its own to {}"),
    ]


def _files(seen: _Seen) -> list[Hazard]:
    """Files that both sides write, as a fork copies no file."""
    written, databases = [], []
    mapped = {each.path for each in seen.mappings}  # of these more is told
    history = str(getattr(seen.app.shell.history_manager, "hist_file", ""))
    streams = (getattr(seen.app.kernel, name, None) for name in ("_stdout", "_stderr"))
    copies = {getattr(each, "_original_stdstream_copy", -1) for each in streams}
    for descriptor, target in seen.table.items():
        if descriptor in copies:  # where the kernel's server keeps its log
            continue
        if not descriptors.is_file(descriptor, target) or not descriptors.is_writable(descriptor):
            continue
        if (
            target == history
            or target in mapped
            or target.startswith("/memfd:")
            or "/nbrefine-" in target
        ):
            continue
        if "_sqlite3" in sys.modules and _is_sqlite(descriptor, target):
            databases.append(target)
        elif not target.endswith(_BESIDE_SQLITE):
            written.append(target)
    text = "{} is open for writing: the branch writes the same file, at a place of its own"
    return [
        *_each("sqlite", "shared", databases, "the SQLite database {} is one file for both sides"),
        *_each("file", "shared", written, text),
    ]


def _is_sqlite(descriptor: int, target: str) -> bool:
    if target.endswith((".db", ".sqlite", ".sqlite3")):
        return True
    try:
        return os.pread(descriptor, 16, 0) == b"SQLite format 3\0"
    except OSError:  # it was opened for writing only
        return False


def _watchers(seen: _Seen) -> list[Hazard]:
    found = []
    if any(target == "anon_inode:inotify" for target in seen.table.values()):
        found.append(
            _hazard("inotify", "lost", "changes of files are told to the live kernel only")
        )
    if debugging.is_attached(seen.app):
        found.append(_hazard("debugger", "lost", "the debugger is not attached to the branch"))
    trace = None if debugging.traces() else sys.gettrace()
    for name, hook in (("trace", trace), ("profile", sys.getprofile())):
        if hook is not None:
            text = f"the {name} function {hook!r:.80} goes on in the branch, with data of its own"
            found.append(_hazard("tracing", "note", text))
    if libraries.cannot_pause_openmp():
        text = "OpenMP works with one thread in the branch"
        found.append(_hazard("openmp", "repaired", text))
    return found


def _imports(_: _Seen) -> list[Hazard]:
    text = (
        "a thread is importing {}, and nobody would finish that in the branch; "
        "branch again once it has ended"
    )
    return _each("import", "refuse", map(repr, imports.unfinished()), text)


_LOOKS: tuple[Callable[[_Seen], list[Hazard]], ...] = (
    _native_pools,
    _gpu,
    _memory,
    _threads,
    _tasks,
    _callbacks,
    _bound,
    _children,
    _sockets,
    _files,
    _watchers,
    _imports,
)
