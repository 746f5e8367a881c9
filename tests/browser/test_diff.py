"""Two runs compared in a real browser: the page from its file, and the widgets in JupyterLab."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from nbrefine.views import diff as diffs
from tests.browser.lab import Lab
from tests.steps import answered, gave_up

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NewPage = Callable[..., Page]
Axe = Callable[..., list[str]]

SHOW = "import nbrefine\nnbrefine.diff('seed-0.ipynb', 'seed-1.ipynb')"


def test_the_page_is_complete_without_a_network(
    new_page: NewPage, axe: Axe, tmp_path: Path
) -> None:
    path = diffs.write(diffs.diff(answered(), gave_up()), tmp_path / "ab.html")
    page = new_page(offline=True)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    expect(page.get_by_role("heading", level=1)).to_have_text("mean-fare and uncountable")
    expect(page.locator("ins").first).to_have_css("background-color", "rgb(223, 243, 228)")
    assert axe(page) == []
    page.emulate_media(color_scheme="dark")
    expect(page.locator("ins").first).to_have_css("background-color", "rgb(23, 58, 36)")
    assert axe(page) == []
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.url.endswith("#turns")
    page.get_by_role("link", name="Step 1, attempt 2").click()
    detail = page.get_by_role("region", name="Step 1, attempt 2")
    expect(detail).to_be_in_viewport()
    expect(detail).to_contain_text("+rows = 4")
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 400
    assert complaints == []


def test_the_widgets_go_through_the_differences_and_text_stays(
    lab: Lab, new_page: NewPage, axe: Axe
) -> None:
    name = lab.write([SHOW])
    for record in ("seed-0.ipynb", "seed-1.ipynb"):
        shutil.copyfile(ROOT / "benchmarks" / "demo" / record, (lab.root / name).with_name(record))
    sheet = lab.open(new_page(), name)
    try:
        sheet.run_all()
        shown = sheet.outputs(0).locator(".nbrefine-player")
        heading = shown.get_by_role("status")
        expect(heading).to_have_text(
            "Both solved it in attempt 2. They part at attempt 1: other code."
        )
        assert axe(sheet.page, ".nbrefine-player") == []
        shown.get_by_role("button", name="Next").click()
        expect(heading).to_have_text("Attempt 1: code")
        expect(shown.locator("pre.changes")).to_contain_text("-# Check the results")
        shown.get_by_role("button", name="Next").press("Enter")
        expect(heading).to_have_text("Attempt 2: code")
        assert axe(sheet.page, ".nbrefine-player") == []
        shown.get_by_label("Turns").press("Home")
        expect(heading).to_contain_text("Both solved it")
        sheet.page.evaluate(
            "() => jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
        )
        expect(sheet.page.locator("body")).to_have_attribute("data-jp-theme-light", "false")
        assert axe(sheet.page, ".nbrefine-player") == []
        sheet.page.evaluate(
            "() => jupyterapp.commands.execute("
            "'apputils:change-theme', {theme: 'JupyterLab Light'})"
        )
        first, second = [output["data"] for output in sheet.save()["cells"][0]["outputs"]]
        assert "Both solved it in attempt 2." in "".join(first["text/plain"])
        assert "Run this cell" in "".join(second["text/plain"])
    finally:
        sheet.close()
