"""What a prompt tells of the past: the newest code in full, earlier cells in short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from nbrefine.planning import Progress
from nbrefine.prompts import ASK, ASK_BLOCK, escalation, fence_output, fill
from nbrefine.source import fenced
from nbrefine.stopping import fingerprint, sightings
from nbrefine.values import Plan, Turn

CODE = 10_000
"""Characters shown of a cell; whoever wrote more than that does not get it all again."""

SHORT = 600
"""Characters shown of what an earlier cell has printed."""

CALL_AGAIN = "Correct the code and call run_cell with all of it."

CALL_ONE = "Call exactly one tool."

AGAIN = "The same cell was run {count} times and gave the same. Write another one."


@dataclass(frozen=True, slots=True)
class Newest:
    """What a prompt ends with."""

    code: str = ""
    """The code worked on."""
    told: str = ""
    """What came of it, and of what was done since."""
    note: str = ""
    """What to do about it."""
    covered: tuple[Turn, ...] = ()
    """The accepted cells that are told of here, or need not be told of again."""


def newest(
    turns: Sequence[Turn],
    now: Progress,
    *,
    wants: Literal["act", "plan"],
    tools: bool,
    escalated: bool,
    language: str,
) -> Newest:
    """Tell of the step worked on; at its begin, of the cell before it where something is amiss.

    Parameters
    ----------
    turns: all so far.
    now: where the work stands.
    wants: what is asked for; a planner is not asked to correct code.
    tools: whether the model calls tools.
    escalated: whether the code of the step is hidden, because it was repeated.
    language: the kernel's.
    """
    last = next((turn for turn in reversed(turns) if turn.accepted), None)
    open_end = now.subtask is None and wants == "act"
    note = escalation(sightings(now.turns)) if escalated else ""
    if last is not None and open_end and not any(turn.code for turn in now.turns):
        new = _last_cell(turns, last, now, tools=tools, language=language)
        new = replace(new, note=note or new.note)
    elif now.turns:
        code = "" if escalated else _tried(now, language)
        told = _told(now, wants, tools=tools, language=language)
        new = Newest(code, told, note)
    else:
        heard = turns and (turns[-1].accepted or turns[-1].kind == "plan")
        new = Newest(told=turns[-1].feedback if heard else "")
    return new


def _tried(now: Progress, language: str) -> str:
    """Show the current code of the step, after what became of the attempts before it."""
    coded = [turn for turn in now.turns if turn.code]
    if not coded:
        return ""
    newest_line = coded[-1].feedback.partition("\n")[0]
    before = dict.fromkeys(turn.feedback.partition("\n")[0] for turn in coded[:-1])
    lines = [f"- {line}" for line in before if line not in ("", newest_line)]
    others = "\n".join(["Earlier attempts at this:", *lines]) + "\n\n" if lines else ""
    return f"{others}Your current code:\n{_cell(coded[-1], language)}"


def _told(now: Progress, wants: Literal["act", "plan"], *, tools: bool, language: str) -> str:
    """Give the feedback on the current code and on all that came after it."""
    at = max((at for at, turn in enumerate(now.turns) if turn.code), default=0)
    looks = [turn for turn in now.turns[:at] if turn.kind == "inspection"]
    since = now.turns[at:]
    if wants == "plan":  # what a reply without code was told matters to the next cell alone
        looks += [turn for turn in since[1:] if turn.kind == "inspection"]
        refused = since[-1:] if since[1:] and since[-1].kind == "plan" else ()
        since = (*since[:1], *refused)
    text = "\n\n".join(turn.feedback for turn in (*looks, *since) if turn.feedback)
    if wants == "plan":
        return text.replace(fill(ASK, tag=language.lower()), "").rstrip()
    return _calling(text, language) if tools else text


def _calling(text: str, language: str) -> str:
    """Ask for a call in the place of a block."""
    for block, call in ((ASK, CALL_AGAIN), (ASK_BLOCK, CALL_ONE)):
        text = text.replace(fill(block, tag=language.lower()), call)
    return text


def _last_cell(
    turns: Sequence[Turn], last: Turn, now: Progress, *, tools: bool, language: str
) -> Newest:
    """Tell of an accepted cell that is to be followed by another one.

    A model copies what it sees: of a cell that it has repeated, the code is not shown again.
    """
    mark = fingerprint(last)
    cells = [turn for turn in turns if turn.accepted]
    same = tuple(takewhile(lambda turn: fingerprint(turn) == mark, reversed(cells)))
    repeated = fill(AGAIN, count=len(same)) if len(same) > 1 else ""
    since = _told(now, "act", tools=tools, language=language)
    if not last.feedback:
        return Newest(told=since, note=repeated, covered=same[:-1])
    code = f"Your last cell:\n{_cell(last, language)}\n{_printed(last)}"
    told = "\n\n".join(part for part in (last.feedback, since) if part)
    ask = CALL_AGAIN if tools else fill(ASK, tag=language.lower())
    return Newest("" if repeated else code, told, repeated or ask, same)


def shortened(text: str, limit: int) -> str:
    """Leave out the middle of a text that is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    gap = f"[… {len(text) - limit:,} characters left out …]"
    return f"{text[: limit - tail]}\n{gap}\n{text[len(text) - tail :]}"


def earlier(cells: Sequence[Turn], plans: Sequence[Plan], *, room: int, language: str) -> str:
    """Show accepted cells, as much of them as there is room for.

    Code takes its room before output does, and new cells before old ones.

    Parameters
    ----------
    plans: the last one says what each step was for.
    room: characters.
    """
    if not cells:
        return ""
    head = "These cells have run:"
    room -= len(head) + 2
    codes: dict[int, str] = {}
    for turn in reversed(cells):
        text = f"{_title(turn, plans)}\n{_cell(turn, language)}"
        if len(text) + 2 > room:
            break
        codes[turn.number] = text
        room -= len(text) + 2
    shown: dict[int, str] = {}
    for turn in reversed(cells):
        text = _printed(turn)
        if turn.number not in codes or len(text) + 1 > room:
            break
        shown[turn.number] = text
        room -= len(text) + 1
    left_out = len(cells) - len(codes)
    first = [f"[… {left_out} earlier cells left out …]"] if left_out else []
    told = [
        "\n".join(part for part in (codes[turn.number], shown.get(turn.number, "")) if part)
        for turn in cells
        if turn.number in codes
    ]
    return "\n\n".join([head, *first, *told])


def _cell(turn: Turn, language: str) -> str:
    return fenced(shortened(turn.code, CODE), language.lower())


def _title(turn: Turn, plans: Sequence[Plan]) -> str:
    subtasks = plans[-1].subtasks if plans else ()
    goal = f": {subtasks[turn.step - 1].goal}" if turn.step <= len(subtasks) else ""
    return f"{'Step' if goal else 'Cell'} {turn.step}{goal}"


def _printed(turn: Turn) -> str:
    said = turn.result.text if turn.result else ""
    return fence_output(said, limit=SHORT) if said.strip() else "It printed nothing."
