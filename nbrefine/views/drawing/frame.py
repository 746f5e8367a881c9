"""A page of HTML in one file, which asks for nothing from any network."""

from __future__ import annotations

import base64
import functools
import hashlib
import os.path
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from nbrefine._version import __version__
from nbrefine.errors import RecordError
from nbrefine.notebook.codec import clean
from nbrefine.notebook.files import replace_file
from nbrefine.notebook.markdown import visible
from nbrefine.views.drawing import style
from nbrefine.views.drawing.highlight import text

if TYPE_CHECKING:
    from markupsafe import Markup


def whole(title: str, body: Markup, *, kind: str = "", sheet: str = "", script: str = "") -> str:
    """Give a page around its body.

    A browser fetches nothing for it, and runs and applies nothing but what came with the package.

    Parameters
    ----------
    kind: a class of the body.
    sheet, script: of this kind of page; the style that all share comes before.
    """
    style_sheet = "\n".join((style(), asset("frame.css"), sheet))
    classes = f"nbrefine-page {kind}".rstrip()
    return clean(
        f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(style_sheet, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="nbrefine {__version__}">
<link rel="icon" href="data:,">
<title>{text(visible(title))}</title>
<style>{style_sheet}</style>
</head>
<body class="{classes}">
{body}
{f"<script>{script}</script>" if script else ""}
</body>
</html>
"""
    )


def free(path: str | Path, *, overwrite: bool = False) -> Path:
    """Give the place of a page that may be written there.

    Parameters
    ----------
    overwrite: whether a file that is there may be replaced.

    Raises
    ------
    RecordError: there is a file already, or it has the name of a notebook.
    """
    target = Path(path)
    if target.suffix == ".ipynb":  # nobody wants a record replaced by its page
        raise RecordError(f"{target} is a notebook's name", hint="Give one that ends in .html")
    if os.path.lexists(target) and not overwrite:
        raise RecordError(
            f"{target} is there already",
            hint="Choose another name, or allow it with overwrite=True or --overwrite",
        )
    return target


def write(html: str, target: Path) -> Path:
    """Write a page in a folder that exists, and give its path.

    Raises
    ------
    RecordError: the place cannot be written.
    """
    replace_file(target, html)
    return target


@functools.cache
def asset(name: str, package: str = "nbrefine.views.drawing") -> str:
    """Give a text that came with the package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _policy(sheet: str, script: str) -> str:
    scripts = _hashed(script) if script else "'none'"
    return (
        f"default-src 'none'; img-src data:; style-src {_hashed(sheet)}; script-src {scripts}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hashed(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
