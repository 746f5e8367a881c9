"""An episode as one HTML page: everything in one file, to be read anywhere and sent to anyone.

The page asks for nothing from any network, and everything in it can be read with scripts switched
off.  What models and programs wrote is text on it, never markup.
"""

from __future__ import annotations

from pathlib import Path

from nbrefine.notebook import load
from nbrefine.values import Episode
from nbrefine.views.drawing import frame
from nbrefine.views.page.document import document

__all__ = ["to_html", "write"]


def to_html(source: Episode | str | Path) -> str:
    """Give an episode as a page of HTML; equal episodes give equal pages.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.

    Raises
    ------
    RecordError: the path holds no episode.
    """
    return document(source if isinstance(source, Episode) else load(source))


def write(source: Episode | str | Path, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write an episode's page, and give the path.

    Parameters
    ----------
    source: an episode, or the path of its notebook or journal.
    path: the page's file, in a folder that exists.
    overwrite: whether a file that is there may be replaced.

    Raises
    ------
    RecordError: there is a file already, the place cannot be written, or the source holds no
        episode.
    """
    target = frame.free(path, overwrite=overwrite)  # before the time that a page takes
    return frame.write(to_html(source), target)
