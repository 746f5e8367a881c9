"""What the package lends to tests: the recipe for a folder of episodes, run by pytest itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import nbrefine
from nbrefine import testing
from nbrefine.errors import UsageError
from nbrefine.outputs import Stream

RECIPE = testing.__doc__ or ""


def test_the_recipe_passes_what_replays_and_shows_what_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "episodes"
    folder.mkdir(parents=True)
    reply = "```python\nmean = 4\nprint('mean', mean / 3)\n```"
    episode = nbrefine.refine("Mean.", model=[reply], record=folder / "good.ipynb")
    result = episode.turns[0].result
    assert result is not None
    tampered = replace(result, outputs=(Stream("stdout", "mean 1.5\n"),))
    turn = replace(episode.turns[0], result=tampered)
    nbrefine.save(replace(episode, turns=(turn,)), folder / "tampered.ipynb")
    (folder / "plain.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4}')
    code = RECIPE[RECIPE.index("    import pytest") : RECIPE.index("What fails is told")]
    (tmp_path / "test_episodes.py").write_text("\n".join(line[4:] for line in code.splitlines()))
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_episodes.py", "-rA"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout
    assert "1 failed, 1 passed" in ran.stdout
    assert "PASSED test_episodes.py::test_replays[tests/episodes/good.ipynb]" in ran.stdout
    told = [line.removeprefix("E").strip() for line in ran.stdout.splitlines()]
    for line in ("AssertionError: tests/episodes/tampered.ipynb", "s01-a01   differs"):
        assert line in told
    assert told.index("-mean 1.5") + 1 == told.index("+mean 1.3333333333333333")
    assert "The replay is not as recorded, first at s01-a01." in told
    assert "nbrefine/testing.py" not in ran.stdout  # its reader wants the line of the test


def test_a_folder_without_episodes_is_refused_and_a_file_is_itself(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no episode notebook in"):
        testing.episodes(tmp_path)
    assert testing.episodes(tmp_path / "one.ipynb") == [tmp_path / "one.ipynb"]
