"""The buttons below a cell that was tried do what `%keep` and `%discard` do."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.magics.front import Client, connected
from tests.magics.kernels import until

COMMAND = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connected(tmp_path_factory.mktemp("k"), COMMAND) as client:
        yield client


def tried(front: Client, source: str) -> None:
    front.begin(f"%%try\n{source}", widgets=True)
    front.listen()
    assert front.shown["text/plain"] == "Keep or Discard: %keep and %discard do the same."


def pressed(front: Client, button: str, told: str) -> None:
    """Press a button and wait until text stands in its place, and no widget is left."""
    front.press(button)
    front.listen_until(lambda: told in front.shown.get("text/plain", ""))

    def gone() -> bool:
        front.take_what_is_there()
        return not front.states

    until(gone)


def test_keep_runs_the_cell_once_and_leaves_text(front: Client) -> None:
    front.run("rows = [1]; same = rows")
    tried(front, "rows.append(2); extra = 'new'")
    assert any("rows" in text and "changed" in text for text in front.texts())
    assert any("extra" in text and "new" in text for text in front.texts())
    pressed(front, "Keep", "Kept.")
    assert front.run("rows, rows is same, extra") == "([1, 2], True, 'new')"


def test_what_was_compared_in_part_is_named_above_the_buttons(front: Client) -> None:
    front.run("drawn = (n for n in range(9))")
    tried(front, "first = next(drawn)")
    assert any("Compared only in part: drawn." in text for text in front.texts())
    pressed(front, "Discard", "Discarded.")


def test_columns_that_come_and_go_are_named(front: Client) -> None:
    """The first rows show them only where a table is narrow."""
    front.run("import pandas as pd; table = pd.DataFrame({'x': [1], 'y': [2]})")
    tried(front, "table = table.rename(columns={'x': 'z'})")
    assert any("Columns of table: new z; gone x." in text for text in front.texts())
    pressed(front, "Discard", "Discarded.")


def test_discard_forgets_it(front: Client) -> None:
    front.run("kept = [1]")
    tried(front, "kept.clear()")
    pressed(front, "Discard", "Discarded.")
    assert front.run("kept") == "[1]"


def test_a_cell_that_awaits_and_one_that_fails_here_are_told(front: Client) -> None:
    front.run("import os; home = os.getpid()")
    tried(front, "import asyncio\nawait asyncio.sleep(0); slept = 1")
    pressed(front, "Keep", "Kept.")
    assert front.run("slept") == "1"
    tried(front, "assert os.getpid() != home")
    pressed(front, "Keep", "The cell failed here, though it had run in the branch")
    assert "AssertionError" in front.errors


def test_the_magics_take_the_buttons_away(front: Client) -> None:
    front.run("last = [1]")
    tried(front, "last.append(2)")
    front.begin("%keep")
    front.listen()
    assert front.states == {}
    assert front.run("last") == "[1, 2]"


def test_buttons_that_nobody_presses_make_way_for_text(front: Client) -> None:
    """So the notebook that is saved holds no widget, and the attempt still waits."""
    front.run("waiting = [1]")
    tried(front, "waiting.append(2)")
    asked = front.asked
    front.begin("waiting")
    front.asked = asked
    front.listen_until(lambda: "text/html" in front.shown)
    assert front.shown["text/plain"] == (
        "The attempt waits: %keep runs it here, %discard forgets it."
    )
    assert front.run("%keep\nwaiting") == "[1, 2]"
    assert front.states == {}


def test_who_runs_notebooks_gets_no_buttons(front: Client) -> None:
    front.opened.clear()
    front.begin("%%try\nquiet = 1")
    front.listen()
    assert front.opened == set()
    front.run("%discard")
