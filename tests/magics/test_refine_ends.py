"""How `%%refine` is ended by a person: ■, and the panel's buttons, on several ipykernels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbrefine.notebook import load
from tests.magics.front import Client, connected
from tests.magics.kernels import command, until

# The first test of an environment waits until its packages are there.
pytestmark = pytest.mark.timeout(600)

SPIN = "```python\\nbegun = 1\\nwhile True: pass\\n```"
IDLE = "```python\\nimport asyncio\\nawait asyncio.sleep(600)\\n```"
VERSIONS = ["6.31", "7.1", "7.3", "newest"]


@pytest.fixture(scope="module", params=VERSIONS)
def front(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    deaf = request.param.startswith("6")
    with connected(tmp_path_factory.mktemp("k"), command(request.param), deaf=deaf) as client:
        client.run(f"spin = ['{SPIN}'] * 9; idle = ['{IDLE}'] * 9")
        yield client


@pytest.mark.parametrize("model", ["spin", "idle"])
def test_an_interrupt_ends_cell_attempt_and_record(front: Client, model: str) -> None:
    front.begin(f"%%refine --model {model} --record {model}.ipynb\nGo on.", widgets=True)
    front.listen("unning the code")
    pressed = time.monotonic()
    front.manager.interrupt_kernel()
    front.listen(seconds=30)
    assert time.monotonic() - pressed < 10  # it is a matter of tenths on a machine at rest
    assert front.errors.endswith("UsageError: interrupted\n")
    assert "stopped by a person" in front.shown["text/plain"]
    assert all("widget" not in kind for kind in front.shown)
    folder = Path(front.run("import os; os.getcwd()").strip("'"))
    recorded = load(folder / f"{model}.ipynb")
    assert recorded.stop is not None
    assert recorded.stop.reason == "stopped"
    assert front.run("1 + 1") == "2"


def test_stop_now_ends_it_where_the_kernel_hears_of_it(front: Client) -> None:
    front.begin("%%refine --model spin\nGo on.", widgets=True)
    front.listen("unning the code")
    if front.deaf:
        assert any("■ (interrupt the kernel) ends the work" in text for text in front.texts())
        front.manager.interrupt_kernel()
        front.listen(seconds=30)
        return
    front.press("Stop now")
    front.listen(seconds=30)
    assert front.errors == ""  # a person who stops the agent does not stop Run All
    assert "stopped by a person" in front.shown["text/plain"]


def test_the_panel_leaves_no_widget(front: Client) -> None:
    front.opened.clear()
    front.closed.clear()
    front.begin("%%refine --model spin --timeout 0.5 --max-turns 1\nGo on.", widgets=True)
    front.listen()
    assert front.opened
    until(lambda: front.opened == front.closed)
    assert sorted(front.shown) == ["text/html", "text/plain"]
    assert "rejected (timeout)" in front.shown["text/plain"]
    assert front.run("len(get_ipython().kernel.comm_manager.comms)") == "0"


def test_who_runs_notebooks_gets_no_widget(front: Client) -> None:
    front.opened.clear()
    front.begin("%%refine --model spin --timeout 0.5 --max-turns 1\nGo on.")
    front.listen()
    assert front.opened == set()
    assert sorted(front.shown) == ["text/html", "text/plain"]
