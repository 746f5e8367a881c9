"""Run planned tests in a namespace, unit by unit, in whatever process that is."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import linecache
import types
from collections.abc import Callable, Iterator
from typing import Any

from .cases import FILENAME, Call, FunctionNode, Plan, lines_of
from .record import Recorder
from .rewrite import RECORDER, needs_await, program

_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def _is_coroutine_function(value: object) -> bool:
    # What stands for an object of another process is not to be asked for each of its parts.
    return type(value) in _FUNCTIONS and inspect.iscoroutinefunction(value)


class Units:
    """The units of one source of tests.

    Parameters
    ----------
    plan: its plan; its nodes are used up.
    source: what was planned.
    names: the namespace they run in, which gets a name for the recorder.
    recorder: what their asserts speak to.
    """

    def __init__(self, plan: Plan, source: str, names: dict[str, Any], recorder: Recorder) -> None:
        self.plan = plan
        self.lines = lines_of(source)
        self.names = names
        self.recorder = recorder
        names[RECORDER] = recorder
        lines = [f"{line}\n" for line in self.lines]
        linecache.cache[FILENAME] = (len(source), None, lines, FILENAME)

    def needs_await(self, index: int) -> bool:
        """Tell whether a unit awaits by itself or speaks of coroutine functions it is to test."""
        unit = self.plan.units[index]
        if isinstance(unit, Call):
            return unit.awaits
        return needs_await(unit) or any(
            _is_coroutine_function(self.names.get(inner.id))
            for statement in unit.body
            if not isinstance(statement, (*FunctionNode, ast.ClassDef))
            for inner in ast.walk(statement)
            if isinstance(inner, ast.Name)
        )

    async def run(self, index: int, *, awaits: bool) -> dict[str, str] | None:
        """Run a unit and give what it raised outside of its cases."""
        unit = self.plan.units[index]
        try:
            if isinstance(unit, Call):
                with self.recorder.case(unit.case):
                    for call in self._calls(unit):
                        await self.recorder.settle(call())
            else:
                code = program(unit, self.lines, self.recorder.details, awaits=awaits)
                await self.recorder.settle(eval(code, self.names))  # noqa: S307  the task's own tests
        except self.recorder.through:
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
