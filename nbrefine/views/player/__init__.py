"""An episode to leaf through in a notebook: scene by scene, with tabs, and outcomes to guess first.

The player is made of plain ipywidgets and lives as long as the kernel that made it.  A saved
notebook cannot show one without its kernel: a trusted JupyterLab writes an error in its place,
whatever else the output holds.  So the episode is told as text first, in an output of its own,
which every reader of notebooks shows, and the player stands below it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from nbrefine.notebook import load
from nbrefine.values import Episode
from nbrefine.views.drawing.still import absent
from nbrefine.views.player.controls import Controls
from nbrefine.views.player.panels import Panels
from nbrefine.views.player.still import ABSENT, still
from nbrefine.views.story import story
from nbrefine.views.widgets import belongs_to_this_cell

__all__ = ["Player"]


class Player:
    """Shows an episode in the notebook whose kernel this is; display it, or call `nbrefine.show`.

    It ends where its cell runs again.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.
    predict: hide what came of each attempt until it is revealed, so that a class can guess.

    Raises
    ------
    RecordError: the path holds no episode.
    """

    def __init__(self, source: Episode | str | Path, *, predict: bool = False) -> None:
        episode = source if isinstance(source, Episode) else load(source)
        path = None if isinstance(source, Episode) else Path(source)
        self._story = story(episode)
        self._predict = predict
        self._controls = Controls(Panels(self._story, path), predict=predict)
        self._places: list[str] = []

    @property
    def controls(self) -> Controls:
        """Its widgets."""
        return self._controls

    def _ipython_display_(self) -> None:
        from IPython.display import display

        _display: Any = display  # has no types
        place = f"nbrefine-player-{uuid4().hex[:12]}"
        self._places.append(place)
        _display(still(self._story, outcomes=not self._predict), raw=True)
        _display({**self._controls.bundle(), **absent(ABSENT)}, raw=True, display_id=place)
        belongs_to_this_cell(self)

    def close(self) -> None:
        """End it and leave the text alone; a second call does nothing."""
        if self._controls.closed:
            return
        self._controls.close()
        from IPython.display import update_display

        update: Any = update_display  # has no types
        for place in self._places:
            update(absent(ABSENT), raw=True, display_id=place)
