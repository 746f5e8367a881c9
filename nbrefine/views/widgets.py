"""What everything that is made of widgets needs."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from nbrefine.views import drawing
from nbrefine.views.drawing.frame import asset

VIEW = "application/vnd.jupyter.widget-view+json"
"""MIME type by which a widget is shown."""


def in_notebook() -> bool:
    """Tell whether a front end shows what is displayed."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def style() -> str:
    """Give the style of what is in a widget of the class "nbrefine-player", as HTML."""
    return f"<style>{drawing.style()}{asset('widgets.css', __package__)}</style>"


def named(widget: Any, name: str) -> Any:
    """Give a widget a class of the style, and give it back."""
    widget.add_class(f"nbrefine-{name}")
    return widget


def view(widget: Any) -> dict[str, Any]:
    """Give the MIME bundle that shows a widget."""
    return {VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}}


def guarded(handle: Callable[[Any], None], say: Callable[[str], None]) -> Callable[[Any], None]:
    """Make a callback that says what goes wrong, which would vanish without a word."""

    def call(event: Any) -> None:
        try:
            handle(event)
        except Exception:  # noqa: BLE001 - whatever it is, the reader is told
            say(traceback.format_exc(limit=-3))

    return call


class Closing(Protocol):
    """Something that a cell shows."""

    def close(self) -> None:
        """End it."""


_shown: dict[str, list[Closing]] = {}


def belongs_to_this_cell(shown: Closing) -> None:
    """Close something when the cell that is running runs again, so that it outlives no output.

    Where the front end does not say which cell it runs, it stays until it is closed.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    running: Any = getattr(shell, "get_parent", dict)() or {}
    cell = (running.get("metadata") or {}).get("cellId")
    if cell:
        _shown.setdefault(str(cell), []).append(shown)
        shell.events.register("pre_run_cell", _before)  # once, however often it is asked for


def _before(info: Any) -> None:
    for shown in _shown.pop(str(info.cell_id), ()):
        shown.close()


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
