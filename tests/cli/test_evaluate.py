"""`nbrefine eval`: what it prints, what it leaves, and the code it ends with."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nbrefine import notebook
from nbrefine.cli import call
from nbrefine.cli.evaluate import report
from nbrefine.config import EvalConfig
from nbrefine.evaluation import Row, create_evaluation_result
from nbrefine.metrics import Outcome
from nbrefine.values import Usage

NBREFINE = str(Path(sys.executable).with_name("nbrefine"))
LIMIT = 60

CONFIG = """\
environments:
  - name: sums
    adapter: iterative
    params:
      tasks:
        - {prompt: Write one()., test_code: assert one() == 1}
        - {prompt: Write two()., test_code: assert two() == 2}
    iterative: {max_turns: 2, submission_extractor: code_block}
model: scripted:replies.json
batch_size: 1
output_dir: out
"""


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


ONE, TWO, WRONG = (
    fenced(f"def {name}(): return {value}")
    for name, value in (("one", 1), ("two", 2), ("three", 3))
)


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NBREFINE_DEBUG", raising=False)
    Path("eval.yaml").write_text(CONFIG)
    replies(WRONG, ONE, TWO)


def replies(*texts: str) -> None:
    Path("replies.json").write_text(json.dumps(texts))


def test_figures_are_a_table_on_stdout_and_progress_goes_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["eval", "eval.yaml"]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == [f"{done} of 2 episodes" for done in range(3)]
    head, row, curve, reward, last = told.out.splitlines()
    assert head.split("  ")[0] == "environment"
    # Both of two tasks: Wilson's interval is from 2 / (2 + 1.96²) = 34.2 % to 100 %.
    assert re.split(r"  +", row) == ["sums", "2", "2", "100.0 % ± 0.0", "34.2 to 100.0 %"]
    # 0 and 1 in the first episode, 1 in the second.
    assert reward.startswith("reward of an episode 1 ± 0; 0 tokens, ")
    assert curve == "solved by attempt 1: 50.0 %, 2: 100.0 %"
    assert last == "Model: scripted:replies.json   Results: out"


def test_it_leaves_rows_notebooks_and_a_summary() -> None:
    assert call(["eval", "eval.yaml", "--quiet"]) == 0
    lines = Path("out/sums/results.jsonl").read_text().splitlines()
    first, *rows = (json.loads(line) for line in lines)
    assert first["settings"]["model"] == "scripted:replies.json"
    assert [(row["task"], row["verdict"], row["solved_at"]) for row in rows] == [
        ("sums/0", "solved", 2),
        ("sums/1", "solved", 1),
    ]
    episode = notebook.load(Path("out/sums") / rows[0]["notebook"])
    assert [turn.verdict for turn in episode.turns] == ["failed", "solved"]
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["metrics"]["sums"]["accuracy"]["mean"] == 1.0


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["eval", "eval.yaml", "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_json_is_one_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["eval", "eval.yaml", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["metrics"]["sums"]["solved_by_attempt"] == [0.5, 1.0]
    assert [row["solved"] for row in told["results"]["sums"]] == [True, True]


def test_options_win_over_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.json").write_text(json.dumps([ONE, ONE]))
    options = ["--limit", "1", "--samples", "2", "--batch-size", "1", "--model"]
    assert call(["eval", "eval.yaml", *options, "scripted:other.json", "-o", "there"]) == 0
    assert "Model: scripted:other.json   Results: " in capsys.readouterr().out
    assert len(Path("there/sums/results.jsonl").read_text().splitlines()) == 3
    assert not Path("out").exists()


def test_a_second_run_goes_on_where_the_first_was() -> None:
    assert call(["eval", "eval.yaml", "--limit", "1", "-q"]) == 0
    replies(TWO)
    assert call(["eval", "eval.yaml", "-q"]) == 0
    assert call(["eval", "eval.yaml", "-q"]) == 0
    assert len(Path("out/sums/results.jsonl").read_text().splitlines()) == 3


def test_several_environments_each_have_a_row_and_a_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    second = CONFIG.split("model:", maxsplit=1)[0].split("\n", 1)[1]
    Path("eval.yaml").write_text(CONFIG.replace("model:", f"{second}model:"))
    replies(WRONG, ONE, TWO, ONE, WRONG, WRONG)
    assert call(["eval", "eval.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["sums", "sums-2"]
    assert "sums-2: solved by attempt 1: 50.0 %, 2: 50.0 %" in lines
    # 100 % and 50 % ± 50 of two tasks each: the errors' squares add up, over two.
    assert "Solved, every environment weighing the same: 75.0 % ± 25.0" in lines
    assert Path("out/sums-2/results.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("max_turns", "max_turn"), 'eval.yaml, line 8: unknown key "max_turn" in iterative'),
        (("replies.json", "gone.json"), "gone.json"),
        (("test_code: assert one() == 1", "test_cod: x"), "Task 1 of params.tasks"),
        (("code_block", "code_blok"), "code_blok"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    change: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("eval.yaml").write_text(CONFIG.replace(*change, 1))
    assert call(["eval", "eval.yaml"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert re.fullmatch(r"nbrefine: .+\n", told.err)
    assert said in told.err
    assert not Path("out").exists()


def test_no_server_ends_with_3_before_anything_begins(
    refusing: Callable[[int], str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-0123456789")
    served = f"{{backend: openai, model: m, base_url: '{refusing(401)}'}}"
    Path("eval.yaml").write_text(CONFIG.replace("scripted:replies.json", served))
    assert call(["eval", "eval.yaml", "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["error"]["kind"] == "ModelAuthError"
    assert not Path("out").exists()


def test_episodes_that_ended_in_trouble_end_it_with_3(
    refusing: Callable[[int], str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-0123456789")
    served = f"{{backend: openai, model: m, base_url: '{refusing(400)}'}}"
    Path("eval.yaml").write_text(CONFIG.replace("scripted:replies.json", served))
    assert call(["eval", "eval.yaml"]) == 3
    told = capsys.readouterr()
    assert "not counted: 2 that ended in trouble" in told.out
    assert "The same command does again what ended in trouble" in told.err


@contextmanager
def second_cell_running() -> Iterator[subprocess.Popen[str]]:
    """Give an evaluation on live kernels whose first episode is kept and whose second runs."""
    replies(ONE, fenced("open('running', 'w')\nwhile True: pass"))
    rows = [
        {"question": f"Write {name}().", "answer": "", "test": f"assert {name}() == {value}"}
        for name, value in (("one", 1), ("two", 2))
    ]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Path("eval.yaml").write_text(f"""\
environments:
  - name: rows.jsonl
    adapter: notebook
    params: {{workspace: report, cwd: {json.dumps(str(Path.cwd()))}}}
model: scripted:replies.json
batch_size: 1
output_dir: out
""")
    process = subprocess.Popen(
        [NBREFINE, "eval", "eval.yaml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + LIMIT
        while not Path("running").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_keeps_what_there_is_and_ends_with_130() -> None:
    with second_cell_running() as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, err
    assert "Not all episodes have ended; the same command goes on" in out
    assert len(Path("out/rows/results.jsonl").read_text().splitlines()) == 2


def test_a_killed_evaluation_goes_on_where_it_was() -> None:
    with second_cell_running() as process:
        process.kill()
        process.wait(LIMIT)
    replies(TWO)
    assert call(["eval", "eval.yaml", "-q"]) == 0
    _, *rows = (
        json.loads(line) for line in Path("out/rows/results.jsonl").read_text().splitlines()
    )
    assert [row["verdict"] for row in rows] == ["solved", "solved"]
    kept = [notebook.load(Path("out/rows") / row["notebook"]) for row in rows]
    assert [len(episode.turns) for episode in kept] == [1, 1]


def test_a_terminal_sees_a_bar() -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [NBREFINE, "eval", "eval.yaml"],
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(controller, 65536):
            shown += chunk
    except OSError:
        pass  # Linux says EIO where the other side has closed
    finally:
        os.close(controller)
    assert process.wait(LIMIT) == 0
    assert b"episodes" in shown
    assert b"2/2" in shown


def test_the_table_tells_pass_at_k_grades_and_what_is_not_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def row(task: int, sample: int, **facts: object) -> Row:
        outcome = Outcome(task, sample=sample, turns=1, usage=Usage(1000, 234), **facts)  # type: ignore[arg-type]
        return Row(task, sample, outcome)

    rows = [
        row(0, 0, verdict="solved", solved_at=1, graded=True, formats=(True,)),
        row(0, 1, verdict="solved", solved_at=1, graded=False, formats=(False,)),
        row(1, 0, verdict="invalid-task"),
    ]
    config = EvalConfig.from_dict({"environments": [{"name": "set"}], "output_dir": "out"})
    report(create_evaluation_result({"set": rows}, model="m"), config)
    out = capsys.readouterr().out.splitlines()
    assert "pass@2" in out[0]
    # One task with two samples, one of which is right: pass@1 is a half, pass@2 is 1.
    assert re.split(r"  +", out[1])[:4] == ["set", "1", "2", "50.0 %"]
    assert out[1].endswith("100.0 %")
    assert out[2:] == [
        "pass@k 1: 50.0 %, 2: 100.0 %",
        "in the form asked for: 50.0 %",
        "passing but wrong: 1 of 2 graded",
        "not counted: 1 whose task cannot be judged here",
        "reward of an episode 0; 3,702 tokens, 0.0 s in all",
        "Model: m   Results: out",
    ]
