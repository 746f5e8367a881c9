"""The cells of an episode notebook: what a reader sees and what Run All runs.

Cells hold display copies; the truth is in the notebook's metadata (see `document`).  Only what
runs without an error is a code cell, so Run All gives the accepted state; everything else is
Markdown, because JupyterLab runs every code cell whatever its tags say.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from nbrefine.errors import InvalidTaskError
from nbrefine.leftovers import stains
from nbrefine.notebook import form, wording
from nbrefine.notebook.form import Cell
from nbrefine.notebook.markdown import fence, plain, span, table
from nbrefine.rewards.tests import as_cell
from nbrefine.values import Episode, Turn


def build(episode: Episode, name: str) -> list[Cell]:
    """Give the cells of an episode, in reading order.

    Parameters
    ----------
    name: the notebook's file name, for the line that shows it in a terminal.
    """
    cells = [_summary(episode, name), *_parameters(episode), *_setup(episode)]
    named = list(zip(episode.turns, turn_ids(episode), strict=True))
    for step, turns in wording.by_step(episode).items():
        mine = [(turn, cell_id) for turn, cell_id in named if turn.step == step]
        cells.append(_plan(step, turns))
        cells += (_rejected(turn, len(turns), own) for turn, own in mine if not turn.accepted)
        cells += _difference(step, turns)
        cells += (_accepted(turn, own) for turn, own in mine if turn.accepted)
    return [*cells, *_tests(episode), _final(episode)]


def turn_ids(episode: Episode) -> list[str]:
    """Give every turn's cell id: step and attempt, and the turn where those are taken."""
    ids: dict[str, None] = {}
    for position, turn in enumerate(episode.turns, 1):
        name = f"s{turn.step:02d}-a{turn.attempt:02d}"
        ids[f"{name}-t{position}" if name in ids else name] = None
    return list(ids)


def _summary(episode: Episode, name: str) -> Cell:
    steps = wording.by_step(episode)
    rows = [
        [
            f"[Step {step}](#Step-{step})",
            _fate(turns),
            str(len(turns)),
            plain(wording.tests(wording.chosen_of(turns))),
        ]
        for step, turns in steps.items()
    ]
    title, prompt = wording.title(episode), episode.task.prompt
    cuts = wording.left_out(episode.setup) if episode.setup else []
    parts = [
        f"# {plain(title)}",
        f"**{plain(wording.verdict(episode), 600)}**",
        fence(prompt, lines=40) if prompt.strip() != title else "",
        table(["Fact", "Value"], [[label, plain(fact)] for label, fact in wording.facts(episode)]),
        table(["Step", "Result", "Attempts", "Tests"], rows) if rows else "",
        _guide(episode),
        f"    nbrefine show {shlex.quote(name)} --step",
        _warning(episode),
        *(plain(f"Setup: {cut}", 1_000) for cut in cuts),
    ]
    return form.markdown("ep-summary", "summary", parts)


def _guide(episode: Episode) -> str:
    runs = "Run All gives the accepted state."
    if not episode.accepted:
        runs = "No attempt was accepted, so Run All runs the setup alone."
    elif all(wording.runnable(turn) is None for turn in episode.accepted):
        runs = "The accepted answer is text, so Run All runs the setup alone."
    elif episode.handed_in is not None:
        runs = "Run All runs the accepted cells."
    return (
        f"{runs} {plain(wording.came_with(episode), 1_000)} Rejected attempts are text, not code "
        "cells. To read the attempts one by one in a terminal:"
    ).replace("  ", " ")


def _fate(turns: Sequence[Turn]) -> str:
    accepted = [str(turn.attempt) for turn in turns if turn.accepted]
    return f"accepted: attempt {', '.join(accepted)}" if accepted else "nothing accepted"


def _warning(episode: Episode) -> str:
    """Say where a rejected attempt may have left something behind that Run All does not."""
    found = {
        turn.number: turn
        for position, later in enumerate(episode.turns)
        if later.accepted and later.isolation == "none"
        for turn in stains(episode.turns[:position])
    }
    if not found:
        return ""
    places = ", ".join(wording.place(episode, turn) for turn in found.values())
    return (
        f"Some rejected attempts ran in the live session itself ({places}). What they left "
        "behind was there when later cells ran, and Run All does not do it again."
    )


def _parameters(episode: Episode) -> list[Cell]:
    if episode.kernel.language != "python":
        return []
    source = (
        "# What the episode was recorded with. The cells below name the same seed and files.\n"
        f"episode_seed = {episode.seed!r}\n"
        f"episode_files = {list(episode.task.files)!r}"
    )
    return [form.code("ep-params", "parameters", source, tags=["parameters"])]


def _setup(episode: Episode) -> list[Cell]:
    if episode.setup is not None:
        return [form.ran("ep-setup", "setup", episode.setup)]
    if episode.task.setup:
        return [form.code("ep-setup", "setup", episode.task.setup)]
    return []


def _plan(step: int, turns: Sequence[Turn]) -> Cell:
    told = f"{len(turns)} attempt{'' if len(turns) == 1 else 's'}, {_fate(turns)}."
    cuts = [
        plain(f"Attempt {turn.attempt}: {cut}", 1_000)
        for turn in turns
        if turn.accepted and turn.result  # its code cell has no room for words
        for cut in wording.left_out(turn.result)
    ]
    files = [
        plain(f"Attempt {turn.attempt}, accepted: {turn.files.describe()}", 1_000)
        for turn in turns
        if turn.accepted and turn.files and turn.files.describe()
    ]
    where = [
        plain(f"Attempt {turn.attempt}, accepted: {wording.where(turn)}", 1_000)
        for turn in turns
        if turn.accepted and (turn.isolation != "fork" or turn.isolation_reason)
    ]
    parts = [f"## Step {step}", told, *where, *files, *cuts]
    return form.markdown(f"s{step:02d}-plan", "plan", parts)


def _rejected(turn: Turn, of: int, cell_id: str) -> Cell:
    why = [span(wording.reason(turn)), plain(wording.tests(turn)) if turn.tests else ""]
    parts = [
        f"**Attempt {turn.attempt} of {of} was {wording.fate(turn)}**",
        ", ".join(filter(None, why)),
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
        parts += ["Reply:", fence(turn.reply.text)]
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


def _difference(step: int, turns: Sequence[Turn]) -> list[Cell]:
    """Compare the attempt that matters with the one before it, and all by their tests."""
    coded = [turn for turn in turns if turn.code]
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
    header, rows = wording.matrix(turns)
    if rows:
        parts.append(table(header, [[plain(name), *words] for name, *words in rows]))
    parts += (plain(told, 1_000) for told in wording.regressions(turns))
    return [form.markdown(f"s{step:02d}-diff", "diff", parts)]


def _accepted(turn: Turn, cell_id: str) -> Cell:
    if turn.result is not None:
        return form.ran(cell_id, "accepted", turn.result)
    if (source := wording.runnable(turn)) is not None:
        return form.code(cell_id, "accepted", source)
    parts = [f"**Attempt {turn.attempt} was accepted**", fence(turn.code, lines=400)]
    return form.markdown(cell_id, "accepted", parts)


def _tests(episode: Episode) -> list[Cell]:
    """Give the visible tests: code where they pass, text where they would fail the run."""
    task = episode.task
    if not task.tests:
        return []
    last = episode.accepted[-1] if episode.solved and episode.accepted else None
    report = last.tests if last is not None else None
    passed = report is not None and report.solved
    runs = last is not None and wording.runnable(last) is not None
    if report and passed and runs and not report.problem and episode.kernel.language == "python":
        outputs = [form.output(each) for each in report.outputs]
        try:
            source = as_cell(task.tests, task.entry_point or report.entry_point)
            return [form.code("ep-tests", "tests", source, outputs=outputs)]
        except InvalidTaskError:
            pass  # tests that do not parse are shown as they are
    why = "" if passed else ", as text, because no accepted attempt passes them all"
    shown = fence(task.tests, episode.kernel.language, lines=200)
    return [form.markdown("ep-tests", "tests", [f"The visible tests{why}:", shown])]


def _final(episode: Episode) -> Cell:
    parts = ["## Result", plain(wording.verdict(episode), 600)]
    best = wording.chosen_of(episode.turns)
    if best is not None and best.tests is not None and best.tests.cases:
        header, rows = wording.matrix([best])
        parts.append(table(header, [[plain(name), *words] for name, *words in rows]))
    if best is not None and not best.accepted and best.code:
        parts += ["The best attempt's code, which was not accepted:"]
        parts.append(fence(best.code, wording.language(episode, best), lines=400))
    return form.markdown("ep-final", "result", parts)
