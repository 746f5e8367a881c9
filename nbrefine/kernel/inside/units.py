"""Run planned tests in a namespace, unit by unit, in whatever process that is."""

from __future__ import annotations

import ast
import base64
import functools
import inspect
import itertools
import linecache
import marshal
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from importlib.util import MAGIC_NUMBER
from typing import Any

from .cases import FILENAME, Call, Case, FunctionNode, Plan, Unit, lines_of, plan
from .record import Recorder
from .rewrite import RECORDER, Detail, needs_await, program

_READER = f"{sys.implementation.cache_tag} {MAGIC_NUMBER.hex()} {sys.flags.optimize}"
"""Names the interpreters that run the code of this one."""

_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def _is_coroutine_function(value: object) -> bool:
    # What stands for an object of another process is not to be asked for each of its parts.
    return type(value) in _FUNCTIONS and inspect.iscoroutinefunction(value)


class Program:
    """The units of a plan, compiled: each when it is first asked for, or all beforehand.

    Parameters
    ----------
    plan: its nodes are used up.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lines = lines_of(plan.source)
        self.details: list[Detail] = []
        """What is known of the asserts, by the numbers that they tell the recorder."""
        self._codes: dict[tuple[int, bool], types.CodeType] = {}
        self._traits: dict[int, tuple[bool, list[str]]] = {}
        self._used: set[int] = set()

    def compile(self) -> None:
        """Compile all that is known before the tests run, and let go of the nodes."""
        light: list[Unit | Call] = []
        for index, unit in enumerate(self.plan.units):
            awaits, _ = self.traits(index)
            if isinstance(unit, Call):
                light.append(unit._replace(function=None, owner=None))
            else:
                self.code(index, awaits=awaits)
                light.append(_light(unit.cases.values()))
        self.plan = self.plan._replace(units=light)

    def packed(self) -> str:
        """Compile all, and give it without its source, as text that `unpacked` reads."""
        self.compile()
        units = [
            tuple(unit) if isinstance(unit, Call) else list(unit.cases.values())
            for unit in self.plan.units
        ]
        plan = [tuple(case) for case in self.plan.cases], units, self.plan.guesses, self.plan.added
        details = [tuple(detail) for detail in self.details]
        told = marshal.dumps((*plan, details, self._codes, self._traits))
        return base64.b64encode(marshal.dumps((_READER, told))).decode()

    @classmethod
    def unpacked(cls, text: str, source: str, entry_point: str) -> Program:
        """Give the program that another process has made of a source, or make it here.

        Parameters
        ----------
        text: what `packed` gave there; "" or what another version of Python packed is of no use.
        """
        read: Callable[[bytes], Any] = marshal.loads  # what our own controller sends
        reader, told = read(base64.b64decode(text)) if text else ("", b"")
        if reader != _READER:
            return cls(plan(source, entry_point))
        cases, units, guesses, added, details, codes, traits = read(told)
        units = [Call(*each) if isinstance(each, tuple) else _light(each) for each in units]
        cases = [Case(*each) for each in cases]
        program = cls(Plan(cases, units, guesses, added, source, entry_point))
        program.details += [Detail(*each) for each in details]
        program._codes, program._traits = codes, traits
        program._used.update(range(len(units)))
        return program

    def traits(self, index: int) -> tuple[bool, list[str]]:
        """Tell whether a unit awaits, as it is written, and which names it speaks of."""
        if index not in self._traits:
            self._traits[index] = _traits(self.plan.units[index])
        return self._traits[index]

    def code(self, index: int, *, awaits: bool) -> types.CodeType:
        """Give the code of a unit that is no call."""
        key = index, awaits
        if key not in self._codes:
            self.traits(index)  # of its nodes, before these are used up
            unit: Any = self.plan.units[index]
            if index in self._used:
                unit = plan(self.plan.source, self.plan.entry_point).units[index]
            self._used.add(index)
            self._codes[key] = program(unit, self.lines, self.details, awaits=awaits)
        return self._codes[key]


def _light(cases: Iterable[int]) -> Unit:
    """Stand for a unit that is compiled."""
    return Unit([], {ast.Pass(): case for case in cases})


def _traits(unit: Unit | Call) -> tuple[bool, list[str]]:
    if isinstance(unit, Call):
        return unit.awaits, []
    names = {
        inner.id: None
        for statement in unit.body
        if not isinstance(statement, (*FunctionNode, ast.ClassDef))
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Name)
    }
    return needs_await(unit), list(names)


class Units:
    """The units of one source of tests.

    Parameters
    ----------
    plan: its plan; its nodes are used up.
    source: what was planned.
    names: the namespace they run in, which gets a name for the recorder.
    recorder: what their asserts speak to.
    program: the plan's, if there is one already.
    """

    def __init__(
        self,
        plan: Plan,
        source: str,
        names: dict[str, Any],
        recorder: Recorder,
        program: Program | None = None,
    ) -> None:
        self.plan = plan
        self.names = names
        self.recorder = recorder
        self._program = program or Program(plan)
        recorder.details = self._program.details
        names[RECORDER] = recorder
        lines = [f"{line}\n" for line in self._program.lines]
        linecache.cache[FILENAME] = (len(source), None, lines, FILENAME)

    def needs_await(self, index: int) -> bool:
        """Tell whether a unit awaits by itself or speaks of coroutine functions it is to test."""
        awaits, names = self._program.traits(index)
        return awaits or any(_is_coroutine_function(self.names.get(name)) for name in names)

    async def run(self, index: int, *, awaits: bool) -> dict[str, str] | None:
        """Run a unit and give what it raised outside of its cases."""
        unit = self.plan.units[index]
        try:
            if isinstance(unit, Call):
                with self.recorder.case(unit.case):
                    for call in self._calls(unit):
                        await self.recorder.settle(call())
            else:
                code = self._program.code(index, awaits=awaits)
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
