"""The pictures that accepted cells drew, as outputs of the cell that asked for the work."""

from __future__ import annotations

from typing import Any

from nbrefine.outputs import Display
from nbrefine.values import Episode

MOST = 8
"""Pictures that are shown, the last ones; the record has them all."""

_KINDS = ("image/png", "image/jpeg")


def show_pictures(episode: Episode) -> None:
    """Show them below the cell."""
    from IPython.display import display

    show: Any = display  # has no types
    for picture in pictures(episode)[-MOST:]:
        show(picture, raw=True)


def pictures(episode: Episode) -> list[dict[str, Any]]:
    """Give them as MIME bundles, with their plain text."""
    return [
        {kind: value for kind, value in output.data.items() if kind in (*_KINDS, "text/plain")}
        for turn in episode.accepted
        if turn.result is not None
        for output in turn.result.outputs
        if isinstance(output, Display) and any(kind in output.data for kind in _KINDS)
    ]
