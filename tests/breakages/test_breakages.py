"""The tests of what a person sees turn red where it is broken: five mistakes, each kept as a patch.

The patches are made to a copy of the package, and the tests that they are to break run on the copy.
On the package as it is those tests run with all others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Breakage:
    """A mistake, and the test that finds it."""

    told: str
    test: str
    words: str
    """What the failing test says, so that no other trouble is taken for it."""


BREAKAGES = {
    "widget": Breakage(
        "the player's tabs are put into the notebook, and not the whole of it",
        "tests/browser/test_player.py"
        "::test_a_person_goes_through_an_episode_with_mouse_or_keyboard",
        ".nbrefine-player",
    ),
    "stop": Breakage(
        "an interrupt passes by what takes errors, of which a cancellation is none",
        "tests/magics/test_refine_ends.py"
        "::test_an_interrupt_ends_cell_attempt_and_record[newest-spin]",
        "stopped by a person",
    ),
    "static-fallback": Breakage(
        "the text that is to stay is put into the output that shows the widget",
        "tests/views/test_player.py"
        "::test_a_notebook_that_showed_it_reads_as_a_page_without_the_widgets",
        "Solved after 2 turns",
    ),
    "reveal": Breakage(
        "what one has come to is shown before it is revealed",
        "tests/views/test_player.py::test_what_came_of_an_attempt_is_hidden_until_it_is_revealed",
        "Attempt 1: failed",
    ),
    "html-page": Breakage(
        "texts are put into the page as if they were markup",
        "tests/views/test_page.py::test_text_of_programs_and_models_is_text_and_nothing_else",
        "script",
    ),
}


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder with a copy of the package that has the mistakes."""
    shutil.copytree(ROOT / "nbrefine", tmp_path / "nbrefine")
    for name, breakage in BREAKAGES.items():
        patch = Path(__file__).with_name(f"{name}.patch")
        applied = subprocess.run(
            ["git", "apply", "-p1", str(patch)],
            cwd=tmp_path,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        if applied.returncode:
            pytest.fail(
                f"{patch.name} no longer fits the package; write the same mistake into it anew "
                f"({breakage.told}):\n{applied.stderr}"
            )
    return tmp_path


def test_every_patch_is_named_here() -> None:
    assert {each.stem for each in Path(__file__).parent.glob("*.patch")} == set(BREAKAGES)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_each_mistake_turns_its_test_red(broken: Path) -> None:
    """All at once, as no two of them are in the way of one test; what a test says tells which."""
    report = broken / "report.xml"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    ran = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *(f"--junitxml={report}", f"--basetemp={broken / 'temporary'}"),
            *(breakage.test for breakage in BREAKAGES.values()),
        ],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(broken), "NBREFINE_EXPECT_SECONDS": "5"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), ran.stdout + ran.stderr
    failed = {
        case.get("name", ""): failure.get("message", "")
        for case in ET.parse(report).getroot().iter("testcase")
        for failure in case.iter("failure")
    }
    assert set(failed) == {each.test.rpartition("::")[2] for each in BREAKAGES.values()}, ran.stdout
    for breakage in BREAKAGES.values():
        assert breakage.words in failed[breakage.test.rpartition("::")[2]], breakage.told
