"""What pages and widgets are drawn with: HTML in which all foreign text is text, and its style."""

from __future__ import annotations

import functools
from importlib.resources import files


@functools.cache
def style() -> str:
    """Give the style sheet of the parts, for what is in a "nbrefine-part" or a "nbrefine-page".

    Its colours are light or dark by the `color-scheme` of whatever holds them.
    """
    return files(__package__).joinpath("parts.css").read_text(encoding="utf-8")
