"""Branches that speak over one socket with us: cells as anywhere, and nothing left of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from nbrefine._portal import Run
from nbrefine.errors import BranchRefused
from nbrefine.kernel import Kernel
from nbrefine.kernel.branching import branch
from nbrefine.outputs import CellResult, Display, Stream


def branched(kernel: Kernel) -> Kernel:
    async def work() -> Kernel:
        return Kernel(await branch(kernel.core, direct=True))

    return Run(work()).result()


@pytest.fixture(scope="module")
def origin() -> Iterator[Kernel]:
    with Kernel.start() as started:
        started.run("state = [1, 2, 3]").result()
        yield started


@pytest.fixture
def direct(origin: Kernel) -> Iterator[Kernel]:
    with branched(origin) as made:
        yield made


def test_it_has_the_state_and_gives_all_kinds_of_output_in_order(direct: Kernel) -> None:
    result = direct.run(
        "import sys\nprint('out')\ndisplay(state)\nprint('err', file=sys.stderr)\nlen(state)"
    ).result()
    assert result.ok
    assert [each.text for each in result.outputs if isinstance(each, Stream)] == ["out\n", "err\n"]
    shown = [each.data["text/plain"] for each in result.outputs if isinstance(each, Display)]
    assert shown == ["[1, 2, 3]", "3"]
    assert isinstance(result.outputs[0], Stream)


def test_what_a_program_prints_is_an_output(direct: Kernel) -> None:
    source = """
import os, sys, time
os.system("echo from a program")
while not sys.stdout._buffers:  # a thread of ipykernel's reads it
    time.sleep(0)
"""
    result = direct.run(source).result()
    assert result.text == "from a program\n"


def test_the_child_of_a_cell_that_forked_takes_no_requests(
    direct: Kernel, until: Callable[..., None], is_running: Callable[[int], bool]
) -> None:
    child = int(
        direct.run("import os\nparent, child = os.getpid(), os.fork()\nchild").result().text
    )
    assert child
    for n in range(20):
        assert (
            direct.run(f"os.getpid() == parent, {n}", timeout=20).result().text == f"(True, {n})\n"
        )
    until(lambda: not is_running(child))


def test_one_whose_end_is_not_seen_leaves_no_later_one_unheard(
    origin: Kernel, tmp_path: Path
) -> None:
    """As where what a cell has forked, or handed on, holds the kernel's end still."""
    give = f"""
import os, socket
with socket.socket(socket.AF_UNIX) as way:
    way.connect({str(tmp_path / "way")!r})
    links = {{int(n): os.readlink(f"/proc/self/fd/{{n}}") for n in os.listdir("/proc/self/fd")
             if os.path.lexists(f"/proc/self/fd/{{n}}")}}
    mine = [n for n, to in links.items() if to.startswith("socket:") and n != way.fileno()]
    socket.send_fds(way, [b"!"], mine)
"""
    with ExitStack() as held:  # all the time, so that later ones get the numbers of the first
        way = held.enter_context(socket.socket(socket.AF_UNIX))
        way.bind(str(tmp_path / "way"))
        way.listen()
        with branched(origin) as first:
            assert first.run(give).result().ok
            taker = held.enter_context(way.accept()[0])
            taken = socket.recv_fds(taker, 1, 100)[1]
            assert taken
            for number in taken:
                held.callback(os.close, number)
        for _ in range(4):
            later = held.enter_context(branched(origin))
            assert later.run("len(state)", timeout=20).result().text == "3\n"


def test_errors_and_cells_that_await(direct: Kernel) -> None:
    failed = direct.run("def f():\n    return 1 / 0\nf()").result()
    assert failed.error is not None
    assert (failed.status, failed.error.ename) == ("error", "ZeroDivisionError")
    awaited = "import asyncio\nawait asyncio.sleep(0)\nawait asyncio.sleep(0, 'slept')"
    assert direct.run(awaited).result().text == "'slept'\n"
    assert direct.run("input()").result().status == "error"  # there is nobody to ask


def test_expressions_of_ours_leave_no_trace_and_end_as_cells_do(direct: Kernel) -> None:
    def evaluate(source: str, limit: float = 30.0) -> CellResult:
        return Run(direct.core.execute(source, timeout=limit, store_history=False)).result()

    look = "sorted(each for each in globals() if each[0] != '_'), get_ipython().user_ns['_']"
    direct.run("'the last value'").result()
    before = direct.run(f"print({look}, len(In), get_ipython().execution_count)").result()
    assert evaluate("print(len(state))").text == "3\n"
    assert evaluate("40 + 2").outputs == ()
    failed = evaluate("[][1]")
    assert (failed.status, failed.error and failed.error.ename) == ("error", "IndexError")
    assert evaluate("input()").status == "error"
    assert evaluate("__import__('time').sleep(60)", 0.5).status == "timeout"
    assert evaluate("if True: print('a statement')").text == "a statement\n"
    after = direct.run(f"print({look}, len(In) - 1, get_ipython().execution_count - 1)").result()
    assert after.text == before.text
    assert "the last value" in before.text


def test_sources_and_values_far_larger_than_a_packet(direct: Kernel) -> None:
    source = f"text = '{'x' * 500_000}'\nprint(text)"
    assert direct.run(source).result().text == "x" * 500_000 + "\n"


def test_an_interrupt_in_a_flood_leaves_messages_whole(direct: Kernel) -> None:
    flood = "from IPython.display import publish_display_data\nwhile True:\n"
    flood += "    publish_display_data({'text/plain': 'x' * 300_000})"
    result = direct.run(flood, timeout=0.5).result()
    assert result.status == "timeout"
    assert "SIGKILL" not in result.rungs
    assert result.notes == ()
    assert direct.run("1 + 1").result().text == "2\n"


def test_what_forked_processes_print_comes_whole(direct: Kernel) -> None:
    source = """
import os
for letter in "ab":
    if not (pid := os.fork()):
        for _ in range(5):
            print(letter * 90_000 + "\\n", end="", flush=True)
        os._exit(0)
for _ in "ab":
    os.wait()
"""
    result = direct.run(source).result()
    lines = result.text.split()
    assert sorted(lines) == ["a" * 90_000] * 5 + ["b" * 90_000] * 5


def test_a_death_is_told_with_its_last_words(direct: Kernel) -> None:
    result = direct.run("import os\nos.write(2, b'last words')\nos._exit(3)").result()
    assert result.death is not None
    assert result.death.exit_code == 3
    assert not direct.alive


def test_it_cannot_be_branched(direct: Kernel) -> None:
    with pytest.raises(BranchRefused, match="it was branched for one run"):
        direct.branch().result()
    assert direct.run("len(state)").result().text == "3\n"


def test_nothing_is_left_of_it(origin: Kernel, until: Callable[..., None]) -> None:
    with branched(origin) as first:  # and what is made once
        first.run("1").result()
    process = psutil.Process()
    before = process.num_fds(), process.num_threads(), sorted(_folder(origin).iterdir())
    for _ in range(3):
        with branched(origin) as made:
            assert made.connection_file == ""
            assert made.run("len(state)").result().text == "3\n"
    until(
        lambda: (
            (process.num_fds(), process.num_threads(), sorted(_folder(origin).iterdir())) == before
        )
    )


def _folder(kernel: Kernel) -> Path:
    return Path(kernel.connection_file).parent
