"""A stock kernel forked by a controller of its own, where its main thread stands.

The controller runs in the very kernel: nbrefine's portal and its drain threads are there too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from nbrefine.kernel import Kernel
from nbrefine.outputs import CellResult

AWAITING = """
import asyncio, contextvars
from nbrefine._portal import Run
from nbrefine.kernel import Kernel
from nbrefine.kernel.attached import here

async def own():
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    post = lambda job: loop.call_soon_threadsafe(job, context=context)
    return Kernel(await Run(here(post)))
"""

SYNCHRONOUS = """
from nbrefine.kernel import Kernel
from nbrefine.kernel.attached import here
from nbrefine.magics.attempt import MainThread

main = MainThread()
kernel = Kernel(main.wait(here(main.post)))

def in_branch(*cells):
    async def work():
        async with kernel.branch() as trial:
            return [(await trial.run(cell)).text.strip() for cell in cells]
    return main.wait(work())
"""


@contextlib.contextmanager
def started(folder: Path) -> Iterator[KernelManager]:
    manager = KernelManager(kernel_name="python3", connection_file=str(folder / "kernel.json"))
    environment = {**os.environ, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    environment.pop("PYTEST_CURRENT_TEST", None)
    with (folder / "log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log, env=environment)
        yield manager
        manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with (
        started(tmp_path_factory.mktemp("stock")) as manager,
        Kernel.connect(manager.connection_file) as connected,
    ):
        yield connected


def good(result: CellResult) -> str:
    assert result.ok, result.text
    return result.text


def test_a_kernel_branches_while_its_own_cell_awaits(kernel: Kernel) -> None:
    good(kernel.run(AWAITING + "values = [1]; alias = values").result())
    cell = (
        "kernel = await own()\n"
        "async with kernel.branch() as trial:\n"
        "    changed = await trial.run('alias.append(2); values')\n"
        "    again = await trial.run('await asyncio.sleep(0.01); len(values)')\n"
        "print(changed.text, again.text, values)"
    )
    assert good(kernel.run(cell).result()) == "[1, 2]\n 2\n [1]\n"
    assert good(kernel.run("values, alias is values").result()) == "([1], True)\n"


def test_several_branches_of_an_awaiting_cell_run_at_once(kernel: Kernel) -> None:
    good(kernel.run(AWAITING + "state = 1").result())
    cell = (
        "kernel = await own()\n"
        "trials = await asyncio.gather(*(kernel.branch() for _ in range(3)))\n"
        "runs = [t.run(f'state += {n}; state') for n, t in enumerate(trials)]\n"
        "print([(await run).text.strip() for run in runs], state)\n"
        "for t in trials: await t.aclose()"
    )
    assert good(kernel.run(cell).result()) == "['1', '2', '3'] 1\n"


def test_the_awaiting_cell_is_not_there_in_the_branch(kernel: Kernel) -> None:
    """Neither its input nor its number, nor the task it runs in."""
    before = kernel.run(AWAITING + "'before'").result()
    assert before.execution_count is not None
    cell = (
        "kernel = await own()\n"
        "async with kernel.branch() as trial:\n"
        '    first = await trial.run("len(In), In[-2][-8:], _")\n'
        "    tasks = await trial.run('len([t for t in asyncio.all_tasks() if cell in repr(t)])')\n"
        "print(first.execution_count, first.text, tasks.text)"
    )
    told = good(kernel.run(f"cell = 'run_cell_async'\n{cell}").result()).split("\n")
    number = before.execution_count + 1
    assert told[0] == f"{number} ({number + 1}, \"'before'\", 'before')"
    assert told[1].strip() == "0"


def test_context_variables_of_the_cells_are_in_the_branch(kernel: Kernel) -> None:
    good(kernel.run(AWAITING + "var = contextvars.ContextVar('var'); var.set(7)").result())
    cell = (
        "kernel = await own()\n"
        "async with kernel.branch() as trial:\n"
        "    print((await trial.run('var.get()')).text)"
    )
    assert good(kernel.run(cell).result()) == "7\n\n"


def test_a_kernel_branches_in_the_middle_of_its_own_cell(kernel: Kernel) -> None:
    defined = kernel.run(SYNCHRONOUS + "values = [1]").result()
    good(defined)
    count = defined.execution_count
    assert count is not None
    told = good(
        kernel.run(
            "in_branch('values.append(2); values', 'len(In), _i', "
            "'import sys; type(sys.displayhook).__name__, sys.excepthook.__name__', "
            '\'await __import__("asyncio").sleep(0); "awaited"\')'
        ).result()
    )
    values, inputs, hooks, awaited = eval(told)
    assert values == "[1, 2]"
    # The cell that asks is not there; the second of the branch stands in its place.
    assert eval(inputs) == (count + 3, "values.append(2); values")
    assert eval(hooks) == ("ZMQShellDisplayHook", "excepthook")
    assert awaited == "'awaited'"
    assert good(kernel.run("values").result()) == "[1]\n"


def test_a_cell_that_captures_its_output_does_not_capture_the_branches(kernel: Kernel) -> None:
    good(kernel.run(SYNCHRONOUS).result())
    good(
        kernel.run(
            "%%capture captured\n"
            "html = 'from IPython.display import HTML; HTML(\"h\")'\n"
            "told = in_branch('print(\"printed\")', html)"
        ).result()
    )
    assert good(kernel.run("told, captured.stdout").result()) == (
        "(['printed', '<IPython.core.display.HTML object>'], '')\n"
    )


def test_a_branch_leaves_the_history_file_alone(kernel: Kernel) -> None:
    good(kernel.run(SYNCHRONOUS).result())
    manager = "get_ipython().history_manager"
    cell = f"in_branch('marked = 1', '{manager}.enabled, type({manager}.db).__name__')[1]"
    assert good(kernel.run(cell).result()) == "\"(False, 'DummyDB')\"\n"
    assert good(kernel.run(f"{manager}.enabled").result()) == "True\n"


def test_a_subshell_cannot_fork_the_kernel_and_says_so(kernel: Kernel) -> None:
    good(
        kernel.run(
            "import socket, threading\n"
            "from nbrefine.kernel.inside.branching import incell\n"
            "told = []\n"
            "def work():\n"
            "    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            "    told.append(incell.checkpoint(far)); near.close()\n"
            "thread = threading.Thread(target=work); thread.start(); thread.join()"
        ).result()
    )
    said = good(kernel.run("told[0]['status'], told[0]['hazards'][0]['detail']").result())
    assert eval(said) == (
        "refused",
        "the cell runs in a subshell or another thread, not in the main one",
    )


def test_branches_end_with_the_kernel_that_holds_them(
    tmp_path: Path, until: Callable[..., None], is_running: Callable[[int], bool]
) -> None:
    cell = (
        "kernel = await own(); trial = await kernel.branch()\n"
        "print((await trial.run('import os; os.getpid()')).text, trial.connection_file)"
    )
    with started(tmp_path) as manager:
        with Kernel.connect(manager.connection_file) as kernel:
            good(kernel.run(AWAITING).result())
            pid, file = good(kernel.run(cell).result()).split()
        assert is_running(int(pid))
        folder = Path(file).parent
        assert folder.is_dir()
    until(lambda: not is_running(int(pid)))
    until(lambda: not folder.exists())
