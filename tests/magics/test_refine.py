"""`%%refine` in real kernels: what it leaves, where it works, and what it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from nbclient import NotebookClient
from nbconvert.preprocessors import ExecutePreprocessor

from nbrefine.kernel import Kernel
from nbrefine.notebook import load
from nbrefine.outputs import CellResult, Display, Stream
from tests.magics.kernels import children, environment, run, until, value

WRONG = "```python\ndef median(xs):\n    return 0\n```"
RIGHT = "```python\ndef median(xs):\n    return sorted(xs)[len(xs) // 2]\n```"
TESTS = "assert median([3, 1, 2]) == 2"


@pytest.fixture
def folder(kernel: Kernel, tmp_path: Path) -> Path:
    run(kernel, f"import os; os.chdir({str(tmp_path)!r})")
    run(kernel, f"replies = [{WRONG!r}, {RIGHT!r}]; tests = {TESTS!r}")
    return tmp_path


def shown(result: CellResult) -> Display:
    (display,) = (each for each in result.outputs if isinstance(each, Display))
    return display


def test_the_cell_ends_with_text_a_record_and_the_episode(kernel: Kernel, folder: Path) -> None:
    done = run(kernel, "%%refine --model replies --tests tests\nWrite median(xs).")
    assert done.ok
    assert shown(done).data == {
        "text/plain": (
            "Write median(xs).\n"
            "Solved after 2 turns: 1/1 tests passed.\n"
            "- Attempt 1 of 2: rejected (failed), 0/1 tests passed: "
            "test_1 fail: median([3, 1, 2]) == 2; got 0; expected 2\n"
            "- Attempt 2 of 2: accepted, 1/1 tests passed\n"
            "Accepted, attempt 2:\n"
            "    def median(xs):\n"
            "        return sorted(xs)[len(xs) // 2]\n"
            "The record is episode.ipynb, and the episode is episode; "
            "%refine_view shows it attempt by attempt."
        ),
        "text/html": shown(done).data["text/html"],
    }
    assert "<script" not in shown(done).data["text/html"]
    assert "median([3, 1, 2]) == 2" in shown(done).data["text/html"]
    recorded = load(folder / "episode.ipynb")
    assert recorded.solved
    assert value(kernel, "episode.id, len(episode.turns)") == repr((recorded.id, 2))
    assert value(kernel, "'median' in dir()") == "False"  # it worked in a kernel of its own


def test_every_episode_gets_a_free_name_and_the_variable_that_was_asked_for(
    kernel: Kernel, folder: Path
) -> None:
    for _ in range(2):
        assert run(kernel, "%%refine --here --model replies --as mine\nWrite it.").ok
    assert sorted(each.name for each in folder.glob("*.ipynb")) == [
        "episode-2.ipynb",
        "episode.ipynb",
    ]
    assert value(kernel, "mine.solved") == "True"
    again = run(kernel, "%%refine --here --model replies --record episode.ipynb\nWrite it.")
    assert again.status == "error"
    assert "episode.ipynb" in again.text
    over = "--record episode.ipynb --overwrite"
    assert run(kernel, f"%%refine --here --model replies {over}\nOnce more.").ok
    assert load(folder / "episode.ipynb").task.prompt == "Once more."


def test_what_is_not_solved_stops_run_all_only_where_that_is_asked_for(
    kernel: Kernel, folder: Path
) -> None:
    once = "%%refine --here --model replies --tests tests --max-turns 1"
    assert run(kernel, f"{once}\nWrite median(xs).").ok
    checked = run(kernel, f"{once} --check\nWrite median(xs).")
    assert checked.status == "error"
    assert "UsageError: it is not solved, and --check asks for that" in checked.text
    assert value(kernel, "episode.solved") == "False"


def test_variables_that_are_used_come_by_value(kernel: Kernel, folder: Path) -> None:
    run(kernel, "rows = [3, 1, 2]; scale = 10; other = 1")
    run(kernel, "sums = ['```python\\nrows.append(sum(rows) * scale)\\nprint(rows)\\n```']")
    done = run(kernel, "%%refine --model sums --use rows,scale\nAppend the sum.")
    assert "[3, 1, 2, 60]" in shown(done).text
    assert value(kernel, "rows, episode.handed_in") == "([3, 1, 2], ('rows', 'scale'))"
    lost = run(kernel, "%%refine --model sums --use rows nothing\nAppend the sum.")
    assert lost.status == "error"
    assert "UsageError: nothing cannot be lent: there is no such name" in lost.text
    pid = int(value(kernel, "os.getpid()"))
    until(lambda: not children(pid))


def test_here_attempts_run_in_branches_and_what_is_accepted_runs_once(
    kernel: Kernel, folder: Path
) -> None:
    run(kernel, "log = []; same = log")
    run(
        kernel,
        "two = ['```python\\nlog.append(1); found = 1\\n```', "
        "'```python\\nsame.append(2); found = len(log)\\n```']",
    )
    done = run(kernel, "%%refine --here --model two --tests 'assert log == [2]'\nAppend 2.")
    assert "Solved after 2 turns" in shown(done).text
    assert value(kernel, "log, log is same, found") == "([2], True, 1)"
    assert value(kernel, "[turn.isolation for turn in episode.turns]") == "['fork', 'fork']"
    assert value(kernel, "episode.turns[-1].feedback") == "''"
    pid = int(value(kernel, "os.getpid()"))
    until(lambda: not children(pid))


def test_here_a_cell_that_awaits_is_accepted_too(kernel: Kernel, folder: Path) -> None:
    run(
        kernel,
        "waits = ['```python\\nimport asyncio\\nawait asyncio.sleep(0); slept = 1\\n"
        'print("slept")\\n```\']',
    )
    done = run(kernel, "%%refine --here --model waits\nSleep.")
    assert "    slept" in shown(done).text
    assert value(kernel, "slept") == "1"


def test_here_a_cell_that_fails_only_in_this_kernel_is_not_accepted(
    kernel: Kernel, folder: Path
) -> None:
    run(kernel, "import os; home = os.getpid()")
    run(kernel, "only = ['```python\\nassert os.getpid() != home\\nin_branch = 1\\n```']")
    run(kernel, "%%refine --here --model only --max-turns 1\nLeave home.")
    assert value(kernel, "episode.solved, 'in_branch' in dir()") == "(False, False)"


def test_random_numbers_of_this_kernel_are_not_seeded_unasked(kernel: Kernel, folder: Path) -> None:
    run(kernel, "import random; random.seed(7); first = random.random(); random.seed(7)")
    run(kernel, "%%refine --here --model replies --max-turns 1\nAnything.")
    assert value(kernel, "random.random() == first") == "True"


def test_pictures_of_what_was_accepted_are_shown(kernel: Kernel, folder: Path) -> None:
    run(
        kernel,
        "draws = ['```python\\n%matplotlib inline\\nimport matplotlib.pyplot as plt\\n"
        "_ = plt.plot([1, 2])\\nplt.show()\\n```']",
    )
    done = run(kernel, "%%refine --here --model draws\nDraw.")
    told, picture = (each for each in done.outputs if isinstance(each, Display))
    assert sorted(told.data) == ["text/html", "text/plain"]
    assert sorted(picture.data) == ["image/png", "text/plain"]


def test_a_branch_asks_an_agent_of_its_own(kernel: Kernel, folder: Path) -> None:
    """As in a cell that is tried: what the origin works on is none of its business."""
    run(kernel, "nested = ['```python\\ninner = 1\\n```']")
    tried = run(kernel, "%%try\n%%refine --here --model nested\nBind inner.")
    assert "Solved after 1 turn" in tried.text
    assert value(kernel, "'inner' in dir()") == "False"


def test_steps_end_with_an_answer(kernel: Kernel, folder: Path) -> None:
    run(kernel, "rows = [1, 2]")
    run(kernel, """work = ['```python\\nprint("ANSWER:", sum(rows))\\n```']""")
    done = run(kernel, "%%refine --steps --model work --use rows --answer text\nSum up rows.")
    assert "Answer: 3" in shown(done).text
    assert value(kernel, "episode.solved, episode.settings['lent']") == "(True, ['rows'])"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%refine\n", "there is nothing below %%refine"),
        ("%%refine --fast\nx", "unrecognized arguments: --fast; usage: %%refine [options]"),
        ("%%refine --tests 'assert ('\nx", "The tests do not parse"),
        ("%%refine --model nobody\nx", '"nobody" names no model'),
        ("%%refine --max-turns 0\nx", "max_turns"),
        ("%%refine --timeout 0\nx", "0 is no time"),
        ("%%refine --data nowhere.csv\nx", "There is no data file nowhere.csv"),
        ("%%refine --as 1x\nx", "--as takes the name of a variable, and got '1x'"),
        ("%%refine --here --use replies\nx", "--here and --use exclude each other"),
        ("%%refine --steps --code '1'\nx", "--code does not go with --steps"),
        ("%%refine --answer text\nx", "--answer goes only with --steps"),
        ("%%refine 'open\nx", "the line of %%refine cannot be read: No closing quotation"),
        ("get_ipython().run_cell_magic('refine', '', 'x')", "only in the first line of a cell"),
        ("%%time\n%%refine --model replies\nx", "only in the first line of a cell"),
        ("%%capture shown\n%%refine --model replies\nx", "behind no other magic"),
        ("%%refine --background --here\nx", "--here and --background exclude each other"),
        ("%%refine --background --check\nx", "--check and --background exclude each other"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    kernel: Kernel, folder: Path, cell: str, said: str
) -> None:
    refused = run(kernel, cell)
    assert refused.status == "error"
    (line,) = (each for each in refused.outputs if isinstance(each, Stream))
    assert said in line.text
    assert line.text.startswith("UsageError: ")
    assert line.text.count("\n") == 1
    assert refused.error is not None
    assert refused.error.traceback == ()
    assert list(folder.glob("episode*")) == []


def test_trouble_of_what_the_model_calls_is_said_in_a_line(kernel: Kernel, folder: Path) -> None:
    run(kernel, "def failing(messages): raise OSError('the line is dead')")
    refused = run(kernel, "%%refine --here --model failing\nx")
    assert refused.status == "error"
    assert "UsageError: OSError: the line is dead\n" in refused.text


def test_what_was_done_is_told_shown_and_run_again(kernel: Kernel, folder: Path) -> None:
    run(kernel, "%reload_ext nbrefine")
    assert run(kernel, "%refine_status").text == "No agent has been asked here yet.\n"
    assert "there is no episode yet" in run(kernel, "%refine_view").text
    run(kernel, "fresh = ['```python\\nfound = 1\\n```']")
    run(kernel, "%%refine --model fresh --tests 'assert found == 1'\nFind it.")
    status = run(kernel, "%refine_status\n%refine_stop")
    assert status.text == ("Solved after 1 turn: 1/1 tests passed.\nNo agent is at work.\n")
    for named in ("", "episode", "episode.ipynb"):
        viewed = run(kernel, f"%refine_view {named}")
        assert "found = 1" in viewed.text
        assert "Attempt 1 of 1: accepted" in viewed.text
    again = run(kernel, "%refine_replay --check episode.ipynb")
    assert again.text.splitlines()[-1] == (
        "The accepted cells give the recorded outputs and state (1 compared), and all checks hold."
    )
    missing = run(kernel, "%refine_replay nowhere.ipynb")
    assert missing.status == "error"
    assert "UsageError: " in missing.text
    run(kernel, "found = 2; there = ['```python\\nassert found == 2; more = 1\\n```']")
    run(kernel, "%%refine --here --model there\nAdd more.")
    differs = run(kernel, "%refine_replay --check episode")
    assert differs.status == "error"
    assert "The replay is not as recorded, first at s01-a01." in differs.text


def test_all_of_it_goes_when_it_is_unloaded(kernel: Kernel, folder: Path) -> None:
    assert run(kernel, "%unload_ext nbrefine").ok
    assert "not found" in run(kernel, "%%refine\nx").text
    assert "not found" in run(kernel, "%refine_status").text
    run(kernel, "%load_ext nbrefine")
    assert run(kernel, "%%refine --here --model replies\nx").ok


def by_nbclient(notebook: Any, folder: Path) -> Any:
    where = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=120, resources=where).execute()


def by_nbconvert(notebook: Any, folder: Path) -> Any:
    preprocessor: Any = ExecutePreprocessor
    return preprocessor(timeout=120).preprocess(notebook, {"metadata": {"path": str(folder)}})[0]


def by_papermill(notebook: Any, folder: Path) -> Any:
    return papermill.execute_notebook(
        notebook, None, cwd=str(folder), kernel_name="python3", progress_bar=False
    )


@pytest.mark.parametrize("run_all", [by_nbclient, by_nbconvert, by_papermill])
def test_a_notebook_runs_from_top_to_bottom(
    tmp_path: Path, run_all: Callable[[Any, Path], Any]
) -> None:
    """No comm is opened, and so no widget is saved."""
    cells = [
        "%load_ext nbrefine",
        f"replies = [{WRONG!r}, {RIGHT!r}]; tests = {TESTS!r}",
        "%%refine --model replies --tests tests\nWrite median(xs).",
        "episode.solved",
    ]
    form: Any = nbformat.v4
    done = run_all(form.new_notebook(cells=[form.new_code_cell(each) for each in cells]), tmp_path)
    (output,) = done.cells[2].outputs
    assert sorted(output.data) == ["text/html", "text/plain"]
    assert output.data["text/plain"].startswith("Write median(xs).\nSolved after 2 turns")
    assert done.cells[3].outputs[0].data["text/plain"] == "True"
    assert "widgets" not in done.metadata
    assert [each.name for each in tmp_path.glob("*.ipynb")] == ["episode.ipynb"]


def test_plain_ipython_can_ask_too(tmp_path: Path) -> None:
    (tmp_path / "replies.txt").write_text(f"{WRONG}\n---\n{RIGHT}\n")
    cell = f"%%refine --model scripted:replies.txt --tests '{TESTS}'\nWrite median(xs)."
    script = tmp_path / "cells.ipy"
    script.write_text(
        f"%load_ext nbrefine\nget_ipython().run_cell({cell!r})\nprint(episode.solved)\n"
        "get_ipython().run_cell('%%refine --here\\nx')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(script)],
        env={**environment(tmp_path), "IPYTHONDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Solved after 2 turns" in done.stdout
    assert "\nTrue\n" in done.stdout
    assert "UsageError: this is plain IPython" in done.stdout + done.stderr
