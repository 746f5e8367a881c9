"""Tests that hold for code in their own process must hold through the connection too."""

from __future__ import annotations

import sys
import types

from tests.executors.bare import Bare, Told


def agree(bare: Bare, code: str, tests: str) -> Told:
    """Run tests in one process, then in two: all must hold in both."""
    module = sys.modules["solution"] = types.ModuleType("solution")
    try:
        exec(code, module.__dict__)
        exec(tests, dict(module.__dict__))
    finally:
        del sys.modules["solution"]
    told = bare.check(code, tests)
    missed = [case for case in told.cases if case["status"] != "passed"]
    assert told.cases, told
    assert not missed, missed
    return told
