"""The widgets of a comparison: a list of pairs, and what the chosen pair differs in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from markupsafe import Markup

from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import one_line, visible
from nbrefine.views.diff import drawn, telling
from nbrefine.views.diff.compared import EpisodeDiff
from nbrefine.views.diff.still import ABSENT, still
from nbrefine.views.drawing import parts
from nbrefine.views.drawing.frame import asset
from nbrefine.views.drawing.still import absent
from nbrefine.views.widgets import belongs_to_this_cell, close, guarded, named, style, view

ROWS = 16
"""Pairs that are in view at once."""
TABLE = 300
"""Pairs up to which all are told in tables; the list has them in any case."""


def display_diff(compared: EpisodeDiff) -> None:
    """Show a comparison below the cell that is running, as text and as widgets.

    The widgets end where the cell runs again; the text stays.
    """
    from IPython.display import display

    _display: Any = display  # has no types
    controls = Controls(compared)
    _display(still(compared), raw=True)
    _display({**controls.bundle(), **absent(ABSENT)}, raw=True, display_id=controls.place)
    belongs_to_this_cell(controls)


class Controls:
    """The widgets, wired up.

    Only the chosen pair is drawn, so a thousand of them take no longer to open.
    """

    def __init__(self, compared: EpisodeDiff) -> None:
        import ipywidgets as widgets

        self.place = f"nbrefine-diff-{uuid4().hex[:12]}"
        self.closed = False
        self._compared, self._pairs = compared, compared.pairs
        self._panel, self._count = widgets.HTML(), widgets.HTML()
        self._previous = widgets.Button(
            description="Previous", tooltip="Go to the difference before"
        )
        self._next = widgets.Button(description="Next", tooltip="Go to the next difference")
        self._list = widgets.Select(description="Turns", options=self._labels())
        self._list.rows = min(ROWS, max(4, len(self._pairs) + 1))
        bar = named(widgets.HBox([self._previous, self._next, self._count]), "bar")
        scene = named(widgets.VBox([self._panel]), "scene")
        body = named(widgets.HBox([self._list, scene]), "body")
        sheet = widgets.HTML(f"{style()}<style>{asset('diff.css', __package__)}</style>")
        self._box = named(widgets.VBox([sheet, bar, body]), "player")
        self._previous.on_click(guarded(lambda _: self._go(-1), self._say))
        self._next.on_click(guarded(lambda _: self._go(1), self._say))
        self._list.observe(guarded(lambda _: self._draw(), self._say), names="index")
        self._draw()

    def bundle(self) -> dict[str, Any]:
        """Give the MIME bundle that shows them."""
        return view(self._box)

    def choose(self, at: int) -> None:
        """Go to an entry of the list: 0 is what is around the turns, then come the pairs."""
        self._list.index = at

    def close(self) -> None:
        """Close all of them and leave the text alone; a second call does nothing."""
        if self.closed:
            return
        self.closed = True
        close(self._box)
        from IPython.display import update_display

        update: Any = update_display  # has no types
        update(absent(ABSENT), raw=True, display_id=self.place)

    def _say(self, trouble: str) -> None:
        self._panel.value = _html([parts.box(visible(trouble), "Error", kind="error")])

    def _labels(self) -> list[tuple[str, int]]:
        told = ("The runs", *(f"{pair.place}: {pair.told}" for pair in self._pairs))
        return [(clean(one_line(label, 80)), number) for number, label in enumerate(told)]

    @property
    def _at(self) -> int:
        return self._list.index or 0

    def _differing(self, way: int) -> int | None:
        """Give the next entry in a direction that differs; the runs always have something."""
        places = range(self._at + way, len(self._pairs) + 1 if way > 0 else -1, way)
        return next((at for at in places if at == 0 or self._pairs[at - 1].differs), None)

    def _go(self, way: int) -> None:
        at = self._differing(way)
        if at is not None:
            self._list.index = at

    def _draw(self) -> None:
        at = self._at
        self._panel.value = _html(self._runs() if at == 0 else self._pair(at - 1))
        differ = sum(bool(pair.differs) for pair in self._pairs)
        self._count.value = f"{differ:,} of {len(self._pairs):,} turns differ"

    def _runs(self) -> Iterator[Markup]:
        compared = self._compared
        yield Markup('<div role="status">{}</div>').format(drawn.verdict(compared))
        yield drawn.overview(compared)
        for title, caption, found in drawn.around(compared):
            if found:
                yield parts.paragraph(title, "place")
                yield from drawn.contrasts(caption, found)
        if len(self._pairs) <= TABLE:
            yield from (
                drawn.turns(step, telling.step_title(step) if compared.in_steps else "Attempts")
                for step in compared.steps
                if step.pairs
            )

    def _pair(self, number: int) -> Iterator[Markup]:
        pair = self._pairs[number]
        yield Markup('<div role="status">{}</div>').format(
            parts.paragraph(f"{pair.place}: {pair.told}", "place")
        )
        yield from drawn.detail(pair)


def _html(found: Iterator[Markup] | list[Markup]) -> str:
    return clean('<div class="nbrefine-part">' + "\n".join(found) + "</div>")
