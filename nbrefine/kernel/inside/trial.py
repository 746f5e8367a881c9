"""Run planned tests against the live namespace, unit by unit, as the controller asks for them.

Tests run in a copy of the namespace, so that names they bind stay out of the session, and in
surroundings of their own. Objects are shared: a test that changes a data frame in place has
changed it.
"""

from __future__ import annotations

import builtins
import linecache
import types
from collections.abc import Container
from typing import Any

from IPython.core.getipython import get_ipython

from .cases import FILENAME, plan
from .link import Emit
from .record import Recorder
from .surroundings import Surroundings
from .units import Units

_trials: dict[str, Trial] = {}


def load(emit: Emit, token: str, source: str, entry_point: str) -> dict[str, str]:
    """Prepare a source of tests, which `token` names from now on.

    Gives `problem`: "", or why it cannot be run in this session; and `candidate`: the name of
    the function that `check` is for, where the session had to tell.
    """
    trial = Trial(source, entry_point)
    _trials[token] = trial
    return {"problem": trial.problem, "candidate": trial.candidate}


def run(emit: Emit, token: str, index: int) -> dict[str, Any]:
    """Run one unit.

    Its cases are told as they begin, hold or fail: `{"begin": case}`, `{"case": case, …}`. Gives
    `{"awaits": True}` where nothing was done, because only `run_async` will do, and otherwise
    `{"raised": …}`, what was raised outside of the cases, None if nothing.
    """
    trial = _trials[token]
    if trial.needs_await(index):
        return {"awaits": True}
    work = trial.run_unit(emit, index, awaits=False)
    try:
        work.send(None)  # it has nothing to wait for, so it ends here and now
    except StopIteration as ended:
        return {"raised": ended.value}
    work.close()
    return {"awaits": True}


async def run_async(emit: Emit, token: str, index: int) -> dict[str, Any]:
    """Run one unit as a coroutine on the kernel's own loop."""
    return {"raised": await _trials[token].run_unit(emit, index, awaits=True)}


def close(emit: Emit, token: str) -> None:
    """Let go of a source of tests and its copy of the namespace."""
    _trials.pop(token, None)
    linecache.cache.pop(FILENAME, None)


class Trial:
    """One source of tests, its namespace and its surroundings."""

    def __init__(self, source: str, entry_point: str) -> None:
        planned = plan(source, entry_point)
        shell: Any = get_ipython()
        self.session: dict[str, Any] = shell.user_ns
        self.recorder = Recorder(self.session, planned.looped)
        self.surroundings = Surroundings(shell)
        self.names = dict(self.session)
        self.names["__builtins__"] = builtins
        self.units = Units(planned, source, self.names, self.recorder)
        self.candidate = ""
        hidden = shell.user_ns_hidden
        self.problem = self._bind_candidate(planned.guesses, hidden) if planned.guesses else ""

    def _bind_candidate(self, guess: str, hidden: Container[str]) -> str:
        """Bind the function that `check` is for, where nothing but the session tells it."""
        found = {
            name: value
            for name, value in self.session.items()
            if isinstance(value, types.FunctionType)
            and value.__module__ == "__main__"
            and not name.startswith("_")
            and name not in hidden
        }
        meant = guess if guess in found else next(iter(found), "")
        if not found:
            return "check() needs a function to test, and the session has none"
        if len(found) > 1 and meant != guess:
            return f"check() needs one function to test, and the session has {', '.join(found)}"
        self.candidate = meant
        self.names["@candidate"] = found[meant]
        return ""

    def needs_await(self, index: int) -> bool:
        """Tell whether a unit can only run as a coroutine."""
        return self.units.needs_await(index)

    async def run_unit(self, emit: Emit, index: int, *, awaits: bool) -> dict[str, str] | None:
        """Run a unit and give what it raised outside of its cases."""
        self.recorder.emit = emit
        with self.surroundings:
            return await self.units.run(index, awaits=awaits)
