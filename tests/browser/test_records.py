"""A recorded episode where people read it: in JupyterLab, trusted or not, and as a page."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Page, expect

from nbrefine.notebook import load
from tests.browser.lab import Lab

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

RECORD = Path("benchmarks", "demo", "seed-0.ipynb")
DATA = Path("nbrefine", "examples", "penguins.csv")

NewPage = Callable[..., Page]


@pytest.fixture
def record(lab: Lab) -> str:
    """The demo's record, as it comes with the checkout, and the data that its cells read."""
    for path in (RECORD, DATA):
        (lab.root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, lab.root / path)
    return str(RECORD)


def _tells_the_episode(page: Page) -> None:
    """See that all of it can be read, and that what is folded opens."""
    expect(page.get_by_role("heading", name="penguins")).to_be_visible()
    verdict = page.locator("p", has_text="Solved after 2 turns: 4/4 tests passed.")
    expect(verdict.first).to_be_visible()
    rejected = page.locator("details").first
    code = rejected.locator("pre").first
    expect(code).to_be_hidden()
    rejected.locator("summary").click()
    expect(code).to_be_visible()
    expect(code).to_contain_text("heaviest = df.groupby('island')")
    expect(page.locator("pre", has_text="+heaviest = df.groupby").first).to_be_visible()


def test_a_record_from_elsewhere_is_told_in_full(lab: Lab, record: str, new_page: NewPage) -> None:
    sheet = lab.open(new_page(), record)
    _tells_the_episode(sheet.page)
    assert sheet.page.locator(".jp-Dialog").count() == 0
    sheet.close()


def test_run_all_of_a_trusted_record_gives_what_was_accepted(
    lab: Lab, record: str, new_page: NewPage
) -> None:
    lab.trust(record)
    sheet = lab.open(new_page(), record)
    _tells_the_episode(sheet.page)
    sheet.run_all()
    cells = [cell for cell in sheet.save()["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] for cell in cells)
    assert [output for cell in cells for output in cell["outputs"]] == []
    # What Lab has saved is still the record of what happened.
    assert load(sheet.path) == load(ROOT / RECORD)
    sheet.close()


def test_a_record_is_a_page_without_a_network(tmp_path: Path, new_page: NewPage) -> None:
    page_file = tmp_path / "record.html"
    exporter = HTMLExporter()  # type: ignore[no-untyped-call]  # has no types
    text, _ = exporter.from_filename(str(ROOT / RECORD))
    page_file.write_text(text, encoding="utf-8")
    page = new_page(offline=True)
    page.goto(page_file.as_uri())
    _tells_the_episode(page)
