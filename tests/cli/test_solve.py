"""`nbrefine solve`: a goal in words or as a file, and what becomes of its record later."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from nbrefine import notebook
from nbrefine.cli import call
from nbrefine.kernel import Kernel

NBREFINE = str(Path(sys.executable).with_name("nbrefine"))
LIMIT = 120

BEGIN = "```python\nitems = ['a']\n```"
WRONG = "```python\nitems += ['c', 'd']\n```"
ON = "```python\nitems.append('b')\n```"
SAY = "```python\nopen('items.txt', 'w').write(str(items))\nprint('ANSWER:', len(items))\n```"

GOAL_FILE = """\
goal: Make a list.
data: given.csv
subtasks:
  - goal: Begin a list.
    check: items == ['a']
  - goal: Go on with it.
    needs: 1
    check: {value: len(items), low: 2, high: 2}
  - goal: Write it down and say how long it is.
    needs: 2
    check: {file: items.txt}
answer:
  kind: text
  pattern: '\\d+'
  check: len(items) == 2
max_turns: 9
"""


@pytest.fixture(autouse=True)
def _in_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NBREFINE_DEBUG", raising=False)
    Path("given.csv").write_text("a\n1\n")
    Path("goal.yaml").write_text(GOAL_FILE)


def replies(*texts: str, name: str = "replies.json") -> str:
    Path(name).write_text(json.dumps(texts))
    return f"scripted:{name}"


def asked(*texts: str) -> list[str]:
    """Give the arguments of a run on the goal file whose model answers with these texts."""
    return ["solve", "goal.yaml", "--model", replies(*texts)]


def nbrefine(
    *arguments: str, said: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NBREFINE, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        input=said,
        env={**os.environ, **environment},
    )


def test_a_goal_file_is_solved_and_told_in_one_json_document() -> None:
    ran = nbrefine(*asked(BEGIN, WRONG, ON, SAY), "--json", "-o", "out.ipynb")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["solved"] is True
    assert told["answer"] == {"text": "2", "value": None}
    assert [each["path"] for each in told["artifacts"]] == ["items.txt"]
    assert {row["task"] for row in told["turns"]} == {"goal"}
    assert [each["goal"] for each in told["steps"]][:2] == ["Begin a list.", "Go on with it."]
    # The wrong items are not there for the next attempt, and neither is the file of theirs.
    assert Path("items.txt").read_text() == "['a', 'b']"
    episode = notebook.load("out.ipynb")
    assert episode.solved
    assert (episode.task.id, episode.task.files) == ("goal", ("given.csv",))
    assert episode.settings["max_turns"] == 9
    assert [line.split(",")[0] for line in ran.stderr.splitlines()] == [
        f"turn {n}" for n in (1, 2, 3, 4)
    ]


def test_a_goal_in_words_is_answered_in_the_form_it_speaks_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    goal = "Say the number of rows as @rows[count], an integer."
    say = "```python\nprint(f\"@rows[{len(open('given.csv').readlines()) - 1}]\")\n```"
    given = ["solve", goal, "--data", "given.csv", "--model", replies(say)]
    assert call(given) == 0
    assert "rows: 1" in capsys.readouterr().out
    episode = notebook.load("episode.ipynb")
    assert episode.answer is not None
    assert episode.answer.value == {"rows": "1"}
    assert call([*given, "-q"]) == 0  # a second run replaces nothing
    assert notebook.load("episode-2.ipynb").id != episode.id


def test_what_is_not_reached_ends_with_1_and_is_gone_on_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call([*asked(BEGIN, WRONG), "--max-turns", "2", "-o", "e.ipynb", "-q"]) == 1
    more = replies(ON, SAY, name="more.json")
    resumed = ["solve", "--resume", "e.ipynb", "--model", more, "--max-turns", "9", "-q"]
    assert call(resumed) == 0
    episode = notebook.load("e.ipynb")
    assert [(turn.step, turn.accepted) for turn in episode.turns] == [
        (1, True),
        (2, False),
        (2, True),
        (3, True),
    ]
    assert call(resumed) == 2  # it has reached its goal
    again = replies("```python\nitems += ['d']\n```", SAY, name="again.json")
    branched = ["solve", "Try d.", "--branch", "e.ipynb", "--from-step", "2", "--model", again]
    assert call([*branched, "-o", "other.ipynb", "-q", "--max-turns", "1"]) == 2
    assert "--max-turns is 1, and 1 turn is taken over. Give at least 2" in capsys.readouterr().err
    assert call([*branched, "-o", "other.ipynb", "-q"]) == 0
    assert Path("items.txt").read_text() == "['a', 'd']"
    other = notebook.load("other.ipynb")
    assert other.settings["branched_from"]["step"] == 2
    assert other.task.prompt.endswith("From step 2 on: Try d.")
    assert notebook.load("e.ipynb") == episode


def test_what_a_later_run_took_is_told_apart_from_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*asked(BEGIN, WRONG), "--max-turns", "2", "-o", "e.ipynb"]) == 1
    assert "(2 turns, " in capsys.readouterr().out
    more = replies(ON, SAY, name="more.json")
    assert call(["solve", "--resume", "e.ipynb", "--model", more]) == 2  # nothing is left to do
    assert "Allow more: a higher --max-turns, --max-attempts or" in capsys.readouterr().err
    assert call(["solve", "--resume", "e.ipynb", "--model", more, "--max-turns", "9"]) == 0
    told = capsys.readouterr()
    assert re.search(r"\(2 turns now, 0 tokens, .* s; 4 turns in all, 0 tokens, .* s\)", told.out)
    assert [line.split(",")[0] for line in told.err.splitlines()] == ["turn 3", "turn 4"]
    branched = ["solve", "--branch", "e.ipynb", "--from-step", "3", "-o", "f.ipynb"]
    assert call([*branched, "--model", replies(SAY, name="say.json")]) == 0
    assert "(1 turn now, 0 tokens, " in capsys.readouterr().out


def test_a_model_that_fails_leaves_the_episode_so_far_in_the_json(
    refusing: Callable[[int], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([*asked(BEGIN), "--max-turns", "1", "-o", "e.ipynb", "-q"]) == 1
    server = ["--model", "openai:served", "--base-url", refusing(403), "--max-turns", "9"]
    assert call(["solve", "--resume", "e.ipynb", *server, "--json"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert told["error"]["kind"].startswith("Model")
    assert (told["solved"], told["stop"]["reason"]) == (False, "infra-error")
    assert [row["verdict"] for row in told["turns"]] == ["solved"]
    assert told["record"] == "e.ipynb"


def test_a_file_that_changed_is_told_when_the_work_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = "```python\nitems = ['a'] * (len(open('given.csv').read()) - 3)\n```"
    assert call([*asked(first), "--max-turns", "1", "-o", "e.ipynb", "-q"]) == 1
    Path("given.csv").write_text("a\n12\n")
    more = replies("```python\nitems = ['a', 'b']\n```", SAY, name="more.json")
    assert call(["solve", "--resume", "e.ipynb", "--model", more, "--max-turns", "9"]) == 0
    told = capsys.readouterr().err
    assert "items is list of length 2, not list of length 1" in told


def test_a_data_file_that_is_gone_is_told_when_the_work_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call([*asked(BEGIN), "--max-turns", "1", "-o", "e.ipynb", "-q"]) == 1
    Path("given.csv").unlink()
    capsys.readouterr()
    assert call(["solve", "--resume", "e.ipynb", "--model", replies(ON), "--max-turns", "9"]) == 2
    assert "There is no data file given.csv. " in capsys.readouterr().err


def test_cells_are_shown_and_asked_about_one_by_one() -> None:
    editor = Path("editor.sh")
    editor.write_text("#!/bin/sh\necho \"items = ['a', 'b']\" > \"$1\"\n")
    editor.chmod(0o755)
    said = "y\nn\nNo c, please.\ne\ny\n"
    ran = nbrefine(
        *asked(BEGIN, WRONG, ON, SAY), "--approve", "-o", "e.ipynb", said=said, VISUAL="./editor.sh"
    )
    assert ran.returncode == 0, ran.stderr
    assert "Step 2, attempt 1: Go on with it." in ran.stderr
    episode = notebook.load("e.ipynb")
    assert [turn.accepted for turn in episode.turns] == [True, False, True, True]
    assert episode.turns[1].result is None
    assert "No c, please." in episode.turns[1].feedback
    assert episode.turns[2].code == "items = ['a', 'b']\n"


def test_only_a_yes_lets_a_cell_run() -> None:
    ran = nbrefine(*asked(BEGIN), "--approve", "-o", "e.ipynb", said="\nwhat?\n\ns\n")
    assert ran.returncode == 1, ran.stderr
    assert ran.stderr.count("Run it? [y]es, [e]dit, [n]o, [s]top: ") == 4
    assert notebook.load("e.ipynb").accepted == ()


def test_the_checks_of_a_plan_are_asked_about_before_it_is_taken() -> None:
    plan = "```plan\n- goal: Begin a list.\n  check: items == ['a']\n```"
    model = replies(plan, plan, BEGIN + "\nANSWER: 1")
    told = ["solve", "Make a list.", "--planning", "ask", "--model", model, "--approve"]
    # A plan cannot be edited: that is asked again.
    said = "\ne\nn\nAnother check.\ny\ny\ns\n"
    ran = nbrefine(*told, "-o", "e.ipynb", said=said)
    choice = "Take this plan, and run its checks? [y]es, [n]o, [s]top: "
    assert ran.stderr.count(choice) == 4, ran.stderr
    assert "items == ['a']" in ran.stderr.partition(choice)[0]
    episode = notebook.load("e.ipynb")
    assert [(turn.kind, turn.verdict) for turn in episode.turns[:3]] == [
        ("plan", "failed"),
        ("plan", "solved"),
        ("attempt", "solved"),
    ]
    assert "Another check." in episode.turns[0].feedback
    assert len(episode.plans) == 1


def test_a_person_stops_it_or_has_nothing_more_to_say() -> None:
    ran = nbrefine(*asked(BEGIN, WRONG), "--approve", "-o", "e.ipynb", said="y\ns\n")
    assert ran.returncode == 1, ran.stderr
    episode = notebook.load("e.ipynb")
    assert episode.stop is not None
    assert episode.stop.reason == "stopped"
    assert len(episode.accepted) == 1
    ran = nbrefine(*asked(BEGIN, WRONG), "--approve", "-o", "f.ipynb", said="y\n")
    assert ran.returncode == 1, ran.stderr
    episode = notebook.load("f.ipynb")
    assert episode.stop is not None
    assert "nobody answered" in episode.stop.detail
    assert len(episode.accepted) == 1


def test_ctrl_c_ends_it_while_it_asks() -> None:
    process = subprocess.Popen(
        [NBREFINE, *asked(BEGIN), "--approve", "-o", "e.ipynb"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        told = b""
        while not told.endswith(b"top: "):
            told += process.stderr.read(1)
        process.send_signal(signal.SIGINT)
        process.wait(LIMIT)  # although nothing was said
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    episode = notebook.load("e.ipynb")
    assert episode.stop is not None
    assert episode.stop.reason == "stopped"


@contextmanager
def foreign() -> Iterator[str]:
    """Give the connection file of a kernel that somebody else has started."""
    manager = KernelManager(kernel_name="python3")
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    manager.start_kernel(env=environment, cwd=str(Path.cwd()), **quiet)
    try:
        with Kernel.connect(manager.connection_file) as kernel:
            assert kernel.run("items = ['a']").result().ok
        yield manager.connection_file
    finally:
        manager.shutdown_kernel(now=True)


def seen_in(connection_file: str) -> str:
    with Kernel.connect(connection_file) as kernel:
        return kernel.run("print(items)").result().text


def test_a_running_kernel_is_worked_in_or_lends_its_variables() -> None:
    goal = ["solve", "Go on with the list.", "--tests", "tests.py", "--answer", "text", "-q"]
    Path("tests.py").write_text("assert items == ['a', 'b']\n")
    model = replies(ON + "\n", SAY)
    with foreign() as connection_file:
        where = ["--connect", connection_file]
        assert call([*goal, *where, "--use", "items", "--model", model, "-o", "l.ipynb"]) == 0
        assert seen_in(connection_file) == "['a']\n"
        assert notebook.load("l.ipynb").settings["lent"] == ["items"]
        assert call([*goal, *where, "--use", "gone", "--model", model, "-o", "g.ipynb"]) == 2
        assert call([*goal, *where, "--model", model, "-o", "c.ipynb"]) == 0
        assert seen_in(connection_file) == "['a', 'b']\n"
    episode = notebook.load("c.ipynb")
    assert episode.handed_in == ("items",)
    assert {turn.isolation for turn in episode.accepted} == {"fork"}


def test_ctrl_c_ends_it_with_a_complete_record_that_is_gone_on_with() -> None:
    wait = "```python\nopen('/proc/self/comm')\nwhile True: pass\n```"
    process = subprocess.Popen(
        [NBREFINE, *asked(BEGIN, wait), "-o", "e.ipynb"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("turn 1")
        time.sleep(0.5)  # in the second turn's cell, or shortly before it
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    episode = notebook.load("e.ipynb")
    assert episode.stop is not None
    assert episode.stop.reason == "stopped"
    assert err.splitlines()[-1] == "Go on with: nbrefine solve --resume e.ipynb"
    assert len(episode.accepted) == 1
    assert [path.name for path in Path().glob("e.*")] == ["e.ipynb"]
    more = replies(ON, SAY, name="more.json")
    assert call(["solve", "--resume", "e.ipynb", "--model", more, "-q"]) == 0


def test_the_help_says_what_a_value_is_and_which_turns_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert call(["solve", "--help"]) == 0
    told = " ".join(re.sub(r"[│\s]+", " ", capsys.readouterr().out).split())
    assert "text, value (the variable `answer`), value:NAME, fields:NAME,NAME" in told
    assert "those included that --resume or --branch take over" in told


BAD_INPUT = {
    "no goal": ([], "There is no goal"),
    "a file for a goal": (["given.csv"], "given.csv is the name of a file, and no goal"),
    "the name of a file that is not there": (["orders.csv", "--data", "given.csv"], "--data"),
    "a file that ends in no known way": (["odd.data"], "odd.data is the name of a file"),
    "no data file": (["x", "--data", "gone.csv"], "gone.csv"),
    "no goal file": (["gone.yaml"], "gone.yaml"),
    "an unknown key": (["odd.yaml"], "odd.yaml, line 2"),
    "a check that does not parse": (["broken.yaml"], "x =="),
    "an unknown form": (["x", "--answer", "picture"], "picture"),
    "unknown planning": (["x", "--planning", "sometimes"], "planning"),
    "no turns": (["x", "--max-turns", "0"], "--max-turns: "),
    "an unknown model": (["x", "--model", "nonsense:x"], "nonsense"),
    "an unknown kernel": (["x", "--kernel", "no-such-kernel"], "no-such-kernel"),
    "no record to go on with": (["--resume", "gone.ipynb"], "gone.ipynb"),
    "a goal for what has one": (["x", "--resume", "gone.ipynb"], "goal"),
    "data for what has begun": (["--resume", "gone.ipynb", "--data", "given.csv"], "--data"),
    "two beginnings": (
        ["--resume", "a.ipynb", "--branch", "b.ipynb", "--from-step", "1"],
        "--branch",
    ),
    "a branch from nowhere": (["x", "--branch", "b.ipynb"], "--from-step"),
    "variables of no kernel": (["x", "--use", "items"], "--connect"),
    "two kernels": (["x", "--connect", "gone.json", "--kernel", "python3"], "--kernel"),
    "no connection file": (["x", "--connect", "gone.json"], "gone.json"),
    "somebody's notebook": (["x", "-o", "mine.ipynb"], "mine.ipynb"),
    "no folder": (["x", "-o", "no/such/out.ipynb"], "no/such"),
}


@pytest.mark.parametrize(("arguments", "named"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_is_one_line_that_names_it_and_leaves_nothing(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("odd.yaml").write_text("goal: x\nmax_turn: 3\n")
    Path("odd.data").write_text("1\n")
    Path("broken.yaml").write_text("goal: x\nsubtasks: [{goal: y, check: x ==}]\n")
    Path("mine.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )
    model = [] if "--model" in arguments else ["--model", replies(BEGIN)]
    before = sorted(Path().iterdir())
    assert call(["solve", *arguments, *model]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"nbrefine: .+\n", captured.err)
    assert named in captured.err
    assert sorted(Path().iterdir()) == before


def test_trouble_on_the_way_is_told_with_where_the_record_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call([*asked(BEGIN), "-o", "e.ipynb", "-q"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "The episode so far is in e.ipynb"
    assert "has given all its replies" in told[1]
    assert call([*asked(BEGIN), "-o", "e.ipynb", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert "holds an episode already" in error["message"]
    assert call([*asked(BEGIN, ON, SAY), "-o", "e.ipynb", "-q", "--overwrite"]) == 0
