"""Build a kernel without sockets and threads, ready to be forked, and warm.

What is built here is a stock `IPKernelApp` with a stock kernel and shell; `plumbing` gives it
sockets and threads.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import gc
import glob
import importlib.util
import inspect
import linecache
import operator
import os
import random
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from . import memory

INLINE = "module://matplotlib_inline.backend_inline"

_NEEDED = {
    "ipykernel.kernelapp": (
        "IPKernelApp.init_sockets",
        "IPKernelApp.init_iopub",
        "IPKernelApp.init_heartbeat",
        "IPKernelApp.init_io",
        "IPKernelApp.init_gui_pylab",
        "IPKernelApp.init_extensions",
        "IPKernelApp._run_startup_files",
        "IPKernelApp._run_exec_lines",
        "IPKernelApp._run_exec_files",
        "IPKernelApp._run_cmd_line_code",
        "IPKernelApp._run_module",
        "IPKernelApp.configure_tornado_logger",
    ),
    "ipykernel.shellchannel": ("ShellChannelThread",),
    "ipykernel.iostream": ("IOPubThread._setup_xpub_listener", "OutStream"),
}
_NO_HISTORY = "--HistoryManager.enabled=False"
_NO_CACHE = "--InteractiveShell.cache_size=0"
_LAST = ("last_type", "last_value", "last_traceback", "last_exc")


class UnsuitableError(Exception):
    """The interpreter cannot hold a kernel that forks; the text says why in one line.

    Parameters
    ----------
    package: the one of `preload` without which it could, or "".
    """

    def __init__(self, why: str, *, package: str = "") -> None:
        super().__init__(why)
        self.package = package


def build(preload: Sequence[str] = ()) -> Any:
    """Build the kernel, import packages, and warm all of it up.

    Raises
    ------
    UnsuitableError: ipykernel is missing or has not what is needed, a package of `preload` could
        not be imported, or something here has started a thread.
    """
    application = _application()
    os.environ.setdefault("MPLBACKEND", INLINE)  # matplotlib reads it when it is imported
    for name in preload:
        try:
            importlib.import_module(name)
        except Exception as error:
            why = f"{name} could not be imported: {error!r}"
            raise UnsuitableError(why, package=name) from error
    with _quiet_debugger():
        app = _make(application, [])
    app.configure_tornado_logger()
    for name in app.default_extensions:
        app.shell.extension_manager.load_extension(name)
    with _untouched(app.shell):
        _warm(app.shell)
    app.shell._sys_modules_keys = set(sys.modules)  # what %reset leaves alone
    others = [each.name for each in threading.enumerate()[1:]]
    if others:
        raise UnsuitableError(f"Importing has started threads: {', '.join(others)}")
    gc.collect()
    memory.collapse()
    gc.freeze()  # the collector of a child must not write into pages that all share
    return app


def configure(app: Any, arguments: Sequence[str]) -> Any:
    """Apply a kernel's own arguments to what was built, in its process and before it is attached.

    Parameters
    ----------
    arguments: as on the command line of ipykernel, without its connection file.

    Gives the application to go on with. Most arguments are read once, when the shell is made, so
    it is made again for all but those that every kernel of ours is given.
    """
    if not set(arguments) <= {_NO_HISTORY, _NO_CACHE}:
        shell = app.shell
        atexit.unregister(shell.atexit_operations)
        for each in (shell, app.kernel, app):
            type(each).clear_instance()
        return _make(type(app), arguments)
    if _NO_HISTORY in arguments:
        app.shell.history_manager.enabled = False
    if _NO_CACHE in arguments:
        app.shell.cache_size = 0
        app.shell.displayhook.cache_size = app.shell.displayhook.do_full_cache = 0
    return app


def start_up(app: Any) -> None:
    """Do in a fresh kernel, once it is attached, what a user's configuration asks for."""
    handlers = app.kernel.control_handlers
    handlers["shutdown_request"] = _of_this_life(handlers["shutdown_request"])
    if name := os.environ.get("JPY_SESSION_NAME"):
        app.shell.user_ns["__session__"] = name
    app.init_gui_pylab()
    if app.extensions or app.extra_extensions or not app.shell.extension_manager.loaded:
        app.init_extensions()
    # What `init_code` does, but for reading the name of every module, which would copy the pages
    # that all those strings are on.
    for run in (app._run_startup_files, app._run_exec_lines, app._run_exec_files):
        run()
    if app.hide_initial_ns:
        app.shell.user_ns_hidden.update(app.shell.user_ns)
    app._run_cmd_line_code()
    app._run_module()


def _of_this_life(shut_down: Any) -> Any:
    """Take no request to end that was meant for a kernel which had these ports before.

    jupyter_client asks a kernel that has died to end, too, before it starts the next one; what it
    sent waits for a tenth of a second, and a forked kernel is there by then.
    """
    born = dt.datetime.now(dt.timezone.utc)  # noqa: UP017  kernels of Python 3.10

    async def handle(stream: Any, ident: Any, parent: Any) -> None:
        sent = parent["header"].get("date")
        if isinstance(sent, dt.datetime) and sent < born:
            return
        handled = shut_down(stream, ident, parent)
        if inspect.isawaitable(handled):
            await handled

    return handle


def version() -> str:
    """Give the version of ipykernel."""
    return str(importlib.import_module("ipykernel").__dict__["__version__"])


def lacking() -> str:
    """Say in one line what is relied upon and this ipykernel has not, or ""."""
    missing = []
    for name, paths in _NEEDED.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            missing.append(name)
            continue
        missing += [f"{name}.{path}" for path in paths if not _has(module, path)]
    if not missing:
        return ""
    return f"ipykernel {version()} has no {', '.join(missing)}; ipykernel 7.2 has"


def _has(module: Any, path: str) -> bool:
    try:
        operator.attrgetter(path)(module)
    except AttributeError:
        return False
    return True


def _application() -> Any:
    """Give ipykernel's application class, once it is known to have what is relied upon."""
    if importlib.util.find_spec("ipykernel") is None:
        raise UnsuitableError(f"{sys.executable} has no ipykernel")
    if why := lacking():
        raise UnsuitableError(why)
    from ipykernel.kernelapp import IPKernelApp

    return IPKernelApp


def _make(application: Any, arguments: Sequence[str]) -> Any:
    """Do what `IPKernelApp.initialize` does, apart from what makes sockets or runs code."""
    app = application.instance()
    base: Any = importlib.import_module("IPython.core.application")
    base.BaseIPythonApplication.initialize(app, [*arguments])
    if "hist_file" not in app.cli_config.get("HistoryManager", {}):
        # In memory: the thread that saves a file, and its locks, do not survive a fork.
        app.config.HistoryManager.hist_file = ":memory:"
    app.init_pdb()
    app.init_blackhole()
    app.kernel = app.kernel_class.instance(
        parent=app,
        session=app.session,
        log=app.log,
        profile_dir=app.profile_dir,
        user_ns=app.user_ns,
    )
    app.init_path()
    app.init_shell()
    return app


@contextlib.contextmanager
def _quiet_debugger() -> Iterator[None]:
    """Keep debugpy, which the kernel imports, from warning on stderr of frozen modules."""
    name = "PYDEVD_DISABLE_FILE_VALIDATION"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def _warm(shell: Any) -> None:
    """Import and make what a first cell, a first result and a first traceback would."""
    for name in (
        "jupyter_client.localinterfaces",
        "ipykernel.comm",
        "ipykernel.debugger",
        "IPython.core.logger",
        "IPython.core.ultratb",
        "IPython.extensions.storemagic",
        "matplotlib_inline.backend_inline",
        "faulthandler",
        "psutil",
        "sqlite3",
        "tornado.platform.asyncio",
    ):
        with contextlib.suppress(Exception):
            if name.partition(".")[0] != "matplotlib_inline" or "matplotlib" in sys.modules:
                importlib.import_module(name)
    shell.run_cell("1 + 1;", silent=True)
    shell.display_formatter.format(1)
    shell.run_cell("def f():\n    return {}['x']\nf()", silent=True)
    for pattern in ("*.py", "*.ipy"):
        glob.glob(os.path.join(os.devnull, pattern))
    for given in ("", 0):  # traitlets logs what nobody sees, and looks whether it is a mapping
        shell.log.debug("%s", given)
    importlib.import_module("ipykernel.jsonutil").json_clean({"a": [1, 2.0, "x", None]})


@contextlib.contextmanager
def _untouched(shell: Any) -> Iterator[None]:
    """Leave no trace of the cells that are run in the block."""
    names, hidden = dict(shell.user_ns), dict(shell.user_ns_hidden)
    count, files = shell.execution_count, set(linecache.cache)
    state = random.getstate()
    shell._showtraceback = lambda *_: None
    try:
        yield
    finally:
        del shell._showtraceback
        shell.user_ns.clear()
        shell.user_ns.update(names)
        shell.user_ns_hidden.clear()
        shell.user_ns_hidden.update(hidden)
        shell.execution_count = count
        shell.history_manager.reset(new_session=False)
        for name in set(linecache.cache) - files:
            if name.startswith("<") or "ipykernel_" in name:
                linecache.cache.pop(name, None)
        for name in _LAST:
            if hasattr(sys, name):
                delattr(sys, name)
        random.setstate(state)
