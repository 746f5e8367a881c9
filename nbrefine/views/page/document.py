"""The whole page: what is told of an episode, drawn scene by scene into the template."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from nbrefine._version import __version__
from nbrefine.notebook import steps, wording
from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import visible
from nbrefine.values import Episode
from nbrefine.views.page import highlight
from nbrefine.views.page.outputs import Block, Drawing, shown
from nbrefine.views.page.passages import Passages
from nbrefine.views.page.prompts import Prompt, Prompts, quoted
from nbrefine.views.story import Act, Scene, Story, story

CODE = 60_000
"""Characters of code, and of a difference, that are shown."""
LINES = 60
"""Sentences of one kind, such as failed tests of an attempt."""
TESTS = 300
"""Rows of a table of tests."""
FOLDED = 24
"""Lines from which a difference is folded."""
MANY = 60
"""Scenes from which a browser draws only what is in view."""
WIDE, TALL = 60, 24
"""A text of longer lines or more of them may have to be scrolled, by keyboard as well."""


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
    blocks: tuple[Block, ...]
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
        passages.add(text, target, name, lasting=True)
    shots = {shot.scene.key: shot for shot in _shots(told, passages, drawing)}
    style, script = _asset("page.css"), _asset("page.js")
    page = _template().render(
        story=told,
        episode=episode,
        shots=shots,
        many=len(shots) > MANY,
        facts=_facts(told),
        warning=wording.came_with(episode),
        setup=shown(setup, CODE),
        set_up=tuple(drawing.blocks(episode.setup.outputs)) if episode.setup is not None else (),
        language=episode.kernel.language,
        style=Markup(style),  # noqa: S704 - the package's own
        script=Markup(script),  # noqa: S704 - the package's own
        policy=_policy(style, script),
        version=__version__,
    )
    return clean(page)


def _shots(told: Story, passages: Passages, drawing: Drawing) -> Iterator[Shot]:
    prompts = Prompts(passages)
    for scene in told.scenes:
        prompt = prompts.draw(scene.prompt) if scene.prompt else None
        code, changes = shown(scene.code, CODE), shown(_body(scene.changes), CODE)
        place = scene.place[0].lower() + scene.place[1:]
        passages.add(code, f"{scene.key}-code", f"the code of {place}")
        blocks = tuple(drawing.blocks(scene.outputs)) if scene.ran else ()
        for number, block in enumerate(blocks):
            if block.kind in ("text", "error"):
                passages.add(block.text, f"{scene.key}-o{number}", f"the output of {place}")
        feedback = shown(scene.feedback)
        drawn = quoted(passages, feedback)
        passages.add(feedback, f"{scene.key}-feedback", f"the feedback to {place}")
        yield Shot(
            scene,
            highlight.code(code, scene.language),
            highlight.diff(changes) if changes else Markup(""),
            _counted(changes),
            0 < changes.count("\n") < FOLDED,
            blocks,
            drawn,
            prompt,
        )


def _body(changes: str) -> str:
    """Leave out the two lines that name what is compared; the page says it in its own words."""
    return "\n".join(changes.split("\n")[2:])


def _counted(changes: str) -> str:
    lines = changes.split("\n")
    new, gone = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"{new} line{'' if new == 1 else 's'} added, {gone} removed"


def _facts(told: Story) -> list[tuple[str, str]]:
    elsewhere = {"Hidden tests": "not on this page"}
    return [(label, elsewhere.get(label, fact)) for label, fact in told.facts()]


def _bounded(lines: list[str], limit: int = LINES) -> list[str]:
    """Keep the first of some lines, and tell how many there are besides."""
    more = len(lines) - limit
    return lines if more <= 0 else [*lines[:limit], f"and {more:,} more"]


def _tested(act: Act) -> tuple[list[str], list[list[str]], str]:
    """Give header and rows of an act's table of tests, and what is not shown of it."""
    header, rows = act.matrix()
    if act.step.subtask is not None:
        header = ["Check", *header[1:]]
    more = len(rows) - TESTS
    return header, rows[:TESTS], f"{more:,} more are not shown." if more > 0 else ""


def _scrolls(text: str) -> bool:
    """Tell whether a text may be wider or taller than its box."""
    lines = text.split("\n")
    return len(lines) > TALL or any(len(line) > WIDE for line in lines)


@functools.cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Let a browser fetch nothing, and run and apply nothing but what came with the package."""
    hashed = (
        base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in (style, script)
    )
    of_style, of_script = (f"'sha256-{each}'" for each in hashed)
    return (
        f"default-src 'none'; img-src data:; style-src {of_style}; script-src {of_script}; "
        "base-uri 'none'; form-action 'none'"
    )


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
        "bounded": _bounded,
        "tested": _tested,
    }
    environment.globals["goals"] = steps.goals
    environment.tests["scrolling"] = _scrolls
    return environment.from_string(_asset("page.html.jinja"))
