"""Run planned tests against the live namespace, unit by unit, as the controller asks for them.

Tests run in a copy of the namespace, so that names they bind stay out of the session, and in
surroundings of their own. Objects are shared: a test that changes a data frame in place has
changed it.
"""

from __future__ import annotations

import builtins
import linecache
import os
import types
from collections.abc import Container
from typing import Any

from IPython.core.getipython import get_ipython

from .cases import FILENAME
from .guard import cut
from .link import Emit
from .record import THROUGH, VALUE, Recorder
from .surroundings import Surroundings, refuse_exit
from .units import Program, Units

_trials: dict[str, Trial] = {}


def load(emit: Emit, token: str, source: str, entry_point: str, packed: str = "") -> dict[str, str]:
    """Prepare a source of tests, which `token` names from now on.

    `packed` is the program that the controller has made of it, if it has; see `units`.

    Gives `problem`: "", or why it cannot be run in this session; and `candidate`: the name of
    the function that `check` is for, where the session had to tell.
    """
    trial = Trial(source, entry_point, packed)
    _trials[token] = trial
    return {"problem": trial.problem, "candidate": trial.candidate}


def run(emit: Emit, token: str, index: int) -> dict[str, Any]:
    """Run one unit.

    Its cases are told as they begin, hold or fail: `{"begin": case}`, `{"case": case, …}`. Gives
    `{"awaits": True}` where nothing was done, because only `run_async` will do, and otherwise
    `{"raised": …}`, what was raised outside of the cases, None if nothing.
    """
    trial = _trials[token]
    with trial.surroundings:
        return trial.run_unit(emit, index)


async def run_async(emit: Emit, token: str, index: int) -> dict[str, Any]:
    """Run one unit as a coroutine on the kernel's own loop."""
    trial = _trials[token]
    trial.recorder.emit = emit
    with trial.surroundings:
        return {"raised": await trial.units.run(index, awaits=True)}


def enter(emit: Emit, folder: str) -> None:
    """Make a folder the working one."""
    os.chdir(folder)


def check(emit: Emit, token: str, folder: str, code: str, tests: list[str]) -> dict[str, Any]:
    """Run code as a cell, in a folder, and its tests, as `load` and `run` do: all in one call.

    `tests` are their source, the entry point, and their program, as for `load`. Tells all at once,
    at the end, as a message each costs more than most tests: `{"told": [{"code": why}, …]}`, with
    "" where the code ended well, then what the cases tell, and `{"unit": index, "raised": …}` for
    each unit that has ended. Gives `{"awaits": True}` where nothing was run, because the code
    awaits, and otherwise `problem` and `candidate`, as `load` does, and `done`: how many units were
    run, not all where one awaits.
    """
    shell: Any = get_ipython()
    os.chdir(folder)
    if _awaits(shell, code):
        return {"awaits": True}
    told: list[Any] = []
    try:
        return _checked(told, shell, token, code, tests)
    finally:
        emit({"told": told})


def _checked(
    told: list[Any], shell: Any, token: str, code: str, tests: list[str]
) -> dict[str, Any]:
    trouble = _ran(shell, code)
    told.append({"code": trouble})
    if trouble:
        return {"problem": "", "candidate": "", "done": 0}
    loaded = load(told.append, token, *tests)
    if loaded["problem"]:
        return {**loaded, "done": 0}
    trial = _trials[token]
    units = len(trial.units.plan.units)
    with trial.surroundings:
        for index in range(units):
            ended = trial.run_unit(told.append, index)
            if "awaits" in ended:
                return {**loaded, "done": index}
            told.append({"unit": index, **ended})
    return {**loaded, "done": units}


def _awaits(shell: Any, code: str) -> bool:
    if "await" not in code and "async" not in code:
        return False  # to be sure costs a second pass over the code
    try:
        transformed = shell.transform_cell(code)
    except SyntaxError:
        return False
    return bool(shell.should_run_async(code, transformed_cell=transformed))


def _ran(shell: Any, code: str) -> str:
    """Run a cell and tell what it raised, or ""."""
    shell.ask_exit = refuse_exit
    try:
        result = shell.run_cell(code, store_history=True)
    finally:
        shell.__dict__.pop("ask_exit", None)
    error = result.error_before_exec or result.error_in_exec
    if error is None:
        return ""
    if isinstance(error, THROUGH):
        raise error
    return _line(shell, error)


def _line(shell: Any, error: BaseException) -> str:
    """Tell an exception of a cell in a line, with the line of the cell that it came from."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals is shell.user_ns:
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception:  # noqa: BLE001  __str__ may raise anything
        text = "(its text could not be had)"
    told = ": ".join(part for part in (type(error).__name__, cut(text, VALUE)) if part)
    return f"{told} (line {line})" if line else told


def close(emit: Emit, token: str) -> None:
    """Let go of a source of tests and its copy of the namespace."""
    _trials.pop(token, None)
    linecache.cache.pop(FILENAME, None)


class Trial:
    """One source of tests, its namespace and its surroundings."""

    def __init__(self, source: str, entry_point: str, packed: str) -> None:
        program = Program.unpacked(packed, source, entry_point)
        planned = program.plan
        shell: Any = get_ipython()
        self.session: dict[str, Any] = shell.user_ns
        self.recorder = Recorder(self.session, planned.looped)
        self.surroundings = Surroundings(shell)
        self.names = dict(self.session)
        self.names["__builtins__"] = builtins
        self.units = Units(planned, source, self.names, self.recorder, program)
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

    def run_unit(self, emit: Emit, index: int) -> dict[str, Any]:
        """Run a unit, or give `{"awaits": True}`; see `run`."""
        if self.units.needs_await(index):
            return {"awaits": True}
        self.recorder.emit = emit
        work = self.units.run(index, awaits=False)
        try:
            work.send(None)  # it has nothing to wait for, so it ends here and now
        except StopIteration as ended:
            return {"raised": ended.value}
        work.close()
        return {"awaits": True}
