"""What the parts of a player show of an episode, each drawn when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from markupsafe import Markup

from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import one_line, visible
from nbrefine.views.drawing import highlight
from nbrefine.views.drawing.outputs import shown
from nbrefine.views.drawing.parts import box, lines, paragraph
from nbrefine.views.player import tabs
from nbrefine.views.player.again import ways
from nbrefine.views.story import Scene, Story

TABS = (*tabs.TABS, "Run again")
"""The tabs of a scene, in the order in which they are drawn."""

HIDDEN = Markup('<p class="hidden">Hidden until you press Reveal. What will happen?</p>')


class Panels:
    """Draws the scenes of an episode, each when it is asked for.

    Parameters
    ----------
    path: the episode's notebook, for the commands that go on from it; None where nobody knows it.
    """

    def __init__(self, story: Story, path: Path | None = None) -> None:
        self._story, self._path = story, path
        self._scenes = [(act, scene) for act in story.acts for scene in act.scenes]

    def __len__(self) -> int:
        return len(self._scenes)

    def label(self, at: int, *, outcome: bool) -> str:
        """Name a scene in a list."""
        scene = self._scenes[at][1]
        return one_line(f"{scene.place}: {scene.brief}" if outcome else scene.place)

    def count(self, at: int) -> str:
        """Say which scene it is."""
        last = ", the last one" if at + 1 == len(self) else ""
        return f"Scene {at + 1:,} of {len(self):,}{last}"

    def head(self, at: int, *, outcome: bool) -> str:
        """Give the heading of a scene, and how it ended."""
        act, scene = self._scenes[at]
        step = [paragraph(act.title, "step")] if self._story.in_steps else []
        trouble = [paragraph(scene.trouble, "bad")] if outcome and scene.trouble else []
        return _html([*step, _place(scene, outcome=outcome), *trouble])

    def tabs(self, at: int, *, outcome: bool) -> list[str]:
        """Give what each tab shows of a scene.

        Parameters
        ----------
        outcome: whether to show what came of it; else the tabs that tell it say that they hide it.
        """
        act, scene = self._scenes[at]
        drawn = [
            draw(act, scene) if outcome or name not in tabs.TELLING else [HIDDEN]
            for name, draw in tabs.TABS.items()
        ]
        again = self._again(scene) if outcome else [HIDDEN]  # it speaks of what was accepted
        return [_html(parts) for parts in (*drawn, again)]

    def _again(self, scene: Scene) -> Iterator[Markup]:
        found = ways(self._story.episode, scene, self._path)
        if not found:
            yield paragraph("There is no code here that could run again.")
        for way in found:
            yield paragraph(way.told)
            yield box(highlight.code(visible(way.text), way.language), "What to run", kind="code")

    def ending(self) -> str:
        """Tell how the episode ended."""
        return _html(_ending(self._story))

    def nothing(self) -> str:
        """Tell of an episode that has no scene."""
        return _html([paragraph("There is no turn in this episode."), *_ending(self._story)])

    def trouble(self, text: str) -> str:
        """Tell of an error of the player's own."""
        return _html([paragraph("The player cannot show this:", "bad"), box(shown(text), "Error")])


def _place(scene: Scene, *, outcome: bool) -> Markup:
    mood = "good" if scene.turn.accepted else "bad" if scene.turn.kind == "attempt" else "open"
    fate = Markup('{}: <span class="{}">{}</span>').format(scene.of, mood, visible(scene.fate))
    return Markup('<p class="place" role="status">{}{}</p>').format(
        visible(scene.place), fate if outcome else ""
    )


def _ending(story: Story) -> Iterator[Markup]:
    yield paragraph(story.verdict, f"verdict {story.mood}")
    yield from (paragraph(warning, "soft") for warning in story.warnings())
    yield from (
        Markup('<p><span class="soft">{}:</span> {}</p>').format(visible(label), shown(told))
        for label, told in story.outcome()
    )
    if doubts := story.doubts():
        yield lines(doubts, "notes")


def _html(parts: Iterable[Markup]) -> str:
    return clean('<div class="nbrefine-part">' + "\n".join(parts) + "</div>")
