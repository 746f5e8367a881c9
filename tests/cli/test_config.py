"""A task file says what is asked, and what is wrong with it in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbrefine.config import RunConfig
from nbrefine.errors import UsageError
from nbrefine.values import Sampling, Task


def written(folder: Path, text: str, name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_task_file_gives_the_task_and_the_sampling(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a\n1\n")
    path = written(
        tmp_path,
        "task: Add the numbers.\n"
        "data: table.csv\n"
        "setup: |\n  import csv\n  n = 1\n"
        "tests: assert total == 1\n"
        "max_turns: 3\ntemperature: 0.5\nseed: 7\n",
    )
    config = RunConfig.load(path)
    assert config.to_task() == Task(
        prompt="Add the numbers.",
        id="job",
        setup="import csv\nn = 1\n",
        tests="assert total == 1",
    )
    assert config.data == (str(tmp_path / "table.csv"),)
    assert config.to_sampling() == Sampling(temperature=0.5, seed=7)
    assert (config.max_turns, config.timeout, config.model) == (3, 120.0, "local")


def test_one_line_that_ends_in_py_is_a_file_beside_the_task_file(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("assert x == 1\n")
    config = RunConfig.load(written(tmp_path, "task: Set x.\ntests: checks.py\n"))
    assert config.tests == "assert x == 1\n"


def test_options_win_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "task: Set x.\nmax_turns: 2\nmodel: local\n")
    config = RunConfig.load(path, options={"max_turns": 9, "output": "out.ipynb"})
    assert (config.max_turns, config.model) == (9, "local")
    assert config.output == "out.ipynb"


def test_code_finds_a_data_file_from_the_notebooks_folder(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a\n1\n")
    path = written(
        tmp_path,
        "task: Read table.csv.\ndata: table.csv\n"
        "setup: |\n"
        "  t = open('table.csv').read() + \"table.csv\".upper()  # table.csv\n"
        "  u = f'table.csv', 'table.csv.gz'\n",
    )
    config = RunConfig.load(path, options={"output": str(tmp_path / "out" / "e.ipynb")})
    assert config.setup == (
        't = open("../table.csv").read() + "../table.csv".upper()  # table.csv\n'
        "u = f'table.csv', 'table.csv.gz'\n"
    )
    assert config.task == "Read table.csv."


def test_paths_of_models_and_outputs_are_relative_to_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "task: Set x.\noutput: out.ipynb\nmodel: scripted:r.json\n")
    config = RunConfig.load(path)
    assert config.output == str(tmp_path / "out.ipynb")
    assert config.model == f"scripted:{tmp_path / 'r.json'}"
    assert RunConfig.load(path, options={"model": "scripted:r.json"}).model == "scripted:r.json"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("task: x\nmax_turn: 3\n", 'line 2: unknown key "max_turn". Did you mean "max_turns"?'),
        ("task: x\nzzzzz: 3\n", 'line 2: unknown key "zzzzz". Allowed: task, entry_point,'),
        ("task: x\nmax_turns: many\n", "line 2: max_turns: input should be a valid integer"),
        ("task: x\n\nmax_turns: 0\n", "line 3: max_turns: input should be greater than or equal"),
        ("task: x\nmax_turns: true\n", "line 2: max_turns: input should be a valid integer"),
        ("task: x\nrebuild_limit: -1\n", "line 2: rebuild_limit: input should be greater than or"),
        ("task: x\ntimeout: .inf\n", "line 2: timeout: input should be a finite number"),
        ("task: x\nmax_seconds: .nan\n", "line 2: max_seconds: input should be a finite number"),
        ("task: x\nworkspace: mine\n", "line 2: workspace: input should be 'auto', 'overlay' or"),
        ("task: x\ntask: y\n", 'line 2: "task" stands in line 1 already'),
        ("task: [x\n", "line 2: this is not valid YAML"),
        ("task: a: b\n", "line 1: this is not valid YAML"),
        ("model: local\n", 'the key "task" is missing'),
        ("task: ''\n", "line 1: task: "),
        ("task: x\ndata: gone.csv\n", "There is no data file"),
        ("task: x\ntests: gone.py\n", "There is no tests file"),
        ("task: x\ntests: assert\n", "The tests do not parse"),
        ("task: x\ntests: ''\n", "There is no test in the tests given"),
        ("- task\n", "is no task file"),
        ("", "is no task file"),
    ],
)
def test_a_wrong_task_file_is_told_in_one_line_with_its_place(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        RunConfig.load(written(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no task file"):
        RunConfig.load(tmp_path / "gone.yaml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        RunConfig.load(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"task: \xff\xfe")
    with pytest.raises(UsageError, match="no UTF-8 text"):
        RunConfig.load(tmp_path / "bytes.yaml")


def test_a_wrong_option_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "task: x\nmax_turns: 3\n")
    with pytest.raises(UsageError, match=r"^max_turns: input should be greater"):
        RunConfig.load(path, options={"max_turns": 0})


def test_wrong_options_are_told_by_name() -> None:
    with pytest.raises(UsageError, match=r"^timeout: input should be a finite number, not inf"):
        RunConfig.from_options({"task": "x", "timeout": float("inf")})
    with pytest.raises(UsageError, match=r"^temperature: input should be greater"):
        RunConfig.from_options({"task": "x", "temperature": -1.0})
