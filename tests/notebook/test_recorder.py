"""The record of a running episode: nothing lost, nothing torn, nothing overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine import notebook
from nbrefine.errors import RecordError, UsageError
from nbrefine.notebook import files
from nbrefine.values import Episode, Message, Reply, Stop


def _start(episode: Episode, turns: int = 0) -> Episode:
    return replace(episode, turns=episode.turns[:turns], stop=None)


def _record(path: Path, episode: Episode) -> notebook.Recorder:
    """Record all turns, without an end."""
    recorder = notebook.Recorder(path)
    recorder.begin(_start(episode))
    for number in range(1, len(episode.turns) + 1):
        recorder.turn(_start(episode, number))
    return recorder


def test_a_clean_run_leaves_one_notebook_and_nothing_else(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    _record(path, repaired).end(repaired)
    assert [file.name for file in tmp_path.iterdir()] == ["episode.ipynb"]
    assert notebook.load(path) == repaired


def test_the_record_can_be_read_while_the_run_goes_on(tmp_path: Path, repaired: Episode) -> None:
    path = tmp_path / "episode.ipynb"
    recorder = _record(path, repaired)
    hidden = replace(repaired.task, hidden_tests="")
    assert notebook.load(path) == replace(repaired, stop=None, task=hidden)
    recorder.close()


def test_a_run_without_an_end_is_complete_up_to_its_last_turn_and_says_so(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    _record(path, repaired).close()
    for source in (path, tmp_path / "episode.nbrefine.jsonl"):
        episode = notebook.load(source)
        assert episode.turns == repaired.turns
        assert episode.stop is not None
        assert episode.stop.reason == "killed"
        assert "complete up to turn 2" in episode.stop.detail
        assert "hidden tests" in episode.stop.detail
    path.unlink()
    assert notebook.load(path).turns == repaired.turns


def test_a_notebook_without_its_journal_says_that_turns_may_be_missing(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    _record(path, repaired).close()
    (tmp_path / "episode.nbrefine.jsonl").unlink()
    stop = notebook.load(path).stop
    assert stop is not None
    assert stop.reason == "killed"
    assert "episode.nbrefine.jsonl is missing" in stop.detail


def test_a_run_that_is_torn_at_any_byte_keeps_every_whole_line(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    _record(path, repaired).close()
    path.unlink()
    journal = tmp_path / "episode.nbrefine.jsonl"
    whole = journal.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 3  # the head and two turns
    near = {end + step for end in ends for step in (-2, -1, 0, 1)}
    for size in sorted((near | set(range(0, len(whole), 97))) & set(range(len(whole) + 1))):
        journal.write_bytes(whole[:size])
        # The newline alone may be missing: the line's text is all there then.
        complete = sum(size >= end - 1 for end in ends)
        if complete == 0:
            with pytest.raises(RecordError, match="no journal"):
                notebook.load(path)
            continue
        episode = notebook.load(path)
        assert episode.turns == repaired.turns[: complete - 1]
        assert episode.stop is not None
        torn = any(size == end for end in ends) or any(size == end - 1 for end in ends)
        assert ("torn" in episode.stop.detail) is not torn


def test_a_line_lost_in_the_middle_falls_back_on_the_notebook(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    recorder = _record(path, repaired)
    recorder._write(_start(repaired, 2))
    recorder.close()
    journal = tmp_path / "episode.nbrefine.jsonl"
    head, _, last = journal.read_text().splitlines()
    journal.write_text(f"{head}\n\x00\x00\n{last}\n")
    episode = notebook.load(path)
    assert episode.turns == repaired.turns
    assert episode.stop is not None
    assert "line 2 of the journal is torn" in episode.stop.detail


def test_a_crash_between_the_last_notebook_and_the_journals_removal_loses_nothing(
    tmp_path: Path, repaired: Episode
) -> None:
    path, journal = tmp_path / "episode.ipynb", tmp_path / "episode.nbrefine.jsonl"
    recorder = _record(path, repaired)
    left = journal.read_bytes()
    recorder.end(repaired)
    journal.write_bytes(left)
    assert notebook.load(path) == repaired


def test_turns_that_change_later_are_recorded_as_they_are_at_last(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    recorder = _record(path, repaired)
    adopted = replace(repaired.turns[0], accepted=True)
    recorder.turn(replace(repaired, turns=(adopted, repaired.turns[1]), stop=None))
    recorder.close()
    assert [turn.accepted for turn in notebook.load(path).turns] == [True, True]


KILLING = """
import os, random, signal, sys, time
from dataclasses import replace
from nbrefine import notebook

def record(path, log):
    episode = replace(model, turns=(), stop=None)
    recorder = notebook.Recorder(path)
    recorder.begin(episode)
    os.write(log, b"begun ")
    for number in range(1, 100_000):
        text = f"turn {number} " * 300
        turn = replace(model.turns[0], number=number, attempt=number, feedback=text)
        episode = replace(episode, turns=(*episode.turns, turn))
        recorder.turn(episode)
        os.write(log, f"{number} ".encode())

model = notebook.load(sys.argv[1])
notebook.to_notebook(model)  # all that is imported late is there before the forks
chance = random.Random(2)
for path in sys.argv[2:]:
    heard, log = os.pipe()
    child = os.fork()
    if child == 0:
        record(path, log)
    os.close(log)
    told = os.read(heard, 6)
    time.sleep(chance.uniform(0.0, 0.5))  # waits for nothing: the moment is what varies
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(heard, 100_000):
        told += more
    print(told.decode().split()[-1])
"""


def test_a_writer_that_is_killed_at_any_moment_loses_no_finished_turn(
    tmp_path: Path, repaired: Episode
) -> None:
    """Twenty processes record turns and are killed; a turn that one has told of is finished."""
    model = tmp_path / "model.ipynb"
    notebook.save(repaired, model)
    paths = [tmp_path / f"killed{moment}.ipynb" for moment in range(20)]
    ran = subprocess.run(
        [sys.executable, "-c", KILLING, model, *paths], check=True, capture_output=True, text=True
    )
    finished = [0 if word == "begun" else int(word) for word in ran.stdout.split()]
    assert len(finished) == 20
    assert max(finished) > 10
    for path, number in zip(paths, finished, strict=True):
        episode = notebook.load(path)
        assert len(episode.turns) >= number
        assert [turn.number for turn in episode.turns] == list(range(1, len(episode.turns) + 1))
        assert episode.stop is not None
        assert episode.stop.reason == "killed"
        json.loads(path.read_bytes())  # the notebook is whole, however old
    names = {file.name.partition(".")[2] for file in tmp_path.glob("killed*")}
    assert names == {"ipynb", "nbrefine.jsonl"}


def test_what_a_killed_writer_left_is_swept_by_the_next_run(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "epi[s]ode.ipynb"
    left = tmp_path / ".epi[s]ode.ipynb.0123abcd.tmp"
    left.write_text("half a note")
    other = tmp_path / ".other.ipynb.0123abcd.tmp"
    other.write_text("not ours")
    _record(path, repaired).end(repaired)
    assert not left.exists()
    assert other.exists()


def test_a_late_turn_costs_the_disk_what_an_early_one_did(
    tmp_path: Path, repaired: Episode
) -> None:
    """The chat grows by two messages a turn; the journal must not repeat what it has."""
    path = tmp_path / "long.ipynb"
    journal = tmp_path / "long.nbrefine.jsonl"
    episode = _start(repaired)
    recorder = notebook.Recorder(path)
    recorder.begin(episode)
    chat: tuple[Message, ...] = repaired.turns[0].messages
    sizes = []
    for number in range(1, 301):
        turn = replace(
            repaired.turns[0],
            number=number,
            attempt=number,
            messages=chat,
            reply=Reply(f"reply {number:04}"),
            feedback=f"output {number:04} " * 1_500,
        )
        chat = (*chat, Message("assistant", f"reply {number:04}"), Message("user", turn.feedback))
        episode = replace(episode, turns=(*episode.turns, turn))
        recorder.turn(episode)
        sizes.append(journal.stat().st_size)
    recorder.close()
    early, late = sizes[99] - sizes[49], sizes[299] - sizes[249]
    assert early > 50 * 18_000
    assert late <= 1.02 * early
    assert notebook.load(path).turns == episode.turns


def test_a_full_disk_keeps_the_journal_whole_and_the_next_call_writes_all(
    tmp_path: Path, repaired: Episode, file_limit: Callable[[int], None]
) -> None:
    path, journal = tmp_path / "episode.ipynb", tmp_path / "episode.nbrefine.jsonl"
    recorder = notebook.Recorder(path)
    recorder.begin(_start(repaired))
    before = path.read_bytes(), journal.read_bytes()
    file_limit(len(before[1]) + 100)
    with pytest.raises(RecordError, match=r"episode\.nbrefine\.jsonl cannot be written"):
        recorder.turn(_start(repaired, 1))
    assert (path.read_bytes(), journal.read_bytes()) == before
    file_limit(-1)
    recorder.turn(_start(repaired, 2))
    recorder.end(repaired)
    assert notebook.load(path) == repaired


def test_a_notebook_that_does_not_fit_leaves_the_old_one_and_the_journal(
    tmp_path: Path, repaired: Episode, file_limit: Callable[[int], None]
) -> None:
    path = tmp_path / "episode.ipynb"
    recorder = _record(path, repaired)
    before = path.read_bytes()
    file_limit((tmp_path / "episode.nbrefine.jsonl").stat().st_size + 2_000)
    with pytest.raises(RecordError, match=r"episode\.ipynb cannot be written"):
        recorder.end(repaired)
    file_limit(-1)
    assert path.read_bytes() == before
    assert {file.suffix for file in tmp_path.iterdir()} == {".ipynb", ".jsonl"}
    episode = notebook.load(path)
    assert (episode.turns, episode.stop) == (repaired.turns, repaired.stop)


@pytest.fixture
def file_limit() -> Iterator[Callable[[int], None]]:
    """Let the system itself refuse to let files grow, as a full disk does."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size < 0 else size, hard))

    yield limit
    limit(-1)


def test_a_place_that_cannot_hold_a_record_is_refused_before_any_work(
    tmp_path: Path, repaired: Episode
) -> None:
    (tmp_path / "folder.ipynb").mkdir()
    (tmp_path / "full.ipynb").symlink_to("/dev/full")
    for place, words in {
        tmp_path / "episode.txt": "ends in .ipynb",
        tmp_path / "missing" / "episode.ipynb": "does not exist",
        tmp_path / "folder.ipynb": "is not a file",
        tmp_path / "full.ipynb": "is not a file",
        Path("/proc/episode.ipynb"): "cannot be written",
    }.items():
        with pytest.raises(RecordError, match=words) as raised:
            notebook.Recorder(place)
        assert raised.value.hint
        with pytest.raises(RecordError, match=words):
            notebook.save(repaired, place)


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """Take the powers of root away, before which no folder is protected."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    yield
    os.seteuid(was)


def test_a_write_protected_folder_is_refused_before_any_work(as_nobody: None) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folder is closed to nobody
        folder = Path(name)
        folder.chmod(0o500)
        with pytest.raises(RecordError, match="Permission denied"):
            notebook.Recorder(folder / "episode.ipynb")
        folder.chmod(0o700)


def test_an_episode_is_replaced_only_when_that_is_allowed(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(repaired, path)
    with pytest.raises(RecordError, match="holds an episode already"):
        notebook.Recorder(path)
    recorder = notebook.Recorder(path, overwrite=True)
    assert notebook.load(path) == repaired
    other = replace(repaired, id="e2", turns=(), stop=Stop("budget"))
    recorder.begin(replace(other, stop=None))
    recorder.end(other)
    assert notebook.load(path) == other


def test_a_notebook_that_is_no_episode_is_never_replaced(tmp_path: Path, repaired: Episode) -> None:
    path = tmp_path / "mine.ipynb"
    mine = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    path.write_text(mine)
    with pytest.raises(RecordError, match="a plain notebook of 0 cells"):
        notebook.Recorder(path, overwrite=True)
    with pytest.raises(RecordError, match="a plain notebook of 0 cells"):
        notebook.save(repaired, path)
    assert path.read_text() == mine


def test_a_killed_run_and_a_running_one_are_not_replaced(tmp_path: Path, repaired: Episode) -> None:
    path = tmp_path / "episode.ipynb"
    running = _record(path, repaired)
    with pytest.raises(RecordError, match="at this moment"):
        notebook.Recorder(path, overwrite=True)
    running.close()
    path.unlink()
    with pytest.raises(RecordError, match="whose run was killed"):
        notebook.Recorder(path)
    again = notebook.Recorder(path, overwrite=True)
    again.begin(_start(repaired))
    again.end(repaired)
    assert notebook.load(path) == repaired


def test_two_runs_that_start_together_do_not_share_a_journal(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    one, two = notebook.Recorder(path), notebook.Recorder(path)
    one.begin(_start(repaired))
    with pytest.raises(RecordError, match="Another run is recording"):
        two.begin(_start(repaired))
    with pytest.raises(RecordError, match="Another run is recording"):
        two.end(repaired)  # says why it never began
    one.end(repaired)
    assert notebook.load(path) == repaired


def test_an_episode_that_another_run_recorded_meanwhile_is_not_replaced(
    tmp_path: Path, repaired: Episode
) -> None:
    path = tmp_path / "episode.ipynb"
    late = notebook.Recorder(path)
    _record(path, repaired).end(repaired)
    with pytest.raises(RecordError, match="holds an episode already"):
        late.begin(_start(repaired))
    assert [file.name for file in tmp_path.iterdir()] == ["episode.ipynb"]
    assert notebook.load(path) == repaired


def test_a_journal_of_another_episode_is_not_mixed_in(tmp_path: Path, repaired: Episode) -> None:
    path = tmp_path / "episode.ipynb"
    _record(path, repaired).close()
    path.unlink()
    notebook.save(replace(repaired, id="e2"), path)
    with pytest.raises(RecordError, match="different episodes"):
        notebook.load(path)


def test_a_link_and_a_mode_stay_as_they_are(tmp_path: Path, repaired: Episode) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "episode.ipynb", tmp_path / "link.ipynb"
    notebook.save(repaired, real)
    real.chmod(0o640)
    link.symlink_to(real)
    recorder = notebook.Recorder(link, overwrite=True)
    recorder.begin(_start(repaired))
    recorder.turn(_start(repaired, 2))
    assert notebook.load(link).turns == repaired.turns
    recorder.end(repaired)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert notebook.load(link) == repaired


def test_a_new_notebook_gets_the_mode_that_the_umask_gives(
    tmp_path: Path, repaired: Episode
) -> None:
    old = os.umask(0o027)
    try:
        notebook.save(repaired, tmp_path / "episode.ipynb")
    finally:
        os.umask(old)
    assert (tmp_path / "episode.ipynb").stat().st_mode & 0o777 == 0o640


def test_a_recorder_that_has_not_begun_says_so(tmp_path: Path, repaired: Episode) -> None:
    with pytest.raises(UsageError, match="begin"):
        notebook.Recorder(tmp_path / "episode.ipynb").turn(repaired)


def test_a_beginning_that_does_not_fit_leaves_nothing_behind(
    tmp_path: Path, repaired: Episode, file_limit: Callable[[int], None]
) -> None:
    recorder = notebook.Recorder(tmp_path / "episode.ipynb")
    file_limit(3_000)  # enough for the journal's first line, and not for the notebook
    with pytest.raises(RecordError, match=r"episode\.ipynb cannot be written"):
        recorder.begin(_start(repaired))
    file_limit(-1)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_renamed_into_place_leaves_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "episode.ipynb"
    path.mkdir()
    with pytest.raises(RecordError, match="cannot be written"):
        files.replace_file(path, "text")
    assert list(tmp_path.iterdir()) == [path]
