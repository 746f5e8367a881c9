"""The live panel of `%%refine`: what it shows, what a person chooses, and what goes wrong in it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.magics.front import Client, connected

COMMAND = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]

WAITING = """
import threading, time
go = threading.Event()
def slowly(messages):
    number = len(messages[-1].content) and next(count)
    if number > 2:
        go.wait(60)
    return f"```python\\nvalue = {number}\\n```"
import itertools
count = itertools.count(1)
"""

STUBBORN = (
    "```python\\nimport time\\nwhile True:\\n    try:\\n        time.sleep(60)\\n"
    "    except BaseException:\\n        pass\\n```"
)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with connected(tmp_path_factory.mktemp("k"), COMMAND) as client:
        yield client


@pytest.fixture
def working(front: Client) -> Iterator[Client]:
    """An agent that has made two attempts, and is asked for the third."""
    front.run(WAITING)
    front.begin(
        "%%refine --here --model slowly --tests 'assert value == 3' --max-total-tokens 9000\n"
        "Bind value.",
        widgets=True,
    )
    front.listen("Attempt 3 of 5, asking the model")
    front.listen("got 2; expected 3")
    yield front
    front.press("Stop now")
    front.listen()
    assert front.states == {}


def turns(front: Client) -> dict[str, Any]:
    (state,) = (each for each in front.states.values() if each.get("description") == "Turns")
    return state


def test_it_tells_where_the_work_stands_and_what_came_of_each_turn(working: Client) -> None:
    texts = " ".join(working.texts())
    assert "Bind value." in texts
    assert "0 of 9,000 tokens, " in texts
    assert "got 2; expected 3" in texts  # the newest attempt that has ended
    assert turns(working)["_options_labels"] == ["Attempt 1: failed", "Attempt 2: failed"]
    assert turns(working)["index"] == 1


def test_a_turn_that_a_person_chooses_stays_chosen(working: Client) -> None:
    working.choose("Turns", index=0)
    working.listen("got 1; expected 3")
    working.press("Stop after attempt")
    working.listen("It ends with this attempt.")
    assert turns(working)["index"] == 0
    assert "got 1; expected 3" in " ".join(working.texts())


def test_what_goes_wrong_in_it_is_shown_and_ends_nothing(front: Client) -> None:
    front.run(
        f"{WAITING}\nfrom nbrefine.views.panel import live\nkept = live.story\n"
        "def broken(episode): raise RuntimeError('the panel is broken')\nlive.story = broken"
    )
    front.begin("%%refine --here --model slowly --tests 'assert value == 3'\nx", widgets=True)
    front.listen("the panel is broken")
    front.begin_aside("go.set()")
    front.listen()
    front.run("live.story = kept")
    assert front.run("episode.solved") == "True"


def test_another_client_ends_the_work(front: Client) -> None:
    front.run(WAITING)
    front.begin("%%refine --here --model slowly --tests 'assert 0'\nx", widgets=True)
    front.listen("Attempt 3 of 5, asking the model")
    front.begin_aside("get_ipython().run_line_magic('refine_stop', '')")
    front.listen()
    assert "stopped by a person" in front.shown["text/plain"]


def test_no_panel_is_shown_where_nobody_wants_one(front: Client) -> None:
    front.opened.clear()
    front.run("one = ['```python\\nvalue = 1\\n```']")
    for said in ("%%refine --no-panel", "%env NBREFINE_PANEL=0\n%%refine"):
        first, _, second = said.partition("\n")
        if second:
            front.run(first)
        cell = f"{second or first} --here --model one\nx"
        front.begin(cell, widgets=True)
        front.listen()
        assert sorted(front.shown) == ["text/html", "text/plain"]
    front.run("%env NBREFINE_PANEL=")
    assert front.opened == set()


def test_who_interrupts_twice_does_not_wait_until_a_stubborn_cell_has_ended(
    front: Client,
) -> None:
    front.run(f"stubborn = ['{STUBBORN}']")
    front.begin("%%refine --model stubborn\nGo on.", widgets=True)
    front.listen("unning the code")
    time.sleep(0.5)
    front.manager.interrupt_kernel()
    time.sleep(0.5)
    front.manager.interrupt_kernel()
    front.listen(seconds=30)
    assert "UsageError: interrupted" in front.errors
    assert front.states == {}
    assert front.run("1 + 1") == "2"
    front.run("one = ['```python\\nvalue = 1\\n```']")
    front.run("%%refine --model one\nx")  # which waits until the last one's kernel is gone
    assert front.run("episode.solved") == "True"
