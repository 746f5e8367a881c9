"""`nbrefine replay`: what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nbrefine.cli import call
from nbrefine.env import NotebookEnvironment
from nbrefine.notebook import save
from nbrefine.state import Action
from nbrefine.values import Episode, Task


@pytest.fixture(scope="module")
def recorded() -> Episode:
    task = Task("t", setup="items = [1, 2]", tests="assert len(items) == 3")
    with NotebookEnvironment(task) as env:
        state = env.reset(seed=5)[0]
        for cell in ("items.clear()", "items.append(3)"):
            state = env.step(state, Action.from_code(cell)).next_state
    episode: Episode = state.hidden.episode
    return episode


@pytest.fixture
def saved(recorded: Episode, tmp_path: Path) -> Path:
    path = tmp_path / "episode.ipynb"
    save(recorded, path)
    return path


def other(episode: Episode, path: Path, source: str = "items.extend([3, 4])") -> Path:
    """Save the episode as if its accepted cell had been another one."""
    last = episode.turns[-1]
    assert last.result is not None
    last = replace(last, result=replace(last.result, source=source))
    save(replace(episode, turns=(*episode.turns[:-1], last)), path)
    return path


def test_the_same_state_ends_with_0(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["replay", str(saved)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out == [
        "ep-setup  same",
        "s01-a02   same",
        "ep-tests  same",
        "The accepted cells give the recorded outputs and state (1 compared), and all checks hold.",
    ]


def test_another_state_ends_with_1_and_is_told_by_name(
    recorded: Episode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = other(recorded, tmp_path / "other.ipynb")
    assert call(["replay", str(path)]) == 1
    out = capsys.readouterr().out
    assert "s01-a02   differs\n" in out
    assert "items" in out
    assert out.endswith("The replay is not as recorded, first at s01-a02.\n")
    assert call(["replay", str(path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["ok"]) == ("nbrefine.replay/1", False)
    assert told["counts"] == {"as_recorded": 0, "differ": 1, "refused": 0, "trouble": 0}
    (episode,) = told["episodes"]
    assert (episode["file"], episode["error"], episode["states_compared"]) == (str(path), None, 1)
    assert (episode["how"], episode["compare"]) == ("clean", "tolerant")
    assert [(cell["cell"], cell["verdict"], cell["state"]) for cell in episode["cells"]] == [
        ("ep-setup", "same", ""),
        ("s01-a02", "differs", "differs"),
        ("ep-tests", "differs", ""),
    ]
    assert "items" in episode["cells"][1]["details"][0]


def test_that_no_state_is_recorded_is_said(
    recorded: Episode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bare.ipynb"
    turns = tuple(replace(turn, digest=None) for turn in recorded.turns)
    save(replace(recorded, turns=turns), path)
    assert call(["replay", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "The accepted cells give the recorded outputs, and all checks hold; no state is recorded."
    )
    assert call(["replay", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "0 all is as recorded, as far as there is a record" in told
    assert "--resume and --branch of `nbrefine solve`" in told


ENDS = "The cells end as recorded, and all checks hold; outputs and states were not compared."


def test_a_folder_is_told_with_a_line_each_and_the_highest_code_counts(
    recorded: Episode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "within").mkdir()
    save(recorded, tmp_path / "a good.ipynb")
    bad = other(recorded, tmp_path / "within" / "bad.ipynb")
    (tmp_path / "plain.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4}')
    asked = ["replay", str(tmp_path), "--compare", "lax"]
    assert call(asked) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{tmp_path}/a good.ipynb  {ENDS}",
        f"{bad}  The replay is not as recorded, first at ep-tests.",
        "1 as recorded, 1 differ, 0 refused, 0 trouble",
    ]
    assert call([*asked, str(tmp_path / "plain.ipynb"), "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == {"as_recorded": 1, "differ": 1, "refused": 1, "trouble": 0}
    assert [each["ok"] for each in told["episodes"]] == [True, False, False]
    assert told["episodes"][2]["error"]["kind"] == "RecordError"


def test_an_example_of_the_package_gives_the_same_loop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["replay", "--example", "cycle", "--how", "model"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("The loop gives the recorded")


def test_changed_packages_are_told_before_the_cells(
    recorded: Episode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = sorted(recorded.kernel.packages)[:10]
    had = {**recorded.kernel.packages, "absent-1": "1", "absent-2": "1"}
    had.update(dict.fromkeys(older, "0.0.1"))
    kernel = replace(recorded.kernel, packages=had)
    path = tmp_path / "elsewhere.ipynb"
    save(replace(recorded, kernel=kernel), path)
    assert call(["replay", str(path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"{older[0]} 0.0.1 → ")
    assert out[8] == "2 more packages have other versions than recorded"
    assert out[9] == "2 recorded packages that no cell imports are not there"
    assert out[10].startswith("ep-setup")


def test_wrong_input_ends_with_2_and_a_kernel_that_does_not_start_with_3(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["replay", str(tmp_path / "gone.ipynb")]) == 2
    assert call(["replay", str(saved), "--kernel", "no-such-kernel"]) == 2
    assert call(["replay", str(saved), "--timeout", "0"]) == 2
    assert call(["replay", str(saved), "--how", "twice"]) == 2
    assert call(["replay", str(saved), "--rtol", "2"]) == 2
    assert call(["replay", str(tmp_path / "nowhere")]) == 2
    (tmp_path / "empty").mkdir()
    assert call(["replay", str(tmp_path / "empty")]) == 2
    assert call(["replay"]) == 2
    monkeypatch.setenv("PYTHONHOME", "/nowhere")  # no interpreter that is started now comes up
    assert call(["replay", str(saved)]) == 3
    assert capsys.readouterr().err.count("\n") == 9


@contextmanager
def waiting(
    *options: str, folder: Path, episode: Episode | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Give a replay whose last cell does not end; its process wrote its number to `begun`."""
    endless = (
        f"import os\nopen({str(folder / 'begun')!r}, 'w').write(str(os.getpid()))\nwhile True: pass"
    )
    if episode is None:
        save(Episode(Task("Wait.", setup=endless)), folder / "wait.ipynb")
    else:
        other(episode, folder / "wait.ipynb", endless)
    begun, temporary = folder / "begun", folder / "temporary"
    temporary.mkdir()
    run = "from nbrefine.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", run, "replay", *options, str(folder / "wait.ipynb")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        deadline = time.monotonic() + 60
        while not (begun.exists() and begun.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_replay_and_leaves_nothing(
    sent: signal.Signals, code: int, tmp_path: Path
) -> None:
    with waiting(folder=tmp_path) as process:
        process.send_signal(sent)
        _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    assert "Traceback" not in said
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not psutil.pid_exists(int((tmp_path / "begun").read_text()))


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_program_is_told_what_had_ended_before_a_signal(
    sent: signal.Signals, code: int, saved: Path, recorded: Episode, tmp_path: Path
) -> None:
    with waiting(str(saved), "--json", folder=tmp_path, episode=recorded) as process:
        process.send_signal(sent)
        out, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    told = json.loads(out)
    assert (told["stop"]["reason"], told["ok"]) == ("stopped", False)
    assert told["counts"] == {"as_recorded": 1, "differ": 0, "refused": 0, "trouble": 0}
    ended, stopped = told["episodes"]
    assert [cell["cell"] for cell in ended["cells"]] == ["ep-setup", "s01-a02", "ep-tests"]
    assert stopped["file"] == str(tmp_path / "wait.ipynb")
    assert stopped["error"]["kind"] == "RunStopped"
    assert [(cell["cell"], cell["verdict"]) for cell in stopped["cells"]] == [("ep-setup", "same")]
