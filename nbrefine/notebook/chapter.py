"""The cells of one step: what it was to do, every turn of it, and its checks."""

from __future__ import annotations

from collections.abc import Sequence

from nbrefine.notebook import form, steps, wording
from nbrefine.notebook.form import Cell
from nbrefine.notebook.markdown import fence, one_line, plain, span, table
from nbrefine.notebook.steps import Step
from nbrefine.planning import counted
from nbrefine.postconditions import cell_of, tests_of
from nbrefine.values import Episode, Postcondition, Turn


def chapter(episode: Episode, step: Step, ids: Sequence[str]) -> list[Cell]:
    """Give the cells of a step, in reading order.

    Parameters
    ----------
    ids: of the cells of its turns.
    """
    turns = [
        _turn(episode, step, turn, cell_id) for turn, cell_id in zip(step.turns, ids, strict=True)
    ]
    ends_well = bool(step.turns) and step.turns[-1].accepted
    place = len(turns) - 1 if ends_well else len(turns)
    turns[place:place] = _difference(step)
    return [_plan(step), *turns, *_checks(episode, step)]


def checks_id(step: int) -> str:
    """Give the id of the cell that holds a step's checks."""
    return f"s{step:02d}-checks"


def _plan(step: Step) -> Cell:
    accepted = [turn for turn in step.turns if turn.accepted]
    cuts = [
        plain(f"Attempt {turn.attempt}: {cut}", 1_000)
        for turn in accepted
        if turn.result  # its code cell has no room for words
        for cut in wording.left_out(turn.result)
    ]
    files = [
        plain(f"Attempt {turn.attempt}, accepted: {turn.files.describe()}", 1_000)
        for turn in accepted
        if turn.files and turn.files.describe()
    ]
    where = [
        plain(f"Attempt {turn.attempt}, accepted: {wording.where(turn)}", 1_000)
        for turn in accepted
        if turn.isolation != "fork" or turn.isolation_reason
    ]
    given = [
        plain(f"Attempt {turn.attempt}: {turn.extraction.reason}")
        for turn in accepted
        if turn.reply is not None and turn.extraction.status == "given"
    ]
    parts = [f"## {plain(step.title)}", _story(step), *_asked(step), *given, *where, *files, *cuts]
    return form.markdown(f"s{step.number:02d}-plan", "plan", parts)


def _story(step: Step) -> str:
    told = step.told
    many = counted(len(step.turns), "turn")
    if step.fate == "unplanned":
        others = f" in {many}" if len(step.turns) > step.attempts else ""
        many = f"{counted(step.attempts, 'attempt')}{others}"
    if step.subtask is None:
        return f"{many}, {told}."
    needs = steps.needs(step.subtask) if step.fate != "blocked" else ""
    parts = [told[0].upper() + told[1:], many if step.turns else "", needs]
    return f"{', '.join(part for part in parts if part)}."


def _asked(step: Step) -> list[str]:
    """Tell what a step was to do where its heading does not, and what had to hold."""
    goal = step.subtask.goal if step.subtask is not None else ""
    whole = [fence(goal, lines=40)] if one_line(goal, steps.GOAL) != goal else []
    if not step.checks:
        return whole
    listed = "\n".join(f"- {_told(check)}" for check in step.checks)
    return [*whole, f"It is done when these checks hold:\n\n{listed}"]


def _told(check: Postcondition) -> str:
    told = steps.check_told(check)
    whose = " (the model's own check)" if check.origin == "model" else ""
    return f"{plain(told, 400) if check.told else span(told, 400)}{whose}"


def _turn(episode: Episode, step: Step, turn: Turn, cell_id: str) -> Cell:
    if turn.accepted:
        return _accepted(turn, cell_id)
    if not wording.is_attempt(episode, turn):
        return _said(episode, turn, cell_id)
    return _rejected(episode, turn, step.attempts, cell_id)


def _accepted(turn: Turn, cell_id: str) -> Cell:
    if turn.result is not None:
        return form.ran(cell_id, "accepted", turn.result)
    if (source := wording.runnable(turn)) is not None:
        return form.code(cell_id, "accepted", source)
    parts = [f"**Attempt {turn.attempt} was accepted**", fence(turn.code, lines=400)]
    return form.markdown(cell_id, "accepted", parts)


def _said(episode: Episode, turn: Turn, cell_id: str) -> Cell:
    """Tell of a turn that ran no cell."""
    parts = [f"**Turn {turn.number}: the model {steps.headline(turn)}**"]
    plan = steps.made_at(episode, turn)
    if plan is not None:
        told = steps.plans_told(episode)[episode.plans.index(plan)]
        parts += [plain(told, 600), "\n".join(plain(goal, 400) for goal in steps.goals(plan))]
    parts += [
        "<details>\n<summary>Reply and feedback</summary>",
        *(["Reply:", fence(said, lines=40)] if (said := steps.asked(turn)) else []),
        *(["Feedback to the model:", fence(turn.feedback, lines=40)] if turn.feedback else []),
        "</details>",
    ]
    role = "rejected" if turn.kind == "attempt" else turn.kind
    return form.markdown(cell_id, role, parts)


def _rejected(episode: Episode, turn: Turn, of: int, cell_id: str) -> Cell:
    checked = plain(steps.checks_told(episode, turn)) if turn.tests else ""
    parts = [
        f"**Attempt {turn.attempt} of {of} was {wording.fate(turn)}**",
        ", ".join(filter(None, (span(wording.reason(turn)), checked))),
        "<details>\n<summary>Code, output and feedback</summary>",
        *_details(turn),
        "</details>",
        plain(wording.where(turn), 400),
    ]
    return form.markdown(cell_id, "rejected", parts)


def _details(turn: Turn) -> list[str]:
    code, result = turn.extraction.code, turn.result
    parts = []
    if code:
        label = "Answer:" if turn.tried and wording.runnable(turn) is None else "Code:"
        parts += [label, fence(code, turn.extraction.language or "text", lines=400)]
    elif turn.reply is not None:
        parts += ["Reply:", fence(steps.asked(turn))]
    if result is not None and result.text:
        parts += ["Output:", fence(result.text)]
    if result is not None:
        parts += (plain(cut, 1_000) for cut in wording.left_out(result))
        parts += (f"Note: {plain(note)}" for note in result.notes)
    if told := wording.changed(turn):
        parts += ["What it changed:", fence("\n".join(told))]
    if turn.feedback:
        parts += ["Feedback to the model:", fence(turn.feedback, lines=40)]
    return parts


def _difference(step: Step) -> list[Cell]:
    """Compare the attempt that matters with the one before it, and all by their tests."""
    coded = [turn for turn in step.turns if turn.code]
    if len(coded) < 2:
        return []
    last = next((turn for turn in reversed(coded) if turn.accepted), coded[-1])
    position = coded.index(last)
    parts = []
    if position:
        changes = wording.diff(coded[position - 1], last)
        names = f"attempt {coded[position - 1].attempt} and attempt {last.attempt}"
        same = f"The code of {names} is the same."
        parts += [f"Between {names}:", fence(changes, "diff", lines=200)] if changes else [same]
    checked = steps.by_expression(step.turns) if step.checks else step.turns
    (first, *header), rows = wording.matrix(checked)
    if rows:
        header = ["Check" if step.checks else first, *header]
        parts.append(table(header, [[plain(name), *words] for name, *words in rows]))
    parts += (plain(told, 1_000) for told in wording.regressions(checked))
    return [form.markdown(f"s{step.number:02d}-diff", "diff", parts)]


def _checks(episode: Episode, step: Step) -> list[Cell]:
    """Give the checks of a step: code where they hold, text where they would fail the run."""
    if not step.checks or not any(turn.tried for turn in step.turns):
        return []
    cell_id = checks_id(step.number)
    if step.held is not None and episode.kernel.language == "python":
        outputs = [form.output(each) for each in step.held.outputs]
        return [form.code(cell_id, "checks", cell_of(step.checks).rstrip(), outputs=outputs)]
    turn = step.accepted
    parts = ["The checks, as text, because no attempt passes them all:"]
    parts.append(fence(tests_of(step.checks), "python", lines=100))
    if turn is not None:
        parts[0] = "The checks, as text, because the attempt that was kept does not pass them all:"
        header, rows = wording.matrix(steps.by_expression([turn]))
        if rows:
            header = ["Check", *header[1:]]
            parts.append(table(header, [[plain(name), *words] for name, *words in rows]))
    return [form.markdown(cell_id, "checks", parts)]
