"""What everything that is made of widgets needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nbrefine.views import drawing
from nbrefine.views.drawing.frame import asset

VIEW = "application/vnd.jupyter.widget-view+json"
"""MIME type by which a widget is shown."""


def style() -> str:
    """Give the style of what is in a widget of the class "nbrefine-player", as HTML."""
    return f"<style>{drawing.style()}{asset('player.css', 'nbrefine.views.player')}</style>"


def close(widget: Any) -> None:
    """Close a widget and all that came with it, which it does not close by itself."""
    for each in _within(widget):
        each.close()


def _within(widget: Any) -> Iterator[Any]:
    for child in getattr(widget, "children", ()):
        yield from _within(child)
    for part in ("layout", "style"):
        if (own := getattr(widget, part, None)) is not None:
            yield own
    yield widget
