"""An episode as text in a notebook's output."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from nbrefine.notebook.markdown import one_line, shorten
from nbrefine.views.drawing.still import bundle, folded, laid_out, line, listed, strong, within_room
from nbrefine.views.story import Scene, Story

CODE, OUTPUT, TASK = 60, 15, 30
"""Lines of each that are shown."""

HIDDEN = "What came of the attempts is hidden until it is revealed in the player."

ABSENT = "Run this cell to leaf through the episode."


def still(story: Story, *, outcomes: bool = True) -> dict[str, str]:
    """Give an episode as a MIME bundle of HTML and plain text.

    Parameters
    ----------
    outcomes: whether to tell what came of it; without, the scenes are not told at all.
    """
    scenes = story.scenes if outcomes else ()
    told = within_room(scenes, _scene, "{:,} more are not told here; the record has them.")
    attempts = [folded("All attempts as text", told)] if scenes else []
    return bundle(
        one_line(story.title),
        [story.verdict if outcomes else HIDDEN],
        [_task(story.task), *attempts],
        listed(scenes, _headline),
    )


def _task(text: str) -> Markup:
    """Give prose as lines that wrap, and what is laid out as it is."""
    if any(row.startswith((" ", "\t", "```", "|")) for row in text.split("\n")):
        return laid_out(text, TASK)
    rows = shorten(text.strip("\n"), TASK).split("\n")
    return Markup("\n").join(Markup("<div>{}</div>").format(row) for row in rows if row)


def _scene(scene: Scene) -> Iterator[Markup]:
    yield strong(_headline(scene))
    if unshown := scene.unshown:
        yield line(unshown)
    if scene.said:
        yield from (line("The model wrote:"), laid_out(scene.said, OUTPUT))
    if scene.origin:
        yield line(scene.origin)
    if scene.code:
        yield from (line("Code:"), laid_out(scene.code, CODE))
    if scene.plan is not None:
        yield line(scene.plan_told)
    if scene.ran and (text := scene.text).strip():
        yield from (line("Output:"), laid_out(text, OUTPUT))
    if scene.trouble:
        yield line(scene.trouble)


def _headline(scene: Scene) -> str:
    return one_line(scene.title)
