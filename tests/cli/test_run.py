"""`nbrefine run`: what it prints, where, and the code it ends with."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nbrefine import notebook
from nbrefine.cli import call
from nbrefine.cli.progress import report
from nbrefine.values import Episode, Stop, Task

NBREFINE = str(Path(sys.executable).with_name("nbrefine"))
WRONG = "```python\nx = 1\n```"
RIGHT = "```python\nx = 2\n```"
LIMIT = 60


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NBREFINE_DEBUG", raising=False)
    Path("tests.py").write_text("assert x == 2\n")


def replies(*texts: str) -> str:
    """Write replies to a file and give the model that reads them out."""
    Path("replies.json").write_text(json.dumps(texts))
    return "scripted:replies.json"


def nbrefine(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NBREFINE, *arguments], capture_output=True, text=True, timeout=LIMIT, check=False
    )


def asked(*texts: str) -> tuple[str, ...]:
    """Give the arguments of a run whose model answers with these texts."""
    return ("run", "Set x to 2.", "--tests", "tests.py", "--model", replies(*texts))


def test_a_solved_task_ends_with_0_and_a_record() -> None:
    ran = nbrefine(*asked(WRONG, RIGHT), "-o", "out.ipynb")
    assert ran.returncode == 0, ran.stderr
    assert "x = 2" in ran.stdout
    assert "out.ipynb" in ran.stdout
    told = ran.stderr.splitlines()
    assert [line.split("  ")[:3] for line in told] == [
        ["turn 1", "failed", "0/1 tests"],
        ["turn 2", "solved", "1/1 tests"],
    ]
    assert [turn.accepted for turn in notebook.load("out.ipynb").turns] == [False, True]


def test_an_unsolved_task_ends_with_1_and_names_its_best() -> None:
    ran = nbrefine(*asked(WRONG, WRONG), "--max-turns", "2")
    assert ran.returncode == 1, ran.stderr
    assert "Not solved" in ran.stdout
    assert notebook.load("episode.ipynb").solved is False


def test_a_second_run_without_a_name_replaces_nothing() -> None:
    for _ in range(2):
        assert call([*asked(RIGHT), "--quiet"]) == 0
    assert notebook.load("episode.ipynb").id != notebook.load("episode-2.ipynb").id


def test_json_is_one_document_on_stdout() -> None:
    ran = nbrefine(*asked(WRONG, RIGHT), "--json")
    told = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert (told["solved"], told["code"]) == (True, "x = 2")
    assert told["tests"] == {"passed": 1, "total": 1}
    assert told["record"] == "episode.ipynb"
    assert [turn["verdict"] for turn in told["turns"]] == ["failed", "solved"]


def test_quiet_says_nothing() -> None:
    ran = nbrefine(*asked(RIGHT), "--quiet")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_task_file_runs_with_its_own_keys() -> None:
    Path("job.yaml").write_text(
        f"task: Set x to 2.\ntests: tests.py\nmodel: {replies(WRONG, RIGHT)}\n"
        "code: x = 0\nmax_turns: 3\noutput: job.ipynb\n"
    )
    assert call(["run", "job.yaml", "--quiet"]) == 0
    episode = notebook.load("job.ipynb")
    assert [turn.code for turn in episode.turns] == ["x = 0", "x = 1", "x = 2"]
    assert episode.task.id == "job"


def test_where_attempts_and_their_files_go_is_an_option_and_a_key() -> None:
    Path("job.yaml").write_text(
        f"task: Set x to 2.\ntests: tests.py\nmodel: {replies(RIGHT)}\n"
        "isolation: rebuild\nrebuild_limit: 2.5\nworkspace: report\n"
    )
    assert call(["run", "job.yaml", "-q", "-o", "file.ipynb"]) == 0
    episode = notebook.load("file.ipynb")
    told = [episode.settings[key] for key in ("isolation", "rebuild_limit", "workspace")]
    assert told == ["rebuild", 2.5, "report"]
    assert episode.turns[0].isolation == "rebuild"
    options = ["--rebuild-limit", "0", "--workspace", "auto"]
    assert call(["run", "job.yaml", "-q", "-o", "options.ipynb", *options]) == 0
    episode = notebook.load("options.ipynb")
    told = [episode.settings[key] for key in ("isolation", "rebuild_limit", "workspace")]
    assert told == ["rebuild", 0.0, "auto"]


def test_a_task_file_may_have_blanks_in_its_name() -> None:
    Path("my job.yaml").write_text(f"task: Set x to 2.\nmodel: {replies(RIGHT)}\n")
    assert call(["run", "my job.yaml", "-q"]) == 0
    assert notebook.load("episode.ipynb").task.prompt == "Set x to 2."


def test_what_a_model_writes_cannot_act_on_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reply = "```python\nx = 2  # \x1b]0;title\x07\x1b[2J\x08done\n```"
    assert call(asked(reply)) == 0
    captured = capsys.readouterr()
    assert "x = 2  # \\x08done" in captured.out
    assert "\x1b" not in captured.out + captured.err


def test_a_data_file_is_named_from_the_notebooks_folder() -> None:
    Path("data").mkdir()
    Path("data/table.csv").write_text("a\n2\n")
    reply = "```python\nx = int(open('../data/table.csv').read().split()[1])\n```"
    Path("out").mkdir()
    assert call([*asked(reply), "--data", "data/table.csv", "-o", "out/e.ipynb", "-q"]) == 0
    assert notebook.load("out/e.ipynb").task.files == ("../data/table.csv",)


BAD_INPUT = {
    "no tests file": (["--tests", "gone.py"], "gone.py"),
    "no data file": (["--data", "gone.csv"], "gone.csv"),
    "tests that do not parse": (["--tests", "broken.py"], "tests"),
    "no tests in the file": (["--tests", "none.py"], "no test"),
    "an empty tests file": (["--tests", "empty.py"], "no test"),
    "unknown model": (["--model", "nonsense:x"], "nonsense"),
    "no replies file": (["--model", "scripted:gone.json"], "gone.json"),
    "unknown kernel": (["--kernel", "no-such-kernel"], "no-such-kernel"),
    "unwritable output": (["-o", "no/such/folder/out.ipynb"], "no/such/folder"),
    "someone's notebook": (["-o", "mine.ipynb"], "mine.ipynb"),
    "unknown history": (["--history", "sideways"], "sideways"),
    "no turns": (["--max-turns", "0"], "--max-turns: "),
    "no seed of a kernel": (["--seed", "-1"], "seed"),
    "no address": (["--model", "openai:x", "--base-url", "localhost:8000"], "localhost:8000"),
    "unknown option": (["--max-turn", "3"], "--max-turns"),
}


@pytest.mark.parametrize(("arguments", "named"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_is_one_line_that_names_it_before_the_model_is_asked(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.py").write_text("assert x ==\n")
    Path("none.py").write_text("y = 1\n")
    Path("empty.py").touch()
    Path("mine.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )
    before = sorted(Path().iterdir())
    model = replies(RIGHT)
    given = ["run", "Set x to 2.", "--model", model, *arguments]
    assert call(given) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"nbrefine: .+\n", captured.err)
    assert named in captured.err
    assert sorted({*before, Path("replies.json")}) == sorted(Path().iterdir())


def test_the_name_of_a_file_is_no_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "rows.csv", "--model", replies(RIGHT)]) == 2
    assert "rows.csv is the name of a file, and no task" in capsys.readouterr().err
    assert not Path("episode.ipynb").exists()


def test_a_trouble_is_json_too_where_json_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call([*asked(RIGHT), "--kernel", "no-such-kernel", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["error"]["kind"] == "UsageError"
    assert "no-such-kernel" in told["error"]["message"]


KEY = "sk-not-a-real-key-0123456789"


@pytest.mark.parametrize("status", [None, 401])
def test_no_server_or_a_wrong_key_is_one_line_before_anything_begins(
    status: int | None,
    refusing: Callable[[int], str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert call([*asked(RIGHT), "-o", "out.ipynb", "-q"]) == 0
    before = Path("out.ipynb").read_bytes()
    Path("setup.py").write_text("open('begun', 'w').close()\n")
    url = refusing(status) if status else "http://127.0.0.1:9/v1"
    where = ["--model", "openai:some", "--base-url", url, "-o", "out.ipynb", "--overwrite"]
    assert call(["run", "Set x.", "--setup", "setup.py", *where]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"nbrefine: .+\n", captured.err)
    assert url in captured.err
    assert ("OPENAI_API_KEY" if status else "OPENAI_BASE_URL") in captured.err
    assert KEY not in captured.err
    assert Path("out.ipynb").read_bytes() == before
    assert not Path("begun").exists()


def test_a_model_that_the_server_lacks_is_one_line_and_the_name_of_the_record_stays_free(
    refusing: Callable[[int], str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    where = ["--model", "openai:some", "--base-url", refusing(404), "-o", "out.ipynb"]
    assert call(["run", "Set x.", *where]) == 3
    assert re.fullmatch(r"nbrefine: .+The server has: served\n", capsys.readouterr().err)
    assert call([*asked(RIGHT), "-o", "out.ipynb", "-q"]) == 0


def test_the_traceback_is_there_for_who_asks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBREFINE_DEBUG", "1")
    assert call([*asked(RIGHT), "--kernel", "no-such-kernel"]) == 2
    assert "Traceback" in capsys.readouterr().err


@contextmanager
def running(
    cell: str, *through: str, options: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Give a run whose first turn is finished and whose second turn's cell runs."""
    second = f"```python\nopen('running', 'w').write(str(__import__('os').getpid()))\n{cell}\n```"
    given = ["-o", "out.ipynb", "--workspace", "report", *options]
    process = subprocess.Popen(
        [*through, NBREFINE, *asked(WRONG, second), *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(lambda: Path("running").exists() and Path("running").read_text(), process)
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(condition: Any, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_run_with_a_complete_record(sent: signal.Signals, code: int) -> None:
    with running("while True: pass") as process:
        process.send_signal(sent)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code, err
    assert "Record: out.ipynb" in out
    assert "Traceback" not in err
    episode = notebook.load("out.ipynb")
    assert episode.stop is not None
    assert episode.stop.reason == "stopped"
    assert episode.turns[0].code == "x = 1"
    assert not Path("out.nbrefine.jsonl").exists()


def test_a_signal_before_the_first_turn_ends_the_run_and_leaves_no_record() -> None:
    Path("setup.py").write_text("open('begun', 'w').close()\nwhile True: pass\n")
    process = subprocess.Popen(
        [NBREFINE, *asked(RIGHT), "--setup", "setup.py", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(Path("begun").exists, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    assert err.splitlines()[1:] == ["nbrefine: The episode was stopped before its kernel was ready"]
    assert json.loads(out)["stop"]["reason"] == "stopped"
    assert not Path("episode.ipynb").exists()


def test_a_program_has_its_document_also_where_nothing_had_begun() -> None:
    os.mkfifo("task.yaml")
    process = subprocess.Popen(
        [NBREFINE, "run", "task.yaml", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with Path("task.yaml").open("w"):  # which waits until it is read
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    told = json.loads(out)
    assert (told["stop"]["reason"], told["error"]["kind"]) == ("stopped", "RunStopped")


def test_a_hang_up_that_is_ignored_ends_nothing() -> None:
    with running(
        "import os, time\nwhile not os.path.exists('go on'): time.sleep(0.01)\nx = 2", "nohup"
    ) as process:
        process.send_signal(signal.SIGHUP)
        Path("go on").touch()
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    assert notebook.load("out.ipynb").solved


def test_a_second_signal_leaves_at_once_and_leaves_no_kernel() -> None:
    deaf = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    with running(deaf, options=["--json"]) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Stopping" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, err
    told = json.loads(out)
    assert told["stop"]["reason"] == "stopped"
    assert told["turns"][0]["code"] == "x = 1"
    assert "every finished turn is in out.ipynb" in err
    assert notebook.load("out.ipynb").turns[0].code == "x = 1"
    gone = Path("/proc", Path("running").read_text())
    deadline = time.monotonic() + LIMIT
    while gone.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not gone.exists()


def test_a_terminal_sees_the_run_live() -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [NBREFINE, *asked(WRONG, RIGHT)],
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
    assert b"getting the kernel ready" in shown
    assert b"turn 2" in shown
    assert b"1/1 tests" in shown


def test_the_command_that_reads_a_record_can_be_pasted_whatever_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report(Episode(Task("t"), stop=Stop("max-turns")), Path("two words.ipynb"))
    assert "`nbrefine show 'two words.ipynb' --step`" in capsys.readouterr().out
