"""A file that a check asks for was written by a cell of this episode, and not before."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine.env import MultiStepEnvironment
from nbrefine.env.session import IsolationPolicy
from nbrefine.env.written import asking, reported
from nbrefine.kernel import Kernel
from nbrefine.notebook import load, save
from nbrefine.postconditions import cell_of, file_written, holds
from nbrefine.state import Action
from nbrefine.values import AnswerForm, CaseResult, Reply, Subtask, Task, TestReport
from tests.multistep import cell, driven, episode_of, newest

STALE = "totals.csv was there before and has not been written"
WRITES = "open('totals.csv', 'w').write('old')"


@pytest.fixture(autouse=True)
def stale(kernel: Kernel, folder: Path) -> Path:
    file = folder / "totals.csv"
    file.write_text("old")
    return file


TASK = Task("Write", subtasks=(Subtask("Write", postconditions=(file_written("totals.csv"),)),))


@pytest.mark.parametrize("isolation", ["fork", "none"])
def test_a_file_that_lay_there_is_not_written_until_a_cell_writes_it(
    kernel: Kernel, isolation: IsolationPolicy
) -> None:
    with MultiStepEnvironment(TASK, kernel=kernel, isolation=isolation) as env:
        state, _ = env.reset(seed=0)
        state = env.step(state, cell("print('done')")).next_state
        turn = newest(state)
        assert not turn.accepted
        assert turn.tests is not None
        assert [(case.status, case.message) for case in turn.tests.cases] == [
            ("passed", ""),
            ("failed", STALE),
        ]
        assert STALE in turn.feedback
        assert "st_ctime" not in turn.feedback
        state = env.step(state, cell(WRITES)).next_state  # the same content again
    turn = newest(state)
    assert turn.accepted
    assert turn.tests is not None
    assert [case.status for case in turn.tests.cases] == ["passed"]
    assert state.hidden.episode.solved


def test_what_an_earlier_cell_wrote_is_written_also_for_later_steps_and_after_a_resume(
    kernel: Kernel, tmp_path: Path
) -> None:
    check = file_written("totals.csv")
    task = Task(
        "Write",
        subtasks=(
            Subtask("Write", postconditions=(check,)),
            Subtask("Look", postconditions=(check, holds("x > 0"))),
        ),
    )
    with MultiStepEnvironment(task, kernel=kernel) as env:
        state, _ = env.reset(seed=0)
        state = env.step(state, cell(WRITES)).next_state
        assert newest(state).accepted
        record = tmp_path / "record.ipynb"
        save(state.hidden.episode, record)
    earlier = load(record)
    assert earlier == state.hidden.episode
    assert earlier.task.subtasks[0].postconditions[0].writes == "totals.csv"
    with MultiStepEnvironment(task, cwd=kernel.core.lineage.folder) as env:
        state, _ = env.reset(options={"episode": earlier})
        state = env.step(state, cell("x = 1")).next_state
    assert newest(state).accepted
    assert state.hidden.episode.solved


AS_IT_WAS = """\
import os
before = os.stat("totals.csv")
open("totals.csv", "w").write("old")
os.utime("totals.csv", ns=(before.st_atime_ns, before.st_mtime_ns))
"""


@pytest.mark.parametrize("isolation", ["fork", "none"])
@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("totals.csv", AS_IT_WAS),
        ("link/old.csv", "open('link/old.csv', 'w').write('new')"),
        ("link/new.csv", "open('link/new.csv', 'w').write('new')"),
    ],
)
def test_what_a_check_saw_written_is_written_for_later_steps_however_that_was_done(
    kernel: Kernel, path: str, source: str, isolation: IsolationPolicy
) -> None:
    folder = kernel.core.lineage.folder
    assert folder is not None
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub/new.csv").unlink(missing_ok=True)
    (folder / "sub/old.csv").write_text("old")
    (folder / "link").symlink_to("sub")
    check = file_written(path)
    steps = tuple(Subtask(goal, postconditions=(check,)) for goal in ("Write", "Look"))
    with MultiStepEnvironment(
        Task("Write", subtasks=steps), kernel=kernel, isolation=isolation
    ) as env:
        state, _ = env.reset(seed=0)
        state = env.step(state, cell(source)).next_state
        assert newest(state).accepted
        assert path in {each.path for each in newest(state).artifacts}
        state = env.step(state, cell("x = 1")).next_state
    assert newest(state).accepted
    assert newest(state).artifacts == ()
    assert state.hidden.episode.solved


def test_the_checks_of_an_answer_ask_for_it_too(kernel: Kernel) -> None:
    form = AnswerForm(postconditions=(file_written("totals.csv"),))
    with MultiStepEnvironment(Task("Write", answer=form), kernel=kernel) as env:
        state, _ = env.reset(seed=0)
        state = env.step(state, cell("print('ANSWER: 3')")).next_state
        assert newest(state).accepted
        assert state.hidden.episode.answer is None
        assert STALE in newest(state).feedback
        state = env.step(state, cell(WRITES)).next_state
        state = env.step(state, Action.from_reply(Reply("ANSWER: 3"))).next_state
    assert state.hidden.episode.solved


def test_an_answer_before_any_cell_is_asked_for_it_too(kernel: Kernel) -> None:
    form = AnswerForm(postconditions=(file_written("totals.csv"),))
    with MultiStepEnvironment(Task("Write", answer=form), kernel=kernel) as env:
        state, _ = env.reset(seed=0)
        state = env.step(state, Action.from_reply(Reply("ANSWER: 3"))).next_state
    assert state.hidden.episode.answer is None
    assert STALE in newest(state).feedback


def test_what_the_setup_writes_whenever_the_session_is_rebuilt_is_written_by_no_cell(
    tmp_path: Path,
) -> None:
    task = replace(TASK, setup=WRITES)
    with MultiStepEnvironment(task, cwd=tmp_path, isolation="rebuild") as env:
        state = driven(env, "print(1)", "print(2)")
        assert [turn.accepted for turn in episode_of(state).turns] == [False, False]
        assert STALE in newest(state).feedback
        state = env.step(state, cell(WRITES)).next_state
    assert newest(state).accepted


ANY = Subtask("Go")


@pytest.mark.parametrize("isolation", ["fork", "none"])
def test_a_file_is_looked_for_where_the_session_is_by_now(
    kernel: Kernel, folder: Path, isolation: IsolationPolicy
) -> None:
    (folder / "totals.csv").unlink()
    (folder / "sub").mkdir()
    (folder / "sub/totals.csv").write_text("old")
    task = replace(TASK, subtasks=(ANY, *TASK.subtasks, *TASK.subtasks))
    try:
        with MultiStepEnvironment(task, kernel=kernel, isolation=isolation) as env:
            state = driven(env, "import os\nos.chdir('sub')", "print('done')")
            assert [turn.accepted for turn in episode_of(state).turns] == [True, False]
            assert STALE in newest(state).feedback
            state = env.step(state, cell(WRITES)).next_state
            assert newest(state).accepted
            state = env.step(state, cell("x = 1")).next_state
        assert newest(state).accepted
    finally:
        assert kernel.run(f"os.chdir({str(folder)!r})").result().ok


@pytest.mark.parametrize("isolation", ["fork", "none"])
@pytest.mark.parametrize("path", ["link/totals.csv", "totals.csv"])
def test_what_an_unchecked_cell_wrote_by_another_path_is_written(
    kernel: Kernel, folder: Path, path: str, isolation: IsolationPolicy
) -> None:
    (folder / "sub").mkdir()
    (folder / "link").symlink_to("sub")
    (folder / "totals.csv").unlink()
    moves = "import os\nos.chdir('sub')\n" if path == "totals.csv" else ""
    write = f"open({path!r}, 'w').write('new')"
    last = Subtask("Look", postconditions=(file_written(path),))
    try:
        with MultiStepEnvironment(
            Task("Write", subtasks=(ANY, last)), kernel=kernel, isolation=isolation
        ) as env:
            state = driven(env, f"{moves}{write}", "x = 1")
        assert [turn.accepted for turn in episode_of(state).turns] == [True, True]
    finally:
        assert kernel.run(f"import os\nos.chdir({str(folder)!r})").result().ok


@pytest.mark.parametrize("first", ["print('done')", WRITES])
def test_a_file_that_a_link_has_outside_of_the_folder_is_asked_for_as_any_other(
    kernel: Kernel, folder: Path, tmp_path: Path, first: str
) -> None:
    (folder / "totals.csv").unlink()
    (tmp_path / "far.csv").write_text("old")
    (folder / "totals.csv").symlink_to(tmp_path / "far.csv")
    task = replace(TASK, subtasks=(ANY, *TASK.subtasks))
    with MultiStepEnvironment(task, kernel=kernel) as env:
        state = driven(env, first, "x = 1")
        assert newest(state).accepted == (first == WRITES)  # which has done so in the first step
        if not newest(state).accepted:
            assert STALE in newest(state).feedback
            state = env.step(state, cell(WRITES)).next_state
    assert newest(state).accepted


def test_under_run_all_the_file_need_only_be_there(kernel: Kernel) -> None:
    assert kernel.run(cell_of([file_written("totals.csv")])).result().ok


def test_what_could_not_be_asked_is_told_only_where_nothing_else_is_amiss() -> None:
    stamps = {"a.csv": 1}
    good, lost = CaseResult("test_1", "passed"), CaseResult("test_2", "error", "os.stat")
    bad = CaseResult("test_1", "failed")
    assert reported(TestReport((good, lost)), stamps) == TestReport((good, lost))
    assert reported(TestReport((bad, lost)), stamps) == TestReport((bad,))
    assert reported(TestReport((good, good)), stamps) == TestReport((good,))
    assert reported(None, stamps) is None


def test_what_is_asked_holds_for_another_file_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / 'a "b".csv'
    file.write_text("old")
    source = asking({file.name: file.stat().st_ctime_ns})
    with pytest.raises(AssertionError, match="was there before and has not been written"):
        exec(source, {})
    os.utime(file, ns=(0, 0))
    exec(source, {})
