"""The record of several steps: how its cells stand, and what Run All runs and passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
import pytest
from markdown_it import MarkdownIt

from nbrefine import notebook
from nbrefine.notebook import codec
from nbrefine.notebook.steps import steps_of
from nbrefine.outputs import Failure, Stream
from nbrefine.postconditions import holds
from nbrefine.values import CaseResult, Episode, Plan, Stop, Subtask, Task, TestReport
from tests.conftest import ROOT
from tests.notebook.seen import cells_of, fates_of
from tests.steps import answered, cell, gave_up

EPISODES = (answered, gave_up)


def _kept() -> Episode:
    """A step whose best attempt was adopted though one of two checks failed."""
    episode = answered()
    failed, last = episode.turns[4], episode.turns[5]
    assert failed.tests is not None
    first, second = failed.tests.cases
    half = replace(failed.tests, cases=(replace(first, status="passed"), second))
    kept = replace(failed, accepted=True, tests=half)
    rejected = replace(last, accepted=False, verdict="failed", tests=failed.tests, artifacts=())
    return replace(episode, turns=(*episode.turns[:4], kept, rejected), stop=Stop("gave-up"))


def test_every_step_has_its_plan_its_turns_and_its_checks_in_order() -> None:
    kinds = [(name, made["cell_type"]) for name, made in cells_of(answered()).items()]
    assert kinds == [
        ("ep-summary", "markdown"),
        ("ep-params", "code"),
        ("ep-setup", "code"),
        ("s01-plan", "markdown"),
        ("s01-a01", "markdown"),
        ("s01-a02", "markdown"),
        ("s01-diff", "markdown"),
        ("s01-a03", "code"),
        ("s01-checks", "code"),
        ("s02-plan", "markdown"),
        ("s02-a01", "code"),
        ("s02-checks", "code"),
        ("s03-plan", "markdown"),
        ("s03-a01", "markdown"),
        ("s03-diff", "markdown"),
        ("s03-a02", "code"),
        ("s03-checks", "code"),
        ("s04-plan", "markdown"),
        ("s04-a01", "markdown"),
        ("s04-a02", "markdown"),
        ("ep-checks", "code"),
        ("ep-tests", "code"),
        ("ep-final", "markdown"),
    ]


@pytest.mark.parametrize("make", EPISODES)
def test_the_file_is_valid_and_gives_the_same_episode_at_any_turn(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "LONG", 10)  # every text goes the way of long ones
    whole = make()
    for count in range(len(whole.turns) + 1):
        plans = tuple(plan for plan in whole.plans if plan.since <= count + 1)
        part = replace(whole, turns=whole.turns[:count], plans=plans, stop=None, answer=None)
        episode = whole if count == len(whole.turns) else part
        path = tmp_path / "episode.ipynb"
        notebook.save(episode, path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = nbformat.read(path, as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
            nbformat.validate(made)
        assert nbformat.writes(made) + "\n" == path.read_text()  # type: ignore[no-untyped-call]
        assert notebook.load(path) == episode


def _run_all(path: Path) -> subprocess.CompletedProcess[str]:
    home = {name: str(path.parent / name) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR")}
    command = ["nbconvert", "--log-level=ERROR", "--to", "notebook", "--execute", "--inplace"]
    return subprocess.run(
        [sys.executable, "-m", *command, str(path)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | home,
    )


def test_run_all_gives_the_recorded_outputs_and_passes_every_check(tmp_path: Path) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(answered(), path)
    before = _outputs(path)
    ran = _run_all(path)
    assert ran.returncode == 0, ran.stderr
    after = _outputs(path)
    assert after == before
    assert after["s02-a01"] != []
    assert {"s01-checks", "s02-checks", "s03-checks", "ep-checks", "ep-tests"} <= set(after)
    assert (tmp_path / "mean.txt").read_text() == "4.0"
    assert notebook.load(path) == answered()


def test_a_check_that_no_longer_holds_ends_run_all(tmp_path: Path) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(answered(), path)
    made = json.loads(path.read_bytes())
    cell_of_step = next(each for each in made["cells"] if each["id"] == "s02-a01")
    cell_of_step["source"] = "mean = 400"
    path.write_text(json.dumps(made))
    ran = _run_all(path)
    assert ran.returncode != 0
    assert "assert 0 <= mean <= 10" in ran.stderr


def _outputs(path: Path) -> dict[str, Any]:
    """Give the outputs of every code cell, without the counts that a new run gives anew."""
    return {
        made["id"]: [
            {key: value for key, value in output.items() if key != "execution_count"}
            for output in made["outputs"]
        ]
        for made in json.loads(path.read_bytes())["cells"]
        if made["cell_type"] == "code"
    }


def test_checks_leave_no_names_and_show_what_they_had_shown() -> None:
    own = holds("import os as secret\nassert print('seen', secret.sep) is None")
    episode = answered()
    turn = episode.turns[3]
    assert turn.tests is not None
    told = replace(turn, tests=replace(turn.tests, outputs=(Stream("stdout", "seen /\n"),)))
    subtasks = (
        episode.task.subtasks[0],
        replace(episode.task.subtasks[1], postconditions=(own,)),
        *episode.task.subtasks[2:],
    )
    turns = (*episode.turns[:3], told, *episode.turns[4:])
    made = cells_of(replace(episode, turns=turns, plans=(Plan(subtasks),)))["s02-checks"]
    assert made["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "seen /\n"}]
    names: dict[str, Any] = {}
    exec(made["source"], names)
    assert "secret" not in names


@pytest.mark.parametrize("make", EPISODES)
def test_every_link_of_the_summary_leads_to_a_heading(make: Any) -> None:
    """JupyterLab and nbconvert name a heading by its text with hyphens for blanks."""
    episode = make()
    plan = replace(
        episode.plan.subtasks[0], goal="Read `a_b` & *c* [x](y), 100 % of #1 in São Paulo?"
    )
    subtasks = (plan, *episode.plan.subtasks[1:])
    episode = replace(
        episode, plans=(*episode.plans[:-1], replace(episode.plan, subtasks=subtasks))
    )
    headings, links = set(), []
    for made in cells_of(episode).values():
        if made["cell_type"] == "markdown":
            tokens = MarkdownIt().enable("table").parse(made["source"])
            for place, token in enumerate(tokens):
                if token.type == "heading_open":
                    words = tokens[place + 1].children or []
                    headings.add("".join(word.content for word in words).replace(" ", "-"))
                links += [
                    unquote(str(child.attrs["href"]))
                    for child in token.children or ()
                    if child.type == "link_open"
                ]
    assert len(links) == len(steps_of(episode))
    assert {link.removeprefix("#") for link in links} <= headings


def test_steps_stand_in_the_order_in_which_their_cells_ran(tmp_path: Path) -> None:
    """A step that was given up is gone back to, where its limits are higher."""
    subtasks = (
        Subtask("Fill", (), (holds("items == [2, 1]"),)),
        Subtask("Begin", (), (holds("items == [2]"),)),
        Subtask("Look"),
    )
    turns = (
        cell(1, 1, 1, "items.append(1)", error=Failure("NameError", "items", ())),
        cell(2, 2, 1, "items = [2]", tests=TestReport((CaseResult("test_1", "passed"),))),
        cell(3, 1, 2, "1 / 0", error=Failure("ZeroDivisionError", "division by zero", ())),
        cell(4, 1, 3, "items.append(1)", tests=TestReport((CaseResult("test_1", "passed"),))),
    )
    episode = replace(answered(), task=Task("Fill"), turns=turns, plans=(Plan(subtasks),))
    episode = replace(episode, setup=None, stop=None, answer=None)
    chapters = [name for name in cells_of(episode) if name.endswith("-plan")]
    assert chapters == ["s02-plan", "s01-plan", "s03-plan"]
    path = tmp_path / "episode.ipynb"
    notebook.save(episode, path)
    ran = _run_all(path)
    assert ran.returncode == 0, ran.stderr
    assert fates_of(episode) == ["done", "done", "not-begun"]
    # What is gone back to is worked on, and what was left is not.
    assert fates_of(replace(episode, turns=turns[:3])) == ["running", "done", "not-begun"]
    assert fates_of(replace(episode, turns=turns[:2])) == ["given-up", "done", "not-begun"]


def test_a_kept_attempt_is_code_and_its_checks_are_text(tmp_path: Path) -> None:
    episode = _kept()
    assert fates_of(episode) == ["done", "done", "kept"]
    cells = cells_of(episode)
    order = [name for name in cells if name.startswith("s03")]
    assert order == ["s03-plan", "s03-a01", "s03-a02", "s03-diff", "s03-checks"]
    assert cells["s03-a01"]["cell_type"] == "code"
    assert cells["s03-checks"]["cell_type"] == "markdown"
    assert (
        "| import os assert os.path.getsize('mean.txt') == 3 | error |"
        in (cells["s03-checks"]["source"])
    )
    assert "Attempt 1 was kept, though not all of its checks held" in cells["s03-plan"]["source"]
    path = tmp_path / "episode.ipynb"
    notebook.save(episode, path)
    assert _run_all(path).returncode == 0


def test_records_of_before_there_were_steps_are_read_and_look_the_same() -> None:
    found = sorted((ROOT / "benchmarks" / "demo").glob("*.ipynb"))
    assert len(found) >= 5
    for path in found:
        episode = notebook.load(path)
        assert episode.plans == ()
        assert {turn.kind for turn in episode.turns} <= {"attempt"}
        assert [made["id"] for made in notebook.to_notebook(episode)["cells"]] == [
            made["id"] for made in json.loads(path.read_bytes())["cells"]
        ]
