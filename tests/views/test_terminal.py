"""An episode in a terminal of 80 columns: complete, plain when piped, never acted on."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from nbrefine import notebook
from nbrefine.errors import RecordError
from nbrefine.outputs import CellResult, Cut, Failure, Stream
from nbrefine.values import CaseResult, Episode, Extraction, KernelInfo, Reply, Stop, TestReport
from nbrefine.views.terminal import show


def _shown(episode: Episode | Path) -> str:
    file = io.StringIO()
    show(episode, console=Console(file=file, width=80))
    return file.getvalue()


def _words(episode: Episode | Path) -> str:
    """Give what is shown, wherever the lines break."""
    return " ".join(_shown(episode).split())


def test_every_attempt_is_told_with_code_error_feedback_and_changes(repaired: Episode) -> None:
    text = _shown(repaired)
    order = [
        "mean-price",
        "Compute `mean`, the mean of the prices.",
        "Solved after 2 turns: 2/2 tests passed.",
        "scripted",
        "140 in, 45 out",
        "Tests that the model was shown:",
        "assert mean == 4",
        "Attempt 1 of 2: rejected (failed), 0/2 tests passed",
        'values = prices["Price"]',
        "KeyError: 'Price'",
        "2 tests were not run",
        "Feedback to the model:",
        "Attempt 2 of 2: accepted, 2/2 tests passed",
        'print("mean", mean)',
        "Changes since attempt 1:",
        '-values = prices["Price"]',
        "mean 4.0",
        "Result",
    ]
    places = [text.find(words) for words in order]
    assert -1 not in places, order[places.index(-1)]
    assert places == sorted(places)


def test_the_text_is_plain_and_fits_where_it_is_piped(repaired: Episode) -> None:
    text = _shown(repaired)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_terminal_gets_colours(repaired: Episode) -> None:
    file = io.StringIO()
    show(repaired, console=Console(file=file, width=80, force_terminal=True, color_system="256"))
    assert "\x1b[" in file.getvalue()


def test_a_failing_test_is_told_with_what_it_saw(repaired: Episode) -> None:
    cases = (CaseResult("test_1", "failed", "mean == 4", "3.5", "4", "off by a half"),)
    turn = replace(repaired.turns[0], tests=TestReport(cases))
    text = _words(replace(repaired, turns=(turn,)))
    assert "test_1 fail: mean == 4; got 3.5; expected 4; off by a half" in text


def test_what_was_cut_noted_or_never_run_is_told(repaired: Episode) -> None:
    first, second = repaired.turns
    gone = (
        Cut("stdout", 10, 12_345),
        Cut("traceback", 2, 3),
        Cut("text/html", 0, 7, ("e.files/a.html", "e.files/b.html")),
        Cut("image/png", 0, 9, tuple(f"e.files/{n}.png" for n in range(5)), "the reason"),
    )
    cut = CellResult("x", "ok", cut=gone, notes=("stdin was refused",))
    prose = replace(
        second,
        result=None,
        reply=Reply("Sorry."),
        extraction=Extraction("no-code", reason="the reply holds no code"),
        accepted=False,
        verdict="no-code",
    )
    text = _words(replace(repaired, turns=(replace(first, result=cut), prose)))
    assert "Left out: 12,345 of stdout, 10 kept; 3 of traceback, 2 kept" in text
    files = "e.files/a.html, e.files/b.html"
    assert f"Left out: 7 of text/html, 0 kept; all of it in {files}" in text
    some = "e.files/0.png, e.files/1.png, e.files/2.png and 2 more"
    assert f"Left out: 9 of image/png, 0 kept; in {some}; the reason" in text
    assert "Note: stdin was refused" in text
    assert "Sorry." in text
    assert "Nothing was run: the reply holds no code" in text


def test_text_of_programs_and_models_is_neither_markup_nor_acts_on_the_terminal(
    repaired: Episode,
) -> None:
    nasty = "[bold red]not markup[/] \x1b[2J\x1b]0;title\x07 \x9b31m \x08 \u202e [/nope]"
    error = Failure(nasty, nasty, (nasty,))
    turn = replace(
        repaired.turns[0],
        reply=Reply(nasty),
        extraction=Extraction("found", nasty),
        result=CellResult(nasty, "error", (Stream("stdout", nasty), error), error, notes=(nasty,)),
        tests=TestReport((CaseResult(nasty, "failed", nasty, nasty, nasty, nasty),)),
        feedback=nasty,
        isolation_reason=nasty,
    )
    episode = Episode(
        replace(repaired.task, prompt=nasty, id=nasty),
        turns=(turn, replace(turn, attempt=2, extraction=Extraction("no-code", reason=nasty))),
        stop=Stop("max-turns", nasty),
        model=nasty,
        kernel=KernelInfo(nasty, nasty, nasty, nasty),
    )
    text = _shown(episode)
    assert text.count("[bold red]not markup[/]") > 10
    assert not set(text) & set("\x1b\x07\x08\x9b\u202e")


def test_a_killed_run_says_that_it_was(tmp_path: Path, repaired: Episode) -> None:
    path = tmp_path / "episode.ipynb"
    recorder = notebook.Recorder(path)
    recorder.begin(replace(repaired, turns=(), stop=None))
    recorder.turn(replace(repaired, stop=None))
    recorder.close()
    assert "killed: the process that ran it ended without a stop" in _words(path)


def test_an_unsolved_episode_names_its_best_attempt(repaired: Episode) -> None:
    text = _words(replace(repaired, turns=repaired.turns[:1], stop=Stop("max-turns")))
    assert "Not solved after 1 turn: max-turns." in text
    assert "the best was attempt 1, 0/2 tests passed." in text


def test_a_file_that_is_no_episode_is_an_error_of_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.ipynb"
    path.write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    with pytest.raises(RecordError) as raised:
        show(path)
    assert "a plain notebook of 0 cells" in str(raised.value)
    assert "\n" not in str(raised.value)


SHOW = "import sys; from nbrefine.views.terminal import show; show(sys.argv[1], step=True)"


def _read_until(terminal: int, words: str) -> str:
    seen = ""
    while words not in seen:
        seen += os.read(terminal, 10_000).decode()
    return seen


def test_step_waits_for_enter_and_q_ends_it(tmp_path: Path, repaired: Episode) -> None:
    """In a real terminal: the second attempt stays unseen until Enter, the result after q; b goes
    back, on the first page to itself."""
    path = tmp_path / "episode.ipynb"
    notebook.save(repaired, path)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SHOW, path], stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        prompt = "q: end > "
        header = _read_until(ours, prompt)
        assert "Attempt 1" not in header
        os.write(ours, b"\n")
        first = _read_until(ours, prompt)
        assert "Attempt 1" in first
        assert "Attempt 2" not in first
        for _ in range(2):
            os.write(ours, b"b\n")
            assert "Attempt 1" not in _read_until(ours, prompt)
        os.write(ours, b"\n")
        assert "Attempt 1" in _read_until(ours, prompt)
        os.write(ours, b"q\n")
        assert child.wait(timeout=60) == 0
    os.close(ours)


def test_step_does_not_wait_without_a_terminal(tmp_path: Path, repaired: Episode) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(repaired, path)
    ran = subprocess.run(
        [sys.executable, "-c", SHOW, path],
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "Attempt 2 of 2" in ran.stdout
    assert "\x1b" not in ran.stdout


def test_blanks_within_a_test_stay_as_they_are(repaired: Episode) -> None:
    first = repaired.turns[0]
    case = CaseResult("test_1", "failed", "slug('  a  b ') == 'a-b'", "'a--b'", "'a-b'")
    turn = replace(first, tests=TestReport((case,)))
    assert "slug('  a  b ') == 'a-b'" in _shown(replace(repaired, turns=(turn,)))


def test_a_test_that_seems_to_be_wrong_is_told_at_the_end(repaired: Episode) -> None:
    good, bad = (
        CaseResult("test_1", "passed"),
        CaseResult("test_2", "failed", "f(3) == 7", "6", "7"),
    )
    turns = tuple(
        replace(
            repaired.turns[0],
            number=number,
            extraction=Extraction("found", f"y = {number}"),
            tests=TestReport((good, bad)),
        )
        for number in (1, 2, 3)
    )
    text = _words(replace(repaired, turns=turns))
    assert text.endswith(
        "Possible trouble with the tests: 3 different programs pass every other test and fail "
        "test_2 (f(3) == 7) with the same value: 6, where it wants 7."
    )
    assert "trouble with the tests" not in _words(repaired)


def test_many_tests_that_seem_to_be_wrong_are_counted(repaired: Episode) -> None:
    cases = tuple(
        CaseResult(f"test_{n}", "error", message="ModuleNotFoundError: No module named 'x'")
        for n in range(5)
    )
    turn = replace(repaired.turns[0], tests=TestReport(cases))
    text = _words(replace(repaired, turns=(turn,)))
    assert text.count("Possible trouble with the tests") == 3
    assert text.endswith("The same holds for 2 more tests.")
