"""Signs that a test is wrong and not the code: for a person to decide, since no verdict changes.

The handbook calls it a scaffolding error: the model sees failures, and bends right code until it
fits broken tests. Pure functions over what attempts, a reference and a grade have shown.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from nbrefine.source import parse, shape
from nbrefine.values import CaseResult, Episode, Task, TestReport, Turn

ENOUGH = 3
"""Different attempts that must agree before their failure is held against a test."""

FindingKind = Literal["reference-fails", "test-error", "same-failure", "hidden-pass"]
"""`reference-fails`: the task's own solution does not pass here; `test-error`: the test broke
before it could judge the code; `same-failure`: different programs fail it in one way;
`hidden-pass`: the code fails it and passes every hidden test."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sign that a test, and not the code, may be wrong."""

    kind: FindingKind
    test: str
    """Name of the test; "" where it concerns all of them."""
    detail: str
    """One sentence for a person."""
    evidence: tuple[str, ...] = ()
    """What it rests on, a line each."""
    likely: bool = True
    """Whether anything but a wrong test would be a surprise; otherwise it may as well be one
    misreading that all attempts share."""
    task: str = ""
    """The id of the task, where it has one."""


def findings(episodes: Episode | Iterable[Episode]) -> tuple[Finding, ...]:
    """Find tests that seem to be wrong, by all attempts of each task together.

    Parameters
    ----------
    episodes: one, or several, such as the samples of a task or of many tasks.
    """
    given = (episodes,) if isinstance(episodes, Episode) else tuple(episodes)
    by_task: dict[tuple[str, str, str], list[Episode]] = {}
    for episode in given:
        task = episode.task
        by_task.setdefault((task.id, task.prompt, task.tests), []).append(episode)
    return tuple(
        finding
        for group in by_task.values()
        for finding in suspect_tests(
            (turn for episode in group for turn in episode.turns), group[0].task
        )
    )


def suspect_tests(turns: Iterable[Turn], task: Task | None = None) -> tuple[Finding, ...]:
    """Find tests that seem to be wrong, by the attempts at one task.

    A test is suspected if it broke by itself (it misses a module or a name that is not the
    code's, or passes what cannot be sent to it), or if at least `ENOUGH` different programs fail
    it in one way: all that there are, or so many that pass every other test, of which there must
    be one.  It is likely wrong if both hold.  Programs are different if their syntax trees are,
    without docstrings.

    How far that can be trusted was measured; see "Tests that may be wrong" in
    benchmarks/README.md.

    Parameters
    ----------
    task: what was asked; tells names of the code from those of the tests.
    """
    task = task or Task("")
    attempts = _distinct(turns)
    problems = {report.problem: None for _, report in attempts if not report.cases}
    found = [_broken(problem, task) for problem in problems if problem]
    attempts = [(turn, report) for turn, report in attempts if report.cases]
    for name in dict.fromkeys(case.name for _, report in attempts for case in report.cases):
        seen = [
            _Seen(turn, case, _others_pass(report, case))
            for turn, report in attempts
            for case in report.cases
            if case.name == name and case.status != "not-run"
        ]
        finding = _own_error(seen, task, [turn.code for turn, _ in attempts])
        finding = finding or _agreement(seen, task)
        if finding is not None:
            found.append(finding)
    return tuple(found)


class Checked(Protocol):
    """What a preflight tells of a task."""

    @property
    def problem(self) -> str: ...


def suspect_reference(task: Task, preflight: Checked) -> Finding | None:
    """Give the finding that a task cannot be judged here, as its reference fails, or None."""
    if not preflight.problem:
        return None
    return Finding(
        "reference-fails",
        "",
        f"No code can be judged by these tests here: {preflight.problem}",
        task=task.id,
    )


class Graded(Protocol):
    """What a grade tells of the two tiers of tests."""

    @property
    def visible(self) -> TestReport | None: ...
    @property
    def hidden(self) -> TestReport | None: ...


def suspect_tiers(task: Task, grade: Graded) -> tuple[Finding, ...]:
    """Find the visible tests that fail although every hidden test passes."""
    visible, hidden = grade.visible, grade.hidden
    if visible is None or hidden is None or visible.solved or not hidden.solved:
        return ()
    return tuple(
        Finding(
            "hidden-pass",
            case.name,
            f"{_named(case)} fails and all {hidden.total} hidden tests pass: the two contradict "
            "each other, or the hidden ones leave this case out",
            (_told(case),),
            task=task.id,
        )
        for case in visible.cases
        if not case.passed
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """How one attempt fared with one test."""

    turn: Turn
    case: CaseResult
    alone: bool
    """Whether it passed all others, of which there was one."""


def _distinct(turns: Iterable[Turn]) -> list[tuple[Turn, TestReport]]:
    """Give the attempts that were tested, each program once."""
    first: dict[str, tuple[Turn, TestReport]] = {}
    for turn in turns:
        if turn.tests is not None and turn.code:
            first.setdefault(shape(turn.code), (turn, turn.tests))
    return list(first.values())


def _others_pass(report: TestReport, case: CaseResult) -> bool:
    others = [other for other in report.cases if other is not case]
    return bool(others) and all(other.passed for other in others)


def _broken(problem: str, task: Task) -> Finding:
    return Finding("test-error", "", f"The tests cannot be run: {problem}", task=task.id)


_PLACE = re.compile(r" \((?:setup, )?line \d+: .*\)$", re.DOTALL)
"""How a message ends where the code, or the task's setup, has raised the error."""

_NAME = re.compile(r"NameError: name '(\w+)' is not defined")
_FOREIGN = re.compile(r"(?:ModuleNotFoundError|CannotSend): ")
"""Errors that no value of the code's can bring about in a test."""


def _own_error(seen: Sequence[_Seen], task: Task, codes: Sequence[str]) -> Finding | None:
    """Tell of a test that broke by itself, whatever the code does."""
    if any(each.case.passed for each in seen):
        return None
    for each in seen:
        message = each.case.message
        if each.case.status != "error" or _PLACE.search(message):
            continue
        missing = _NAME.match(message)
        if _FOREIGN.match(message) or (missing and _of_tests(missing[1], task, codes)):
            told = f"{_named(each.case)} breaks before it can judge the code: {message}"
            return Finding("test-error", each.case.name, told, _evidence([each]), task=task.id)
    return None


def _of_tests(name: str, task: Task, codes: Sequence[str]) -> bool:
    """Tell whether a missing name is one that the code was not asked for.

    Where nothing says what was asked for, it takes another name of the tests that the code has.
    """
    if name == task.entry_point or re.search(rf"\b{name}\b", task.prompt):
        return False
    defined = {found for code in codes for found in _bound(code)}
    if name in defined:
        return False
    return bool(task.entry_point) or bool(_used(task.tests) & defined)


def _bound(code: str) -> Iterator[str]:
    """Give the names that a program binds, wherever it does."""
    for node in ast.walk(parse(code) or ast.Module([], [])):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _used(tests: str) -> set[str]:
    """Give the names that tests use and do not bind."""
    tree = parse(tests) or ast.Module([], [])
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return used - set(_bound(tests)) - set(dir(builtins))


def _agreement(seen: Sequence[_Seen], task: Task) -> Finding | None:
    """Tell of a test that different programs fail in one way."""
    if len(seen) < ENOUGH or any(each.case.passed for each in seen):
        return None
    name, alone = seen[0].case.name, _most_alike([each for each in seen if each.alone])
    together, shown = _one_way(seen), seen
    if len(alone) >= ENOUGH and (how := _one_way(alone)):
        told = f"{len(alone)} different programs pass every other test and fail {how}"
        likely, shown = together != "", alone
    elif together and seen[0].case.status == "failed":
        told, likely = f"All {len(seen)} different programs fail {together}", False
    else:
        return None
    if not likely:
        told += ": the test is wrong, the description leaves it open, or they share a misreading"
    return Finding("same-failure", name, told, _evidence(shown), likely, task.id)


def _most_alike(seen: Sequence[_Seen]) -> Sequence[_Seen]:
    """Give those that fail in the most common way."""
    ways = Counter(_way(each.case) for each in seen)
    return [each for each in seen if _way(each.case) == ways.most_common(1)[0][0]]


def _way(case: CaseResult) -> tuple[str, str, str]:
    return case.status, case.got, case.message


def _one_way(seen: Sequence[_Seen]) -> str:
    """Say how all of them fail a test, or "" where they differ or that means little."""
    case = seen[0].case
    if len({_way(each.case) for each in seen}) > 1 or not _telling(case):
        return ""
    if case.status == "error":
        return f"{_named(case)} with the same error inside the test: {case.message}"
    wanted = f", where it wants {case.expected}" if case.expected else ""
    return f"{_named(case)} with the same value: {case.got}{wanted}"


def _telling(case: CaseResult) -> bool:
    """Tell whether it is remarkable if several programs fail alike.

    Half of all wrong programs give False, and those that break themselves have themselves to blame.
    """
    if case.status == "failed":
        return case.got not in ("", "True", "False", "None")
    return case.status == "error" and _PLACE.search(case.message) is None


def _named(case: CaseResult) -> str:
    return f"{case.name} ({case.expression})" if case.expression else case.name


def _evidence(seen: Iterable[_Seen]) -> tuple[str, ...]:
    return tuple(f"attempt {each.turn.number}: {_told(each.case)}" for each in seen)


def _told(case: CaseResult) -> str:
    told = f"got {case.got}, expected {case.expected}" if case.got else case.message
    return f"{case.name} {case.status}: {told}" if told else f"{case.name} {case.status}"
