"""What a recorded episode cannot be gone on with, or only with what it had before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nbrefine
from nbrefine.errors import RecordError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.loop import refine
from nbrefine.solving import branch_off, resume, solve, start_branching, start_resuming
from nbrefine.values import GradeNote
from tests.solving.leaving import ON, WRITE, WRONG


def test_data_that_is_gone_is_told_before_anything_runs(tmp_path: Path) -> None:
    data = tmp_path / "orders.csv"
    data.write_text("a\n1\n")
    record = tmp_path / "e.ipynb"
    read = "```python\nn = len(open('orders.csv').readlines())\n```"
    solve("Count.", data=data, subtasks=["Read.", "Say."], model=[read], max_turns=1, record=record)
    data.unlink()
    before = record.read_bytes()
    with pytest.raises(UsageError, match=r"There is no data file .*orders\.csv"):
        start_resuming(record, model=[read], max_turns=3)
    with pytest.raises(UsageError, match=r"There is no data file .*orders\.csv"):
        start_branching(record, 1, record=tmp_path / "new.ipynb", model=[read])
    assert [path.name for path in tmp_path.iterdir()] == ["e.ipynb"]
    assert record.read_bytes() == before


def test_what_cannot_be_gone_on_with_is_refused_and_left_as_it_is(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RecordError):
        resume(tmp_path / "none.ipynb")
    with pytest.raises(UsageError, match=r"does not say how to get its model.*Give model="):
        resume(record)
    with pytest.raises(UsageError, match="There is no setting 'max_turn'"):
        resume(record, model=[WRITE], max_turn=2)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="max_turns"):
        resume(record, model=[WRITE], max_turns=0)
    with pytest.raises(UsageError, match="nonsense"):
        resume(record, model="nonsense:x")
    with (
        Kernel.start() as kernel,
        pytest.raises(UsageError, match="not where the episode was left"),
    ):
        resume(record, model=[WRITE], kernel=kernel)
    with pytest.raises(UsageError, match=r"has no step 4.*steps 1 to 2"):
        branch_off(record, 4, record=tmp_path / "new.ipynb", model=[WRITE])
    with pytest.raises(UsageError, match="a number is wanted"):
        branch_off(record, "2", record=tmp_path / "new.ipynb", model=[WRITE])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="replace the old one"):
        branch_off(record, 2, record=record, model=[WRITE])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    refine("x", tests="assert x", model=["```python\nx = 1\n```"], record=tmp_path / "r.ipynb")
    with pytest.raises(UsageError, match=r"not one of solve\(\)"):
        resume(tmp_path / "r.ipynb", model=[WRITE])


def test_where_nothing_is_left_to_do_the_record_is_left_as_it_is(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    graded = replace(nbrefine.load(record), grade=GradeNote("failed", 1, 3))
    nbrefine.save(graded, record)
    new = tmp_path / "new.ipynb"
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    unchanged: dict[str, Any] = {}
    for settings in (unchanged, {"max_attempts": 9}):
        with pytest.raises(UsageError, match=r"Nothing is left to do: the limit of turns \(3\)"):
            resume(record, model=[WRITE], **settings)
        with pytest.raises(UsageError, match=r"1 turn is taken over\. Give at least 2"):
            branch_off(record, 2, record=new, model=[ON], max_turns=1, **settings)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    # The grade is of what was there, and goes with the first turn that is added.
    run = start_resuming(record, model=[WRITE], max_turns=9)
    assert run.earlier == len(graded.turns)
    run.pause()
    while run.activity.doing != "paused":
        assert not run.done()
    run.stop()
    assert run.result().grade == nbrefine.load(record).grade == graded.grade
    assert resume(record, model=[WRITE], max_turns=9).grade is None


def test_an_episode_that_was_answered_is_not_gone_on_with(tmp_path: Path) -> None:
    record = tmp_path / "e.ipynb"
    left = solve(
        "Count.",
        subtasks=[{"goal": "a", "check": "a == 1"}],
        answer="text",
        model=["```python\na = 2\n```", "```answer\n2\n```"],
        record=record,
        max_attempts=1,
        max_replans=0,
        accept_best=True,
    )
    assert left.stop is not None
    assert (left.stop.reason, left.answer is not None) == ("gave-up", True)
    before = record.read_bytes()
    with pytest.raises(UsageError, match=r"was answered, which ends it.*Branch off"):
        resume(record, model=["```python\na = 1\n```"], max_attempts=9)
    assert record.read_bytes() == before


def test_two_cannot_go_on_with_one_record_at_once(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    # The second one is refused before the first one's kernel is there, and while it works.
    first = start_resuming(record, model=[WRITE], max_turns=9)
    first.pause()
    with pytest.raises(RecordError, match="Another run is recording"):
        start_resuming(record, model=[WRONG], max_turns=9)
    while first.activity.doing != "paused":
        assert not first.done()
    with pytest.raises(RecordError, match="Another run is recording"):
        start_resuming(record, model=[WRONG], max_turns=9)
    first.resume()
    assert first.result().solved
    assert nbrefine.load(record) == first.result()
    assert (tmp_path / "log.txt").read_text() == "12"


def test_lent_variables_are_lent_again(tmp_path: Path) -> None:
    record = tmp_path / "e.ipynb"
    step = "```python\ntotal = sum(numbers)\n```"
    with Kernel.start() as own:
        assert own.run("numbers = [1, 2, 3]").result().ok
        lend = (own, ["numbers"])
        solve("Sum.", subtasks=["a", "b"], lend=lend, model=[step], max_turns=1, record=record)
        with pytest.raises(UsageError, match=r"lent to it: numbers.*Lend them again"):
            resume(record, model=[step])
        episode = resume(
            record, lend=lend, model=["```python\nassert total == 6\n```"], max_turns=2
        )
        assert own.run("sorted(name for name in dir() if name == 'total')").result().text == "[]\n"
    assert episode.solved
    assert episode.handed_in == ("numbers",)
    assert episode.settings["lent"] == ["numbers"]


def test_a_kernel_that_was_handed_in_is_needed_again(tmp_path: Path) -> None:
    record = tmp_path / "e.ipynb"
    step = "```python\ntotal = sum(numbers)\n```"
    more = ["```python\nassert total == 6\n```"]
    with Kernel.start(cwd=tmp_path) as own:
        assert own.run("numbers = [1, 2, 3]").result().ok
        solve("Sum.", subtasks=["a", "b"], kernel=own, model=[step], max_turns=1, record=record)
        before = record.read_bytes()
        for other in (None, "python3"):
            with pytest.raises(UsageError, match=r"in a kernel that was handed in.*Give that one"):
                resume(record, model=more, kernel=other, max_turns=2)
        with pytest.raises(UsageError, match="in a kernel that was handed in"):
            branch_off(record, 1, record=tmp_path / "new.ipynb", model=more)
        assert record.read_bytes() == before
        assert resume(record, model=more, kernel=own, max_turns=2).solved


def test_what_keeps_a_replacement_from_beginning_leaves_the_old_record_its_files(
    tmp_path: Path,
) -> None:
    record = tmp_path / "e.ipynb"
    undo = tmp_path / "e.nbrefine.undo"
    undo.mkdir()
    (undo / "index.json").write_text('{"accepted": 0, "files": {}}')
    with pytest.raises(UsageError, match="nonsense"):
        solve("x", model="nonsense:x", record=record, overwrite=True)
    assert undo.exists()
    solve("x", model=["```python\nprint('ANSWER: 1')\n```"], record=record, overwrite=True)
    assert not undo.exists()
