"""The pictures of the pages: taken in a real JupyterLab and a real browser, from real runs.

    python docs/pictures.py [NAME ...]

needs what the tests need, Chromium among it.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser.lab import Lab, Sheet, running_lab  # noqa: E402 - found through the line above

FOLDER = ROOT / "docs" / "pictures"
LIMIT = 80_000
"""Bytes that a picture may have."""

RUN_ALL = "() => { jupyterapp.commands.execute('notebook:run-all-cells'); }"

FARES = """import pandas as pd
%load_ext nbrefine
df = pd.DataFrame({"line": [1, 1, 2, 2], "fare": [2.4, None, 3.1, 2.9]})"""
REPLIES = [
    "```python\ndf['fare'] = df['fare'].fillna(0)\n```",
    "```python\nmeans = df.groupby('line')['fare'].mean()\nwhile len(means):\n    pass\n```",
]
ASKED = """%%refine --here --model replies --tests "assert df['fare'].min() > 2"
Fill the missing fares in df with the mean of their line."""


def main(wanted: list[str]) -> None:
    with TemporaryDirectory() as home, sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with running_lab(Path(home) / "lab") as lab:
            for name, take in PICTURES.items():
                if not wanted or name in wanted:
                    take(browser, lab)
        browser.close()


def panel(browser: Browser, lab: Lab) -> None:
    """An agent at work, in its second attempt."""
    sheet = opened(browser, lab, [FARES, f"replies = {REPLIES!r}", ASKED])
    sheet.page.evaluate(RUN_ALL)
    shown = sheet.outputs(2)
    shown.get_by_role("status").filter(has_text="Attempt 2 of 5, running the code").wait_for()
    shown.get_by_role("tab", name="Tests").click()
    keep("panel", cell(sheet, 2), height=800)
    shown.get_by_role("button", name="Stop now").click()
    sheet.close()


def attempt(browser: Browser, lab: Lab) -> None:
    """A cell that was tried, with its buttons."""
    sheet = opened(browser, lab, [FARES, "%%try\ndf = df.dropna()\nshops = len(df)"])
    sheet.run_all()
    sheet.outputs(1).get_by_role("button", name="Keep").wait_for()
    keep("try", cell(sheet, 1))
    sheet.close()


def player(browser: Browser, lab: Lab) -> None:
    """The player at the rejected attempt of the demo."""
    shutil.copyfile(ROOT / "benchmarks/demo/seed-0.ipynb", lab.root / "demo.ipynb")
    sheet = opened(browser, lab, ["import nbrefine\nnbrefine.show('demo.ipynb')"])
    sheet.run_all()
    shown = sheet.outputs(0).locator(".nbrefine-player")
    shown.get_by_role("tab", name="Tests").wait_for()
    keep("player", shown)
    sheet.close()


def page(browser: Browser, lab: Lab) -> None:
    """The top of an episode's page."""
    from nbrefine import load
    from nbrefine.views import page as pages

    file = lab.root / "demo.html"
    pages.write(load(ROOT / "benchmarks/demo/seed-0.ipynb"), file)
    keep_page("page", browser, file, height=1250)


def diff(browser: Browser, lab: Lab) -> None:
    """The top of the page that compares two runs of the demo."""
    from nbrefine.views import diff as diffs

    seeds = ("seed-0.ipynb", "seed-1.ipynb")
    with contextlib.chdir(ROOT / "benchmarks" / "demo"):  # the page has the names as given
        compared = diffs.diff(*seeds)
    file = lab.root / "diff.html"
    diffs.write(compared, file)
    keep_page("diff", browser, file, height=1150)


def opened(browser: Browser, lab: Lab, sources: list[str]) -> Sheet:
    form: Any = nbformat.v4
    made = form.new_notebook(
        cells=[form.new_code_cell(each) for each in sources],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    path = lab.root / "notebook.ipynb"
    nbformat.write(made, path)  # type: ignore[no-untyped-call]  # has no types
    page = browser.new_page(viewport={"width": 900, "height": 1500}, color_scheme="light")
    return lab.open(page, path.name)


def cell(sheet: Sheet, number: int) -> Locator:
    """Give a cell without what Lab shows only for whoever points at it."""
    sheet.page.add_style_tag(content=".jp-cell-toolbar, .jp-Collapser { visibility: hidden }")
    return sheet.page.locator(".jp-Notebook .jp-Cell").nth(number)


def keep_page(name: str, browser: Browser, file: Path, *, height: int) -> None:
    """Keep the top of a page."""
    shown = browser.new_page(viewport={"width": 900, "height": height}, color_scheme="light")
    shown.goto(file.as_uri())
    keep(name, shown)
    shown.close()


def keep(name: str, shown: Locator | Page, *, height: int = 2000) -> None:
    """Write a picture, of this height at most, with as few colours as it needs."""
    image = Image.open(io.BytesIO(shown.screenshot()))
    image = image.crop((0, 0, image.width, min(height, image.height)))
    path = FOLDER / f"{name}.png"
    image.convert("RGB").quantize(64).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {image.width} x {image.height}, {path.stat().st_size:,} B")
    if path.stat().st_size > LIMIT:
        raise SystemExit(f"{path.name} has more than {LIMIT:,} B")


PICTURES: dict[str, Callable[[Browser, Lab], None]] = {
    "panel": panel,
    "try": attempt,
    "player": player,
    "page": page,
    "diff": diff,
}

if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main(sys.argv[1:])
