"""What a person calls the cells of an episode."""

from __future__ import annotations

from nbrefine.notebook.cells import build
from nbrefine.notebook.places import place, places
from nbrefine.values import Episode
from tests.steps import answered


def test_cells_are_named_by_step_and_attempt_where_there_are_several() -> None:
    episode = answered()
    assert list(places(episode).values()) == [
        "Step 1, turn 1",
        "Step 1, attempt 1",
        "Step 1, attempt 2",
        "Step 2, attempt 1",
        "Step 3, attempt 1",
        "Step 3, attempt 2",
        "The answer, turn 7",
        "The answer, turn 8",
    ]
    assert place(episode, "s03-checks") == "Step 3, checks"
    assert place(episode, "s04-plan") == "The answer, head"
    assert place(episode, "ep-checks") == "Checks of the answer"
    assert place(episode, "mine") == "mine"


def test_every_cell_of_a_notebook_has_a_name(repaired: Episode) -> None:
    for episode in (repaired, answered()):
        ids = [cell["id"] for cell in build(episode, "e.ipynb")]
        assert not [each for each in ids if place(episode, each) == each]
    assert list(places(repaired).values()) == ["Attempt 1", "Attempt 2"]
