"""The widgets of a player: a list of scenes, buttons, and tabs that show the chosen scene."""

from __future__ import annotations

from typing import Any

from nbrefine.notebook.codec import clean
from nbrefine.views.player.panels import TABS, Panels
from nbrefine.views.widgets import close, guarded, named, style, view

ROWS = 16
"""Scenes that are in view at once."""


class Controls:
    """The widgets, wired up.

    Only the chosen scene is drawn, so an episode of a thousand scenes takes no longer to open.

    Parameters
    ----------
    predict: hide what came of a scene until it is revealed; the list grows as one goes on.
    """

    def __init__(self, panels: Panels, *, predict: bool = False) -> None:
        import ipywidgets as widgets

        self.closed = False
        self._panels, self._predict = panels, predict
        self._revealed: set[int] = set()
        self._reached = 0
        self._relabelling = False
        self._style = widgets.HTML(style())
        self._head, self._tail, self._count = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self._previous = widgets.Button(description="Previous", tooltip="Go to the scene before")
        self._next = widgets.Button(description="Next", tooltip="Go to the next scene")
        self._reveal = widgets.Button(description="Reveal", button_style="primary")
        self._scenes = widgets.Select(description="Scenes", options=self._labels())
        self._scenes.rows = min(ROWS, max(4, len(panels)))
        self._tabs = widgets.Tab([widgets.HTML() for _ in TABS], titles=TABS)
        self._box = self._composed(widgets)
        self._previous.on_click(guarded(self._go_back, self.say))
        self._next.on_click(guarded(self._go_on, self.say))
        self._reveal.on_click(guarded(self._turn_over, self.say))
        self._scenes.observe(guarded(self._chosen, self.say), names="index")
        self._draw()

    def _composed(self, widgets: Any) -> Any:
        if not len(self._panels):
            self._head.value = self._panels.nothing()
            return named(widgets.VBox([self._style, self._head]), "player")
        buttons = [self._previous, self._next, *([self._reveal] if self._predict else [])]
        bar = named(widgets.HBox([*buttons, self._count]), "bar")
        scene = named(widgets.VBox([self._head, self._tabs, self._tail]), "scene")
        body = named(widgets.HBox([self._scenes, scene]), "body")
        return named(widgets.VBox([self._style, bar, body]), "player")

    def bundle(self) -> dict[str, Any]:
        """Give the MIME bundle that shows them."""
        return view(self._box)

    def choose(self, at: int) -> None:
        """Go to a scene."""
        self._scenes.index = at

    def say(self, text: str) -> None:
        """Show a text in place of the scene's head."""
        self._head.value = clean(str(self._panels.trouble(text)))

    def close(self) -> None:
        """Close all of them, at both ends."""
        self.closed = True
        placed = (self._box, self._previous, self._next, self._reveal, self._scenes, self._tabs)
        heads = (self._head, self._tail, self._count)
        for widget in (*placed, *heads):
            close(widget)

    def _go_back(self, _: Any) -> None:
        self._scenes.index = max(0, self._at - 1)

    def _go_on(self, _: Any) -> None:
        at = min(len(self._panels) - 1, self._at + 1)
        if self._predict and at > self._reached:
            self._reached = at
            self._relabel(at)
            self._draw()
        self._scenes.index = at

    def _turn_over(self, _: Any) -> None:
        self._revealed ^= {self._at}
        self._relabel(self._at)
        self._draw()

    def _chosen(self, change: Any) -> None:
        if change["new"] is not None and not self._relabelling:
            self._draw()

    @property
    def _at(self) -> int:
        return self._scenes.index or 0

    def _open(self, at: int) -> bool:
        return not self._predict or at in self._revealed

    def _labels(self) -> list[tuple[str, int]]:
        known = range(
            min(self._reached + 1, len(self._panels)) if self._predict else len(self._panels)
        )
        return [(self._panels.label(at, outcome=self._open(at)), at) for at in known]

    def _relabel(self, at: int) -> None:
        """Give the list its new labels, of which it would choose the first."""
        with self._scenes.hold_sync():
            self._relabelling = True
            self._scenes.options = self._labels()
            self._scenes.index = at
            self._relabelling = False

    def _draw(self) -> None:
        if not len(self._panels):
            return
        at, shown = self._at, self._open(self._at)
        self._head.value = self._panels.head(at, outcome=shown)
        self._count.value = self._panels.count(at)
        self._reveal.description = "Hide again" if shown else "Reveal"
        for panel, html in zip(
            self._tabs.children, self._panels.tabs(at, outcome=shown), strict=True
        ):
            panel.value = html
        last = at == len(self._panels) - 1
        self._tail.value = self._panels.ending() if last and shown else ""
