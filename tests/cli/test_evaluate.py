"""`nbrefine eval`: what it prints, what it leaves, and the code it ends with."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from nbrefine import notebook
from nbrefine.cli import call
from nbrefine.cli.evaluate import report
from nbrefine.config import EvalConfig
from nbrefine.config.reading import Section
from nbrefine.evaluation import Row, create_evaluation_result
from nbrefine.findings import Finding
from nbrefine.metrics import Outcome
from nbrefine.values import Usage
from tests.models.conftest import Exchange, LoopbackServer

NBREFINE = str(Path(sys.executable).with_name("nbrefine"))
LIMIT = 60

CONFIG = """\
environments:
  - name: sums.jsonl
    adapter: huggingface
    answer_extractor: raw
    params: {split: test}
    iterative: {max_turns: 2}
model: scripted:replies.json
batch_size: 1
output_dir: out
"""

ROWS = [
    {"id": "sums/0", "question": "one and one?", "answer": "2"},
    {"id": "sums/1", "question": "two and two?", "answer": "4"},
]
TWO, FOUR, WRONG = "2", "4", "0"


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NBREFINE_DEBUG", raising=False)
    Path("sums.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    Path("eval.yaml").write_text(CONFIG)
    replies(WRONG, TWO, FOUR)


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


def test_turns_of_running_episodes_are_told_where_it_was_silent_for_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[report.__module__], "SILENCE", 0.0)
    assert call(["eval", "eval.yaml"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert "0 of 2 episodes; task 0: turn 1 failed" in lines
    assert "0 of 2 episodes; task 0: turn 2 solved" in lines
    assert lines[-1] == "2 of 2 episodes"


def test_what_has_ended_is_kept_where_the_replies_of_a_file_run_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    replies(TWO)
    assert call(["eval", "eval.yaml"]) == 2
    told = capsys.readouterr().err
    assert "has given all its replies (1)" in told
    assert "1 of 2 episodes are kept in out; the same command goes on from there" in told
    replies(FOUR)
    assert call(["eval", "eval.yaml", "-q"]) == 0
    assert len(Path("out/sums/results.jsonl").read_text().splitlines()) == 3


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
    Path("other.json").write_text(json.dumps([TWO, TWO]))
    options = ["--limit", "1", "--samples", "2", "--batch-size", "1", "--model"]
    assert call(["eval", "eval.yaml", *options, "scripted:other.json", "-o", "there"]) == 0
    assert "Model: scripted:other.json   Results: " in capsys.readouterr().out
    assert len(Path("there/sums/results.jsonl").read_text().splitlines()) == 3
    assert not Path("out").exists()


def test_a_second_run_goes_on_where_the_first_was() -> None:
    assert call(["eval", "eval.yaml", "--limit", "1", "-q"]) == 0
    replies(FOUR)
    assert call(["eval", "eval.yaml", "-q"]) == 0
    assert call(["eval", "eval.yaml", "-q"]) == 0
    assert len(Path("out/sums/results.jsonl").read_text().splitlines()) == 3


def test_several_environments_each_have_a_row_and_a_folder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    second = CONFIG.split("model:", maxsplit=1)[0].split("\n", 1)[1]
    Path("eval.yaml").write_text(CONFIG.replace("model:", f"{second}model:"))
    replies(WRONG, TWO, FOUR, TWO, WRONG, WRONG)
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
        (("max_turns", "max_turn"), 'eval.yaml, line 6: unknown key "max_turn" in iterative'),
        (("replies.json", "gone.json"), "gone.json"),
        (("split", "spli"), 'unknown key "spli" in the params of sums.jsonl'),
        (("raw", "rwa"), "rwa"),
        (("sums.jsonl", "gone.jsonl"), "gone.jsonl"),
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
    assert "not counted: 2 that ended in trouble; the last: " in told.out
    assert "not you" in told.out
    assert "The same command does again what ended in trouble" in told.err


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    """A model on loopback, which the evaluation asks."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none-0123456789")
    with LoopbackServer() as running:
        served = f"{{backend: openai, model: served, base_url: '{running.url}'}}"
        Path("eval.yaml").write_text(CONFIG.replace("scripted:replies.json", served))
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@contextmanager
def second_episode_open(server: LoopbackServer) -> Iterator[subprocess.Popen[str]]:
    """Give an evaluation with one episode kept and one that waits for its second reply."""
    waiting = threading.Event()

    def keep_waiting(exchange: Exchange) -> None:
        waiting.set()
        exchange.client_hung_up(LIMIT)

    server.script = [server.reply(TWO), server.reply(WRONG), keep_waiting]
    process = subprocess.Popen(
        [NBREFINE, "eval", "eval.yaml"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert waiting.wait(LIMIT)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_keeps_what_there_is_and_ends_with_130(server: LoopbackServer) -> None:
    with Path("eval.yaml").open("a") as file:
        file.write("save_detailed_results: false\n")
    with second_episode_open(server) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, err
    assert "Not all episodes have ended; the same command goes on" in out
    assert len(Path("out/sums/results.jsonl").read_text().splitlines()) == 2


def test_a_killed_evaluation_goes_on_where_it_was(
    server: LoopbackServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with second_episode_open(server) as process:
        assert call(["eval", "eval.yaml"]) == 2
        assert "Another evaluation writes into" in capsys.readouterr().err
        process.kill()
        process.wait(LIMIT)
    server.script = [server.reply(FOUR)]
    assert call(["eval", "eval.yaml", "-q"]) == 0
    _, *rows = (
        json.loads(line) for line in Path("out/sums/results.jsonl").read_text().splitlines()
    )
    assert [row["verdict"] for row in rows] == ["solved", "solved"]
    kept = [notebook.load(Path("out/sums") / row["notebook"]) for row in rows]
    assert [len(episode.turns) for episode in kept] == [1, 1]


def test_a_terminal_sees_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # Linux says EIO where the other side has closed
            while chunk := os.read(controller, 65536):
                shown.append(chunk)

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    reader = threading.Thread(target=read)
    reader.start()
    try:
        with os.fdopen(terminal, "w") as stderr, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            assert call(["eval", "eval.yaml"]) == 0
    finally:
        reader.join()
        os.close(controller)
    assert b"episodes" in b"".join(shown)
    assert b"2/2" in b"".join(shown)


def test_the_table_tells_pass_at_k_grades_and_what_is_not_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def row(task: int, sample: int, **facts: object) -> Row:
        outcome = Outcome(task, sample=sample, turns=1, usage=Usage(1000, 234), **facts)  # type: ignore[arg-type]
        return Row(task, sample, outcome)

    likely = Finding("same-failure", "test_2", "All of them\nfail it alike", task="set/0")
    unlikely = [replace(likely, test=f"test_{n}", likely=False) for n in range(3, 6)]
    rows = [
        replace(
            row(0, 0, verdict="solved", solved_at=1, graded=True, formats=(True,)),
            findings=(*unlikely, likely),
        ),
        row(0, 1, verdict="solved", solved_at=1, graded=False, formats=(False,)),
        replace(
            row(1, 0, verdict="invalid-task", helper_usage=Usage(1000, 11)),
            detail="its reference fails",
        ),
        replace(row(2, 0, verdict="infra-error"), detail="The server\nis gone"),
    ]
    config = EvalConfig.from_dict(
        {"environments": [{"name": "set"}], "output_dir": "out", "samples": 2}
    )
    report(create_evaluation_result({"set": rows}, model="m", complete=False), config)
    out = capsys.readouterr().out.splitlines()
    assert "pass@2" in out[0]
    # One task with two samples, one of which is right: pass@1 is a half, pass@2 is 1.
    assert re.split(r"  +", out[1])[:4] == ["set", "1", "2", "50.0 %"]
    assert out[1].endswith("100.0 %")
    assert out[2:] == [
        "pass@k 1: 50.0 %, 2: 100.0 %",
        "in the form asked for: 50.0 %",
        "passing but wrong: 1 of 2 graded",
        "not counted: 1 whose task cannot be judged here; the last: its reference fails",
        "not counted: 1 that ended in trouble; the last: The server is gone",
        "reward of an episode 0; 4,936 tokens and 1,011 of judges and summaries, 0.0 s in all",
        *["possible trouble with the tests of set/0: All of them fail it alike"] * 3,
        "tests that may be wrong beside these: 1",
        "At temperature 0 the samples of a task hardly differ; see inference",
        "Not all episodes have ended; the same command goes on",
        "Model: m   Results: out",
    ]


def test_the_help_names_every_key_of_every_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["eval", "--help"]) == 0
    told = set(re.findall(r"\w+", capsys.readouterr().out))
    blocks = [kind for kind in Section.__subclasses__() if kind.__module__ == EvalConfig.__module__]
    assert len(blocks) > 5
    keys = {key for kind in blocks for key in kind.model_fields}
    assert keys <= told, keys - told
