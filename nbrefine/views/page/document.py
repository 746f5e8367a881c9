"""The whole page: what is told of an episode, drawn scene by scene into the template."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from nbrefine._version import __version__
from nbrefine.notebook import steps
from nbrefine.notebook.markdown import visible
from nbrefine.values import Episode
from nbrefine.views.drawing import frame, highlight, parts
from nbrefine.views.drawing.outputs import Drawing, shown
from nbrefine.views.page.frames import Frames
from nbrefine.views.page.passages import Passages
from nbrefine.views.page.prompts import Prompt, Prompts, quoted
from nbrefine.views.story import Scene, Story, story

CODE = 60_000
"""Characters of code, and of a difference, that are shown."""
FOLDED = 24
"""Lines from which a difference is folded."""
MANY = 60
"""Scenes from which a browser draws only what is in view."""


@dataclass(frozen=True, slots=True)
class Shot:
    """A scene as it is drawn."""

    scene: Scene
    code: Markup
    changes: Markup
    counted: str
    """How much the changes are, in words."""
    short: bool
    """Whether they are so few that they need not be folded."""
    outputs: Markup
    feedback: Markup
    prompt: Prompt | None
    """None where no model was asked."""


def document(episode: Episode) -> str:
    """Give an episode as a page of HTML."""
    told = story(episode)
    passages, drawing = Passages(), Drawing()
    setup = episode.setup.source if episode.setup is not None else episode.task.setup
    for text, target, name in (
        (shown(told.task), "task", "the task"),
        (shown(setup, CODE), "setup", "the setup"),
        (shown(episode.task.tests, CODE), "tests", "the tests"),
    ):
        passages.add(text, target, name)
    shots = {shot.scene.key: shot for shot in _shots(told, passages, drawing)}
    body = _template().render(
        story=told,
        episode=episode,
        shots=shots,
        facts=_facts(told),
        setup=shown(setup, CODE),
        tests=shown(episode.task.tests, CODE),
        set_up=parts.blocks(drawing.blocks(episode.setup.outputs), "setup")
        if episode.setup is not None
        else "",
        language=episode.kernel.language,
    )
    return frame.whole(
        told.title,
        Markup(body),  # noqa: S704 - escaped by the template
        kind="many" if len(shots) > MANY else "",
        sheet=_asset("page.css"),
        script=_asset("page.js"),
    )


def _shots(told: Story, passages: Passages, drawing: Drawing) -> Iterator[Shot]:
    prompts, frames = Prompts(passages), Frames()
    for scene in told.scenes:
        prompt = prompts.draw(scene.prompt) if scene.prompt else None
        code, changes = shown(scene.code, CODE), shown(scene.hunks, CODE)
        place = scene.place[0].lower() + scene.place[1:]
        passages.add(code, f"{scene.key}-code", f"the code of {place}")
        blocks = [
            replace(block, drawn=frames.draw(block.text, place)) if block.kind == "error" else block
            for block in (drawing.blocks(scene.outputs) if scene.ran else ())
        ]
        for number, block in enumerate(blocks):
            if block.kind in ("text", "error"):
                name, words = f"{scene.key}-o{number}", f"the output of {place}"
                quotes = block.drawn is not None and "<a " in block.drawn
                passages.add(block.text, name, words, quotes=quotes)
        feedback = shown(scene.feedback)
        name, words = f"{scene.key}-feedback", f"the feedback to {place}"
        drawn = quoted(passages, feedback, name, words, flat=True)
        passages.add(feedback, name, words, quotes=True)
        yield Shot(
            scene,
            highlight.code(code, scene.language),
            highlight.diff(changes) if changes else Markup(""),
            _counted(changes),
            0 < changes.count("\n") < FOLDED,
            parts.blocks(blocks, scene.key),
            drawn,
            prompt,
        )


def _counted(changes: str) -> str:
    lines = changes.split("\n")
    new, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"{new} line{'' if new == 1 else 's'} added, {gone} removed"


def _facts(told: Story) -> list[tuple[str, str]]:
    elsewhere = {"Hidden tests": "not on this page"}
    return [(label, elsewhere.get(label, fact)) for label, fact in told.facts()]


def _asset(name: str) -> str:
    return frame.asset(name, __package__)


@functools.cache
def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "visible": visible,
        "shown": shown,
        "text": highlight.text,
        "colour": highlight.code,
    }
    environment.globals |= {
        "goals": steps.goals,
        "p": parts.paragraph,
        "lines": parts.lines,
        "box": parts.box,
        "grid": parts.grid,
        "version": __version__,
    }
    return environment.from_string(_asset("page.html.jinja"))
