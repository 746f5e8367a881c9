"""What is compared of two turns: their code, their verdicts, their tests, and what they put out."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from typing import Any

from nbrefine.notebook import steps, wording
from nbrefine.notebook.markdown import one_line
from nbrefine.outputs import Display, Failure, Output, Stream
from nbrefine.values import CaseResult, Turn, Usage
from nbrefine.views.diff.changes import lines
from nbrefine.views.diff.likeness import outputs_alike, texts_alike
from nbrefine.views.story import Scene

ABSENT = "not there"
"""What stands where a run has no such test."""

_TEXTS = ("text/plain", "text/markdown", "text/latex", "text/html")


def code(scene: Scene | None) -> str:
    """Give what ran or was handed in; blank lines at its end are none of it."""
    return "\n".join(lines(scene.code)) if scene is not None else ""


def text(scene: Scene | None) -> str:
    """Give what the model wrote where that is no code: words, a look, a plan, an answer."""
    if scene is None:
        return ""
    return "\n".join(steps.goals(scene.plan)) if scene.plan is not None else scene.said


def verdict(scene: Scene) -> tuple[Any, ...]:
    """Give how a turn was judged, and whether it was kept."""
    turn = scene.turn
    return turn.kind, turn.verdict, turn.accepted, turn.stopped


def tests(a: Scene | None, b: Scene | None) -> list[tuple[str, str, str]]:
    """Give the tests that two attempts differ in: name, and what each of the two said of it."""
    if a is None or b is None:
        return []
    ours, theirs = _cases(a), _cases(b)
    if any(_others(ours[name], theirs[name]) for name in ours.keys() & theirs.keys()):
        ours, theirs = _by_expression(ours), _by_expression(theirs)
    found = []
    for name in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            found.append((_label(name, one or other), _status(one), _status(other)))
        elif not _same_case(one, other, (a.turn, b.turn)):
            full = one.status == other.status
            known = one if one.expression else other
            found.append((_label(name, known), _status(one, full), _status(other, full)))
    return found


def _same_case(one: CaseResult, other: CaseResult, of: tuple[Turn, Turn]) -> bool:
    return one.status == other.status and all(
        texts_alike(*both, of) for both in ((one.got, other.got), (one.message, other.message))
    )


def _cases(scene: Scene) -> dict[str, CaseResult]:
    report = scene.turn.tests if scene.ran else None
    return {case.name: case for case in report.cases} if report is not None else {}


def _others(one: CaseResult, other: CaseResult) -> bool:
    """Tell whether two checks of one name ask for different things, as those of two plans do."""
    asked = {one.expression, other.expression} - {""}
    return one.name.startswith("test_") and len(asked) > 1


def _by_expression(cases: dict[str, CaseResult]) -> dict[str, CaseResult]:
    return {one_line(case.expression, 120) or name: case for name, case in cases.items()}


def _label(name: str, case: CaseResult | None) -> str:
    asked = one_line(case.expression, 120) if case is not None else ""
    return f"{name}: {asked}" if asked and asked != name else name


def _status(case: CaseResult | None, full: bool = False) -> str:
    if case is None:
        return ABSENT
    got = f"got {one_line(case.got, 120)}" if full and case.got else ""
    why = one_line(case.message, 120) if full else ""
    details = "; ".join(filter(None, (got, why)))
    return f"{wording.STATUS[case.status]}{f': {details}' if details else ''}"


def same_output(a: Scene, b: Scene) -> tuple[bool, tuple[str, ...]]:
    """Tell whether two turns put out the same, and the names of the rules that it takes."""
    told = output(a), output(b)
    if told[0] == told[1]:
        return True, ()
    return outputs_alike(a.turn, b.turn, told) if all(told) else (False, ())


def output(scene: Scene | None) -> str:
    """Give what a cell put out as text, pictures by their hash and errors without their stack.

    What has no text is told by its type and hash.  A stack says again what code ran, and what came
    after the cell had ended is a matter of time.
    """
    if scene is None or not scene.ran:
        return ""
    found: list[str] = []
    shown = (each for each in scene.outputs if isinstance(each, Failure) or not each.late)
    for _, same in itertools.groupby(shown, _channel):
        found.extend(_told(tuple(same)))
    return "\n".join(found)


def _channel(output: Output) -> str:
    return output.name if isinstance(output, Stream) else str(id(output))


def _told(outputs: tuple[Output, ...]) -> Iterator[str]:
    """Tell what came on one channel in a row, however it was cut into pieces."""
    first = outputs[0]
    if isinstance(first, Stream):
        yield from lines("".join(each.text for each in outputs if isinstance(each, Stream)))
    elif isinstance(first, Display):
        yield from _displayed(first)
    else:
        yield from lines(str(first))


def _displayed(shown: Display) -> Iterator[str]:
    words = next((shown.data[each] for each in _TEXTS if each in shown.data), None)
    if isinstance(words, str):
        yield from lines(words)
    for mime, value in sorted(shown.data.items()):
        if (mime.startswith("image/") or words is None) and mime not in _TEXTS:
            raw = (
                value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=repr)
            )
            digest = hashlib.sha256(raw.encode(errors="replace")).hexdigest()[:12]
            yield f"[{one_line(mime, 40)}, sha256 {digest}]"


def row(scene: Scene | None) -> dict[str, Any] | None:
    """Give the facts of a turn as plain JSON; None where there is none."""
    if scene is None:
        return None
    turn = scene.turn
    usage = turn.reply.usage if turn.reply is not None else Usage()
    return {
        "cell": scene.key,
        "turn": turn.number,
        "kind": turn.kind,
        "verdict": turn.verdict,
        "accepted": turn.accepted,
        "tests": {"passed": turn.tests.passed, "total": turn.tests.total} if turn.tests else None,
        "tokens": {"input": usage.input_tokens, "output": usage.output_tokens},
        "seconds": round(turn.seconds, 3),
    }
