"""Whoever goes on with a record and is killed between any two writes loses no turn of before."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine import notebook
from nbrefine.values import Episode

RESUMING = """
import os, signal, shutil, sys
from dataclasses import replace
from pathlib import Path
from nbrefine import notebook

def work(path, log, kill_at):
    episode = replace(notebook.load(path), stop=None)
    done = 0
    def counted(act):
        def acted(*args, **kwargs):
            nonlocal done
            done += 1
            if done == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return act(*args, **kwargs)
        return acted
    for name in ("open", "write", "ftruncate", "replace", "unlink", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    os.fsync = lambda file: None  # a killed process leaves what it wrote all the same
    recorder = notebook.Recorder(path, resume=True)
    recorder.begin(episode)
    new = replace(episode.turns[0], number=3, attempt=3, feedback="new" * 500)
    episode = replace(episode, turns=(*episode.turns, new))
    recorder._next_write = 0.0  # the notebook is written now, too
    recorder.turn(episode)
    say(log, 3)
    recorder.end(replace(episode, stop=ended.stop))
    say(log, 99)

say = os.write
say = lambda log, number, write=os.write: write(log, f"{number} ".encode())
source = Path(sys.argv[1])
ended = notebook.load(sys.argv[2])
notebook.save(ended, sys.argv[2])  # all that is imported late is there before the forks
kill_at, finished = 0, False
while not finished:
    kill_at += 1
    folder = source.with_name(f"{source.name}-{kill_at}")
    shutil.copytree(source, folder)
    heard, log = os.pipe()
    child = os.fork()
    if child == 0:
        work(folder / "episode.ipynb", log, kill_at)
        os._exit(0)
    os.close(log)
    _, status = os.waitpid(child, 0)
    told = os.read(heard, 1000).decode().split()
    os.close(heard)
    assert os.WIFSIGNALED(status) or (os.WEXITSTATUS(status) == 0 and told[-1] == "99"), status
    finished = not os.WIFSIGNALED(status)
    print(folder.name, max([int(word) for word in told if word != "99"], default=0))
"""


def _killed(path: Path, episode: Episode, *, alone: bool) -> None:
    """Leave what a killed run leaves: a torn journal with a notebook behind it, or alone."""
    recorder = notebook.Recorder(path)
    recorder.begin(replace(episode, turns=(), stop=None))
    recorder.turn(replace(episode, stop=None))
    recorder.close()
    journal = path.with_suffix(".nbrefine.jsonl")
    journal.write_bytes(journal.read_bytes() + b'{"at": 2, "tu')
    if alone:
        path.unlink()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("before", ["clean", "torn", "alone"])
def test_a_kill_between_any_two_writes_loses_no_turn(
    tmp_path: Path, repaired: Episode, before: str
) -> None:
    source = tmp_path / "record"
    source.mkdir()
    path = source / "episode.ipynb"
    notebook.save(repaired, tmp_path / "ended.ipynb")
    if before == "clean":
        notebook.save(repaired, path)
    else:
        _killed(path, repaired, alone=before == "alone")
    ran = subprocess.run(
        [sys.executable, "-c", RESUMING, source, tmp_path / "ended.ipynb"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) > 15
    for line in lines:
        name, told = line.split()
        left = tmp_path / name / "episode.ipynb"
        episode = notebook.load(left)
        assert episode.turns[:2] == repaired.turns
        assert len(episode.turns) >= int(told)
        assert episode.id == repaired.id
        notebook.Recorder(left, resume=True)  # it can be gone on with once more
        shutil.rmtree(left.parent)
    assert len(episode.turns) == 3
    assert episode.stop == repaired.stop
