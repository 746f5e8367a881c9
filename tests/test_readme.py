"""What the README shows is true: its programs run, its commands parse, its tree stands."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import get_args

import pytest

from nbrefine import load
from nbrefine.cli import call
from nbrefine.config import EnvironmentConfig, EvalConfig, RunConfig
from nbrefine.config.evaluation import Adapter
from nbrefine.models import local
from nbrefine.models.scripted import ScriptedModel

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

SLUG = """```python
import re
def slug(text):
    return "-".join(re.findall("[a-z0-9]+", text.lower()))
```"""


REPLIES = {
    "Take the shop that sold least": "```python\nbest = totals.idxmin()\n```",
    "Do step 1 now": "```python\nimport pandas as pd\ndf = pd.read_csv('sales.csv')\n```",
    "Do step 2 now": "```python\ntotals = df.groupby('shop')['sum'].sum()\n```",
    "Do step 3 now": "```python\nbest = totals.idxmax()\n```",
    "Which shop": "```python\nprint('@shop[North] @sum[160]')\n```",
    "slug": SLUG,
    "double": "```python\ndef double(x):\n    return x + x\n```",
    "last": "```python\ndef last(xs):\n    return xs[-1]\n```",  # passes, and is wrong
    "x": "```python\nx = 1 + 2 + 3\n```",
}
"""What the model of the README's programs answers, by a word of the task."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = "".join(blocks("console")).splitlines()
    return [line.removeprefix("$ ").partition("  #")[0] for line in lines]


def offline(_name: str | None, **_settings: float) -> ScriptedModel:
    """Stand in for the model on this machine."""
    return ScriptedModel(
        lambda messages: next(r for word, r in REPLIES.items() if word in messages[-1].content)
    )


@pytest.mark.timeout(300)  # many sessions
def test_the_programs_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "LocalModel", offline)
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    told = capsys.readouterr().out
    (prompt,) = re.findall(r"^    (## Feedback.*?)\n\n(?=\S)", README, re.MULTILINE | re.DOTALL)
    prompt = textwrap.dedent(f"    {prompt}")
    assert "2/2 tests passed" in told
    assert "def slug(text):" in told
    assert "1 solved 1" in told
    assert "ok 42" in told
    assert "solved ['solved']" in told
    assert "True 2/2 tests passed." in told
    assert f"\n{prompt}\nTrue 1.0\n" in told
    assert "2 of 2 solved\n| attempts | solved within (2 tasks) |" in told
    assert "\n| 1 | 100.0% |\n" in told
    assert "[('code_execution', 0.0), ('judge', 0.0), ('short', 1.0)]" in told
    assert "failed 1 of 2 True" in told
    assert "5 of 5, pass@1 1.00\ndef double(x):" in told
    assert "turn 3, step 3  accepted  1/1 checks  0 tokens, " in told
    assert "\nNorth answered in the asked form; 3 checks of its steps held" in told
    assert "\nSouth\n" in told


@pytest.mark.parametrize("line", [c for c in commands() if c.startswith("nbrefine ")])
def test_a_command_parses(line: str) -> None:
    # Options are parsed before --help acts, so a wrong one still fails.
    assert call([*shlex.split(line)[1:], "--no-such-option", "--help"]) == 2
    assert call([*shlex.split(line)[1:], "--help"]) == 0


def test_the_make_targets_exist() -> None:
    named = {line.split()[1] for line in commands() if line.startswith("make ")}
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert named
    assert named <= targets


def test_the_task_file_is_one(tmp_path: Path) -> None:
    shown, _, _ = blocks("yaml")
    path = tmp_path / "task.yaml"
    path.write_text(shown)
    assert RunConfig.load(path).max_turns == 5


@pytest.mark.timeout(300)  # many runs
def test_a_goal_in_steps_runs_is_gone_on_with_and_branched_off_from_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "LocalModel", offline)
    Path("sales.csv").write_text("shop,sum\nNorth,120\nSouth,90\nSouth,\nNorth,40\n")
    _, shown, _ = blocks("yaml")
    Path("sales.yaml").write_text(shown)
    as_file, in_words, resumed, branched = (
        shlex.split(line)[1:] for line in commands() if line.startswith("nbrefine solve ")
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
    (problems,) = (block for block in blocks("python") if "problems.jsonl" in block)
    exec(compile(problems, "README.md", "exec"), {})
    _, _, shown = blocks("yaml")
    Path("eval.yaml").write_text(shown)
    assert call(["eval", "eval.yaml"]) == 0
    assert "passing but wrong: 3 of 6 graded" in capsys.readouterr().out
    assert len(list(Path("results").rglob("*.ipynb"))) == 6


def test_the_keys_of_an_evaluation_are_all_there() -> None:
    _, _, table = README.partition("| key | says |\n|---|---|\n")
    rows = [line.split(" | ") for line in table.partition("\n\n")[0].splitlines()]
    keys, said = ([re.findall(r"`(\w+)`", row[at]) for row in rows] for at in (0, 1))
    assert sorted(itertools.chain(*keys)) == sorted(EvalConfig.model_fields)
    assert keys[0] == ["environments"]
    assert set(said[0]) == {*EnvironmentConfig.model_fields, *get_args(Adapter)}


def test_the_attacks_are_as_many_as_the_readme_says() -> None:
    assert "over ninety such programs" in README.replace("\n", " ")
    assert len(list((ROOT / "tests" / "attacks" / "attacks").rglob("*.py"))) > 90


def test_the_file_tree_names_what_is_there_and_leaves_nothing_out() -> None:
    (tree,) = blocks("text")
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
