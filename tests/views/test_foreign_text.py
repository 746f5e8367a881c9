"""Whatever a record's texts hold, everything that shows them shows text."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import nbrefine
from nbrefine.errors import RecordError
from nbrefine.notebook import document
from nbrefine.values import Episode
from nbrefine.views import diff, handout
from nbrefine.views.diff import page as diff_page
from nbrefine.views.diff import still as diff_still
from nbrefine.views.page.document import document as page_of
from nbrefine.views.panel.told import told_with
from nbrefine.views.player.panels import Panels
from nbrefine.views.player.still import still
from nbrefine.views.story import story

EVIL = (
    "\"'><img src=x onerror=alert(1)></pre></title></style></script><script>alert(1)</script>"
    "</details>\u202e\x00\ud800\x1b]8;;http://e\x07"
)
"""What would leave an attribute, an element or a line, turn text around, or is no text at all."""

NAMES = ("kind", "status", "reason", "verdict", "isolation", "finish", "form", "role", "origin")
"""Fields that hold one of a few words."""


def spoilt(value: Any, name: str = "") -> Any:
    """Put it behind every text of a value that may be any text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return dataclasses.replace(value, **{key: spoilt(x, key) for key, x in found.items()})
    if isinstance(value, str):
        known = name in NAMES or value in ("stdout", "stderr")
        return value if known else value + EVIL
    if isinstance(value, tuple):
        return tuple(spoilt(each) for each in value)
    if isinstance(value, list):
        return [spoilt(each) for each in value]
    if isinstance(value, dict):
        return {key if "/" in key else key + EVIL: spoilt(x) for key, x in value.items()}
    return value


@pytest.fixture(scope="module")
def episodes() -> tuple[Episode, Episode]:
    whole = nbrefine.example("multi-step")
    found = spoilt(whole)
    assert isinstance(found, Episode)
    return whole, found


def views(whole: Episode, evil: Episode) -> Iterator[tuple[str, str]]:
    """Give each kind of HTML that is made of an episode, by name."""
    path = Path("a" + EVIL.replace("\x00", "").replace("/", ""))
    yield "page", page_of(evil)
    yield "text of a player", still(story(evil))["text/html"]
    yield "panel", told_with(EVIL, evil, record=path, name=EVIL)["text/html"]
    panels = Panels(story(evil), path)
    yield "end of a player", panels.ending()
    for at in range(len(panels)):
        yield "player", panels.head(at, outcome=True)
        yield from (("tab of a player", tab) for tab in panels.tabs(at, outcome=True))
    for compared in (diff.diff(whole, evil), diff.diff(evil, evil)):
        yield "page of a comparison", diff_page.to_html(compared)
        yield "text of a comparison", diff_still.still(compared)["text/html"]


class Reading(HTMLParser):
    """Collects what runs or fetches something."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        for name, value in attrs:
            leads = name in ("href", "src") and not (value or "").startswith(("#", "data:"))
            if name.startswith("on") or leads or name == "style":
                self.acts.append(f"{tag} {name}={value}")


def test_every_text_of_a_record_is_shown_as_text(episodes: tuple[Episode, Episode]) -> None:
    seen: set[str] = set()
    for name, html in views(*episodes):
        reading = Reading()
        reading.feed(html)
        assert reading.acts == [], name
        assert reading.scripts == (name == "page"), name
        assert not {"\x00", "\u202e", "\ud800", "\x1b"} & set(html), name
        seen |= {name} if "alert(1)" in html else set()
    assert len(seen) == 8


def written(episode: Episode) -> str:
    return document.dumps(document.build(episode, name=EVIL))


def test_notebooks_of_any_text_can_be_written_and_read(episodes: tuple[Episode, Episode]) -> None:
    again = document.from_notebook(json.loads(written(episodes[1]).encode()))
    assert written(again) == written(document.from_notebook(json.loads(written(again))))
    given = json.dumps(handout.to_notebook(episodes[1], attempts=True), ensure_ascii=False)
    assert json.loads(given.encode())["nbformat"] == 4
    line = next(each for each in document.build(again, name="a\nb'`\u202e")["cells"])["source"]
    assert "    nbrefine show 'a b" in line  # on one line, which is no heading or text of its own


def test_a_change_of_no_name_makes_a_damaged_record_and_no_broken_page() -> None:
    notebook = document.build(nbrefine.example("multi-step"), name="x.ipynb")
    names = [
        name
        for turn in notebook["metadata"]["nbrefine"]["turns"]
        for name in turn.get("change", {}).get("names", ())
    ]
    del names[0]["after"]
    with pytest.raises(RecordError, match="was bound neither before nor after its change"):
        document.from_notebook(notebook)
