"""An episode to leaf through: what each tab tells, what is hidden, and what stays of it."""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from ipywidgets.widgets import widget
from nbclient import NotebookClient
from nbconvert import HTMLExporter

import nbrefine
from nbrefine import notebook
from nbrefine.bindings import Binding, NameChange, StateChange
from nbrefine.errors import RecordError
from nbrefine.outputs import CellResult, Display, Failure, Stream
from nbrefine.values import CaseResult, Episode, Extraction, Message, Reply, Stop, TestReport
from nbrefine.views.drawing.still import LISTED, ROOM, absent
from nbrefine.views.player import Player
from nbrefine.views.player.again import ways
from nbrefine.views.player.controls import Controls
from nbrefine.views.player.panels import TABS, Panels
from nbrefine.views.player.still import ABSENT, still
from nbrefine.views.story import story
from tests.steps import answered, gave_up

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()


class Tags(HTMLParser):
    """Which tags a piece of HTML has; all of them are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        if tag != "img":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def words(html: str) -> str:
    """Give the text of some HTML on one line."""
    Tags(html)
    html = re.sub(r"</?(span|ins|del)\b[^>]*>", "", html)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def told(episode: Episode, at: int, tab: str, *, outcome: bool = True) -> str:
    panels = Panels(story(episode))
    return words(panels.tabs(at, outcome=outcome)[TABS.index(tab)])


def last(episode: Episode, **fields: Any) -> Episode:
    """Let the last turn of an episode be another one."""
    return replace(episode, turns=(*episode.turns[:-1], replace(episode.turns[-1], **fields)))


@pytest.fixture
def controls(repaired: Episode) -> Iterator[Controls]:
    player = Player(repaired)
    yield player.controls
    player.close()


@pytest.fixture
def guessing(repaired: Episode) -> Iterator[Controls]:
    player = Player(repaired, predict=True)
    yield player.controls
    player.close()


def seen(controls: Controls) -> str:
    """Give all that is in view or in a tab."""
    shown = [controls._head, *controls._tabs.children, controls._tail]
    return " | ".join(words(each.value) for each in shown)


def labels(controls: Controls) -> list[str]:
    return [label for label, _ in controls._scenes.options]


def test_each_tab_tells_its_part_of_an_attempt(repaired: Episode) -> None:
    panels = Panels(story(repaired))
    assert words(panels.head(0, outcome=True)) == (
        "Attempt 1 of 2: rejected (failed), 0/2 tests passed KeyError: 'Price'"
    )
    assert 'values = prices["Price"]' in told(repaired, 0, "Code")
    assert told(repaired, 0, "Output") == "KeyError: 'Price'"
    assert "What the model was told KeyError: 'Price' 0/2 tests passed." in told(
        repaired, 0, "Tests"
    )
    assert told(repaired, 0, "Diff") == "There is no attempt before it to compare with."
    assert 'values = prices["Price"] +values = prices["price"]' in told(repaired, 1, "Diff")
    assert told(repaired, 0, "Variables").startswith("No change of the session is recorded.")
    assert "It ran in a session rebuilt" in told(repaired, 0, "Variables")
    assert "2 messages, 56 characters." in told(repaired, 0, "Prompt")
    assert "Message 1: system You write Python." in told(repaired, 0, "Prompt")


def test_the_table_of_tests_ends_with_the_attempt_that_is_shown(repaired: Episode) -> None:
    assert "Test Attempt 1 test_1 not run test_2 not run" in told(repaired, 0, "Tests")
    assert "test_1 not run pass test_2 not run pass" in told(repaired, 1, "Tests")


def test_what_a_cell_changed_is_a_table_of_variables(repaired: Episode) -> None:
    frame = Binding("DataFrame", shape=(3, 2), preview="a b")
    change = StateChange(
        (
            NameChange("fares", None, frame),
            NameChange("old", Binding("int", preview="1"), None),
            NameChange("n", Binding("int", preview="1"), Binding("int", preview="2")),
        ),
        random=True,
    )
    assert told(last(repaired, change=change), 1, "Variables").startswith(
        "What it changed Name Change Type Size Value fares new DataFrame 3 x 2 a b "
        "old deleted int n changed int 2 The random generators' states changed."
    )


def test_one_goes_through_the_scenes_by_buttons_and_by_the_list(controls: Controls) -> None:
    assert labels(controls) == ["Attempt 1: failed", "Attempt 2: accepted"]
    assert controls._count.value == "Scene 1 of 2"
    assert "Attempt 1 of 2: rejected" in seen(controls)
    controls._next.click()
    assert controls._scenes.index == 1
    assert controls._count.value == "Scene 2 of 2, the last one"
    assert "Attempt 2 of 2: accepted" in seen(controls)
    assert "Solved after 2 turns: 2/2 tests passed." in seen(controls)
    controls._next.click()
    assert controls._scenes.index == 1
    controls._previous.click()
    controls._previous.click()
    assert controls._scenes.index == 0
    controls._scenes.index = 1
    assert "Attempt 2 of 2: accepted" in seen(controls)


def test_what_came_of_an_attempt_is_hidden_until_it_is_revealed(guessing: Controls) -> None:
    outcomes = re.compile(r"reject|accept|solve|KeyError|pass|fail|of 2", re.IGNORECASE)
    assert labels(guessing) == ["Attempt 1"]
    assert not outcomes.search(seen(guessing))
    assert 'values = prices["Price"]' in seen(guessing)
    guessing._reveal.click()
    assert "Attempt 1 of 2: rejected (failed)" in seen(guessing)
    assert "KeyError: 'Price'" in seen(guessing)
    assert labels(guessing) == ["Attempt 1: failed"]
    guessing._next.click()
    assert labels(guessing) == ["Attempt 1: failed", "Attempt 2"]
    assert "Hidden until you press Reveal" in words(guessing._tabs.children[1].value)
    assert "Solved" not in seen(guessing)
    guessing._reveal.click()
    assert "Solved after 2 turns" in seen(guessing)
    assert guessing._reveal.description == "Hide again"
    guessing._reveal.click()
    assert labels(guessing) == ["Attempt 1: failed", "Attempt 2"]
    guessing._previous.click()
    assert "Attempt 1 of 2: rejected (failed)" in seen(guessing)


def test_text_of_programs_and_models_is_never_markup(repaired: Episode) -> None:
    nasty = "</script><b>x</b><img src=y onerror=alert(1)>\x1b[31m\x00\ud800 {0} {{}} &amp; \u202e"
    error = Failure(nasty, nasty, (nasty,))
    html = Display({"text/html": f"<script>alert(1)</script><table><td>{nasty}", "text/plain": "t"})
    episode = replace(
        last(
            repaired,
            reply=Reply(nasty),
            messages=(Message("user", nasty),),
            extraction=Extraction("found", nasty),
            result=CellResult(nasty, "error", (Stream("stdout", nasty), html, error), error),
            tests=TestReport((CaseResult(nasty, "failed", nasty, nasty, nasty, nasty),)),
            feedback=nasty,
            change=StateChange((NameChange(nasty, None, Binding(nasty, preview=nasty)),)),
            isolation_reason=nasty,
            accepted=False,
            verdict="failed",
        ),
        stop=Stop("budget", nasty),
    )
    panels = Panels(story(episode))
    drawn = [panels.head(1, outcome=True), *panels.tabs(1, outcome=True), panels.ending()]
    for part in (*drawn, still(story(episode))["text/html"]):
        assert not Tags(part).names & {"script", "b", "img"}
        assert "\x1b" not in part
        part.encode()


def test_a_table_is_a_table_and_a_picture_a_picture(repaired: Episode) -> None:
    frame = (
        "<style>td {}</style><table><thead><tr><th></th><th>fare</th></tr></thead>"
        "<tbody><tr><th>0</th><td onclick='x()'>3</td></tr></tbody></table>"
    )
    outputs = (
        Display({"text/html": frame, "text/plain": "   fare\n0     3"}),
        Display({"image/png": PIXEL, "text/plain": "<Figure size 4x3>"}),
    )
    episode = last(repaired, result=CellResult("x", "ok", outputs))
    html = Panels(story(episode)).tabs(1, outcome=True)[TABS.index("Output")]
    assert '<th scope="col">fare</th>' in html
    assert "onclick" not in html
    assert f'<img src="data:image/png;base64,{PIXEL}" alt="&lt;Figure size 4x3&gt;">' in html


def test_what_is_large_is_bounded_and_told(repaired: Episode) -> None:
    cases = tuple(CaseResult(f"test_{n}", "failed", f"x == {n}") for n in range(900))
    episode = last(
        repaired,
        result=CellResult("x", "ok", (Stream("stdout", "y" * 1_000_000),)),
        tests=TestReport(cases),
        messages=tuple(Message("user", f"{n} " + "z" * 100_000) for n in range(100)),
        change=StateChange(
            tuple(NameChange(f"v{n}", None, Binding("int", preview="1" * 500)) for n in range(900))
        ),
    )
    sizes = {tab: len(told(episode, 1, tab)) for tab in TABS}
    assert max(sizes.values()) < 1_000_000
    assert re.search("980,00. characters are left out here", told(episode, 1, "Output"))
    assert "600 more are not shown here." in told(episode, 1, "Tests")
    assert "and 840 more" in told(episode, 1, "Tests")
    assert "The first 70 are not shown here; the record has them." in told(episode, 1, "Prompt")
    assert "600 more are not shown here." in told(episode, 1, "Variables")
    text = still(story(episode))
    assert len(text["text/html"]) < 2 * ROOM


def test_steps_are_told_with_their_checks(repaired: Episode) -> None:
    for episode in (answered(), gave_up()):
        panels = Panels(story(episode))
        for at in range(len(panels)):
            assert words(panels.head(at, outcome=True))
            assert all(map(words, panels.tabs(at, outcome=True)))
            assert all(map(words, panels.tabs(at, outcome=False)))
        assert words(panels.ending())
    assert "Step 1: Read `fares` from fares.csv" in words(
        Panels(story(answered())).head(1, outcome=True)
    )
    assert "The step is done when these checks hold" in told(answered(), 1, "Tests")
    assert "The step is done" not in told(repaired, 1, "Tests")


def test_an_episode_without_a_turn_says_so(repaired: Episode) -> None:
    for stop in (None, Stop("infra-error", "the kernel did not start")):
        player = Player(replace(repaired, turns=(), stop=stop))
        assert "There is no turn in this episode." in words(player.controls._head.value)
        player.close()


def test_a_turn_that_ran_nothing_says_so(repaired: Episode) -> None:
    episode = replace(
        last(
            repaired,
            result=None,
            reply=Reply("Sorry."),
            extraction=Extraction("no-code", reason="the reply holds no code"),
            tests=None,
            accepted=False,
            verdict="no-code",
        ),
        stop=None,
    )
    assert "The model wrote Sorry." in told(episode, 1, "Code")
    assert told(episode, 1, "Output") == "Nothing was run."
    assert "Running: 2 turns so far." in words(Panels(story(episode)).ending())


def test_closing_leaves_no_widget(repaired: Episode) -> None:
    before = set(widget._instances)
    for predict in (False, True):
        for episode in (repaired, replace(repaired, turns=())):
            player = Player(episode, predict=predict)
            player.controls._next.click()
            assert set(widget._instances) - before
            player.close()
            player.close()
            assert set(widget._instances) == before


def test_going_on_makes_no_new_widgets(controls: Controls) -> None:
    before = set(widget._instances)
    for _ in range(3):
        controls._next.click()
        controls._previous.click()
    assert set(widget._instances) == before


def test_trouble_in_a_callback_is_shown(
    controls: Controls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> str:
        raise ZeroDivisionError("by <nothing>")

    monkeypatch.setattr(controls._panels, "count", broken)
    controls._next.click()
    assert "The player cannot show this" in words(controls._head.value)
    assert "ZeroDivisionError: by <nothing>" in words(controls._head.value)


def test_the_text_tells_all_without_a_widget_and_nothing_where_it_is_to_be_guessed(
    repaired: Episode,
) -> None:
    text = still(story(repaired))
    assert Tags(text["text/html"]).names <= {"div", "strong", "pre", "details", "summary"}
    assert "Attempt 1 of 2: rejected (failed), 0/2 tests passed" in words(text["text/html"])
    assert "mean 4.0" in words(text["text/html"])
    assert text["text/plain"].splitlines() == [
        "mean-price",
        "Solved after 2 turns: 2/2 tests passed.",
        "Attempt 1 of 2: rejected (failed), 0/2 tests passed",
        "Attempt 2 of 2: accepted, 2/2 tests passed",
    ]
    hidden = still(story(repaired), outcomes=False)
    for told in hidden.values():
        assert "Compute `mean`" in words(hidden["text/html"])
        assert not re.search("Solved|accepted|rejected|KeyError", told)


def test_a_long_episode_is_told_in_part(repaired: Episode) -> None:
    turns = tuple(replace(repaired.turns[0], number=n, attempt=n) for n in range(1, 1001))
    text = still(story(replace(repaired, turns=turns)))
    assert len(text["text/html"]) < 2 * ROOM
    assert re.search(r"\d+ more are not told here; the record has them", text["text/html"])
    assert text["text/plain"].splitlines()[-1] == f"and {1000 - LISTED} more"


def test_the_ways_to_go_on_are_those_that_there_are(repaired: Episode) -> None:
    shown = story(repaired).scenes[0]
    code, again = ways(repaired, shown, Path("a b.ipynb"))
    assert again.text == "nbrefine replay 'a b.ipynb'"
    compile(code.text, "code", "exec")
    assert "initial_code=episode.turns[0].code" in code.text
    assert "nbrefine.load('a b.ipynb')" in code.text
    solved = replace(answered(), settings={"kind": "solve"})
    branch = ways(solved, story(solved).scenes[0], None)[0]
    assert branch.text.startswith("nbrefine solve --branch EPISODE.ipynb --from-step 1 ")


def test_outside_of_a_notebook_it_is_printed(
    repaired: Episode, capsys: pytest.CaptureFixture[str]
) -> None:
    nbrefine.show(repaired)
    assert "Solved after 2 turns: 2/2 tests passed." in capsys.readouterr().out


def test_printing_loads_no_widgets() -> None:
    script = (
        "import sys, nbrefine\n"
        "try: nbrefine.show('nowhere.ipynb')\n"
        "except nbrefine.NbrefineError: pass\n"
        "assert 'ipywidgets' not in sys.modules"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True)


def test_what_is_no_episode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        Player(tmp_path / "nowhere.ipynb")


def test_a_notebook_that_showed_it_reads_as_a_page_without_the_widgets(
    repaired: Episode, tmp_path: Path
) -> None:
    notebook.save(repaired, tmp_path / "record.ipynb")
    v4: Any = nbformat.v4  # has no types
    cells = [
        v4.new_code_cell("import nbrefine\nnbrefine.show('record.ipynb')"),
        v4.new_code_cell(
            "from nbrefine.views.player import Player\n"
            "player = Player('record.ipynb')\ndisplay(player)\nplayer.close()"
        ),
    ]
    shown = v4.new_notebook(cells=cells)
    NotebookClient(
        shown,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
        store_widget_state=False,
    ).execute()
    nbformat.validate(shown)
    first, second = [cell.outputs for cell in shown.cells]
    assert "widgets" not in shown.metadata
    # The text has an output of its own: the widget's is not shown where nothing is alive.
    for text, *_ in (second, first):
        assert "Solved after 2 turns" in text.data["text/html"]
        assert not any("widget" in mime for mime in text.data)
    for output in (*first, *second):
        assert {"text/plain", "text/html"} <= set(output.data)
    assert not any("widget" in mime for output in second for mime in output.data)
    assert second[-1].data == absent(ABSENT)
    exporter = HTMLExporter()  # type: ignore[no-untyped-call]  # has no types
    exporter.sanitize_html = True
    for page in (HTMLExporter(), exporter):  # type: ignore[no-untyped-call]
        html = words_of(page.from_notebook_node(shown)[0])
        assert "Solved after 2 turns: 2/2 tests passed." in html
        assert "Attempt 2 of 2: accepted, 2/2 tests passed" in html
        assert "Run this cell to leaf through the episode." in html


def words_of(page: str) -> str:
    """Give the words of a whole page, whose tags are not ours."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())
