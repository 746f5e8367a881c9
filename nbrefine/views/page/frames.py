"""The frames of a traceback that lie in libraries.

The same ones come with every error of a kind and make the most of a long page, so each run of
them stands on it once and is quoted after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from nbrefine.prompts import in_library
from nbrefine.views.drawing import highlight
from nbrefine.views.page.passages import SHORTEST

_GAP = "\n\n"
"""What IPython sets between frames; a line of code within one has a number at least."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run of frames stands."""

    target: str
    told: str


class Frames:
    """The frames that a page has had so far."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}

    def draw(self, traceback: str, told: str) -> Markup:
        """Give a traceback in which frames that the page has had are quoted.

        Parameters
        ----------
        told: where it stands, such as "attempt 2".
        """
        drawn = []
        for of_library, found in groupby(traceback.split(_GAP), key=in_library):
            frames = list(found)
            run = _GAP.join(frames)
            if of_library and len(run) >= SHORTEST:
                drawn.append(self._run(run, len(frames), told))
            else:
                drawn.append(str(highlight.text(run)))
        return Markup(_GAP.join(drawn))  # noqa: S704 - escaped run by run

    def _run(self, run: str, many: int, told: str) -> str:
        known = self._places.get(run)
        if known is None:
            place = _Place(f"f{len(self._places) + 1}", told)
            self._places[run] = place
            return f'<span class="library" id="{place.target}">{highlight.text(run)}</span>'
        frames = "frame" if many == 1 else f"{many:,} frames"
        words = highlight.text(f"[the same {frames} as in {known.told}]")
        return f'<a class="quote" href="#{known.target}">{words}</a>'
