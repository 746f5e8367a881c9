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
from typing import Any

_INTERRUPT = 3  # where a captured state has the handler of SIGINT


class Surroundings:
    """A context in which the tests' surroundings hold, and the session's do again after it."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._ours: list[Any] | None = None
        self._session: list[Any] = []

    def __enter__(self) -> None:
        self._session = _capture()
        if self._ours is not None:
            _restore(self._ours)
        # IPython's own exit() sets a flag and returns, and the code would simply go on.
        self._shell.ask_exit = refuse_exit

    def __exit__(self, *error: object) -> None:
        self._ours = _capture()
        if self._ours[_INTERRUPT] == self._session[_INTERRUPT]:
            self._ours[_INTERRUPT] = None  # the kernel's own, which for what awaits is another
        _restore(self._session)
        self._shell.__dict__.pop("ask_exit", None)


def refuse_exit() -> None:
    """Stand for `shell.ask_exit`, which leaves the code to go on."""
    raise SystemExit("exit() was called")


def _capture() -> list[Any]:
    numpy_random = sys.modules.get("numpy.random")
    return [
        dict(vars(builtins)),
        (sys.stdin, sys.stdout, sys.stderr, sys.displayhook, sys.excepthook),
        sys.getrecursionlimit(),
        signal.getsignal(signal.SIGINT),
        _folder(),
        dict(os.environ),
        list(sys.path),
        random.getstate(),
        numpy_random.get_state() if numpy_random else None,
    ]


def _restore(state: list[Any]) -> None:
    names, streams, limit, handler, folder, environment, path, seeds, numpy_seeds = state
    vars(builtins).update(names)
    for name in set(vars(builtins)) - set(names):
        del vars(builtins)[name]
    sys.stdin, sys.stdout, sys.stderr, sys.displayhook, sys.excepthook = streams
    sys.setrecursionlimit(limit)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)
    if folder and folder != _folder():
        os.chdir(folder)
    if environment != dict(os.environ):
        os.environ.clear()
        os.environ.update(environment)
    sys.path[:] = path
    random.setstate(seeds)
    if numpy_seeds is not None:
        sys.modules["numpy.random"].set_state(numpy_seeds)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""
