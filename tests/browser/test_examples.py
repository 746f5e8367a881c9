"""The example episodes where people read them: in JupyterLab, trusted or not, and as a page."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import Page, Request, expect

from nbrefine.examples import EXAMPLES, example, path_of
from tests.browser.lab import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NewPage = Callable[..., Page]


@pytest.fixture
def folder(lab: Lab) -> str:
    """All examples as files of the user's own."""
    shutil.copytree(path_of("cycle").parent, lab.root / "episodes", dirs_exist_ok=True)
    return "episodes"


def _tells(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", name=example(name).task.id).first).to_be_visible()
    expect(page.get_by_text("Result", exact=True).first).to_be_attached()
    assert page.get_by_text("Error displaying widget").count() == 0
    assert page.locator(".jp-Dialog").count() == 0


def test_each_is_told_in_lab_as_it_comes(lab: Lab, folder: str, new_page: NewPage) -> None:
    page = new_page()  # one, which has Lab's scripts after the first
    for name in EXAMPLES:
        sheet = lab.open(page, f"{folder}/{name}.ipynb")
        _tells(page, name)
        sheet.close()


def test_each_runs_in_lab_once_it_is_trusted(lab: Lab, folder: str, new_page: NewPage) -> None:
    page = new_page()
    for name in EXAMPLES:
        record = f"{folder}/{name}.ipynb"
        lab.trust(record)
        sheet = lab.open(page, record)
        _tells(page, name)
        sheet.run_all()
        _tells(page, name)
        cells = [cell for cell in sheet.save()["cells"] if cell["cell_type"] == "code"]
        assert all(cell["execution_count"] for cell in cells if cell["source"])
        kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
        assert "error" not in kinds
        sheet.close()


def test_each_is_a_page_that_asks_for_nothing(tmp_path: Path, new_page: NewPage) -> None:
    """What nbconvert's own template fetches for formulas and old widgets is left out."""
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]  # has no types
        mathjax_url="", require_js_url="", jquery_url="", mermaid_js_url=""
    )
    page, asked = new_page(offline=True), list[str]()

    def note(request: Request) -> None:
        asked.append(request.url)

    page.on("request", note)
    for name in EXAMPLES:
        text, _ = exporter.from_filename(str(path_of(name)))
        file = tmp_path / f"{name}.html"
        file.write_text(text, encoding="utf-8")
        page.goto(file.as_uri())
        _tells(page, name)
        rejected = page.locator("details").first
        if rejected.count():
            rejected.locator("summary").click()
            expect(rejected.locator("pre").first).to_be_visible()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
