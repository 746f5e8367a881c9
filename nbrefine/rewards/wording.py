"""What a model is told of a run of its code with the tests: every failure, none without a word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nbrefine.outputs import strip_ansi
from nbrefine.prompts import fence_output
from nbrefine.redaction import clean_text
from nbrefine.values import CaseResult, TestReport

if TYPE_CHECKING:
    from nbrefine.executors import CodeExecutionResult

PART = 240
"""Characters of one part of a failed test that a model is shown."""

ALL = 4000
"""Characters of failed tests that are shown in detail; the names of the others follow."""

NAMES = 1000
"""Characters of those names; how many more there are is told."""

PRINTED = 1000
"""Characters of what the code has printed, on each of its two channels."""

TRACEBACK = 2000
"""Characters of the error of code that did not run."""


def told(result: CodeExecutionResult, report: TestReport) -> str:
    """Tell how the tests went, or why the code did not run, and what it printed."""
    if result.compilation_error is not None:
        return "\n".join([*_not_run(result.compilation_error), *_printed(result)])
    lines = [f"{result.passed}/{result.total} tests passed."]
    if result.passed < result.total:
        failures = _cases(report) if report.cases else _errors(result)
        lines += ["Failures:", *failures, *_printed(result)]
    return "\n".join(lines)


def _not_run(error: str) -> Iterator[str]:
    told = [line for line in error.splitlines() if line.strip()]
    why = told[-1] if told else "it gave no reason"
    yield f"Code failed to compile/run: {_line(why, 2 * PART)}"
    if len(told) > 1:
        yield fence_output(error, name="traceback", limit=TRACEBACK)


def _cases(report: TestReport) -> Iterator[str]:
    room, rest = ALL, []
    for case in report.cases:
        if case.passed:
            continue
        told = "\n".join(_case(case))
        room -= len(told)
        if room >= 0:
            yield told
        else:
            rest.append(case.name)
    if rest:
        yield f"  Also not passed: {_names(rest)}"
    if report.problem:
        yield f"  {_line(report.problem, PART)}"


_LABELS = {"failed": "message", "error": "raised", "timeout": "stopped", "not-run": "not run"}
_WORDS = {
    "failed": "the assertion does not hold",
    "error": "it raised an error without a message",
    "timeout": "it ran too long",
    "not-run": "it was not run",
}


def _case(case: CaseResult) -> Iterator[str]:
    parts = [("got", case.got), ("expected", case.expected), (_LABELS[case.status], case.message)]
    parts = [(label, text) for label, text in parts if text.strip()]
    if case.expression:
        yield f"  - {case.name}: {_line(case.expression, PART)}"
        for label, text in parts or [("result", _WORDS[case.status])]:
            yield f"      {label}: {_line(text, PART)}"
    else:
        why = case.message if case.message.strip() else _WORDS[case.status]
        yield f"  - {case.name}: {_line(why, PART)}"
        for label, text in parts:
            if text is not case.message:
                yield f"      {label}: {_line(text, PART)}"


def _errors(result: CodeExecutionResult) -> Iterator[str]:
    """Tell the failures of an executor that knows no cases."""
    room, left = ALL, result.total - result.passed
    for error in result.errors:
        name, colon, message = error.partition(":")
        shown = error if message.strip() or not colon else f"{name}: {_WORDS['failed']}"
        told = f"  - {_line(shown.strip() or _WORDS['failed'], 2 * PART)}"
        room -= len(told)
        if room < 0:
            break
        left -= 1
        yield told
    if left > 0:
        yield f"  - {left} more, of which nothing else is told"


def _names(names: list[str]) -> str:
    text = ", ".join(names)
    if len(text) <= NAMES:
        return text
    kept = text[:NAMES].rpartition(", ")[0]
    return f"{kept} and {len(names) - kept.count(', ') - 1:,} more"


def _printed(result: CodeExecutionResult) -> Iterator[str]:
    for name in ("stdout", "stderr"):
        text: str = getattr(result, name, "")
        if text.strip():
            yield fence_output(text, name=name, limit=PRINTED)


_BREAK = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # as in str.splitlines


def _line(text: str, limit: int) -> str:
    """Put a text of the program on one line, so that it cannot pose as ours."""
    text = _BREAK.sub(r"\\n", clean_text(strip_ansi(text)))
    over = len(text) - limit
    if over <= 0:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}… ({over:,} characters left out) …{text[head + over :]}"
