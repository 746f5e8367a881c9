"""Where a notebook shows an episode that runs: below its cell, live, and then for good.

What is there at the end is text, put in the place of what was there before, so that a saved
notebook reads everywhere and holds no widget.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from nbrefine.budget import Budget
from nbrefine.driver import EpisodeRun
from nbrefine.values import Episode
from nbrefine.views.panel.pace import Pace
from nbrefine.views.panel.pictures import show_pictures
from nbrefine.views.panel.told import STARTING, told, told_with

PANEL = "NBREFINE_PANEL"
"""Environment variable: 0 for no live panel, 1 for one in any case."""


class Screen(Protocol):
    """Where it is shown."""

    def show(self) -> None:
        """Show where it stands; called ten times a second, and cheap where nothing has changed."""
        ...

    def end(self, trouble: str = "") -> None:
        """Put what stays in the place of all else, and what kept the work from a proper end."""
        ...


def screen(
    run: EpisodeRun,
    *,
    budget: Budget,
    max_turns: int,
    record: Path,
    name: str,
    shell: Any,
    widgets: bool | None = None,
    background: bool = False,
) -> Screen:
    """Give the screen for the cell that runs.

    Parameters
    ----------
    budget: under which the episode runs.
    max_turns: how many turns there may be.
    record: the episode notebook.
    name: what the episode will be called in the session.
    shell: IPython's.
    widgets: whether to show the live panel; None leaves it to what the front end can show.
    background: whether the cell ends while the episode runs.
    """
    hears = callbacks_come()
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and (shows_widgets(kernel) if widgets is None else widgets):
        from nbrefine.views.panel.live import Buttons, Panel

        buttons: Buttons = "heard" if hears else "late" if background else "deaf"
        panel: Screen = Panel(
            run,
            budget=budget,
            max_turns=max_turns,
            record=record,
            name=name,
            buttons=buttons,
            pictures=hears or not background,
        )
        return panel
    return Text(
        run,
        record=record,
        name=name,
        live=kernel is not None,
        pictures=hears or not background,
        at_once=background,
    )


def shows_widgets(kernel: Any) -> bool:
    """Tell whether whoever asks for the cell that runs shows widgets, as far as that can be known.

    An editor names the cell that it asks for, as JupyterLab does.  What runs a notebook from top
    to bottom, as nbclient, names none; it would write every widget that it has ever heard of into
    the file, those that were closed included.

    Parameters
    ----------
    kernel: ipykernel's kernel of this process.
    """
    said = os.environ.get(PANEL, "")
    if said:
        return said != "0"
    request = kernel.get_parent("shell") or {}
    return bool((request.get("metadata") or {}).get("cellId"))


def callbacks_come() -> bool:
    """Tell whether callbacks of widgets run while a cell awaits; before ipykernel 7 they wait.

    From then on, too, what a task displays stays below its own cell.
    """
    from importlib.metadata import version

    return int(version("ipykernel").partition(".")[0]) >= 7


class Text:
    """Shows text alone, anew with every turn.

    Parameters
    ----------
    live: whether what is shown can be replaced; in a terminal it would be printed once more.
    pictures: whether to show at the end those that accepted cells drew.
    at_once: whether to show something before the first turn has ended, so that all stays there.
    """

    def __init__(
        self,
        run: EpisodeRun,
        *,
        record: Path,
        name: str,
        live: bool,
        pictures: bool,
        at_once: bool,
    ) -> None:
        self._run = run
        self._record = record
        self._name = name
        self._live = live
        self._seen: Episode | None = None
        self._shown: dict[str, str] = {}
        self._pace = Pace()
        self._pictures = pictures
        self._id = ""
        if at_once:
            self._put({"text/plain": STARTING})

    def show(self) -> None:
        episode = self._run.episode
        if episode is None or episode is self._seen:
            return
        if self._live and self._pace.due:
            self._seen = episode
            with self._pace.drawing():
                self._put(told(episode, record=self._record, name=self._name))

    def end(self, trouble: str = "") -> None:
        episode = self._run.episode
        if episode is not None or trouble or self._id:
            self._put(told_with(trouble, episode, record=self._record, name=self._name))
        if episode is not None and self._pictures:
            show_pictures(episode)

    def _put(self, text: dict[str, str]) -> None:
        from IPython.display import display

        if text == self._shown:
            return
        self._shown = text
        if not self._id:
            self._id = f"nbrefine-{uuid4().hex}"
            display(text, raw=True, display_id=self._id)  # type: ignore[no-untyped-call]
        else:
            display(text, raw=True, display_id=self._id, update=True)  # type: ignore[no-untyped-call]
