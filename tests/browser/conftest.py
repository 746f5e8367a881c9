"""A real browser, and a real JupyterLab, for what a person sees."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.lab import PATIENCE, Lab, running_lab
from tests.conftest import missing

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

SERIOUS = ("serious", "critical")

# Who expects a test to fail does not wait for long.
LOOKS = float(os.environ.get("NBREFINE_EXPECT_SECONDS", PATIENCE / 2))
expect.set_options(timeout=1000 * LOOKS)

T = TypeVar("T")

_FAILED = pytest.StashKey[bool]()

_KEPT = pytest.StashKey[tuple[ExitStack, dict[str, Any]]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test has failed, so that its pages can be kept."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


def _kept(session: pytest.Session, name: str, begin: Callable[[], AbstractContextManager[T]]) -> T:
    """Give what all files here share, begun where it has not been."""
    if CHROMIUM is None:
        missing("Chromium")
    stack, found = session.stash.setdefault(_KEPT, (ExitStack(), {}))
    if name not in found:
        found[name] = stack.enter_context(begin())
    kept: T = found[name]
    return kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """End what files here share before a test of another folder.

    Those count the processes that are there, and the browser's event loop would be in their way.
    """
    yield
    elsewhere = nextitem is None or Path(__file__).parent not in nextitem.path.parents
    if elsewhere and _KEPT in item.session.stash:
        stack, _ = item.session.stash[_KEPT]
        del item.session.stash[_KEPT]
        stack.close()


@pytest.fixture
def browser(request: pytest.FixtureRequest) -> Browser:
    return _kept(request.session, "browser", _launched)


@contextmanager
def _launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-dev-shm-usage",
                "--disable-extensions",
                "--disable-sync",
                "--no-first-run",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture
def new_page(
    browser: Browser, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., Page]]:
    """Open pages, each in a context of its own; those of a test that fails are kept as pictures."""
    opened: list[Page] = []

    def open_page(**settings: Any) -> Page:
        viewport = {"width": 1200, "height": 900}
        context = browser.new_context(**{"viewport": viewport, **settings})
        context.set_default_timeout(1000 * PATIENCE / 2)
        opened.append(context.new_page())
        return opened[-1]

    yield open_page
    for number, page in enumerate(opened):
        if request.node.stash.get(_FAILED, False) and not page.is_closed():
            page.screenshot(path=tmp_path / f"failed-{number}.png")
        page.context.close()


@pytest.fixture
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return _kept(
        request.session, "lab", lambda: running_lab(tmp_path_factory.mktemp("lab") / "home")
    )


@pytest.fixture(scope="session")
def axe() -> Callable[..., list[str]]:
    """Find what keeps people with disabilities out of a page or a part of it, a line each."""
    script = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")

    def found(page: Page, part: str = "html") -> list[str]:
        page.evaluate(f"() => {{ {script} }}")
        violations = page.evaluate("part => axe.run(part).then(found => found.violations)", part)
        return [
            f"{each['impact']} {each['id']}: {node['target']} {node['html']}"
            for each in violations
            if each["impact"] in SERIOUS
            for node in each["nodes"]
        ]

    return found
