"""The cells of an episode notebook: what a reader sees and what Run All runs.

Cells hold display copies; the truth is in the notebook's metadata (see `document`).  Only what
runs without an error is a code cell, so Run All gives the accepted state; everything else is
Markdown, because JupyterLab runs every code cell whatever its tags say.
"""

from __future__ import annotations

import shlex
from urllib.parse import quote

from nbrefine.leftovers import stains
from nbrefine.notebook import form, steps, wording
from nbrefine.notebook.chapter import chapter
from nbrefine.notebook.ending import answer, ending
from nbrefine.notebook.form import Cell
from nbrefine.notebook.markdown import fence, one_line, plain, table
from nbrefine.values import Episode


def build(episode: Episode, name: str) -> list[Cell]:
    """Give the cells of an episode, in reading order.

    Parameters
    ----------
    name: the notebook's file name, for the line that shows it in a terminal.
    """
    cells = [_summary(episode, name), *_parameters(episode), *_setup(episode)]
    named = list(zip(episode.turns, turn_ids(episode), strict=True))
    for step in steps.in_run_order(steps.steps_of(episode)):
        ids = [cell_id for turn, cell_id in named if turn.step == step.number]
        cells += chapter(episode, step, ids)
    return [*cells, *ending(episode)]


def turn_ids(episode: Episode) -> list[str]:
    """Give every turn's cell id: step and attempt, and the turn where those are taken."""
    ids: dict[str, None] = {}
    for position, turn in enumerate(episode.turns, 1):
        name = f"s{turn.step:02d}-a{turn.attempt:02d}"
        ids[f"{name}-t{position}" if name in ids else name] = None
    return list(ids)


def _summary(episode: Episode, name: str) -> Cell:
    title, prompt = wording.title(episode), episode.task.prompt
    cuts = wording.left_out(episode.setup) if episode.setup else []
    facts = [*steps.facts(episode), *wording.facts(episode)]
    parts = [
        f"# {plain(title)}",
        f"**{plain(wording.verdict(episode), 600)}**",
        answer(episode),
        fence(prompt, lines=40) if prompt.strip() != title else "",
        table(["Fact", "Value"], [[label, plain(fact)] for label, fact in facts]),
        _steps(episode),
        *(plain(told, 600) for told in steps.plans_told(episode)),
        _guide(episode),
        f"    nbrefine show {one_line(shlex.quote(name))} --step",
        _warning(episode),
        *(plain(f"Setup: {cut}", 1_000) for cut in cuts),
    ]
    return form.markdown("ep-summary", "summary", parts)


def _steps(episode: Episode) -> str:
    rows = [
        [
            f"[{plain(step.title)}](#{_anchor(step.title)})",
            plain(step.told),
            str(len(step.turns) if episode.plans else step.attempts),
            plain(steps.checks_told(episode, wording.chosen_of(step.turns))),
        ]
        for step in steps.steps_of(episode)
    ]
    planned = ["Turns", "Checks"] if episode.plans else ["Attempts", "Tests"]
    return table(["Step", "Result", *planned], rows) if rows else ""


def _anchor(title: str) -> str:
    """Give the name by which JupyterLab and nbconvert know a heading."""
    return quote(title.replace(" ", "-"), safe=":")


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
