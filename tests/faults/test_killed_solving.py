"""An agent that is killed at any moment goes on, and ends as one that nobody has disturbed."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nbrefine
from nbrefine.values import Episode
from tests.conftest import ROOT
from tests.faults.agent import RECORD, STEPS

GIVEN = "was here before "

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Give what has the agent work in a folder and tells how that ended."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.agent"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as agents:
        assert agents.stdin is not None
        assert agents.stdout is not None

        def run(folder: Path, **asked: float) -> dict[str, Any]:
            never = {"at": 0, "share": 0.0, "after": 0.0, "written": 0, "full": 0, "ended": 0}
            given = {**never, **asked}
            print(json.dumps({"folder": str(folder), **given}), file=agents.stdin, flush=True)
            line = agents.stdout.readline()  # type: ignore[union-attr]
            assert line, "the agents' parent has ended"
            answer: dict[str, Any] = json.loads(line)
            return answer

        yield run
        agents.stdin.close()
        agents.wait(60)


def begun(folder: Path) -> Path:
    folder.mkdir()
    (folder / "given.txt").write_text(GIVEN)
    return folder


def content(folder: Path) -> dict[str, str]:
    """Give what is in a folder, except for the record itself."""
    return {
        path.name: path.read_text() if path.is_file() else ""
        for path in folder.iterdir()
        if path.name != RECORD
    }


def did(episode: Episode) -> list[tuple[int, str, str]]:
    """Give each step that was done, what its cell has printed, and what it has left."""
    return [
        (
            turn.step,
            turn.result.text if turn.result else "",
            turn.digest.hash if turn.digest else "",
        )
        for turn in episode.accepted
    ]


@pytest.fixture(scope="module")
def undisturbed(
    run: Run, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[tuple[int, str, str]], dict[str, str]]:
    folder = begun(tmp_path_factory.mktemp("undisturbed") / "work")
    assert run(folder) == {"killed": False, "said": "1 2 3 4 5 6 7 8 "}
    episode = nbrefine.load(folder / RECORD)
    assert episode.solved
    files = content(folder)
    assert files.keys() == {"first.txt", "given.txt", "log.txt", "made", "part7.txt", "part8.txt"}
    assert files["given.txt"] == f"{GIVEN}12345678"
    # Sums of squares: 0, 0 + 1, 1 + 4 and so on.
    totals = [line.split()[1] for line in files["log.txt"].splitlines()]
    assert totals == ["0", "1", "5", "14", "30", "55", "91", "140"]
    return did(episode), files


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_an_agent_that_is_killed_again_and_again_ends_as_if_it_never_was(
    tmp_path: Path,
    run: Run,
    undisturbed: tuple[list[tuple[int, str, str]], dict[str, str]],
    seed: int,
) -> None:
    steps, files = undisturbed
    drawn, folder = random.Random(seed), begun(tmp_path / "work")
    recorded, kills = 0, 0
    while kills < 4 and recorded < STEPS - 1:
        if kills % 3 == 2:  # while it starts, or brings the session to where it was
            ended = run(folder, after=drawn.uniform(0.1, 2.0))
        else:
            ended = run(folder, at=recorded + drawn.choice((1, 2)), share=drawn.uniform(0.0, 1.2))
        assert "!" not in ended["said"]
        kills += ended["killed"]
        if not (folder / RECORD).exists():
            continue  # it was killed before it had begun
        episode = nbrefine.load(folder / RECORD)
        asked = [int(step) for step in ended["said"].split()]
        assert len(episode.accepted) >= max([recorded, *(step - 1 for step in asked)])
        recorded = len(episode.accepted)
        assert did(episode) == steps[:recorded]
    ended = run(folder)
    assert not ended["killed"]
    assert "!" not in ended["said"] or recorded == STEPS, ended["said"]
    episode = nbrefine.load(folder / RECORD)
    assert episode.solved
    assert did(episode) == steps
    assert content(folder) == files


@pytest.mark.timeout(300)
def test_what_a_cell_has_written_and_no_record_tells_of_is_taken_back(
    tmp_path: Path,
    run: Run,
    undisturbed: tuple[list[tuple[int, str, str]], dict[str, str]],
) -> None:
    steps, files = undisturbed
    folder = begun(tmp_path / "work")
    for step in (1, 4):  # files that are new, and files that are changed or removed
        assert run(folder, written=step)["killed"]
        assert (folder / "given.txt").read_text() == GIVEN + "12345678"[:step]
        assert len(nbrefine.load(folder / RECORD).accepted) == step - 1
    assert "!" not in run(folder)["said"]
    episode = nbrefine.load(folder / RECORD)
    assert did(episode) == steps
    assert content(folder) == files


@pytest.mark.timeout(300)
def test_a_disk_that_is_full_leaves_files_as_the_record_tells(
    tmp_path: Path,
    run: Run,
    undisturbed: tuple[list[tuple[int, str, str]], dict[str, str]],
) -> None:
    steps, files = undisturbed
    folder = begun(tmp_path / "work")
    ended = run(folder, full=3)
    assert "! RecordError" in ended["said"]
    assert "File too large" in ended["said"]
    assert did(nbrefine.load(folder / RECORD)) == steps[:2]
    assert (folder / "given.txt").read_text() == f"{GIVEN}12"
    assert run(folder)["said"] == "3 4 5 6 7 8 "
    assert did(nbrefine.load(folder / RECORD)) == steps
    assert content(folder) == files


@pytest.mark.timeout(300)
def test_a_kernel_that_is_killed_with_all_its_copies_is_made_again(
    tmp_path: Path,
    run: Run,
    undisturbed: tuple[list[tuple[int, str, str]], dict[str, str]],
) -> None:
    steps, files = undisturbed
    folder = begun(tmp_path / "work")
    ended = run(folder, ended=4)
    assert "!" not in ended["said"]
    episode = nbrefine.load(folder / RECORD)
    assert episode.solved
    assert did(episode) == steps
    assert content(folder) == files
