"""Whatever takes a record, asked of a file that is none or is an odd one.

No file is ever changed by it, and nothing is left beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError as Refusal

import nbrefine
from nbrefine import notebook
from nbrefine.cli import call
from nbrefine.errors import RecordError
from nbrefine.magics.refine import Refinement
from nbrefine.views import handout, page
from nbrefine.views.player import Player

LOOKS = (
    ("show", "{file}"),
    ("show", "{file}", "--step"),
    ("show", "{file}", "--html"),
    ("show", "{file}", "--handout"),
)
COMMANDS = (
    *LOOKS,
    ("replay", "{file}"),
    ("diff", "{file}", "{file}"),
    ("run", "x", "--model", "recorded:{file}", "-o", "{elsewhere}/new.ipynb"),
    ("run", "x", "--model", "scripted:{replies}", "-o", "{file}", "--overwrite"),
    ("solve", "--resume", "{file}", "--model", "scripted:{replies}"),
    (
        *("solve", "--branch", "{file}", "--from-step", "1"),
        *("-o", "{elsewhere}/new.ipynb", "--model", "scripted:{replies}"),
    ),
)
"""Whatever takes a record."""

Seen = dict[str, tuple[int, int, bytes]]


def looked_at(folder: Path) -> Seen:
    """Give what a folder holds: names, modes, times and bytes."""
    return {
        each.name: (
            each.lstat().st_mode,
            each.lstat().st_mtime_ns,
            each.read_bytes() if each.is_file() else b"",
        )
        for each in folder.iterdir()
    }


def ask(path: Path) -> list[str]:
    """Ask whatever takes a record in Python or in a notebook, and give what each says of it."""
    # A shell without a kernel: what shows an episode there prints it.
    magics: Any = Refinement(SimpleNamespace(user_ns={}))
    asked: list[Callable[[], object]] = [
        lambda: notebook.load(path),
        lambda: nbrefine.show(path),
        lambda: nbrefine.replay(path),
        lambda: nbrefine.diff(path, path),
        lambda: Player(path),
        lambda: page.to_html(path),
        lambda: handout.to_notebook(path),
        lambda: magics.refine_view(str(path)),
        lambda: magics.refine_replay(str(path)),
    ]
    told = []
    for each in asked:
        with pytest.raises((RecordError, Refusal)) as raised:
            each()
        told.append(str(raised.value))
    return told


def command(words: tuple[str, ...], path: Path, elsewhere: Path) -> list[str]:
    elsewhere.mkdir(exist_ok=True)
    replies = elsewhere / "replies.yaml"
    replies.write_text("- x = 1\n")
    places = {"file": str(path), "elsewhere": str(elsewhere), "replies": str(replies)}
    return [word.format(**places) for word in words]


def refusal(
    words: tuple[str, ...], path: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> str:
    """Call a command that must refuse a file, and give its one line."""
    assert call(command(words, path, elsewhere)) == 2, words
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("nbrefine: ")
    assert told.err.count("\n") == 1, told.err
    assert [each.name for each in elsewhere.iterdir()] == ["replies.yaml"]
    return told.err


Change = Callable[[dict[str, Any]], Any]
"""Changes a notebook's JSON, or gives another in its place."""


def changed(path: Path, change: Change) -> None:
    made = json.loads(path.read_bytes())
    other = change(made)
    made = other if isinstance(other, dict) and "nbformat" in other else made
    path.write_bytes(json.dumps(made, ensure_ascii=False).encode("utf-8", "surrogatepass"))
