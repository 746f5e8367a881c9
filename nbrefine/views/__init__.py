"""What a person sees of an episode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nbrefine.values import Episode

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show"]


def show(
    source: Episode | str | Path,
    *,
    step: bool = False,
    predict: bool = False,
    console: Console | None = None,
) -> None:
    """Show an episode: in a notebook as a player to leaf through, elsewhere as printed text.

    It needs no key and no network, and runs nothing.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.
    step: in a terminal, one attempt at a time: Enter goes on, q ends.
    predict: in a notebook, hide what came of each attempt until it is revealed, so that a class
        can guess; in a terminal, as `step`.
    console: where to print, also in a notebook.

    Raises
    ------
    RecordError: the path holds no episode.
    """
    from nbrefine.views.widgets import in_notebook

    if console is None and in_notebook():
        from IPython.display import display

        from nbrefine.views.player import Player

        display(Player(source, predict=predict))  # type: ignore[no-untyped-call]  # has no types
        return
    from nbrefine.views import terminal

    terminal.show(source, step=step or predict, console=console)
