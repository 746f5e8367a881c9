"""`%%refine --background`: other cells run meanwhile, and nothing of theirs is touched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.magics.front import Client, connected
from tests.magics.kernels import command, until

# The first test of an environment waits until its packages are there.
pytestmark = pytest.mark.timeout(600)

SPIN = "```python\\nbegun = 1\\nwhile True: pass\\n```"
WAITING = """
import threading
go = threading.Event()
def slowly(messages):
    go.wait(60)
    return "```python\\nvalue = 3\\n```"
"""


@pytest.fixture(scope="module", params=["6.31", "newest"])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    deaf = request.param.startswith("6")
    with connected(tmp_path_factory.mktemp("k"), command(request.param), deaf=deaf) as client:
        client.run(f"spin = ['{SPIN}'] * 9")
        yield client


@pytest.fixture
def front(shared: Client) -> Iterator[Client]:
    yield shared
    until(lambda: told(shared, "%refine_stop") == "No agent is at work.\n", seconds=60)


def begun(front: Client, options: str) -> str:
    """Ask for work in the background, and give the request of its cell, which has ended."""
    front.begin(f"%%refine --background {options}\nGo on.", widgets=True)
    front.listen()
    assert "`await episode_run` waits for it" in front.errors
    return front.asked


def told(front: Client, line: str) -> str:
    """Run a cell, and give what it prints."""
    front.run(line)
    return front.errors


def without_widgets(front: Client) -> None:
    def gone() -> bool:
        front.take_what_is_there()
        return not front.states

    until(gone)


def test_other_cells_run_and_one_may_wait_for_it(front: Client) -> None:
    front.run(WAITING)
    begun(front, "--model slowly --tests 'assert value == 3'")
    assert front.run("1 + 1") == "2"
    until(lambda: "asking the model" in told(front, "%refine_status"), seconds=60)
    assert "an agent is at work already" in told(front, "%%refine --model spin\nx")
    front.run("go.set()")
    assert front.run("(await episode_run).solved") == "True"
    assert front.run("episode.solved, episode_run") == (
        "(True, <Solved after 1 turn: 1/1 tests passed.>)"
    )
    without_widgets(front)


def test_what_comes_of_it_stays_below_its_own_cell(front: Client) -> None:
    asked = begun(front, "--model spin --timeout 0.5 --max-turns 1")
    if front.deaf:  # where a display is updated wherever it stands, by its id
        front.run("_ = await episode_run")
    else:
        front.begin("_ = await episode_run")
        front.asked = asked
        front.listen_until(lambda: "text/html" in front.shown)
        assert "rejected (timeout)" in front.shown["text/plain"]
    without_widgets(front)


def test_its_stop_leaves_the_cell_that_runs_alone(front: Client) -> None:
    begun(front, "--model spin")
    front.listen_until(lambda: any("unning the code" in text for text in front.texts()))
    front.begin("import time; time.sleep(1.5); print('to its end')")
    front.press("Stop now")
    front.listen()
    assert front.errors == "to its end\n"
    assert front.run("(await episode_run).stop.reason") == "'stopped'"
    without_widgets(front)


def test_an_interrupt_of_another_cell_leaves_the_agent_alone(front: Client) -> None:
    begun(front, "--model spin")
    front.listen_until(lambda: any("unning the code" in text for text in front.texts()))
    for waits in ("import time; time.sleep(60)", "await episode_run"):
        front.begin(f"print('begun')\n{waits}")
        front.listen_until(lambda: front.errors == "begun\n")
        time.sleep(0.3)
        front.manager.interrupt_kernel()
        front.listen(seconds=30)
        assert front.errors.startswith(("begun\nKeyboardInterrupt", "begun\nCancelledError"))
        assert told(front, "%refine_status").endswith(" s\n")  # it does something
    assert told(front, "%refine_stop") == "It is being ended.\n"
    assert front.run("(await episode_run).stop.reason") == "'stopped'"


def test_what_goes_wrong_is_told_where_its_panel_was(front: Client) -> None:
    front.run("def failing(messages): raise OSError('the line is dead')")
    begun(front, "--model failing")
    assert "UsageError: OSError: the line is dead" in told(front, "_ = await episode_run")
    without_widgets(front)


@pytest.mark.parametrize("at_once", [True, False])
def test_nothing_is_left_of_it_when_the_kernel_ends(tmp_path: Path, at_once: Any) -> None:
    with connected(tmp_path, command("newest")) as front:
        front.run(f"spin = ['{SPIN}']")
        begun(front, "--model spin")
        front.listen_until(lambda: any("unning the code" in text for text in front.texts()))
        pid = int(front.run("import os; os.getpid()"))
        below = psutil.Process(pid).children(recursive=True)
        assert below
        front.manager.shutdown_kernel(now=at_once)
        until(lambda: not any(_lives(each) for each in below), seconds=30)


def _lives(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
