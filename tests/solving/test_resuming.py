"""A recorded episode is gone on with."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import nbrefine
from nbrefine.errors import NbrefineError, UsageError
from nbrefine.notebook import Recorder, wording
from nbrefine.notebook.line import line
from nbrefine.solving import resume, solve, start_solving
from nbrefine.values import Message
from nbrefine.views.terminal import show
from tests.solving.leaving import BEGIN, ON, STEPS, WRITE, codes


def test_an_episode_goes_on_where_it_was_left(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    before = nbrefine.load(record)
    assert before.stop is not None
    assert before.stop.reason == "max-turns"
    episode = resume(record, model=[WRITE], max_turns=9)
    assert episode.solved
    assert codes(episode) == [
        (1, "items = ['a']", True),
        (2, "items.append('c')", False),
        (2, "items.append('b')", True),
        (3, "open('items.txt', 'w').write(' '.join(items))", True),
    ]
    assert episode.turns[:3] == before.turns
    assert episode.id == before.id
    assert (tmp_path / "items.txt").read_text() == "a b"
    assert (tmp_path / "log.txt").read_text() == "12"
    assert nbrefine.load(record) == episode
    # What was recorded is taken up again, and what is given wins.
    assert (episode.settings["rebuild_limit"], episode.settings["max_turns"]) == (7.0, 9)
    assert episode.settings["differences"] == []
    with pytest.raises(UsageError, match="reached its goal"):
        resume(record, model=[WRITE])


def test_what_is_other_than_it_was_stands_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("1")
    record = tmp_path / "e.ipynb"
    read = "```python\nn = [0] * len(open('given.txt').read())\n```"
    solve("Count.", subtasks=["Read.", "Sum."], model=[read], max_turns=1, record=record)
    (tmp_path / "given.txt").write_text("12")
    episode = resume(record, model=["```python\ntotal = 0\n```"], max_turns=2)
    assert episode.solved
    told = "n is list of length 2, not list of length 1"
    assert nbrefine.load(record).settings["differences"] == [told]
    cells = {
        cell["id"]: "".join(cell["source"]) for cell in json.loads(record.read_text())["cells"]
    }
    assert f"| Other when gone on with | {told} |" in cells["ep-summary"]
    assert f"\n- {told}" in cells["ep-final"]
    page = StringIO()
    show(record, console=Console(file=page, width=100))
    assert told in page.getvalue()


def test_several_models_are_named_with_their_turns(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    episode = nbrefine.load(two_done(tmp_path))
    assert dict(wording.facts(episode))["Model"] == episode.model
    turns = tuple(
        replace(turn, reply=replace(turn.reply, model=name))
        for turn, name in zip(episode.turns, ("first", "second", "first"), strict=True)
        if turn.reply is not None
    )
    episode = replace(episode, turns=turns, model="first")
    assert [row["model"] for row in episode.to_rows()] == ["first", "second", "first"]
    assert dict(wording.facts(episode))["Model"] == "first (turns 1, 3); second (turn 2)"


def test_checks_that_no_longer_hold_are_not_counted_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "given.txt").write_text("1")
    record = tmp_path / "e.ipynb"
    steps = [{"goal": "Read.", "check": "len(n) == 1"}, {"goal": "Sum.", "check": "total == 0"}]
    read = "```python\nn = [0] * len(open('given.txt').read())\n```"
    solve("Count.", subtasks=steps, answer="text", model=[read], max_turns=1, record=record)
    (tmp_path / "given.txt").write_text("12")
    summed = "```python\ntotal = 0\nprint('ANSWER:', total)\n```"
    episode = resume(record, model=[summed], max_turns=2)
    assert episode.stop is not None
    assert episode.stop.detail == (
        "answered in the asked form; 1 check of its steps held, and nothing checks the answer "
        "itself; the checks of step 1 no longer hold since it was gone on with"
    )
    assert "a check of step 1 no longer holds: len(n) == 1" in episode.settings["differences"]


def test_a_step_that_is_gone_back_to_runs_and_stands_behind_what_was_done_meanwhile(
    tmp_path: Path,
) -> None:
    steps: list[Any] = [{"goal": "a", "check": "items == ['b', 'a']"}, "b"]
    cells = [f"```python\nitems {code}\n```" for code in ("= ['a']", "= ['b']", "+= ['a']")]
    record = tmp_path / "e.ipynb"
    settings: dict[str, Any] = {"max_attempts": 1, "max_replans": 0}
    solve("Do it.", subtasks=steps, model=cells[:2], record=record, **settings)
    episode = resume(record, model=cells[2:], max_attempts=2)
    assert episode.solved
    assert [(turn.step, turn.accepted) for turn in episode.turns] == [
        (1, False),
        (2, True),
        (1, True),
    ]
    made = nbrefine.notebook.to_notebook(nbrefine.load(record))["cells"]
    ran = [cell["id"] for cell in made if cell["cell_type"] == "code"]
    assert ran == ["ep-params", "ep-setup", "s02-a01", "s01-a02", "s01-checks"]


def test_a_run_that_is_stopped_goes_on_later(tmp_path: Path) -> None:
    record = tmp_path / "e.ipynb"
    slow = BEGIN.replace("items =", "import time; time.sleep(600); items =")
    run = start_solving(
        "Make a list.", subtasks=STEPS, model=iter([BEGIN, slow]), record=record, cwd=tmp_path
    )
    while ((now := run.activity).doing, now.turn) != ("running", 2):
        assert not run.done()
    run.stop()
    stopped = run.result()
    assert stopped.stop is not None
    assert stopped.stop.reason == "stopped"
    assert [turn.verdict for turn in stopped.turns] == ["solved", "infra-error"]
    assert wording.fate(stopped.turns[1]) == "not judged (stopped by a person)"
    assert "  stopped by a person  " in line(stopped, stopped.turns[1])
    assert not list(tmp_path.glob("*.undo"))
    assert resume(record, model=[ON, WRITE]).solved
    assert (tmp_path / "log.txt").read_text() == "12"


def test_trouble_of_the_host_is_recorded_and_gone_on_with(tmp_path: Path) -> None:
    def model(messages: Sequence[Message]) -> str:
        if "Do step 2" in messages[-1].content:
            raise OSError("the network is gone")
        return BEGIN

    record = tmp_path / "e.ipynb"
    with pytest.raises((OSError, NbrefineError)) as raised:
        solve("Make a list.", subtasks=STEPS, model=model, record=record)
    assert len(getattr(raised.value, "episode").turns) == 1  # noqa: B009 - of any exception
    episode = nbrefine.load(record)
    assert episode.stop is not None
    assert episode.stop.reason == "infra-error"
    assert resume(record, model=[ON, WRITE]).solved


def test_a_moved_folder_is_gone_on_with_there(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    (tmp_path / "moved").mkdir()
    record = two_done(tmp_path / "moved")
    episode = resume(record, model=[WRITE], max_turns=9)
    assert (tmp_path / "moved" / "items.txt").read_text() == "a b"
    assert episode.settings["folder"] == "."
    assert replace(episode, stop=None).turns[-1].artifacts[0].path == "items.txt"


def test_a_script_goes_on_behind_the_replies_that_it_has_given(tmp_path: Path) -> None:
    script = tmp_path / "replies.txt"
    script.write_text(f"{BEGIN}\n---\n{ON}\n---\n{WRITE}")
    solve(
        "Make a list.",
        subtasks=STEPS,
        model=f"scripted:{script}",
        record=tmp_path / "e.ipynb",
        max_turns=1,
    )
    episode = resume(tmp_path / "e.ipynb", max_turns=3)
    assert episode.solved
    assert codes(episode) == [
        (1, "items = ['a']", True),
        (2, "items.append('b')", True),
        (3, "open('items.txt', 'w').write(' '.join(items))", True),
    ]
    assert episode.settings["model"] == f"scripted:{script}"


def test_a_model_that_has_no_name_leaves_none_in_the_record(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    settings = {"model": "openai:x", "base_url": "http://127.0.0.1:9", "differences": ["earlier"]}
    left = nbrefine.load(record)
    nbrefine.save(replace(left, settings={**left.settings, **settings}), record)
    episode = resume(record, model=[WRITE], max_turns=9)
    told = nbrefine.load(record).settings
    assert (told["model"], told["base_url"]) == (None, None)
    assert told["differences"] == episode.settings["differences"] == ["earlier"]


def test_what_a_kill_has_taken_from_the_record_stays_told(
    tmp_path: Path, two_done: Callable[[Path], Path]
) -> None:
    record = two_done(tmp_path)
    left = replace(nbrefine.load(record), stop=None)
    left = replace(left, task=replace(left.task, hidden_tests="assert len(items) == 2"))
    record.unlink()
    recorder = Recorder(record)
    recorder.begin(left)
    recorder.close()
    resume(record, model=[WRITE], max_turns=9)
    assert nbrefine.load(record).settings["differences"] == [
        "hidden tests and reference are never in a journal"
    ]
