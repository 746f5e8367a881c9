"""Which attempts a prompt does not show, as it is told of what each history has really sent."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from nbrefine.examples import EXAMPLES, example
from nbrefine.history import History, by_name, fresh
from nbrefine.outputs import CellResult
from nbrefine.values import (
    Episode,
    Extraction,
    Message,
    Reply,
    RewardType,
    Signal,
    SignalBundle,
    Task,
    Turn,
)
from nbrefine.views import page, terminal
from nbrefine.views.player.panels import TABS, Panels
from nbrefine.views.player.still import still
from nbrefine.views.story import story

OPENING = (Message("system", "You write Python."), Message("user", "Find x."))


def attempt(number: int, code: str, reward: float = 0.0, reply: str = "") -> Turn:
    """Make an attempt; feedback tells of one long traceback, and begins as all of it does."""
    found = Extraction("found", code, "python") if code else Extraction("no-code")
    return Turn(
        number,
        attempt=number,
        reply=Reply(reply or f"```python\n{code}\n```"),
        extraction=found,
        result=CellResult(code, "ok") if code else None,
        signals=SignalBundle((Signal("tests", RewardType.OUTCOME, reward),)),
        feedback=f"The code ran without an error, but not all tests passed.\n{code}\n" + "x" * 500,
    )


def told(turns: list[Turn], history: str | None, sent: History | None = None) -> list[str]:
    """Let every prompt be what a history gives, and give what is said of each."""
    shows = sent or by_name(history or "full")
    asked = tuple(
        replace(turn, messages=shows(OPENING, turns[:at])) for at, turn in enumerate(turns)
    )
    episode = Episode(Task("Find x."), turns=asked, settings={"history": history})
    return [scene.unshown for scene in story(episode).scenes]


DIFFERENT = [attempt(number, f"x = {number}0", reward=number == 2) for number in range(1, 5)]
SAME = [attempt(number, "x = 10") for number in range(1, 5)]


@pytest.mark.parametrize("turns", [DIFFERENT, SAME])
@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("full", ["", "", "", ""]),
        ("last:2", ["", "", "", "Attempt 1 is not in this prompt."]),
        (
            "current",
            ["", "", "Attempt 1 is not in this prompt.", "Attempts 1-2 are not in this prompt."],
        ),
        (
            "fresh",
            [
                "",
                "Of attempt 1 only the feedback is in this prompt.",
                "Attempt 1 is not in this prompt, and of attempt 2 only the feedback.",
                "Attempts 1-2 are not in this prompt, and of attempt 3 only the feedback.",
            ],
        ),
    ],
)
def test_what_a_history_leaves_out_is_named_also_of_attempts_that_are_the_same(
    turns: list[Turn], history: str, expected: list[str]
) -> None:
    assert told(turns, history) == expected


def test_the_best_attempt_is_the_first_of_those_that_are_alike() -> None:
    last = "Attempts 1, 3 are not in this prompt."
    assert told(DIFFERENT, "best") == ["", "", "Attempt 1 is not in this prompt.", last]
    named = ["", "", "Attempt 2 is not in this prompt.", "Attempts 2-3 are not in this prompt."]
    assert told(SAME, "best") == named


def test_a_window_names_those_that_do_not_fit_and_of_the_last_what_is_left_of_it() -> None:
    # A turn takes some 200 tokens and the opening 9; with 150 there is no room for a reply.
    assert told(DIFFERENT, "window:470")[-1] == "Attempt 1 is not in this prompt."
    (opening, cut) = by_name("window:150")(OPENING, DIFFERENT[:3])
    assert opening == OPENING[0]
    assert "characters left out" in cut.content
    only = "Attempts 1-2 are not in this prompt, and of attempt 3 only the feedback."
    assert told(DIFFERENT, "window:150")[-1] == only


def test_a_reply_without_code_is_an_attempt_whose_feedback_is_shown() -> None:
    turns = [*DIFFERENT[:2], attempt(3, "", reply="Sorry."), DIFFERENT[3]]
    assert told(turns, "current")[-1] == (
        "Attempt 1 is not in this prompt, and of attempt 3 only the feedback."
    )
    assert told(turns, "last:1")[-1] == "Attempts 1-2 are not in this prompt."


def test_of_a_history_without_a_name_only_code_that_is_nowhere_is_told() -> None:
    def summed_up(opening: object, turns: object, *, note: str = "") -> tuple[Message, ...]:
        return (*OPENING, Message("user", "You tried x = 10 and other numbers.\n\nx = 30"))

    nowhere = "The code of attempt 2 is not in this prompt."
    assert told(DIFFERENT, None, summed_up) == ["", "", nowhere, nowhere]
    assert told(SAME, None, summed_up) == ["", "", "", ""]
    assert told(DIFFERENT, None) == ["", "", "", ""]


def test_a_prompt_that_asks_for_another_approach_is_known_to_begin_anew() -> None:
    first, second, third, _ = SAME
    sent = fresh()(OPENING, SAME[:2], note="Write the code anew, in a different way.")
    turns = (first, second, replace(third, messages=sent, escalated=True))
    for settings in ({}, {"history": "best"}):
        episode = Episode(Task("Find x."), turns=turns, settings=settings)
        assert story(episode).scenes[-1].unshown == (
            "Attempt 1 is not in this prompt, and of attempt 2 only the feedback."
        )


def test_where_it_cannot_be_known_nothing_is_said() -> None:
    foreign = (*OPENING, Message("assistant", "What nobody wrote."), Message("user", "Go on."))
    for messages in ((), OPENING, foreign):
        turns = (*DIFFERENT[:3], replace(DIFFERENT[3], messages=messages))
        episode = Episode(Task("Find x."), turns=turns, settings={"history": "current"})
        assert story(episode).scenes[-1].unshown == ""


SATURATED = [
    "",
    "",
    "Attempt 1 is not in this prompt.",
    "Attempts 1-2 are not in this prompt.",
    "Attempts 1-3 are not in this prompt.",
]
"""Read off the record: the first three attempts are the same, and each prompt has one reply."""


def test_the_example_of_saturation_shows_it_wherever_it_is_read() -> None:
    episode = example("saturation")
    replies = [[m for m in turn.messages if m.role == "assistant"] for turn in episode.turns]
    assert [len(each) for each in replies] == [0, 1, 1, 1, 1]
    found = story(episode)
    assert [scene.unshown for scene in found.scenes] == SATURATED
    console = Console(file=io.StringIO(), width=100)
    terminal.show(episode, console=console)
    assert isinstance(console.file, io.StringIO)
    panels = Panels(found)
    prompts = [panels.tabs(at, outcome=False)[TABS.index("Prompt")] for at in range(len(panels))]
    for at, sentence in enumerate(SATURATED):
        assert sentence in prompts[at]
        assert prompts[at].count("in this prompt.") == bool(sentence)
    for text in (console.file.getvalue(), page.to_html(episode), still(found)["text/html"]):
        assert text.count("in this prompt.") == 3
        assert all(sentence in text for sentence in SATURATED)


def test_every_example_is_told_truly() -> None:
    """Of the other examples two began anew, where code had come back unchanged."""
    found = {
        name: [scene.unshown for scene in story(example(name)).scenes if scene.unshown]
        for name in EXAMPLES
    }
    anew = "Attempt 1 is not in this prompt, and of attempt 2 only the feedback."
    assert found == {
        "cycle": [anew],
        "regression": [anew, "Attempts 1-2 are not in this prompt."],
        "saturation": SATURATED[2:],
        "passing-but-wrong": [],
        "multi-step": [],
    }


def test_a_step_in_short_is_told_by_the_code_that_it_leaves_out() -> None:
    def asked(code: str) -> tuple[Message, ...]:
        text = f"Earlier attempts at this:\n- It failed.\n\nYour current code:\n{code}"
        return (OPENING[0], Message("user", text))

    first, second, third, _ = DIFFERENT
    second = replace(second, messages=asked(first.code))
    turns = (first, second, replace(third, messages=asked(second.code), escalated=True))
    episode = Episode(Task("Find x."), turns=turns, settings={"kind": "solve"})
    assert [scene.unshown for scene in story(episode).scenes] == [
        "",
        "",
        "The code of attempt 1 is not in this prompt.",
    ]
