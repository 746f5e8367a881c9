"""The words a model reads: the task, what came of an attempt, and what to do next.

The texts are short because small local models use them.  Whatever a program has printed or
raised is data: it stands between marks that it cannot contain.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from nbrefine.outputs import CellResult, Failure, strip_ansi
from nbrefine.redaction import clean_text
from nbrefine.source import fenced
from nbrefine.values import CaseResult, Extraction, Reply, Task, TestReport

SYSTEM = (
    "You write {language} for a live Jupyter notebook. "
    "Reply with exactly one ```{tag} code block and nothing else."
)

PROGRAM = (
    "You write {language}. "
    "Reply with the whole program in exactly one ```{tag} code block and nothing else."
)

ASK = "Correct the code. Reply with the whole corrected code in exactly one ```{tag} block."

ASK_BLOCK = "Reply with exactly one ```{tag} block."

LIMIT = 3000
"""Characters of one output or traceback that a model is shown."""

TEST_LIMIT = 240
"""Characters of one part of a failed test that a model is shown."""

REPORT_LIMIT = 4000
"""Characters of failed tests shown in detail; the names of all others follow."""


def system(language: str = "python") -> str:
    """Tell a model what it is there for.

    Parameters
    ----------
    language: the kernel's language, as its kernelspec names it.
    """
    return in_language(SYSTEM, language)


def program_system(language: str = "python") -> str:
    """Tell a model whose programs are run as a whole what it is there for; see `system`."""
    return in_language(PROGRAM, language)


def task_prompt(
    task: Task, *, state: str = "", show_tests: bool = True, language: str = "python"
) -> str:
    """Ask for a task.

    Parameters
    ----------
    task: its hidden tests and its reference are not shown.
    state: the kernel's variables in a few lines.
    show_tests: whether the visible tests are shown.
    language: the kernel's language.
    """
    parts = told_task(task, language)
    if state:
        parts.append(_state(state))
    if task.entry_point:
        parts.append(told_entry(task))
    if task.tests and show_tests:
        parts.append(f"The code must pass these tests:\n{fenced(task.tests, _tag(language))}")
    return "\n\n".join(parts)


def told_task(task: Task, language: str = "python") -> list[str]:
    """Tell what a task asks for and brings along, a part each."""
    parts = [task.prompt]
    if task.files:
        parts.append("Data files: " + ", ".join(task.files))
    if task.setup:
        parts.append(f"This code has already run:\n{fenced(task.setup, _tag(language))}")
    return parts


def told_entry(task: Task) -> str:
    """Tell by what name the tests call what is asked for."""
    return f"The tests call `{task.entry_point}`."


def feedback(
    extraction: Extraction,
    *,
    result: CellResult | None = None,
    tests: TestReport | None = None,
    state: str = "",
    undone: str = "",
    hint: str = "",
    reply: Reply | None = None,
    limit: int = LIMIT,
    language: str = "python",
) -> str:
    """Tell a model what came of its reply.

    Parameters
    ----------
    extraction: what was found in the reply.
    result: the run of the code; None where nothing ran.
    tests: what the visible tests said.
    state: the variables that the next code will find, in a few lines.
    undone: those that this code had made or changed and that are gone with it.
    hint: names that were looked up in vain; see `nbrefine.hints`.
    reply: the reply, where nothing ran.
    limit: characters shown of the output and of the traceback.
    language: the kernel's language.
    """
    if result is None:
        return in_language(_nothing_ran(extraction, reply), language)
    parts = [_status(result, tests)]
    if result.error is not None:
        traceback = fold_traceback(result.error)
        parts.append(fence_output(traceback, name="traceback", limit=limit))
    if tests is not None:
        parts.append(told_tests(tests))
    said = replace(result, outputs=tuple(o for o in result.outputs if o.kind != "error")).text
    if said.strip():
        parts.append(fence_output(said, limit=limit))
    parts += [
        f"Left out of {cut.where} beyond the first {cut.kept:,}: {cut.dropped:,}."
        for cut in result.cut
    ]
    parts += result.notes
    if state:
        parts.append(_state(state))
    if undone:
        told = "The code had made these variables; they are undone, so make them again:"
        parts.append(f"{told}\n{fence_output(undone, name='variables')}")
    parts.append(hint)
    if result.exited or not (tests.solved if tests else result.ok):
        parts.append(in_language(ASK, language))
    return "\n\n".join(part for part in parts if part)


def _nothing_ran(extraction: Extraction, reply: Reply | None) -> str:
    if extraction.status == "incomplete":
        cut = reply is not None and reply.finish == "length"
        why = "it was cut at the token limit" if cut else "a code block was left open"
        return (
            f"Nothing was run, because your reply was incomplete: {why}. "
            "Reply again with one short, complete ```{tag} block that ends with ```."
        )
    return f"Nothing was run. {extraction.reason} {ASK_BLOCK}"


def in_language(template: str, language: str) -> str:
    """Put a kernel's language into a text that speaks of `{language}` and of blocks of `{tag}`."""
    return fill(template, language=language.capitalize(), tag=_tag(language))


def _tag(language: str) -> str:
    """Give what a code block in a kernel's language is tagged with."""
    return language.lower()


def _status(result: CellResult, tests: TestReport | None) -> str:
    seconds = f"{result.timing.seconds:.1f} s"
    if result.exited:
        return "The code called exit() or quit(), which end a notebook's kernel. Leave that out."
    if result.ok:
        ran = "The code ran without an error"
        return f"{ran}, but not all tests passed." if tests and not tests.solved else f"{ran}."
    how = {
        "error": f"The code failed: {_line(str(result.error or 'error'), TEST_LIMIT)}",
        "timeout": f"The code was stopped after {seconds}, because it ran too long.",
        "interrupted": f"The code was interrupted after {seconds}.",
        "died": f"The code ended the Python process: {result.death or 'it died'}.",
        "aborted": "The code was not run.",
    }[result.status]
    return f"{how} Lost variables: {', '.join(result.lost)}." if result.lost else how


def _state(state: str) -> str:
    return f"Variables in the notebook:\n{fence_output(state, name='variables')}"


def told_tests(report: TestReport) -> str:
    """Tell how many tests passed, and of those that did not, what came and what was expected."""
    if not report.cases:
        return report.problem
    if all(case.status == "not-run" for case in report.cases):
        return f"No test was run{': ' if report.problem else ''}{report.problem}."
    lines = [f"{report.passed}/{report.total} tests passed."]
    room = REPORT_LIMIT
    rest: list[str] = []
    for case in report.cases:
        if case.passed:
            continue
        told = _case(case)
        room -= len(told)
        if case.status != "not-run" and room >= 0:
            lines.append(told)
        else:
            rest.append(f"{case.name} ({case.status})")
    if rest:
        lines.append(f"Also not passed: {', '.join(rest)}")
    if report.problem:
        lines.append(report.problem)
    return "\n".join(lines)


def _case(case: CaseResult) -> str:
    word = "FAIL" if case.status == "failed" else case.status.upper()
    asked = f": {_line(case.expression, TEST_LIMIT)}" if case.expression else ""
    lines = [f"{word} {case.name}{asked}"]
    said = "message" if case.status == "failed" else "raised"
    for label, text in (("got", case.got), ("expected", case.expected), (said, case.message)):
        if text:
            lines.append(f"  {label}: {_line(text, TEST_LIMIT)}")
    return "\n".join(lines)


def _line(text: str, limit: int) -> str:
    """Put a text of the program on one line, so that it cannot pose as ours."""
    return _capped(_BREAK.sub(r"\\n", clean_text(strip_ansi(text))), limit, "…")


_BREAK = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")  # as in str.splitlines


def escalation(sightings: int) -> str:
    """Ask for another approach after a repeat.

    Parameters
    ----------
    sightings: how often the attempt was made; see `nbrefine.stopping`.
    """
    return (
        f"The same attempt was made {sightings} times and failed each time as told above. "
        "Write the code anew, in a different way."
    )


def build_repair_prompt(
    task_description: str, current_code: str, error_feedback: str, iteration: int
) -> str:
    """Build the handbook's prompt, which asks to fix code and ends in an open fence.

    Parameters
    ----------
    task_description: what the code should do.
    current_code: the attempt to repair.
    error_feedback: what running it gave.
    iteration: 1-based number of that attempt.
    """
    return (
        "You are a Python expert. Repair the code below so that it runs and does its task.\n\n"
        f"Task: {task_description}\n\n"
        f"Attempt {iteration} - Current code:\n{fenced(current_code, 'python')}\n\n"
        f"Execution feedback:\n{error_feedback}\n\n"
        "Answer with the corrected Python code ONLY and no explanation:\n"
        "```python\n"
    )


def fill(template: str, **values: object) -> str:
    """Put values into the `{name}` places of a template; all other braces stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda place: str(values.get(place[1], place[0])), template)


def fence_output(text: str, *, name: str = "output", limit: int = LIMIT) -> str:
    """Put what a program has written between marks that it cannot contain.

    The marks follow from the text, so that a replay gives the same prompt.  ANSI codes go,
    lone surrogates become U+FFFD, and the middle of a text over `limit` characters is left out,
    with the count in its place.
    """
    shown = _capped(
        clean_text(strip_ansi(text)).strip("\n"), limit, "\n[… {count:,} characters left out …]\n"
    )
    mark = _mark(shown)
    return f"<{name} {mark}>\n{shown}\n</{name} {mark}>"


def _mark(text: str) -> str:
    mark = text
    while mark in text:
        mark = hashlib.blake2b(mark.encode(), digest_size=4).hexdigest()
    return mark


def _capped(text: str, limit: int, gap: str) -> str:
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return text[:head] + gap.format(count=len(text) - limit) + text[len(text) - tail :]


def fold_traceback(failure: Failure) -> str:
    """Give a traceback in which library frames are counted and repeated frames told once.

    Frames of notebook cells and of files of the user's own stay as they are.
    """
    text = strip_ansi("\n".join(failure.traceback) or str(failure))
    folded: list[str] = []
    for frame, group in groupby(_frames(text), lambda frame: None if in_library(frame) else frame):
        count = len(list(group))
        if frame is None:
            folded.append(f"  [library frames left out: {count}]")
            continue
        folded.append(frame)
        if count > 1:
            folded.append(f"  [the same again, {count - 1:,} times]")
    return "\n".join(folded)


_FRAME = re.compile(r"\s*(?:Cell In\[\d+\]|Input In \[\d+\]|File )")
_LIBRARY = re.compile(
    r"\s*File .*(?:site-packages|dist-packages|/lib/python\d|<frozen |\.p[yx][xi]:)"
)
_RULE = re.compile(r"-{70,}\n")


def in_library(frame: str) -> bool:
    """Tell whether a frame of a traceback lies in a library, and not in a file of the user's."""
    return _LIBRARY.match(frame.partition("\n")[0]) is not None


def _frames(text: str) -> Iterator[str]:
    """Split a traceback into frames and the texts between them, without blank lines."""
    part: list[str] = []
    for line in _RULE.sub("", text, count=1).split("\n"):
        if part and (not line.strip() or _FRAME.match(line)):
            yield "\n".join(part)
            part = []
        if line.strip():
            part.append(line)
    if part:
        yield "\n".join(part)
