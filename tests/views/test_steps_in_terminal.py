"""An episode of several steps in a terminal, and while it runs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from nbrefine.cli import progress
from nbrefine.notebook import line
from nbrefine.values import CaseResult, Episode, Reply, TestReport, ToolCall
from nbrefine.views.terminal import show
from tests.steps import answered, gave_up

if TYPE_CHECKING:
    import pytest


def _shown(episode: Episode) -> str:
    file = io.StringIO()
    show(episode, console=Console(file=file, width=80))
    return " ".join(file.getvalue().split())


def _in_order(text: str, *words: str) -> None:
    place = 0
    for each in words:
        assert each in text[place:], each
        place = text.index(each, place) + len(each)


def test_steps_looks_answers_and_files_are_told_in_their_order() -> None:
    _in_order(
        _shown(answered()),
        "Steps 3 of 3 done",
        "The task asks for 3 steps.",
        "Step 1: Read `fares` from fares.csv",
        "It is done when these checks hold: - fares has three numbers",
        "Turn 1: the model looked for what is not there",
        'inspect_variable(name="fares")',
        "There is no variable `fares`.",
        "Step 1, attempt 1 of 2: rejected (failed), 0/1 checks held",
        "Step 1, attempt 2 of 2: accepted, 1/1 checks held",
        "Step 3: Write the mean to mean.txt",
        "It needs steps 1 and 2.",
        "files: wrote mean.txt (3 B)",
        "Turn 7: the model gave an answer that was not taken",
        "Turn 8: the model gave the answer",
        "Result",
        "mean 4.0",
        "mean.txt 3 bytes, sha256 fbd04e1aae9c",
    )


def test_another_plan_and_what_came_of_the_steps_are_told() -> None:
    _in_order(
        _shown(gave_up()),
        "Turn 1: the model made a plan",
        "2. Draw a plot (needs step 1)",
        "Turn 4: the model made no plan that can be followed",
        "I have no plan.",
        "Turn 5: the model made a plan",
        "From turn 6 on another plan holds (Step 1 has had 2 attempts of 2): step 1 is given up,"
        " and steps 2, 3 and 4 are new; no longer planned: Draw a plot.",
        "Step 2: Count the rows by hand",
        "Result",
        "Step 1: Count the rows given up for another plan",
        "Step 2: Count the rows by hand given up",
        "Step 3: Check the count not begun, as it needs step 2",
        "Step 4: Write a note done at attempt 1",
    )


def test_the_same_failure_in_several_steps_is_no_sign_of_a_wrong_test() -> None:
    """Three steps with one failed check each, all called `test_2`."""
    episode = answered()
    cases = (
        CaseResult("test_1", "passed"),
        CaseResult("test_2", "failed", "f(3) == 7", "6", "7"),
    )
    turns = tuple(
        replace(turn, tests=TestReport(cases), accepted=False) for turn in episode.turns[2:6]
    )
    apart = replace(episode, turns=turns[:2] + turns[3:], stop=None)
    assert len({turn.step for turn in apart.turns}) == 3
    assert "trouble with the tests" not in _shown(apart)
    together = replace(apart, turns=tuple(replace(turn, step=1) for turn in apart.turns))
    assert "trouble with the tests" in _shown(together)


def test_a_finished_turn_is_one_line_of_words() -> None:
    words = [line.words(answered(), turn)[:3] for turn in answered().turns]
    assert words == [
        ("turn 1, step 1", "look", ""),
        ("turn 2, step 1", "failed", "0/1 checks"),
        ("turn 3, step 1", "accepted", "1/1 checks"),
        ("turn 4, step 2", "accepted", "1/1 checks"),
        ("turn 5, step 3", "failed", "0/2 checks"),
        ("turn 6, step 3", "accepted", "2/2 checks"),
        ("turn 7, the answer", "no answer", ""),
        ("turn 8, the answer", "answer", "1/1 checks"),
    ]
    why = [line.words(gave_up(), turn)[4] for turn in gave_up().turns[2:6]]
    assert why == [
        "failing: rows == 5",
        "That is no plan.",
        "",
        "ZeroDivisionError: division by zero",
    ]


def test_the_report_tells_steps_answer_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    progress.report(answered(), Path("e.ipynb"))
    assert capsys.readouterr().out == (
        "Solved: answered in the asked form; 2 checks of it held (8 turns, 900 tokens, 6.5 s)\n\n"
        "Step 1: Read `fares` from fares.csv: done at attempt 2\n"
        "Step 2: Compute the mean: done at attempt 1\n"
        "Step 3: Write the mean to mean.txt: done at attempt 2\n"
        "Answer: the answer was taken\n\n"
        "mean: 4.0\n\n"
        "mean.txt (3 bytes)\n\n"
        "Record: e.ipynb (read it with `nbrefine show e.ipynb --step`)\n"
    )
    progress.report(gave_up(), Path("e.ipynb"))
    told = capsys.readouterr().out
    assert told.startswith("Not solved: step 2 (Count the rows by hand) was given up after 1")
    assert "Step 3: Check the count: not begun, as it needs step 2\n" in told


def test_a_running_episode_shows_which_step_is_worked_on() -> None:
    episode = answered()
    running = replace(episode, turns=episode.turns[:5], stop=None, answer=None)
    file = io.StringIO()
    Console(file=file, width=80).print(progress._steps(running))
    lines = [" ".join(line.split()) for line in file.getvalue().splitlines()]
    assert lines == [
        "Step 1: Read `fares` from fares.csv done at attempt 2",
        "Step 2: Compute the mean done at attempt 1",
        "Step 3: Write the mean to mean.txt being worked on",
    ]


def test_what_a_model_calls_acts_on_no_terminal() -> None:
    nasty = "\x1b]0;title\x07 [bold]x[/]"
    call = ToolCall("finish", {"answer": nasty}, raw="")
    episode = answered()
    turn = replace(episode.turns[6], reply=Reply(nasty, tool_calls=(call,)), feedback=nasty)
    text = _shown(replace(episode, turns=(*episode.turns[:6], turn)))
    assert not set(text) & set("\x1b\x07")
    assert text.count("[bold]x[/]") == 3
