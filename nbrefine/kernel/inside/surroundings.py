"""What a process shares with every piece of code in it, exchanged between session and tests.

Tests may replace `builtins.input`, seed `random` or change the folder, and their next unit must
find it so, but the session must not: else its accepted cells alone would not give its state.
"""

from __future__ import annotations

import builtins
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple


class Surroundings:
    """A context in which the tests' surroundings hold, and the session's do again after it."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._ours: _State | None = None

    def __enter__(self) -> None:
        self._session = _capture()
        if self._ours is not None:
            _restore(self._ours)
        # IPython's own exit() sets a flag and returns, and the code would simply go on.
        self._shell.ask_exit = refuse_exit

    def __exit__(self, *error: object) -> None:
        self._ours = _capture()
        if self._ours.handler == self._session.handler:
            # It is the kernel's own, which for what awaits is another.
            self._ours = self._ours._replace(handler=None)
        _restore(self._session)
        self._shell.__dict__.pop("ask_exit", None)


def refuse_exit() -> None:
    """Stand for `shell.ask_exit`, which leaves the code to go on."""
    raise SystemExit("exit() was called")


class _State(NamedTuple):
    names: dict[str, Any]
    streams: tuple[Any, ...]
    recursion: int
    handler: Any
    """Of SIGINT; None: to be left as it is."""
    folder: str
    environment: dict[str, str]
    path: list[str]
    seeds: Any
    numpy_seeds: Any


def _capture() -> _State:
    numpy_random = sys.modules.get("numpy.random")
    return _State(
        dict(vars(builtins)),
        (sys.stdin, sys.stdout, sys.stderr, sys.displayhook, sys.excepthook),
        sys.getrecursionlimit(),
        signal.getsignal(signal.SIGINT),
        _folder(),
        dict(os.environ),
        list(sys.path),
        random.getstate(),
        numpy_random.get_state() if numpy_random else None,
    )


def _restore(state: _State) -> None:
    vars(builtins).update(state.names)
    for name in set(vars(builtins)) - set(state.names):
        del vars(builtins)[name]
    sys.stdin, sys.stdout, sys.stderr, sys.displayhook, sys.excepthook = state.streams
    sys.setrecursionlimit(state.recursion)
    if state.handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, state.handler)
    if state.folder and state.folder != _folder():
        os.chdir(state.folder)
    if state.environment != dict(os.environ):
        os.environ.clear()
        os.environ.update(state.environment)
    sys.path[:] = state.path
    random.setstate(state.seeds)
    if state.numpy_seeds is not None:
        sys.modules["numpy.random"].set_state(state.numpy_seeds)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""
