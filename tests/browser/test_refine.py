"""An agent asked from a cell of a real JupyterLab, and a cell that is tried there."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from nbrefine.notebook import load
from tests.browser.lab import PATIENCE, Lab, Sheet
from tests.magics.kernels import command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NewPage = Callable[..., Page]

REPLIES = [
    "```python\ndef median(xs):\n    return xs[0]\n```",
    "```python\nmedian = lambda xs: sorted(xs)[len(xs) // 2]\nwhile True: pass\n```",
]
AGENT = [
    "%load_ext nbrefine",
    f"replies = {REPLIES!r}",
    "%%refine --here --model replies --tests 'assert median([3, 1, 2]) == 2'\nWrite median(xs).",
    "'after'",
]
RUN_ALL = "() => { jupyterapp.commands.execute('notebook:run-all-cells'); }"
RESTART = "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
INTERRUPT = "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.interrupt()"


@pytest.fixture
def opened(lab: Lab, new_page: NewPage) -> Callable[..., Sheet]:
    def opened(sources: list[str], kernel: str = "python3") -> Sheet:
        return lab.open(new_page(), lab.write(sources, kernel))

    return opened


def picture(page: Page, name: str) -> None:
    """Keep a picture where somebody has asked for pictures."""
    if folder := os.environ.get("NBREFINE_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def begun(sheet: Sheet) -> None:
    """Run all cells, and wait until the second attempt runs, which never ends."""
    sheet.page.evaluate(RUN_ALL)
    status = sheet.outputs(2).get_by_role("status")
    running = status.filter(has_text="Attempt 2 of 5, running the code")
    expect(running).to_be_visible(timeout=2000 * PATIENCE)  # a kernel has started until then


def ended(sheet: Sheet) -> None:
    """See that text stands where the panel was."""
    told = sheet.outputs(2).locator(".jp-RenderedHTMLCommon")
    expect(told.filter(has_text="stopped by a person")).to_be_visible()
    expect(sheet.outputs(2).locator(".jupyter-widgets")).to_have_count(0)


def saved(sheet: Sheet) -> list[dict[str, Any]]:
    """Save the notebook, see that it holds no widget, and give its cells."""
    file = sheet.save()
    assert "widgets" not in file["metadata"]
    kinds = [
        kind
        for cell in file["cells"]
        for output in cell["outputs"]
        for kind in output.get("data", {})
    ]
    assert set(kinds) <= {"text/plain", "text/html"}
    cells: list[dict[str, Any]] = file["cells"]
    return cells


def test_stop_now_ends_the_work_and_the_notebook_goes_on(
    opened: Callable[..., Sheet], axe: Callable[..., list[str]]
) -> None:
    sheet = opened(AGENT)
    begun(sheet)
    panel = sheet.outputs(2)
    panel.get_by_role("tab", name="Tests").click()
    expect(panel.get_by_text("got 3; expected 2").first).to_be_visible()
    picture(sheet.page, "refine-tests")
    panel.get_by_role("tab", name="Code").click()
    expect(panel.locator("pre", has_text="return xs[0]").first).to_be_visible()
    picture(sheet.page, "refine-code")
    assert axe(sheet.page, ".nbrefine-player") == []
    pressed = time.monotonic()
    panel.get_by_role("button", name="Stop now").click()
    ended(sheet)
    print(f"Stop now acted within {time.monotonic() - pressed:.2f} s")  # noqa: T201 - a figure
    expect(sheet.outputs(3)).to_contain_text("after")
    picture(sheet.page, "refine-ended")
    outputs = saved(sheet)[2]["outputs"]
    assert [sorted(each["data"]) for each in outputs] == [["text/html", "text/plain"]]
    sheet.close()


def test_stop_after_attempt_lets_the_attempt_end(opened: Callable[..., Sheet]) -> None:
    waits = AGENT[2].replace("--here", "--here --timeout 4")
    sheet = opened([*AGENT[:2], waits, AGENT[3]])
    begun(sheet)
    panel = sheet.outputs(2)
    panel.get_by_role("button", name="Stop after attempt").click()
    expect(panel.get_by_text("It ends with this attempt.")).to_be_visible()
    ended(sheet)
    expect(panel).to_contain_text("Attempt 2 of 2: rejected (timeout)")
    sheet.close()


def test_an_interrupt_ends_the_work_and_run_all(opened: Callable[..., Sheet]) -> None:
    sheet = opened(AGENT)
    begun(sheet)
    pressed = time.monotonic()
    sheet.page.evaluate(INTERRUPT)
    ended(sheet)
    print(f"The interrupt acted within {time.monotonic() - pressed:.2f} s")  # noqa: T201 - a figure
    expect(sheet.outputs(2)).to_contain_text("UsageError: interrupted")
    cells = saved(sheet)
    assert [cell["execution_count"] for cell in cells] == [1, 2, 3, None]
    sheet.close()


def test_after_a_restart_of_the_kernel_the_panel_does_not_say_that_anything_runs(
    opened: Callable[..., Sheet], axe: Callable[..., list[str]]
) -> None:
    sheet = opened(AGENT)
    begun(sheet)
    panel = sheet.outputs(2)
    lost = panel.get_by_text("This panel has lost its kernel.")
    expect(lost).to_be_hidden()
    sheet.page.evaluate(RESTART)
    expect(lost).to_be_visible()
    picture(sheet.page, "refine-restarted")
    expect(panel.get_by_text("running the code")).to_be_hidden()
    expect(panel.get_by_role("button")).to_have_count(0)
    expect(panel.locator("pre", has_text="return xs[0]").first).to_be_visible()
    assert axe(sheet.page, ".nbrefine-player") == []
    expect(panel.get_by_text("is in episode.ipynb.")).to_be_visible()
    (left,) = load(sheet.path.parent / "episode.ipynb").turns
    assert left.code == "def median(xs):\n    return xs[0]"
    sheet.close()


def test_before_ipykernel_7_the_panel_names_what_acts(
    lab: Lab, opened: Callable[..., Sheet]
) -> None:
    argv = command("6.31")
    spec = Path(lab.env["JUPYTER_DATA_DIR"], "kernels", "older", "kernel.json")
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": argv, "display_name": "older", "language": "python"}))
    here = [AGENT[0], AGENT[1], AGENT[2].replace("--here ", ""), AGENT[3]]
    sheet = opened(here, "older")
    begun(sheet)
    expect(sheet.outputs(2)).to_contain_text("■ (interrupt the kernel) ends the work")
    expect(sheet.outputs(2).get_by_role("button", name="Stop now")).to_be_disabled()
    picture(sheet.page, "refine-6")
    sheet.page.evaluate(INTERRUPT)
    ended(sheet)
    expect(sheet.outputs(2)).to_contain_text("UsageError: interrupted")
    cells = saved(sheet)
    assert [cell["execution_count"] for cell in cells] == [1, 2, 3, None]
    sheet.close()


def test_in_the_background_later_cells_go_on(opened: Callable[..., Sheet]) -> None:
    apart = AGENT[2].replace("--here", "--background")
    sheet = opened([*AGENT[:2], apart, AGENT[3]])
    sheet.run_all()
    expect(sheet.outputs(3)).to_contain_text("after")
    panel = sheet.outputs(2)
    status = panel.get_by_role("status")
    running = status.filter(has_text="Attempt 2 of 5, running the code")
    expect(running).to_be_visible(timeout=2000 * PATIENCE)
    picture(sheet.page, "refine-background")
    panel.get_by_role("button", name="Stop now").click()
    ended(sheet)
    saved(sheet)
    sheet.close()


def test_a_cell_that_was_tried_is_kept_or_discarded_by_a_button(
    lab: Lab,
    new_page: NewPage,
    opened: Callable[..., Sheet],
    axe: Callable[..., list[str]],
) -> None:
    sheet = opened(
        [
            "%load_ext nbrefine\nrows = [1]",
            "%%try\nrows.append(2)\nprint(len(rows))",
            "rows",
            "%%try\nrows.clear()",
            "rows",
            "%%try\nrows = []",
            "rows",
        ]
    )
    for number in (0, 1):
        sheet.run(number)
    tried = sheet.outputs(1)
    expect(tried.get_by_role("row", name="rows")).to_be_visible()
    picture(sheet.page, "try")
    assert axe(sheet.page, ".jp-Notebook .widget-vbox") == []
    tried.get_by_role("button", name="Keep").click()
    expect(tried).to_contain_text("Kept: the cell has run here.")
    expect(tried.locator(".jupyter-widgets")).to_have_count(0)
    sheet.run(2)
    expect(sheet.outputs(2)).to_contain_text("[1, 2]")
    sheet.run(3)
    again = sheet.outputs(3)
    again.get_by_role("button", name="Discard").click()
    expect(again).to_contain_text("The attempt is discarded.")
    sheet.run(4)
    expect(sheet.outputs(4)).to_contain_text("[1, 2]")
    for number in (5, 6):
        sheet.run(number)
    unanswered = sheet.outputs(5)
    expect(unanswered).to_contain_text("The attempt waits: %keep runs it here")
    expect(unanswered.locator(".jupyter-widgets")).to_have_count(0)
    picture(sheet.page, "try-ended")
    saved(sheet)
    sheet.close()
    name = str(sheet.path.relative_to(lab.root))
    lab.trust(name)
    reopened = lab.open(new_page(), name)
    expect(reopened.outputs(5)).to_contain_text("The attempt waits: %keep runs it here")
    expect(reopened.page.get_by_text("Error displaying widget")).to_have_count(0)
    reopened.close()
