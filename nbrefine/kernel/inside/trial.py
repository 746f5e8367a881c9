"""Run planned tests against the live namespace, unit by unit, as the controller asks for them.

Tests run in a copy of the namespace, so that names they bind stay out of the session, and in
surroundings of their own. Objects are shared: a test that changes a data frame in place has
changed it.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import linecache
import types
from collections.abc import Callable, Container, Iterator
from typing import Any

from IPython.core.getipython import get_ipython

from .cases import FILENAME, Call, FunctionNode, lines_of, plan
from .link import Emit
from .record import THROUGH, Recorder
from .rewrite import RECORDER, needs_await, program
from .surroundings import Surroundings

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
        self.plan = plan(source, entry_point)
        self.lines = lines_of(source)
        shell: Any = get_ipython()
        self.session: dict[str, Any] = shell.user_ns
        self.recorder = Recorder(
            self.session, {i for i, case in enumerate(self.plan.cases) if case.looped}
        )
        self.surroundings = Surroundings(shell)
        self.names = dict(self.session)
        self.names["__builtins__"] = builtins
        self.names[RECORDER] = self.recorder
        self.candidate = ""
        self.problem = self._bind_candidate(shell.user_ns_hidden) if self.plan.guesses else ""
        lines = [f"{line}\n" for line in self.lines]
        linecache.cache[FILENAME] = (len(source), None, lines, FILENAME)

    def _bind_candidate(self, hidden: Container[str]) -> str:
        """Bind the function that `check` is for, where nothing but the session tells it."""
        found = {
            name: value
            for name, value in self.session.items()
            if isinstance(value, types.FunctionType)
            and value.__module__ == "__main__"
            and not name.startswith("_")
            and name not in hidden
        }
        meant = self.plan.guesses if self.plan.guesses in found else next(iter(found), "")
        if not found:
            return "check() needs a function to test, and the session has none"
        if len(found) > 1 and meant != self.plan.guesses:
            return f"check() needs one function to test, and the session has {', '.join(found)}"
        self.candidate = meant
        self.names["@candidate"] = found[meant]
        return ""

    def needs_await(self, index: int) -> bool:
        """Tell whether a unit awaits by itself or speaks of the session's coroutine functions."""
        unit = self.plan.units[index]
        if isinstance(unit, Call):
            return unit.awaits
        return needs_await(unit) or any(
            inspect.iscoroutinefunction(self.names.get(inner.id))
            for statement in unit.body
            if not isinstance(statement, (*FunctionNode, ast.ClassDef))
            for inner in ast.walk(statement)
            if isinstance(inner, ast.Name)
        )

    async def run_unit(self, emit: Emit, index: int, *, awaits: bool) -> dict[str, str] | None:
        """Run a unit and give what it raised outside of its cases."""
        unit = self.plan.units[index]
        self.recorder.emit = emit
        with self.surroundings:
            try:
                if isinstance(unit, Call):
                    with self.recorder.case(unit.case):
                        for call in self._calls(unit):
                            await self.recorder.settle(call())
                else:
                    code = program(unit, self.lines, self.recorder.details, awaits=awaits)
                    await self.recorder.settle(eval(code, self.names))  # noqa: S307  the task's own tests
            except THROUGH:
                raise
            except BaseException as error:  # noqa: BLE001  SystemExit and pytest's outcomes too
                return self.recorder.told(error)
            finally:
                self.recorder.forget()
        return None

    def _calls(self, unit: Call) -> Iterator[Callable[[], Any]]:
        """Give the calls a test function makes: one, or one for each row of its parameters."""
        target = self.names[unit.path[0]]
        function = getattr(target, unit.path[-1]) if len(unit.path) > 1 else target
        rows = _rows(function)
        chosen = rows if unit.row is None else [rows[unit.row]]
        for row in chosen:
            if len(unit.path) > 1:
                yield functools.partial(_method, target, unit.path[-1], row)
            else:
                yield functools.partial(function, **row)


def _rows(function: Any) -> list[dict[str, Any]]:
    """Give the arguments of each call of a function, as its `parametrize` marks tell them."""
    rows: list[dict[str, Any]] = [{}]
    for mark in getattr(function, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        names, values = mark.args[:2]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
        filled = [_filled(names, value) for value in values]
        rows = [{**row, **new} for row, new in itertools.product(rows, filled)]
    return rows


def _filled(names: list[str], value: Any) -> dict[str, Any]:
    if hasattr(value, "marks") and hasattr(value, "values"):  # pytest.param(…)
        value = value.values
    elif len(names) == 1:
        value = [value]
    return dict(zip(names, value))  # noqa: B905  `strict` came after Python 3.9


async def _method(kind: Any, name: str, row: dict[str, Any]) -> None:
    """Run a method of a test class on an instance of its own, between its set-up and tear-down."""
    try:
        instance = kind(name)  # unittest.TestCase
    except TypeError:
        instance = kind()
    await _hook(instance, "setUp", "setup_method")
    try:
        await Recorder.settle(getattr(instance, name)(**row))
    finally:
        await _hook(instance, "tearDown", "teardown_method")


async def _hook(instance: Any, *names: str) -> None:
    for name in names:
        hook = getattr(instance, name, None)
        if hook is not None:
            given = [None] if inspect.signature(hook).parameters else []
            await Recorder.settle(hook(*given))
