"""An episode as text in a notebook's output, which stays readable where no widget is alive.

Only tags are used that the strictest readers keep or show in a way that does not hurt: no style,
no table, nothing that needs a script.
"""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import one_line, shorten
from nbrefine.views.story import Scene, Story

ROOM = 60_000
"""Characters that all scenes may take."""
CODE, OUTPUT, TASK = 60, 15, 30
"""Lines of each that are shown."""
LISTED = 12
"""Scenes that the plain text names."""

HIDDEN = "What came of the attempts is hidden until it is revealed in the player."

ABSENT = "Run this cell to leaf through the episode."


def still(story: Story, *, outcomes: bool = True) -> dict[str, str]:
    """Give an episode as a MIME bundle of HTML and plain text.

    Parameters
    ----------
    outcomes: whether to tell what came of it; without, the scenes are not told at all.
    """
    verdict = story.verdict if outcomes else HIDDEN
    html = [
        Markup("<div><strong>{}</strong></div>").format(one_line(story.title)),
        Markup("<div>{}</div>").format(one_line(verdict, 1_000)),
        _task(story.task),
    ]
    titles = []
    if outcomes and story.scenes:
        html += [
            Markup("<details><summary>All attempts as text</summary>"),
            *_scenes(story),
            Markup("</details>"),
        ]
        titles = [one_line(scene.title) for scene in story.scenes[:LISTED]]
        more = len(story.scenes) - LISTED
        titles += [f"and {more:,} more"] if more > 0 else []
    text = "\n".join([one_line(story.title), one_line(verdict, 1_000), *titles])
    return {"text/html": clean("\n".join(html)), "text/plain": clean(text)}


def absent() -> dict[str, str]:
    """Give what stands in the place of a player that is not alive."""
    return {"text/html": f"<div>{ABSENT}</div>", "text/plain": ABSENT}


def _task(text: str) -> Markup:
    """Give prose as lines that wrap, and what is laid out as it is."""
    if any(line.startswith((" ", "\t", "```", "|")) for line in text.split("\n")):
        return _pre(text, TASK)
    lines = shorten(text.strip("\n"), TASK).split("\n")
    return Markup("\n").join(Markup("<div>{}</div>").format(line) for line in lines if line)


def _scenes(story: Story) -> Iterator[Markup]:
    room = ROOM
    for place, scene in enumerate(story.scenes):
        told = Markup("\n").join(_scene(scene))
        room -= len(told)
        if room < 0:
            left = len(story.scenes) - place
            yield Markup("<div>{} more are not told here; the record has them.</div>").format(left)
            return
        yield told


def _scene(scene: Scene) -> Iterator[Markup]:
    yield Markup("<div><strong>{}</strong></div>").format(one_line(scene.title))
    if scene.said:
        yield from (Markup("<div>The model wrote:</div>"), _pre(scene.said, OUTPUT))
    if scene.origin:
        yield Markup("<div>{}</div>").format(scene.origin)
    if scene.code:
        yield from (Markup("<div>Code:</div>"), _pre(scene.code, CODE))
    if scene.plan is not None:
        yield Markup("<div>{}</div>").format(one_line(scene.plan_told, 1_000))
    if scene.ran and (text := scene.text).strip():
        yield from (Markup("<div>Output:</div>"), _pre(text, OUTPUT))
    if scene.trouble:
        yield Markup("<div>{}</div>").format(one_line(scene.trouble, 1_000))


def _pre(text: str, lines: int) -> Markup:
    return Markup("<pre>{}</pre>").format(shorten(text.strip("\n"), lines))
