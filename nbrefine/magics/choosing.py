"""Buttons below a cell that was tried: Keep and Discard, which do what the magics do."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import suppress
from html import escape
from typing import Any
from uuid import uuid4

from nbrefine.bindings import Binding, NameChange
from nbrefine.magics.asking import Refusal
from nbrefine.magics.attempt import Attempt, in_part
from nbrefine.magics.hosting import interruptible
from nbrefine.notebook.codec import clean
from nbrefine.notebook.markdown import one_line
from nbrefine.views.widgets import close, named, style, view

_ROWS = 30  # names that the table has
_ABOVE = "Keep or Discard: %keep and %discard do the same."
_WAITS = "The attempt waits: %keep runs it here, %discard forgets it"


class Choice:
    """Shows the buttons; made in the cell, below which all stays that they bring about.

    They make way for text before another cell runs: a notebook that is saved with a widget shows
    an error in its place once the kernel has gone.

    Parameters
    ----------
    shell: IPython's.
    keep: runs the cell in this kernel, on its main thread.
    discard: forgets it.
    """

    def __init__(
        self,
        tried: Attempt,
        *,
        shell: Any,
        keep: Callable[[], Awaitable[None]],
        discard: Callable[[], None],
    ) -> None:
        import ipywidgets as widgets

        self._keep, self._discard = keep, discard
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()  # has the cell that outputs belong to
        self._task: asyncio.Task[None] | None = None
        self._id = f"nbrefine-{uuid4().hex}"
        self._buttons = [
            widgets.Button(description=name, tooltip=tooltip)
            for name, tooltip in (
                ("Keep", "Run the cell here, once"),
                ("Discard", "Forget what was tried"),
            )
        ]
        told = widgets.HTML(clean(f'<div class="nbrefine-part">{_table(tried)}</div>'))
        parts = [widgets.HTML(style()), told, widgets.HBox(self._buttons)]
        self._box = named(widgets.VBox(parts), "player")
        for button, chosen in zip(self._buttons, (self._kept, self._discarded), strict=True):
            button.on_click(self._calling(chosen))
        self._put({**view(self._box), "text/plain": _ABOVE})
        self._events = shell.events
        self._events.register("pre_run_cell", self._make_way)

    def _calling(self, chosen: Callable[[], Awaitable[None]]) -> Callable[[Any], None]:
        """Make a callback, which may come on any thread, of what only the main one can do."""

        def begin() -> None:
            if self._task is None:
                for button in self._buttons:
                    button.disabled = True
                self._task = self._loop.create_task(self._guarded(chosen), context=self._context)

        def call(_: Any) -> None:
            self._loop.call_soon_threadsafe(begin, context=self._context)

        return call

    async def _guarded(self, chosen: Callable[[], Awaitable[None]]) -> None:
        """Do what was chosen; what goes wrong is told where the buttons are."""
        try:
            await chosen()
        except (Exception, KeyboardInterrupt, asyncio.CancelledError) as error:  # noqa: BLE001
            told = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}"
            self.end(told.removesuffix(": "))
        finally:
            self._task = None
            for button in self._buttons:
                button.disabled = False

    def _make_way(self, _: Any) -> None:
        if self._task is None:  # or else the cell is the one that is kept
            self._context.copy().run(self.end, _WAITS)

    async def _kept(self) -> None:
        assert self._task is not None
        with interruptible(self._loop, self._task):
            await self._keep()

    async def _discarded(self) -> None:
        self._discard()

    def end(self, told: str) -> None:
        """Put a sentence in the place of the buttons, and close them at both ends."""
        text = f"{told[0].upper()}{told[1:].removesuffix('.')}."
        self._put({"text/plain": text, "text/html": f"<p>{escape(text)}</p>"}, update=True)
        close(self._box)
        with suppress(ValueError):  # it was called before
            self._events.unregister("pre_run_cell", self._make_way)

    def _put(self, bundle: dict[str, Any], *, update: bool = False) -> None:
        from IPython.display import display

        show: Any = display  # has no types
        show(bundle, raw=True, display_id=self._id, update=update)


def _table(tried: Attempt) -> str:
    """Give the names that would change, as HTML."""
    change, partly = tried.change, escape(in_part(tried.partly))
    if change is None or not change.names:
        seen = f", as far as was seen; {partly}" if partly else ""
        return f"<p>No variable would change{seen}.</p>"
    rows = "".join(map(_row, change.names[:_ROWS]))
    more = len(change.names) - _ROWS
    rest = f"<p>and {more:,} more</p>" if more > 0 else ""
    rest += "".join(f"<p>{escape(f'C{each[1:]}')}.</p>" for each in tried.columns)
    rest += f"<p>{partly[0].upper()}{partly[1:]}.</p>" if partly else ""
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Name", "Change", "Now", "If kept"))
    return (
        "<table><caption>What would change</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"
    )


def _row(change: NameChange) -> str:
    cells = (change.kind, _told(change.before), _told(change.after))
    shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(change.name)}</th>{shown}</tr>'


def _told(binding: Binding | None) -> str:
    if binding is None:
        return ""
    return one_line(f"{binding.type} {binding.preview}".strip(), 80)
