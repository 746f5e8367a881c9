"""The live panel: an episode that runs, as widgets, and text in their place at its end."""

from __future__ import annotations

import asyncio
import contextvars
import traceback
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from nbrefine.budget import Budget
from nbrefine.driver import EpisodeRun
from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import visible
from nbrefine.values import Episode
from nbrefine.views.panel.pace import Pace
from nbrefine.views.panel.pictures import show_pictures
from nbrefine.views.panel.status import sentence, spending
from nbrefine.views.panel.told import STARTING, told_with
from nbrefine.views.player.panels import TABS, Panels
from nbrefine.views.story import Story, story
from nbrefine.views.widgets import close, named, style, view

SHOWN = tuple(each for each in TABS if each != "Run again")
"""The tabs of a turn; where to run it again is known at the end."""

ROWS = 12
"""Turns that are in view at once."""

REPLY = 8
"""Last lines of a reply that is being written."""

_LOST = (
    "This panel has lost its kernel. If that was restarted, the work has ended; what was recorded "
    "until then is in {record}. Run the cell again to begin anew."
)
"""Shown where the front end marks the widgets of a kernel that was restarted, which it does by
itself: no callback could tell it any more."""

_AFTER = "It ends with this attempt."
_NOW = "It is being ended."
Buttons = Literal["heard", "late", "deaf"]
"""Whether the kernel calls back while a cell awaits, as ipykernel does from 7 on; `late` where it
waits for the end of the cell that runs, which is another one, and `deaf` where it is this one."""

_HINTS: dict[Buttons, str] = {
    "heard": "",
    "late": "While a cell runs, this kernel hears of no button until that has ended.",
    "deaf": "This kernel hears of no button while a cell runs: ■ (interrupt the kernel) ends the "
    "work.",
}


class Panel:
    """Shows an episode that runs, and lets a person end it.

    All that is drawn is drawn on the loop of the cell, whatever thread a callback comes on.
    Made in the cell.

    Parameters
    ----------
    pictures: whether to show at the end those that accepted cells drew.
    """

    def __init__(
        self,
        run: EpisodeRun,
        *,
        budget: Budget,
        max_turns: int,
        record: Path,
        name: str,
        buttons: Buttons,
        pictures: bool,
    ) -> None:
        self._run, self._budget, self._max_turns = run, budget, max_turns
        self._record, self._name = record, name
        self._deaf = buttons == "deaf"
        self._hint = _HINTS[buttons]
        self._pictures = pictures
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._seen: Episode | None = None
        self._panels: Panels | None = None
        self._pace = Pace()
        self._drawn: tuple[Panels, int] | None = None
        self._follows = True
        self._asked = ""
        self._trouble = ""
        self._id = f"nbrefine-{uuid4().hex}"
        self._compose()
        self.show()
        self._put({**view(self._box), "text/plain": STARTING})

    def _compose(self) -> None:
        import ipywidgets as widgets

        self._status, self._spent, self._reply = (widgets.HTML() for _ in range(3))
        self._after = widgets.Button(description="Stop after attempt", disabled=self._deaf)
        self._now = widgets.Button(
            description="Stop now", button_style="warning", disabled=self._deaf
        )
        self._turns = widgets.Select(description="Turns", rows=ROWS)
        self._tabs = widgets.Tab([widgets.HTML() for _ in SHOWN], titles=SHOWN)
        lost = named(widgets.HTML(_paragraph(_LOST.format(record=self._record))), "lost")
        bar = named(widgets.HBox([self._after, self._now, self._spent]), "bar")
        now = [named(each, "live") for each in (self._status, bar, self._reply)]
        scene = named(widgets.VBox([self._tabs]), "scene")
        body = named(widgets.HBox([self._turns, scene]), "body")
        parts = [widgets.HTML(style()), lost, *now, body]
        self._box = named(named(widgets.VBox(parts), "player"), "panel")
        self._after.on_click(self._calling(self._stop_after))
        self._now.on_click(self._calling(self._stop_now))
        self._turns.observe(self._calling(self._chosen), names="index")

    def _calling(self, function: Callable[[], None]) -> Callable[[Any], None]:
        """Make a callback that may come on any thread, and does not keep its errors to itself."""

        def guarded() -> None:
            try:
                function()
            except Exception:  # noqa: BLE001 - whatever it is, the reader is told
                self._trouble = traceback.format_exc(limit=-3)

        def call(_: Any) -> None:
            self._loop.call_soon_threadsafe(guarded, context=self._context)

        return call

    def show(self) -> None:
        """Show where it stands; what is as before is not sent again."""
        try:
            self._refresh()
        except Exception:  # noqa: BLE001 - a panel must not end the work that it shows
            self._trouble = traceback.format_exc(limit=-3)
        self._set(self._status, self._headline())

    def _refresh(self) -> None:
        episode = self._run.episode
        if episode is not None and episode is not self._seen and self._pace.due:
            self._seen = episode
            with self._pace.drawing():
                self._take(story(episode))
                self._draw()
        self._set(self._spent, _paragraph(spending(self._budget)))
        self._set(self._reply, _reply(self._run.activity.reply_text))

    def _headline(self) -> str:
        title = self._seen.task.prompt.strip().partition("\n")[0] if self._seen else ""
        parts = [
            f"<p><strong>{escape(visible(title))}</strong></p>" if title else "",
            f'<p role="status">{escape(sentence(self._run, self._max_turns))}</p>',
            _paragraph(self._asked or self._hint),
        ]
        if self._trouble:
            shown = escape(visible(self._trouble))
            parts.append(f"<p>The panel cannot show this:</p><pre>{shown}</pre>")
        return '<div class="nbrefine-part">' + "".join(parts) + "</div>"

    def _take(self, told: Story) -> None:
        """Take in an episode that has one turn more."""
        self._panels = Panels(told)
        labels = [self._panels.label(at, outcome=True) for at in range(len(self._panels))]
        if list(self._turns.options) == labels:
            return
        chosen = len(labels) - 1 if self._follows else self._turns.index
        self._turns.options = labels
        self._turns.index = chosen

    def _chosen(self) -> None:
        at = self._turns.index
        self._follows = at is None or at + 1 >= len(self._turns.options)
        self._draw()

    def _draw(self) -> None:
        """Draw the turn that is chosen, if it is not drawn."""
        at = self._turns.index
        if self._panels is None or at is None:
            return
        if self._drawn != (self._panels, at):
            self._drawn = (self._panels, at)
            for tab, html in zip(
                self._tabs.children, self._panels.tabs(at, outcome=True), strict=False
            ):
                self._set(tab, html)

    def _stop_after(self) -> None:
        self._run.finish()
        self._ask(_AFTER)

    def _stop_now(self) -> None:
        self._run.stop()
        self._now.disabled = True
        self._ask(_NOW)

    def _ask(self, told: str) -> None:
        self._after.disabled = True
        self._asked = told
        self.show()

    def end(self, trouble: str = "") -> None:
        """Put text in the place of the widgets, and close them at both ends."""
        episode = self._run.episode
        bundle = told_with(trouble, episode, record=self._record, name=self._name)
        self._put(bundle, update=True)
        if episode is not None and self._pictures:
            show_pictures(episode)
        close(self._box)

    def _put(self, bundle: dict[str, Any], *, update: bool = False) -> None:
        from IPython.display import display

        show: Any = display  # has no types
        show(bundle, raw=True, display_id=self._id, update=update)

    @staticmethod
    def _set(widget: Any, html: str) -> None:
        if widget.value != html:
            widget.value = html


def _paragraph(text: str) -> str:
    return f"<p>{escape(visible(text))}</p>" if text else ""


def _reply(text: str) -> str:
    lines = visible(text).splitlines()[-REPLY:]
    if not lines:
        return ""
    shown = escape("\n".join(lines))
    return clean(
        '<div class="nbrefine-part"><p class="label">The model writes</p>'
        f'<pre class="wrap">{shown}</pre></div>'
    )
