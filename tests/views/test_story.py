"""What a reader is told of an episode, whatever it is shown on."""

from __future__ import annotations

from dataclasses import replace

from nbrefine.notebook import line, steps
from nbrefine.outputs import CellResult, Death, Failure, Stream, Timing
from nbrefine.values import Episode, Extraction, GradeNote, Stop
from nbrefine.views.story import story
from tests.steps import answered, gave_up


def test_code_that_the_model_did_not_write_is_told_as_such(repaired: Episode) -> None:
    edited = Extraction("given", "x = 1", "python", "A person edited the proposed cell.")
    given = Extraction("given", "x = 1", "python", "the caller supplied the code")
    first, second = repaired.turns
    turns = (replace(first, extraction=edited), replace(second, extraction=given))
    told = [scene.origin for scene in story(replace(repaired, turns=turns)).scenes]
    assert told == ["A person edited the proposed cell.", "The caller supplied the code."]
    assert [scene.origin for scene in story(repaired).scenes] == ["", ""]


def test_a_branched_episode_names_what_it_was_branched_from(repaired: Episode) -> None:
    note = {"episode": "e-17", "step": 2, "instruction": "Use the median."}
    branched = replace(repaired, settings={"branched_from": note})
    told = dict(story(branched).facts())["Branched from"]
    assert told == "the episode e-17, before step 2, to do this from there on: Use the median."
    again = replace(repaired, settings={"branched_from": {**note, "instruction": ""}})
    assert dict(story(again).facts())["Branched from"].endswith("step 2, to do the same again")
    assert "Branched from" not in dict(story(repaired).facts())


def test_a_grade_that_was_missed_is_no_good_end(repaired: Episode) -> None:
    ends = {
        "good": (repaired, replace(repaired, grade=GradeNote("solved", 4, 4))),
        "bad": (
            replace(repaired, grade=GradeNote("failed", 3, 4)),
            replace(repaired, stop=Stop("max-turns")),
        ),
        "open": (replace(repaired, stop=None),),
    }
    for mood, episodes in ends.items():
        assert [story(each).mood for each in episodes] == [mood] * len(episodes)


def test_scenes_are_given_in_the_order_in_which_they_happened() -> None:
    for episode in (answered(), gave_up()):
        found = story(episode).in_order()
        assert [scene.turn.number for _, scene in found] == [t.number for t in episode.turns]
        assert all(scene in act.scenes for act, scene in found)


def test_checks_that_hold_no_longer_are_told_wherever_they_are_counted() -> None:
    episode = replace(answered(), settings={"lost_checks": [2]})
    step = story(episode).acts[1].step
    assert step.told == "done at attempt 1, though a check of it no longer holds"
    assert steps.checks_told(episode, step.accepted) == "1/1 checks held then, not all do now"
    assert steps.checks_told(answered(), step.accepted) == "1/1 checks held"


def test_the_text_of_an_error_is_that_of_the_own_code(repaired: Episode) -> None:
    traceback = (
        f"\x1b[31m{'-' * 75}\x1b[39m",
        "KeyError  Traceback (most recent call last)",
        "Cell In[2], line 1\n----> 1 prices['x']\n",
        "File /srv/lib/python3.11/site-packages/table.py:7, in look\n      7 raise\n",
        "KeyError: 'x'",
    )
    outputs = (Stream("stdout", "before\n"), Failure("KeyError", "'x'", traceback))
    turn = replace(repaired.turns[0], result=CellResult("x", "error", outputs, outputs[1]))
    (scene,) = story(replace(repaired, turns=(turn,))).scenes
    assert scene.text.split("\n") == [
        "before",
        "KeyError  Traceback (most recent call last)",
        "Cell In[2], line 1",
        "----> 1 prices['x']",
        "  [library frames left out: 1]",
        "KeyError: 'x'",
        "",
    ]


def test_the_line_of_a_turn_says_what_ended_it_and_not_how_its_code_was_found(
    repaired: Episode,
) -> None:
    found = Extraction("found", "x = 1", "python", "The only code block.")
    turn = replace(repaired.turns[0], extraction=found, tests=None)
    ended = {
        "did not end within its time limit (3.0 s)": CellResult(
            "x", "timeout", timing=Timing(seconds=3.0)
        ),
        "the kernel died (killed by SIGKILL)": CellResult(
            "x", "died", death=Death(None, "SIGKILL")
        ),
        "it called exit() or quit(), which end a notebook's kernel": CellResult(
            "x", "error", exited=True
        ),
        "": CellResult("x", "ok"),
    }
    for told, result in ended.items():
        assert line.words(repaired, replace(turn, result=result))[4] == told
