"""`%%try`, `%keep` and `%discard` in real kernels, most of it in one as Jupyter starts it."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert.preprocessors import ExecutePreprocessor

from nbrefine.files import FileChanges
from nbrefine.kernel import Kernel, helper
from nbrefine.kernel.state.digest import Snapshot
from nbrefine.magics.attempt import Attempt
from nbrefine.outputs import CellResult, Display, Failure, Output, Stream
from tests.magics.kernels import children, environment, run, until, value

ASIDE = "In a branch, so nothing here has changed. The cell "
CHOICE = "%keep runs it here, %discard forgets it.\n"
DEAF = """
while True:
    try:
        __import__("time").sleep(60)
    except KeyboardInterrupt:
        pass
"""
VIEW = "application/vnd.jupyter.widget-view+json"


def test_a_tried_cell_changes_nothing_until_it_is_kept(kernel: Kernel) -> None:
    run(kernel, "prices = [3, 4]; same = prices; runs = 0")
    tried = run(
        kernel, "%%try\nsame.append(5); runs += 1; mean = sum(prices) / 3\nprint(mean)\nmean"
    )
    assert tried.ok
    assert tried.text == (
        f"4.0\n4.0\n{ASIDE}would change:\n"
        "new: mean float 4.0\n"
        "changed: prices list of length 2 -> 3; same list of length 2 -> 3; runs int 0 -> 1\n"
        f"{CHOICE}"
    )
    assert value(kernel, "prices, same is prices, runs, 'mean' in dir()") == (
        "([3, 4], True, 0, False)"
    )
    assert run(kernel, "%keep").text == "Kept: the cell has run here.\n"
    assert value(kernel, "prices, same is prices, runs, mean") == "([3, 4, 5], True, 1, 4.0)"


def test_a_branch_finds_the_modules_that_look_at_it(kernel: Kernel) -> None:
    """To send and compile them takes longer than all else of a short cell."""
    run(kernel, "%%try\n1")
    run(kernel, "%discard")
    name, _ = helper._package()
    assert value(kernel, f"import sys; {name!r} in sys.modules") == "True"


def test_a_discarded_cell_leaves_nothing(kernel: Kernel) -> None:
    run(kernel, "rows = {'a': 1}")
    run(kernel, "%%try\nrows['b'] = 2; extra = 1")
    assert run(kernel, "%discard").text == "The attempt is discarded.\n"
    assert value(kernel, "rows, 'extra' in dir()") == "({'a': 1}, False)"
    again = run(kernel, "%keep")
    assert again.status == "error"
    assert "there is nothing to keep: the last attempt was discarded" in again.text


def test_what_was_compared_in_part_is_not_called_unchanged(kernel: Kernel) -> None:
    run(kernel, "drawn = (n for n in range(9)); count = 0")
    assert run(kernel, "%%try\n_ = next(drawn)").text == (
        f"{ASIDE}would change no variable, as far as was seen; compared only in part: drawn.\n"
        f"{CHOICE}"
    )
    both = f"{ASIDE}would change:\nchanged: count int 0 -> 1\n"
    named = f"{both}compared only in part: drawn\n{CHOICE}"
    assert run(kernel, "%%try\ncount += 1; _ = next(drawn)").text.endswith(named)
    assert run(kernel, "%%try\ncount += 1").text.endswith(f"{both}{CHOICE}")
    run(kernel, "%discard\ndel drawn, count")


def test_a_warning_names_another_file_in_a_branch_and_is_the_same_output(kernel: Kernel) -> None:
    tried = run(kernel, "%%try\nimport warnings; warnings.warn('old', stacklevel=1); told = 1")
    assert "UserWarning: old" in tried.text
    assert run(kernel, "%keep").text == "Kept: the cell has run here.\n"


def test_outputs_come_while_the_cell_runs(kernel: Kernel, tmp_path: Path) -> None:
    """The cell ends only after its first line was seen here."""
    seen = tmp_path / "seen"

    def notice(output: Output) -> None:
        if isinstance(output, Stream) and "first" in output.text:
            seen.touch()

    waits = (
        "%%try --timeout 30\n"
        "import pathlib, time\n"
        "print('first', flush=True)\n"
        f"while not pathlib.Path({str(seen)!r}).exists(): time.sleep(0.01)\n"
        "print('last')"
    )
    result = run(kernel, waits, on_output=notice)
    assert result.text.startswith("first\nlast\n")


def test_displays_updates_and_cleared_outputs_are_those_of_the_cell(kernel: Kernel) -> None:
    shown = run(
        kernel,
        "%%try\n"
        "from IPython.display import HTML, clear_output, display\n"
        "print('gone'); clear_output()\n"
        "handle = display(HTML('<b>1</b>'), display_id=True)\n"
        "handle.update(HTML('<b>2</b>'))\n"
        "%matplotlib inline\n"
        "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()\n"
        "{'last': 'value'}",
    )
    pieces = [each for each in shown.outputs if isinstance(each, Display)]
    assert [sorted(each.data) for each in pieces] == [
        ["text/html", "text/plain"],
        ["image/png", "text/plain"],
        ["text/plain"],
    ]
    assert pieces[0].data["text/html"] == "<b>2</b>"
    assert pieces[2].text == "{'last': 'value'}"
    assert pieces[2].execution_count == shown.execution_count
    assert "gone" not in shown.text


def test_an_error_is_shown_as_the_cell_would_have_shown_it(kernel: Kernel) -> None:
    run(kernel, "data = [1]; alias = data")
    source = "alias.append(2)\nraise KeyError('column')"
    tried = run(kernel, f"%%try\n{source}")
    assert tried.ok  # so that Run All goes on: the kernel is well
    (failure,) = (each for each in tried.outputs if isinstance(each, Failure))
    assert str(failure) == "KeyError: 'column'"
    assert "alias.append" in "".join(failure.traceback)
    assert tried.text.endswith(f"{ASIDE}failed there.\n")
    assert value(kernel, "data") == "[1]"
    kept = run(kernel, "%keep")
    assert kept.status == "error"
    assert "the last cell tried did not run to its end" in kept.text


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("state.append(1); import os; os.kill(os.getpid(), 9)", "ended the branch: "),
        ("state.append(1)\nwhile True: pass", "was interrupted there, as its time was up."),
        (f"state.append(1)\n{DEAF}", "was interrupted there, as its time was up."),
        ("state.append(1); import asyncio; await asyncio.sleep(60)", "as its time was up."),
        ("state.append(1); import sys; sys.stdout = None", "would change:"),
    ],
    ids=["kill", "loop", "deaf", "await", "stdout"],
)
def test_the_kernel_stays_whole_whatever_the_cell_does(
    kernel: Kernel, source: str, said: str
) -> None:
    run(kernel, "state = []; twin = state")
    tried = run(kernel, f"%%try --timeout 1\n{source}")
    assert ASIDE in tried.text
    assert said in tried.text
    assert value(kernel, "state, twin is state") == "([], True)"


def test_an_interrupt_reaches_the_cell_in_the_branch(kernel: Kernel) -> None:
    run(kernel, "calm = [1]")
    begun: list[float] = []
    cell = kernel.run(
        "%%try\ncalm.append(2); print('begun', flush=True)\nwhile True: pass",
        on_output=lambda _: begun.append(time.monotonic()),
    )
    until(lambda: begun)
    kernel.interrupt().result(30)
    result = cell.result(30)
    assert time.monotonic() - begun[0] < 10
    assert "KeyboardInterrupt" in result.text
    assert "was interrupted there." in result.text
    assert value(kernel, "calm") == "[1]"


def test_the_next_try_discards_the_one_before(kernel: Kernel) -> None:
    run(kernel, "%%try\nfirst = 1")
    told = run(kernel, "%%try\nsecond = 2").text
    assert told.startswith("The earlier attempt is discarded.\n")
    run(kernel, "%keep")
    assert value(kernel, "'first' in dir(), second") == "(False, 2)"


def test_files_are_held_back_or_told(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("old")
    home = value(kernel, "import os; os.getcwd()")
    run(kernel, f"os.chdir({str(tmp_path)!r})")
    tried = run(kernel, "%%try\nopen('new.txt', 'w').write('new'); os.remove('old.txt')")
    assert "wrote new.txt (3 B), deleted old.txt" in tried.text
    if "not held back" not in tried.text:  # the host allows overlays
        assert sorted(each.name for each in tmp_path.iterdir()) == ["old.txt"]
        run(kernel, "%keep")
        assert sorted(each.name for each in tmp_path.iterdir()) == ["new.txt"]
    run(kernel, f"os.chdir({home})")


def test_nothing_is_said_to_be_unchanged_that_nobody_knows(kernel: Kernel, tmp_path: Path) -> None:
    run(
        kernel,
        f"import sqlite3; db = sqlite3.connect({str(tmp_path / 'base')!r}, isolation_level=None)",
    )
    tried = run(kernel, "%%try\n_ = db.execute('create table t (n)')")
    assert "In a branch, so no variable here has changed." in tried.text
    assert "Not as here: " in tried.text
    assert value(kernel, "db.execute('select name from sqlite_master').fetchall()") == "[('t',)]"
    run(kernel, "%discard\ndb.close(); del db")


@pytest.mark.parametrize(
    ("files", "untouched", "said"),
    [
        (FileChanges(), True, ""),
        (FileChanges(isolated=True, skipped=(".git",)), True, ""),
        (None, False, "\nfiles: nobody could look, and what the cell wrote is not held back here."),
        (FileChanges(skipped=(".git", "a/.venv")), False, "\nnot looked into: .git, a/.venv"),
        (
            FileChanges(problems=("the folder has over 20,000 files",)),
            False,
            "\nfiles, which are not held back here: the folder has over 20,000 files",
        ),
    ],
)
def test_what_may_have_been_written_is_said(
    kernel: Kernel, files: FileChanges | None, untouched: bool, said: str
) -> None:
    moment = Snapshot()
    tried = Attempt("1", kernel, CellResult("1", "ok"), (), moment, moment, files)
    assert tried.untouched is untouched
    what = "nothing" if untouched else "no variable"
    assert tried.describe() == (
        f"In a branch, so {what} here has changed. The cell would change no variable.{said}"
    )


def test_a_kernel_that_cannot_be_branched_says_why(kernel: Kernel) -> None:
    run(
        kernel,
        "import sys, types\n"
        "torch = sys.modules['torch'] = types.ModuleType('torch')\n"
        "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True)",
    )
    refused = run(kernel, "%%try\nnever = 1")
    run(kernel, "del sys.modules['torch'], torch")
    assert refused.status == "error"
    assert "CUDA" in refused.text
    assert value(kernel, "'never' in dir()") == "False"


def test_undo_and_unknown_options_are_refused_with_a_reason(kernel: Kernel) -> None:
    undone = run(kernel, "%undo")
    assert undone.status == "error"
    assert "belongs to the server that started it" in undone.text
    unknown = run(kernel, "%%try --fast\n1")
    assert unknown.status == "error"
    assert "unrecognized arguments: --fast; usage: %%try [--timeout SECONDS]" in unknown.text
    for time_ in ("0", "-1", "nan", "inf"):
        endless = run(kernel, f"%%try --timeout {time_}\n1")
        assert f"argument --timeout: {time_} is no time; give seconds above 0" in endless.text
    empty = run(kernel, "%%try\n  \n")
    assert "there is no code below %%try" in empty.text


def test_a_widget_of_the_branch_is_shown_as_text_and_one_of_the_kernel_as_itself(
    kernel: Kernel,
) -> None:
    run(kernel, "import ipywidgets; known = ipywidgets.IntSlider(3)")
    tried = run(kernel, "%%try\ndisplay(known); display(ipywidgets.IntText(4))")
    here, there = (each for each in tried.outputs if isinstance(each, Display))
    assert VIEW in here.data
    assert VIEW not in there.data
    assert "IntText" in there.text


def test_a_branch_tries_cells_in_branches_of_its_own(kernel: Kernel) -> None:
    run(kernel, "depth = [0]")
    run(kernel, "%%try\npass")
    nested = run(
        kernel, "%%try\nget_ipython().run_cell('%%try\\ndepth.append(1); print(depth)')\ndepth"
    )
    assert "[0, 1]" in nested.text
    assert value(kernel, "depth") == "[0]"


def test_thirty_tries_leave_nothing(kernel: Kernel) -> None:
    run(kernel, "import os")
    pid = int(value(kernel, "os.getpid()"))
    listing = "import glob, tempfile; glob.glob(tempfile.gettempdir() + '/nbrefine-*')"
    run(kernel, "%%try\npass")
    run(kernel, "%discard")
    until(lambda: not children(pid))

    def descriptors() -> int:
        return int(value(kernel, "len(os.listdir('/proc/self/fd'))"))

    def folders() -> set[str]:
        return set(ast.literal_eval(value(kernel, listing)))

    # The folder of a branch's own branches is swept some seconds after both were ended.
    before, old = descriptors(), folders()
    for number in range(30):
        ending = ("%keep", "%discard", "pass")[number % 3]
        assert run(kernel, f"%%try\ncount = {number}").ok
        assert run(kernel, ending).ok
    run(kernel, "%discard")
    until(lambda: not children(pid))
    # ipykernel gives a thread that shows something for the first time a pipe of its own.
    until(lambda: descriptors() < before + 3)
    until(lambda: folders() <= old)


def test_a_forked_kernel_of_our_own_tries_cells_too(tmp_path: Path) -> None:
    with Kernel.start(env=environment(tmp_path)) as forked:
        run(forked, "%load_ext nbrefine\nitems = [1]; same = items")
        assert "list of length 1 -> 2" in run(forked, "%%try\nsame.append(2)").text
        assert run(forked, "%keep").text == "Kept: the cell has run here.\n"
        assert "failed there" in run(forked, "%%try\nsame.clear(); 1 / 0").text
        nested = "%%try\nget_ipython().run_cell('%%try\\nsame.append(3); print(items)')"
        assert "[1, 2, 3]" in run(forked, nested).text
        run(forked, "%discard")
        assert value(forked, "items, same is items") == "([1, 2], True)"
        pid = int(value(forked, "import os; os.getpid()"))
        until(lambda: not children(pid))
        with forked.branch() as trial:  # by the kernel's own way, at a cell boundary
            assert value(trial, "items") == "[1, 2]"


def test_the_magics_go_when_they_are_unloaded(kernel: Kernel) -> None:
    run(kernel, "%%try\nwaits = 1")
    assert run(kernel, "%unload_ext nbrefine").ok
    assert "not found" in run(kernel, "%%try\n1").text
    run(kernel, "%load_ext nbrefine")
    assert run(kernel, "%%try\n1").ok


def test_a_notebook_runs_from_top_to_bottom() -> None:
    """As Run All, papermill and nbconvert run it."""
    cells = [
        "%load_ext nbrefine",
        "table = [1, 2, 3]",
        "%%try\ntable.append(4)\nprint(len(table))",
        "%keep",
        "%%try\ntable.clear()",
        "%discard",
        "table",
    ]

    form: Any = nbformat.v4
    preprocessor: Any = ExecutePreprocessor

    def notebook() -> Any:
        return form.new_notebook(cells=[form.new_code_cell(each) for each in cells])

    ran = NotebookClient(notebook(), kernel_name="python3", timeout=60).execute()
    converted, _ = preprocessor(kernel_name="python3", timeout=60).preprocess(notebook())
    for done in (ran, converted):
        assert done.cells[3].outputs[0].text == "Kept: the cell has run here.\n"
        assert done.cells[6].outputs[0].data["text/plain"] == "[1, 2, 3, 4]"


def test_plain_ipython_is_told_that_it_is_no_kernel(tmp_path: Path) -> None:
    code = "%load_ext nbrefine\nget_ipython().run_cell_magic('try', '', 'x = 1')\nprint('on')"
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", code],
        env={**environment(tmp_path), "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "UsageError: this is plain IPython, and only a Jupyter kernel can be branched" in (
        done.stderr + done.stdout
    )


def test_a_file_that_the_branch_has_for_itself_is_not_said_to_be_shared(
    kernel: Kernel, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    folder = tmp_path / "folder"
    folder.mkdir()
    home = value(kernel, "import os; os.getcwd()")
    run(kernel, f"os.chdir({str(folder)!r}); f = open('log.txt', 'w'); _ = f.write('a')")
    tried = run(kernel, "%%try\n_ = f.write('b'); f.flush()")
    if "not held back" not in tried.text:  # the host allows overlays
        assert "files: changed log.txt" in tried.text
        assert "Not as here" not in tried.text
        assert (folder / "log.txt").read_text() == "a"
    run(kernel, f"%discard\ng = open({str(outside)!r}, 'w')")
    tried = run(kernel, "%%try\n_ = g.write('b'); g.flush()")
    assert f"Not as here: {outside} is open for writing" in tried.text
    run(kernel, f"%discard\nf.close(); g.close(); del f, g; os.chdir({home})")
