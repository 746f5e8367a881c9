"""A comparison in a terminal, as a page, as text in a notebook, and as widgets."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from ipywidgets.widgets import widget
from rich.console import Console

from nbrefine.errors import RecordError
from nbrefine.outputs import CellResult, Display, Stream
from nbrefine.values import CaseResult, Episode, Extraction, Stop, Task, TestReport, Turn
from nbrefine.views.diff import EpisodeDiff, diff, page, terminal
from nbrefine.views.diff.controls import Controls
from nbrefine.views.diff.still import ABSENT, CHANGES, still
from nbrefine.views.drawing.still import LISTED, ROOM, absent
from tests.steps import answered, gave_up

AWKWARD = (
    "\x1b[31mred\x1b[0m </script><script>alert(1)</script> \u202eleft \ud800 [bold]rich[/bold] \x07"
)
VOID = {"meta", "link", "img", "br"}


def attempt(number: int, code: str, printed: str = "", *, good: bool = False) -> Turn:
    return Turn(
        number=number,
        attempt=number,
        extraction=Extraction("found", code, "python"),
        result=CellResult(code, "ok", (Stream("stdout", printed),)),
        tests=TestReport((CaseResult(f"t <{number}>", "passed" if good else "failed", AWKWARD),)),
        verdict="solved" if good else "failed",
        accepted=good,
    )


def episode(*turns: Turn, task: str = "Find x.") -> Episode:
    stop = Stop("solved" if turns and turns[-1].accepted else "max-turns")
    return Episode(Task(task), turns=turns, stop=stop, model=AWKWARD if task == AWKWARD else "")


@pytest.fixture
def plain() -> EpisodeDiff:
    first = attempt(1, "x = 1", "1\n")
    ours = episode(first, attempt(2, "x = 3\ny = 1", "3\n"), attempt(3, "x = 4"))
    return diff(ours, episode(first, attempt(2, "x = 2\ny = 1", "2\n", good=True)))


@pytest.fixture
def awkward() -> EpisodeDiff:
    """Texts that act on a terminal or a page, that no file can hold, and that are far too long."""
    ours = attempt(1, AWKWARD, AWKWARD + "\n" + "x" * 100_000)
    theirs = attempt(1, f"{AWKWARD}\n2", "\n".join(AWKWARD + str(n) for n in range(3_000)))
    return diff(episode(ours, task=AWKWARD), episode(theirs, task="Find x."))


def printed(compared: EpisodeDiff, width: int = 80, **options: Any) -> str:
    file = io.StringIO()
    terminal.show(compared, console=Console(file=file, width=width, **options))
    return file.getvalue()


class Reader(HTMLParser):
    """A page's texts and tags; all tags are closed, in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []
        self.words = " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    @property
    def names(self) -> set[str]:
        return {tag for tag, _ in self.tags}


def test_a_terminal_shows_the_sentence_the_table_and_what_differs(plain: EpisodeDiff) -> None:
    text = printed(plain)
    order = [
        "B solved it in attempt 2; A ran out of turns after 3 attempts.",
        "A  Find x.",
        "What differs at the end",
        "Turn by turn",
        "Attempt 1   rejected (failed)",
        "Attempt 2",
        "Attempt 3",
        "only in A",
        "Attempt 2: code, verdict, tests, output",
        "A rejected (failed), 0/1 tests passed",
        "B accepted, 1/1 tests passed",
        "-x = 3",
        "+x = 2",
        "y = 1",
        "Output:",
        "Tests that went otherwise:",
        "Attempt 3: only in A",
        "Code of A:",
        "-x = 4",
    ]
    places = [text.find(words) for words in order]
    assert -1 not in places, order[places.index(-1)]
    assert "What differs before the first turn" not in text


@pytest.mark.parametrize("width", [30, 80, 200])
def test_what_is_piped_is_plain_and_fits(
    plain: EpisodeDiff, awkward: EpisodeDiff, width: int
) -> None:
    for compared in (plain, awkward):
        text = printed(compared, width)
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert max(map(len, text.splitlines())) <= width
        text.encode()
    coloured = printed(plain, force_terminal=True, color_system="standard")
    assert "\x1b[91;49m-x = 4" in coloured


def test_equal_episodes_are_told_as_such_in_all_places(plain: EpisodeDiff) -> None:
    same = diff(plain.a.episode, replace(plain.a.episode, id="other"))
    assert "No differences." in printed(same)
    assert printed(same).count("the same") == 3
    read = Reader(page.to_html(same))
    assert "No differences." in read.words
    assert "What differs" not in read.words
    assert still(same)["text/plain"].startswith("No differences.")


def test_a_terminal_leaves_out_what_nobody_reads_and_says_so() -> None:
    turns = [attempt(number, f"x = {number}") for number in range(1, 101)]
    others = [attempt(number, f"y = {number}") for number in range(1, 101)]
    text = printed(diff(episode(*turns), episode(*others)))
    assert "Attempt 60 " in text
    assert "Attempt 61 " not in text
    assert "40 more turns are not in this table; --html FILE has all." in text
    assert "Attempt 8: code" in text
    assert "92 more turns differ; --html FILE has all." in text


def test_a_page_tells_all_and_fetches_nothing(plain: EpisodeDiff) -> None:
    html = page.to_html(plain)
    read = Reader(html)
    assert plain.sentence in read.words
    for words in ("only in A", "What each ended with", "1 line only in A, 1 line only in B"):
        assert words in read.words
    assert "script" not in read.names
    assert "default-src 'none'" in html
    links = {attrs["href"] for tag, attrs in read.tags if tag == "a"}
    ids = {f"#{attrs['id']}" for _, attrs in read.tags if "id" in attrs}
    assert links == {"#turns", "#p2", "#p3"}
    assert links <= ids
    assert not any("src" in attrs for _, attrs in read.tags)
    assert html == page.to_html(plain)


def test_what_others_wrote_is_text_in_every_place(awkward: EpisodeDiff) -> None:
    controls = Controls(awkward)
    try:
        controls.choose(1)
        drawn = controls._panel.value
        labels = " ".join(label for label, _ in controls._list.options)
    finally:
        controls.close()
    whole, text = page.to_html(awkward), still(awkward)
    for html in (whole, drawn, text["text/html"]):
        assert "script" not in Reader(html).names
        assert "alert(1)" in html
        assert "\\u202eleft" in html
    for each in (whole, drawn, labels, *text.values(), printed(awkward)):
        assert "\x1b" not in each
        assert "\u202e" not in each
        each.encode()
    assert len(whole) < 400_000
    assert len(text["text/html"]) < ROOM * 1.5


def test_pictures_that_differ_are_shown_side_by_side() -> None:
    def drew(colour: str) -> Episode:
        svg = f"<svg xmlns='http://www.w3.org/2000/svg'><rect fill='{colour}'/></svg>"
        turn = attempt(1, "draw()", good=True)
        shown = Display({"image/svg+xml": svg, "text/plain": "<Figure>"})
        return episode(replace(turn, result=CellResult("draw()", "ok", (shown,))))

    compared = diff(drew("red"), drew("blue"))
    assert compared.pairs[0].differs == ("output",)
    read = Reader(page.to_html(compared))
    assert sum(tag == "img" for tag, _ in read.tags) == 2
    assert "Pictures of A" in read.words
    assert "The code is the same." in read.words


def test_steps_are_told_apart_in_all_places() -> None:
    compared = diff(answered(), gave_up())
    title = "A: Step 1: Read `fares` from fares.csv; B: Step 1: Count the rows"
    assert title in " ".join(printed(compared).split())
    read = Reader(page.to_html(compared))
    assert title in read.words
    assert "Answer (only in A)" in read.words
    listed = still(compared)["text/plain"].splitlines()
    assert listed[3] == "Turn 1: - in A, the model made a plan in B (only in B)"
    assert "in A, rejected (failed), 0/1 checks held in B" in listed[5]


def test_a_page_is_written_where_nothing_is_lost(plain: EpisodeDiff, tmp_path: Path) -> None:
    path = page.write(plain, tmp_path / "ab.html")
    assert path.read_text(encoding="utf-8") == page.to_html(plain)
    with pytest.raises(RecordError, match="is there already"):
        page.write(plain, path)
    page.write(plain, path, overwrite=True)
    with pytest.raises(RecordError, match="notebook"):
        page.write(plain, tmp_path / "ab.ipynb")


@pytest.fixture
def controls(plain: EpisodeDiff) -> Iterator[Controls]:
    made = Controls(plain)
    yield made
    made.close()


def test_widgets_go_from_difference_to_difference(controls: Controls, plain: EpisodeDiff) -> None:
    labels = [label for label, _ in controls._list.options]
    assert labels == [
        "The runs",
        "Attempt 1: the same",
        "Attempt 2: code, verdict, tests, output",
        "Attempt 3: only in A",
    ]
    assert controls._count.value == "2 of 3 turns differ"
    assert plain.sentence in Reader(controls._panel.value).words
    controls._next.click()
    assert controls._list.index == 2
    assert "+x = 2" in Reader(controls._panel.value).words
    controls._next.click()
    assert controls._list.index == 3
    controls._next.click()  # there is none behind it
    assert controls._list.index == 3
    controls._previous.click()
    controls._previous.click()
    assert controls._list.index == 0
    controls.choose(1)
    assert "Attempt 1: the same" in Reader(controls._panel.value).words
    assert "x = 1" in Reader(controls._panel.value).words


def test_what_goes_wrong_in_a_callback_is_shown(
    controls: Controls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise ValueError("a <fault>")

    monkeypatch.setattr(controls, "_pair", broken)
    controls.choose(2)
    assert "ValueError: a <fault>" in Reader(controls._panel.value).words


def test_no_widget_outlives_the_comparison(plain: EpisodeDiff) -> None:
    before = len(widget._instances)
    controls = Controls(plain)
    assert len(widget._instances) > before
    controls.close()
    controls.close()
    assert len(widget._instances) == before


def test_the_text_that_stays_is_plain_and_bounded(plain: EpisodeDiff) -> None:
    shown, no = still(plain), "rejected (failed), 0/1 tests passed"
    assert Reader(shown["text/html"]).names <= {"div", "strong", "details", "summary", "pre"}
    assert shown["text/plain"].splitlines() == [
        plain.sentence,
        "A is Find x.",
        "B is Find x.",
        f"Attempt 1: {no} in A, {no} in B (the same)",
        f"Attempt 2: {no} in A, accepted, 1/1 tests passed in B (code, verdict, tests, output)",
        f"Attempt 3: {no} in A, - in B (only in A)",
    ]
    assert set(absent(ABSENT)) == {"text/html", "text/plain"}
    code = "\n".join(f"line {number}" for number in range(CHANGES * 2))
    turns = [attempt(number, f"{code}\n{number}") for number in range(1, 200)]
    long = still(diff(episode(*turns), episode()))
    assert len(long["text/html"]) < ROOM * 1.2
    assert "more turns are not told here" in long["text/html"]
    assert f"and {199 - LISTED} more" in long["text/plain"]


def test_without_a_front_end_a_displayed_comparison_is_printed(
    plain: EpisodeDiff, capsys: pytest.CaptureFixture[str]
) -> None:
    plain._ipython_display_()
    assert plain.sentence in " ".join(capsys.readouterr().out.split())
