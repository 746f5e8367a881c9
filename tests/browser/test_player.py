"""The player in a real JupyterLab: by mouse and by keyboard, saved, opened again, as a page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import Lab, Sheet

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

VIEW = "application/vnd.jupyter.widget-view+json"

NewPage = Callable[..., Page]

SHOW = "import nbrefine\nnbrefine.show('seed-0.ipynb')"
GUESS = "nbrefine.show('seed-0.ipynb', predict=True)"
COUNT = "from ipywidgets.widgets import widget\nprint(len(widget._instances))"


@pytest.fixture
def sheet(lab: Lab, new_page: NewPage) -> Iterator[Sheet]:
    """A notebook that shows the demo's record, run from top to bottom."""
    name = lab.write([SHOW, GUESS, COUNT])
    record = ROOT / "benchmarks" / "demo" / "seed-0.ipynb"
    shutil.copyfile(record, (lab.root / name).with_name(record.name))
    sheet = lab.open(new_page(), name)
    sheet.run_all()
    yield sheet
    sheet.close()


def player(sheet: Sheet, number: int) -> Locator:
    return sheet.outputs(number).locator(".nbrefine-player")


def test_a_person_goes_through_an_episode_with_mouse_or_keyboard(
    sheet: Sheet, axe: Callable[..., list[str]]
) -> None:
    shown, page = player(sheet, 0), sheet.page
    button = shown.get_by_role("button", name="Next")
    heading = shown.get_by_role("status")
    expect(heading).to_have_text("Attempt 1 of 2: rejected (failed), 0/4 tests passed")
    button.click()
    expect(heading).to_have_text("Attempt 2 of 2: accepted, 4/4 tests passed")
    expect(shown.get_by_text("Solved after 2 turns: 4/4 tests passed.")).to_be_visible()
    shown.get_by_role("button", name="Previous").press("Space")
    expect(heading).to_contain_text("Attempt 1 of 2")
    button.press("Enter")
    expect(heading).to_contain_text("Attempt 2 of 2")
    shown.get_by_label("Scenes").press("Home")  # Lab takes the arrows to go from cell to cell
    expect(heading).to_contain_text("Attempt 1 of 2")
    for tab, words in (
        ("Output", "KeyError: 'island'"),
        ("Tests", "not run"),
        ("Diff", "no attempt before it"),
        ("Variables", "It ran in"),
        ("Prompt", "Message 2: user"),
        ("Run again", "nbrefine replay seed-0.ipynb"),
        ("Code", "heaviest = df.groupby('island')"),
    ):
        shown.get_by_role("tab", name=tab).click()
        panel = shown.locator(".widget-tab-contents .nbrefine-part").filter(visible=True)
        expect(panel).to_contain_text(words)
        assert axe(page, ".nbrefine-player") == []

    guessed = player(sheet, 1)
    heading = guessed.get_by_role("status")
    expect(heading).to_have_text("Attempt 1")
    guessed.get_by_role("tab", name="Output").click()
    expect(guessed.get_by_text("What will happen?").filter(visible=True)).to_have_count(1)
    expect(guessed.get_by_text("KeyError").filter(visible=True)).to_have_count(0)
    guessed.get_by_role("button", name="Reveal").press("Enter")
    expect(heading).to_contain_text("Attempt 1 of 2: rejected")
    expect(guessed.get_by_text("What will happen?").filter(visible=True)).to_have_count(0)
    guessed.get_by_role("button", name="Next").click()
    expect(heading).to_have_text("Attempt 2")
    guessed.get_by_role("button", name="Reveal").click()
    expect(heading).to_contain_text("Attempt 2 of 2: accepted")
    assert axe(page, ".nbrefine-player") == []


def test_a_cell_that_runs_again_takes_its_widgets_with_it_and_the_notebook_reads_everywhere(
    sheet: Sheet, lab: Lab, new_page: NewPage, tmp_path: Path
) -> None:
    widgets = sheet.outputs(2).inner_text()
    assert int(widgets) > 0
    for number in (0, 1, 0, 2):
        sheet.run(number)
    expect(sheet.outputs(2)).to_have_text(widgets)

    saved = sheet.save()
    assert "widgets" not in saved["metadata"]
    for number in (0, 1):
        first, second = [output["data"] for output in saved["cells"][number]["outputs"]]
        assert set(first) == {"text/html", "text/plain"}
        assert set(second) == {"text/html", "text/plain", VIEW}
    sheet.close()
    verdict, invitation = "Solved after 2 turns: 4/4 tests passed.", "Run this cell to leaf through"

    elsewhere = f"copy-{sheet.path.name}"
    # Lab knows what it has signed by its content.
    saved["metadata"]["title"] = elsewhere
    (lab.root / elsewhere).write_text(nbformat.writes(nbformat.from_dict(saved)))  # type: ignore[no-untyped-call]
    untrusted = lab.open(new_page(), elsewhere)
    expect(untrusted.outputs(0)).to_contain_text(verdict)
    expect(untrusted.outputs(0)).to_contain_text(invitation)
    expect(untrusted.outputs(1)).not_to_contain_text("Solved")
    untrusted.close()

    lab.trust(elsewhere)
    trusted = lab.open(new_page(), elsewhere)
    expect(trusted.outputs(0)).to_contain_text(verdict)
    details = trusted.outputs(0).locator("details")
    details.locator("summary").click()
    expect(details.get_by_text(re.compile("Attempt 2 of 2: accepted"))).to_be_visible()
    trusted.close()

    exporter = HTMLExporter()  # type: ignore[no-untyped-call]  # has no types
    file = tmp_path / "page.html"
    file.write_text(exporter.from_filename(str(sheet.path))[0], encoding="utf-8")
    page = new_page(offline=True)
    page.goto(file.as_uri())
    expect(page.get_by_text(verdict)).to_be_visible()
    expect(page.get_by_text(invitation).first).to_be_visible()
