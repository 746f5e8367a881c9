"""Programs of tests, from the process that makes them to another that runs them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from nbrefine.kernel.inside import units
from nbrefine.kernel.inside.cases import plan
from nbrefine.kernel.inside.record import Recorder
from nbrefine.kernel.inside.units import Program, Units

TESTS = """
START = 2
assert f(START) == 4
for x in range(3):
    assert f(x) == 2 * x, f"at {x}"
class TestF:
    def test_three(self):
        assert f(3) == 7
"""
CASES = [("passed", ""), ("passed", ""), ("failed", "6")]


def run(program: Program) -> list[tuple[str, str]]:
    """Run a program against `f`, which doubles, and tell how each case ended."""
    names: dict[str, Any] = {"f": lambda x: 2 * x, "__name__": "tests"}
    told: dict[int, tuple[str, str]] = {}

    def hear(message: dict[str, Any]) -> None:
        if "case" in message:
            told[message["case"]] = message["status"], message.get("got", "")

    recorder = Recorder(names, program.plan.looped)
    recorder.emit = hear
    made = Units(program.plan, program.plan.source, names, recorder, program)
    for index in range(len(program.plan.units)):
        with pytest.raises(StopIteration) as ended:
            made.run(index, awaits=False).send(None)
        assert ended.value.value is None
    looped = dict.fromkeys(program.plan.looped, ("passed", ""))
    return [each for _, each in sorted({**looped, **told}.items())]


def test_a_program_that_was_packed_runs_as_the_one_it_was_made_of() -> None:
    made = Program(plan(TESTS))
    text = made.packed()
    read = Program.unpacked(text, TESTS, "")
    assert (read.plan.cases, read.details) == (made.plan.cases, made.details)
    assert run(read) == run(made) == CASES


def test_a_unit_of_it_can_still_be_compiled_as_a_coroutine() -> None:
    read = Program.unpacked(Program(plan("assert f(1) == 2")).packed(), "assert f(1) == 2", "")
    assert read.code(0, awaits=True).co_flags & inspect.CO_COROUTINE
    assert not read.code(0, awaits=False).co_flags & inspect.CO_COROUTINE


def test_what_another_python_has_packed_is_planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "_READER", "cpython-27")
    text = Program(plan(TESTS)).packed()
    monkeypatch.undo()
    for unread in (text, ""):
        program = Program.unpacked(unread, TESTS, "")
        assert not program.details  # as nothing is compiled yet
        assert run(program) == CASES
