"""`nbrefine show`, `models` and `doctor`, and what the command line says by itself."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from nbrefine import __version__, doctor
from nbrefine._portal import Run
from nbrefine.cli import call, main
from nbrefine.cli.evaluate import evaluate
from nbrefine.cli.options import SPELLED, spelled
from nbrefine.cli.progress import download
from nbrefine.cli.results import trouble
from nbrefine.cli.run import run
from nbrefine.cli.solve import solve
from nbrefine.errors import ModelRequestError, UsageError
from nbrefine.notebook import save
from nbrefine.values import Episode, Stop, Task
from tests.containers import Podman


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    return {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}


def test_the_doctor_starts_a_real_kernel_and_shows_no_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refusing: Callable[[int], str],
) -> None:
    monkeypatch.delenv("NBREFINE_MODEL", raising=False)
    monkeypatch.setenv("NBREFINE_CACHE", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-key-0123456789")
    url = refusing(404)
    monkeypatch.setenv("OPENAI_BASE_URL", url.replace("//", "//user:word@"))
    assert call(["doctor", "--json"]) == 0
    found = findings(capsys)
    assert found["kernel start"]["status"] == "ok"
    assert "python3" in found["kernels"]["detail"]
    assert found["local model"]["status"] == "absent"
    assert "nbrefine models pull" in found["local model"]["hint"]
    assert (found["server"]["status"], found["server"]["detail"]) == ("ok", f"{url} is there")


def test_the_doctor_tries_the_server_and_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("NBREFINE_MODEL", str(tmp_path / "gone.gguf"))
    assert call(["doctor", "--json"]) == 0
    found = findings(capsys)
    assert found["server"]["status"] == "absent"
    assert "No server can be reached at http://127.0.0.1:9/v1" in found["server"]["detail"]
    assert str(tmp_path / "gone.gguf") in found["local model"]["detail"]


def test_the_doctor_asks_what_runs_containers(
    podman: Podman, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = doctor._containers()
    assert (found.status, found.detail.split()[0]) == ("ok", "podman")
    monkeypatch.setenv("PATH", "")
    found = doctor._containers()
    assert (found.status, found.detail) == (
        "absent",
        "podman is not installed; docker is not installed; code runs in confined processes",
    )


def test_the_doctor_ends_with_3_where_no_kernel_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The kernel's interpreter finds no standard library; this one has long found its own.
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    assert call(["doctor"]) == 3
    told = capsys.readouterr().out.splitlines()
    assert [line for line in told if line.startswith("PROBLEM  kernel start")]


def test_models_list_says_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NBREFINE_MODEL", raising=False)
    monkeypatch.setenv("NBREFINE_CACHE", str(tmp_path))
    assert call(["models", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["license"] for row in rows} == {"Apache-2.0"}
    assert {row["path"] for row in rows} == {None}
    assert call(["models", "list"]) == 0
    told = capsys.readouterr().out
    assert "nbrefine models pull qwen2.5-coder-1.5b" in told
    assert "`local` cannot run" in told


def test_a_file_of_ones_own_is_local_and_nothing_is_pulled_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NBREFINE_CACHE", str(tmp_path / "empty"))
    own = tmp_path / "own.gguf"
    own.touch()
    assert call(["models", "pull", f"local:{own}"]) == 0
    monkeypatch.setenv("NBREFINE_MODEL", str(own))
    assert call(["models", "pull"]) == 0
    assert capsys.readouterr().out == f"{own}\n" * 2
    assert call(["models", "list"]) == 0
    assert f"`local` is {own}" in capsys.readouterr().out
    assert not (tmp_path / "empty").exists()


def test_pulling_an_unknown_model_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["models", "pull", "no-such-model"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "qwen2.5-coder-1.5b" in captured.err


def test_a_download_tells_its_tenths_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    def begin(progress: Callable[[int, int], None]) -> Run[Path]:
        async def fetch() -> Path:
            for done in range(0, 2_000_001, 500_000):
                progress(done, 2_000_000)
            return Path("there")

        return Run(fetch())

    assert download("weights", begin) == Path("there")
    told = [f"weights: {percent} % of 2 MB" for percent in (0, 20, 50, 70, 100)]
    assert capsys.readouterr().err.splitlines() == told


def test_show_reads_an_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "e.ipynb"
    save(Episode(Task("Set x to [bold]2[/bold]."), id="e", stop=Stop("stopped")), path)
    assert call(["show", str(path)]) == 0
    assert "Set x to [bold]2[/bold]." in capsys.readouterr().out


def test_showing_something_else_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (tmp_path / "gone.ipynb", tmp_path):
        assert call(["show", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    rows = tmp_path / "rows.jsonl"
    for text in ('{"a": 1}\n', "[1]\n", "", "no JSON\n"):
        rows.write_text(text)
        assert call(["show", str(rows)]) == 2
        assert "is no journal of an episode" in capsys.readouterr().err


def test_showing_a_folder_lists_the_episodes_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deeper").mkdir()
    for at, reason in (("b", "solved"), ("deeper/a", "stopped")):
        episode = Episode(Task("Set x."), id=at, stop=Stop(reason))  # type: ignore[arg-type]
        save(episode, tmp_path / f"{at}.ipynb")
    (tmp_path / "other.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4}')
    assert call(["show", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path / 'b.ipynb'}  Solved after 0 turns.",
        f"{tmp_path / 'deeper/a.ipynb'}  Not solved after 0 turns: stopped.",
    ]


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    assert capsys.readouterr().out == f"nbrefine {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["frobnicate"], ["models"], ["run"], ["show"]])
def test_a_missing_or_unknown_word_is_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(arguments) == 2
    captured = capsys.readouterr()
    assert "--help" in captured.err + captured.out


def test_the_help_tells_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "0 solved (or done), 1 not solved, 2 wrong usage" in told


def test_a_warning_is_one_line_without_the_source_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    with pytest.raises(SystemExit):
        main(["--version"])
    told = warnings.formatwarning(UserWarning("no\n docker"), UserWarning, __file__, 1)
    assert told == "nbrefine: warning: no docker\n"


def test_a_slip_in_a_command_is_told_with_what_was_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["slove"]) == 2
    told = capsys.readouterr().err
    assert "Did you mean 'solve'? See `nbrefine --help`" in told


def test_settings_are_called_by_their_options_where_no_file_is_spoken_of() -> None:
    commands: dict[str, Callable[..., int]] = {"run": run, "solve": solve, "eval": evaluate}
    for name, command in commands.items():
        taken = {each for each in inspect.signature(command).parameters if "_" in each}
        assert taken - {"as_json", "from_step"} == set(SPELLED[name])
    told = "Give max_turns or max_attempts"
    assert spelled(f"{told}.", "solve") == "Give --max-turns or --max-attempts."
    assert spelled(told, "run") == "Give --max-turns or max_attempts"
    for told in (
        "goal.yaml, line 3: max_turns: wrong",
        "max_turns=3",
        "my_max_turns",
        "a/max_turns",
        "max_turns/a",
        "max_turns.ipynb",
        "batch_size must be",
    ):
        assert spelled(told, "solve") == told
    assert spelled("max_turns", "") == "max_turns"


def test_a_server_s_words_are_told_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    words = "max_turns must be below 3"
    assert trouble(ModelRequestError(words), command="run", as_json=True) == 3
    out, err = capsys.readouterr()
    assert (json.loads(out)["error"]["message"], err) == (words, f"nbrefine: {words}\n")
    trouble(UsageError(words), command="run", as_json=False)
    assert capsys.readouterr().err == "nbrefine: --max-turns must be below 3\n"
