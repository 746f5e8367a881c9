"""What the README and the pages on one subject show is true: programs run, files load."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import get_args

import pytest

from nbrefine import Kernel, load
from nbrefine.cli import call
from nbrefine.config import EnvironmentConfig, EvalConfig, RunConfig
from nbrefine.config.evaluation import Adapter
from nbrefine.models import local
from tests.shown import DOCS, FILES, README, REFERENCE, ROOT, blocks, commands, offline

STAND_IN = f"""import sys
sys.path.insert(0, {str(ROOT)!r})
from nbrefine.models import local
from tests.shown import offline
local.LocalModel = offline"""
"""Puts the same model into a kernel."""

PROMPT = re.compile(r"^    (## Feedback.*?)\n\n(?=\S)", re.MULTILINE | re.DOTALL)
"""A prompt that a page has all of."""

TOLD = {
    "README": [
        "2/2 tests passed",
        "def slug(text):",
        "[3, 4, 5]\n",
        "\nNorth\nTrue 2/2 tests passed.",
    ],
    "branches": ["ok 42\n", "[3, 4, 5]\n[3, 4, 5, 6]\n[3, 4, 5, 6]\n"],
    "environments": [
        "\nTrue 1.0\n",
        "2 of 2 solved\n| attempts | solved within (2 tasks) |",
        "\n| 1 | 100.0% |\n",
        "[('code_execution', 0.0), ('judge', 0.0), ('short', 1.0)]\n",
    ],
    "evaluation": ["failed 1 of 2 True\n"],
    "models": ["1/1 tests passed 2 turns\n"],
    "record": ["solved ['solved']\n"],
    "refining": ["1 solved 1 ", "5 of 5, pass@1 1.00\ndef double(x):"],
    "solving": [
        "turn 3, step 3  accepted  1/1 checks  0 tokens, ",
        "\nNorth answered in the asked form; 3 checks of its steps held",
        "\nSouth\n",
    ],
}
"""What the programs of a page must say, beside what stands below them."""


@pytest.mark.timeout(300)  # many sessions
@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_the_programs_of_a_page_run_one_after_the_other(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "LocalModel", offline)
    for shown in blocks(page, "yaml"):
        Path(FILES[page.stem]).write_text(shown.source)
    told = ""
    for block in blocks(page, "python"):
        exec(compile(block.source, page.name, "exec"), {})
        said = capsys.readouterr().out
        assert [line for line in block.said if line not in said] == [], said
        told += said
    assert [text for text in TOLD.get(page.stem, ()) if text not in told] == [], told
    assert bool(told) == (page.stem in TOLD)
    prompts = [textwrap.dedent(f"    {each}") for each in PROMPT.findall(page.read_text())]
    assert len(prompts) == (page.stem == "environments")
    assert all(f"\n{each}\nTrue 1.0\n" in told for each in prompts)


def test_the_cells_run_one_after_the_other(tmp_path: Path) -> None:
    assert [page for page in REFERENCE if any(blocks(page, "ipython"))] == [README]
    with Kernel.start("python3", cwd=tmp_path) as kernel:
        assert kernel.run(STAND_IN, timeout=60).result().ok
        for cell in blocks(README, "ipython"):
            result = kernel.run(cell.source, timeout=100).result()
            assert result.ok, result.text
            assert [line for line in cell.said if line not in result.text] == [], result.text
        assert (
            kernel.run("df['fare'].to_list()", timeout=60).result().text == "[2.4, 2.4, 3.1, 2.9]\n"
        )


def test_the_records_of_the_readme_are_shown_replayed_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "LocalModel", offline)
    for block in blocks(README, "python"):
        if "record=" in block.source:
            exec(compile(block.source, "README.md", "exec"), {})
    lines = [line for line in commands(README) if "slug.ipynb" in line]
    assert [shlex.split(line)[1] for line in lines] == ["show", "replay", "diff"]
    assert [call(shlex.split(line)[1:]) for line in lines] == [0, 0, 1]
    said = capsys.readouterr().out
    assert "give the recorded outputs and state (1 compared)" in said
    assert "Their tasks differ." in said


def test_the_make_targets_exist() -> None:
    named = {line.split()[1] for line in commands(README) if line.startswith("make ")}
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named
    assert named <= targets


def test_the_task_file_is_one(tmp_path: Path) -> None:
    (shown,) = blocks(DOCS / "refining.md", "yaml")
    path = tmp_path / "task.yaml"
    path.write_text(shown.source)
    assert RunConfig.load(path).max_turns == 5


@pytest.mark.timeout(300)  # many runs
def test_a_goal_in_steps_runs_is_gone_on_with_and_branched_off_from_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "LocalModel", offline)
    Path("sales.csv").write_text("shop,sum\nNorth,120\nSouth,90\nSouth,\nNorth,40\n")
    page = DOCS / "solving.md"
    (shown,) = blocks(page, "yaml")
    Path("sales.yaml").write_text(shown.source)
    as_file, in_words, resumed, branched = (
        shlex.split(line)[1:] for line in commands(page) if line.startswith("nbrefine solve ")
    )
    assert call(as_file) == 0
    assert call([*in_words, "--max-turns", "1", "--planning", "none"]) == 0
    assert "shop: North\nsum: 160\n" in capsys.readouterr().out
    assert call([*as_file, "--max-turns", "1", "--output", "cut.ipynb"]) == 1
    assert call([*resumed[:-1], "cut.ipynb", "--max-turns", "9"]) == 0
    assert "Answer: 'North'\n" in capsys.readouterr().out
    assert call(branched) == 0
    worst = load("worst.ipynb").answer
    assert worst is not None
    assert worst.value == "South"


def test_the_evaluation_runs_on_the_problems_that_are_written_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "LocalModel", offline)
    sets = blocks(DOCS / "environments.md", "python")
    (problems,) = (each.source for each in sets if "problems.jsonl" in each.source)
    exec(compile(problems, "environments.md", "exec"), {})
    (shown,) = blocks(DOCS / "evaluation.md", "yaml")
    Path("eval.yaml").write_text(shown.source)
    assert call(["eval", "eval.yaml"]) == 0
    assert "passing but wrong: 3 of 6 graded" in capsys.readouterr().out
    assert len(list(Path("results").rglob("*.ipynb"))) == 6


def test_the_keys_of_an_evaluation_are_all_there() -> None:
    page = (DOCS / "evaluation.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| key | says |\n|---|---|\n")
    rows = [line.split(" | ") for line in table.partition("\n\n")[0].splitlines()]
    keys, said = ([re.findall(r"`(\w+)`", row[at]) for row in rows] for at in (0, 1))
    assert sorted(itertools.chain(*keys)) == sorted(EvalConfig.model_fields)
    assert keys[0] == ["environments"]
    assert set(said[0]) == {*EnvironmentConfig.model_fields, *get_args(Adapter)}


@pytest.mark.parametrize(
    ("page", "said"),
    [(README, "over ninety programs"), (DOCS / "evaluation.md", "over ninety such programs")],
    ids=["README", "evaluation"],
)
def test_the_attacks_are_as_many_as_a_page_says(page: Path, said: str) -> None:
    assert said in page.read_text(encoding="utf-8").replace("\n", " ")
    assert len(list((ROOT / "tests" / "attacks" / "attacks").rglob("*.py"))) > 90


def test_the_file_tree_names_what_is_there_and_leaves_nothing_out() -> None:
    trees = re.compile(r"^```text\n(nbrefine/\n.*?)^```$", re.MULTILINE | re.DOTALL)
    (tree,) = trees.findall(README.read_text(encoding="utf-8"))
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split()
    top = {name.partition("/")[0] + "/" * ("/" in name) for name in tracked}
    assert set(re.findall(r"^(\S+)", tree, re.MULTILINE)) == top - {"README.md", ".gitignore"}
    inside = set(re.findall(r"^  (\S+)", tree, re.MULTILINE))
    there = {
        path.name + "/" * path.is_dir()
        for path in (ROOT / "nbrefine").iterdir()
        if not path.name.startswith("__") and path.suffix in ("", ".py")
    }
    assert inside == there - {"_version.py"}
