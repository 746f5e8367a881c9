"""Asserts in a cell that are copies of what its step is checked by.

Small models copy a check into their code, which then dies by a bare `AssertionError`.  Such a
check runs behind the cell all the same, and tells what came and what was expected.
"""

from __future__ import annotations

import ast
from dataclasses import replace

from nbrefine.outputs import CellResult
from nbrefine.source import parse
from nbrefine.values import TestReport


def dies_of(result: CellResult, tests: str) -> bool:
    """Tell whether a cell may have ended by an assert that is one of the tests, too."""
    if result.error is None or result.error.ename != "AssertionError":
        return False
    return not _asserted(result.source).isdisjoint(_asserted(tests))


def narrowed(report: TestReport | None, result: CellResult) -> TestReport | None:
    """Leave in a report on a cell that died of an assert what is told of that, and nothing else.

    What the cell would have done after it was not done, so that other tests tell nothing.
    """
    if report is None or result.ok:
        return report
    own = _asserted(result.source)
    cases = [
        case
        if case.status == "failed" and not own.isdisjoint(_asserted(f"assert {case.expression}"))
        else replace(case, status="not-run", got="", expected="", message="the cell failed")
        for case in report.cases
    ]
    return replace(report, cases=tuple(cases))


def hint(report: TestReport | None, result: CellResult) -> str:
    """Ask to leave such an assert out; "" where there is none."""
    failed = [case for case in report.cases if case.status == "failed"] if report else []
    if result.ok or not failed:
        return ""
    return "Leave that assert out of your code: it is checked after the code has run."


def _asserted(source: str) -> set[str]:
    """Give what a source asserts, and of several conditions joined by `and` also each one."""
    tree = parse(source)
    nodes = ast.walk(tree) if tree is not None else ()
    tests = [node.test for node in nodes if isinstance(node, ast.Assert)]
    parts = [
        part
        for test in tests
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
        for part in test.values
    ]
    return {ast.dump(node) for node in (*tests, *parts)}
