"""The record of several steps: what a reader is told of them."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from nbrefine import notebook
from nbrefine.files import FileChanges
from nbrefine.notebook import document, line, wording
from nbrefine.notebook.steps import listed
from nbrefine.outputs import CellResult, Display
from nbrefine.values import (
    Answer,
    AnswerForm,
    Episode,
    Extraction,
    Image,
    Message,
    Plan,
    Postcondition,
    Reply,
    RewardType,
    Signal,
    SignalBundle,
    Stop,
    Subtask,
    Task,
    ToolCall,
    TurnKind,
    Verdict,
)
from tests.notebook.seen import cells_of, fates_of, source_of
from tests.steps import answered, cell, gave_up


def test_a_step_tells_its_goal_what_it_needs_and_its_checks_in_words_or_code() -> None:
    assert source_of(answered(), "s03-plan") == (
        "## Step 3: Write the mean to mean.txt\n\n"
        "Done at attempt 2, 2 turns, needs steps 1 and 2.\n\n"
        "It is done when these checks hold:\n\n"
        "- mean.txt is written and not empty\n"
        "- `import os; assert os.path.getsize('mean.txt') == 3`\n\n"
        "Attempt 2, accepted: wrote mean.txt (3 B)"
    )
    assert "- `assert rows == 5` (the model's own check)" in source_of(gave_up(), "s01-plan")


def test_the_summary_tells_answer_steps_and_files() -> None:
    source = source_of(answered(), "ep-summary")
    assert "| mean | 4.0 |" in source
    assert "| Steps | 3 of 3 done |" in source
    assert "| Files | mean.txt |" in source
    assert "| Tests |" not in source  # what the last step's checks said is none of the tests'
    row = "| [Step 2: Compute the mean](#Step-2:-Compute-the-mean) | done at attempt 1 | 1 | 1/1"
    assert row in source
    assert "The task asks for 3 steps." in source


def test_another_plan_is_told_where_it_was_made_and_in_the_summary() -> None:
    episode = gave_up()
    told = (
        "From turn 6 on another plan holds (Step 1 has had 2 attempts of 2): step 1 is given up, "
        "and steps 2, 3 and 4 are new; no longer planned: Draw a plot."
    )
    assert told in source_of(episode, "ep-summary")
    made = source_of(episode, "s01-a05")
    assert made.startswith("**Turn 5: the model made a plan**")
    assert told in made
    assert "1. Count the rows\n2. Count the rows by hand\n3. Check the count (needs step 2)" in made
    assert "made no plan that can be followed" in source_of(episode, "s01-a04")
    first = source_of(episode, "s01-a01")
    assert "1. Count the rows\n2. Draw a plot (needs step 1)" in first


def test_given_up_replaced_and_blocked_steps_are_told_apart() -> None:
    episode = gave_up()
    assert fates_of(episode) == ["replaced", "given-up", "blocked", "done"]
    assert source_of(episode, "s03-plan") == (
        "## Step 3: Check the count\n\nNot begun, as it needs step 2."
    )
    assert "| given up for another plan | 5 | 0/1 checks held |" in source_of(episode, "ep-summary")
    checks = cells_of(episode)["s01-checks"]
    assert checks["cell_type"] == "markdown"
    assert "as text, because no attempt passes them all" in checks["source"]
    assert "s02-checks" not in cells_of(episode)
    assert "1 of 3 done; step 2 given up" in source_of(episode, "ep-summary")


def test_a_running_and_a_stopped_episode_tell_how_far_they_got() -> None:
    whole = answered()
    running = replace(whole, turns=whole.turns[:5], stop=None, answer=None)
    assert fates_of(running) == ["done", "done", "running"]
    early = replace(running, turns=whole.turns[:1])
    assert fates_of(early) == ["running", "not-begun", "not-begun"]
    stopped = replace(running, stop=Stop("max-turns", "the limit of turns (5) was reached"))
    assert fates_of(stopped) == ["done", "done", "unfinished"]
    assert "No answer was taken." in source_of(stopped, "ep-final")
    assert "No answer was taken." not in source_of(running, "ep-final")
    for episode in (running, early, stopped):
        cells = cells_of(episode)
        assert cells["ep-checks"]["cell_type"] == cells["ep-tests"]["cell_type"] == "markdown"


def test_a_step_without_a_plan_is_told_as_in_an_episode_of_one_step() -> None:
    turns = (cell(1, 1, 1, "a = 1"), cell(2, 2, 1, "b = a"))
    form = AnswerForm("value", variable="b")
    episode = Episode(
        Task("Make b.", answer=form),
        turns=turns,
        stop=Stop("solved", "answered in the asked form; nothing else checks it"),
        answer=Answer("1", 1, turn=2),
    )
    assert fates_of(episode) == ["unplanned", "unplanned"]
    assert source_of(episode, "s02-plan") == "## Step 2\n\n1 attempt, accepted: attempt 1."
    assert "Answer: **1**" in source_of(episode, "ep-summary")
    assert notebook.from_notebook(notebook.to_notebook(episode)) == episode


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer("the *best* year"), "Answer: **the \\*best\\* year**"),
        (Answer("{'a': [1, 2]}", {"a": [1, 2]}), "Answer: **{'a': \\[1, 2\\]}**"),
        (Answer("one\ntwo"), "Answer:\n\n```text\none\ntwo\n```"),
        (Answer("@a[1] @b[x|y]", {"a": "1", "b": "x|y"}), "| a | 1 |\n| b | x\\|y |"),
    ],
)
def test_answers_of_every_form_are_told_and_come_back(answer: Answer, told: str) -> None:
    episode = replace(answered(), answer=answer)
    assert told.replace("{", "\\{").replace("}", "\\}").replace("\\\\", "\\") in (
        source_of(episode, "ep-final").replace("\\\\", "\\")
    )
    assert notebook.from_notebook(notebook.to_notebook(episode)) == episode


def test_calls_of_tools_and_pictures_for_a_model_come_back_and_are_told() -> None:
    picture = Image("image/png", "iVBORw0KGgo" * 300)
    calls = (
        ToolCall("read_file", {"path": "fares.csv", "start": 2}, "c1"),
        ToolCall("run_cell", {}, "c2", "it is cut off", '{"code": "x'),
    )
    episode = answered()
    shown = Display({"image/png": picture.data, "text/plain": "<Figure>"})
    drawn = episode.turns[3]
    assert drawn.result is not None
    drawn = replace(drawn, result=replace(drawn.result, outputs=(shown,)))
    asked = replace(
        episode.turns[4],
        messages=(Message("user", "See.", (picture,)),),
        reply=Reply("", "tool-calls", tool_calls=calls),
        extraction=Extraction("no-code", reason="the call is cut off"),
        result=None,
        tests=None,
    )
    turns = (*episode.turns[:3], drawn, asked, *episode.turns[5:])
    episode = replace(episode, turns=turns)
    made = notebook.to_notebook(episode)
    assert notebook.from_notebook(json.loads(document.dumps(made))) == episode
    assert document.dumps(made).count(picture.data) == 1
    cells = cells_of(episode)
    assert cells["s02-a01"]["outputs"][0]["data"]["image/png"] == picture.data
    told = cells["s03-a01"]["source"]
    assert 'read_file(path="fares.csv", start=2)' in told
    assert 'run_cell({"code": "x)' in told


def test_attempts_are_counted_by_what_was_tried_and_a_reply_without_code_is_told_as_such() -> None:
    episode = answered()
    silent = replace(episode.turns[4], result=None, tests=None, verdict="no-code")
    silent = replace(silent, extraction=Extraction("no-code"), feedback="There is no code in it.")
    episode = replace(episode, turns=(*episode.turns[:4], silent, *episode.turns[5:]))
    assert "**Attempt 1 of 2 was rejected (failed)**" in source_of(episode, "s01-a02")
    told = source_of(episode, "s03-a01")
    assert told.startswith(f"**Turn {silent.number}: the model gave a reply without code**")
    assert "There is no code in it." in told
    assert "Done at attempt 1, 2 turns" in source_of(episode, "s03-plan")


def test_a_cell_that_a_person_did_not_let_run_or_edited_says_so() -> None:
    episode = answered()
    feedback = "A person did not let this cell run: it deletes files\n\nTry again."
    refused = replace(
        episode.turns[4],
        result=None,
        tests=None,
        feedback=feedback,
        signals=SignalBundle((Signal("execution", RewardType.OUTCOME, 0.0),)),
    )
    edited = replace(
        episode.turns[5],
        extraction=Extraction(
            "given", episode.turns[5].code, "python", "A person edited the proposed cell."
        ),
    )
    episode = replace(episode, turns=(*episode.turns[:4], refused, edited, *episode.turns[6:]))
    told = source_of(episode, "s03-a01")
    assert "`A person did not let this cell run: it deletes files`" in told
    assert told.endswith("Nothing was run.")
    assert "Attempt 2: A person edited the proposed cell." in source_of(episode, "s03-plan")


def test_variables_that_were_lent_are_named() -> None:
    lent = replace(answered(), handed_in=("df", "rates"), settings={"lent": ["df", "rates"]})
    source = source_of(lent, "ep-summary")
    assert "Before its setup, df, rates came by value from another session." in source
    assert "must be there" not in source  # no cell reads them
    assert "Run All gives the accepted state" not in source


def test_variables_that_must_be_there_before_run_all_are_named_in_the_head() -> None:
    episode = replace(answered(), setup=None, task=replace(answered().task, setup=""))
    names = ("mean", "fares", "spare")
    read = replace(episode, turns=episode.turns[3:], handed_in=names)
    source = source_of(read, "ep-summary")
    assert "held mean, fares, spare." in source
    assert "Before Run All, fares must be there: its cells read what no cell makes." in source
    assert "must be there" not in source_of(replace(episode, handed_in=names), "ep-summary")


def test_a_variable_that_code_may_come_to_is_told_apart_from_one_that_must_be_there() -> None:
    episode = replace(answered(), setup=None, task=replace(answered().task, setup=""))
    turn = episode.turns[3]
    turn = replace(turn, result=CellResult("def f(): return spare\nfares.sum()", "ok"))
    read = replace(episode, turns=(turn, *episode.turns[4:]), handed_in=("fares", "spare"))
    source = source_of(read, "ep-summary")
    assert "Before Run All, fares must be there: its cells read what no cell makes." in source
    assert "Some of its code, if it comes to that, reads spare." in source


def test_files_that_are_too_many_to_list_are_counted() -> None:
    episode = answered()
    turn = episode.turns[3]
    many = replace(turn, files=FileChanges(omitted=1200))
    turns = (*episode.turns[:3], many, *episode.turns[4:])
    episode = replace(episode, turns=turns)
    # They may be of files that are listed, or have been deleted since.
    left_out = "1,200 more changes to files were too many to be listed"
    assert f"{left_out}." in source_of(episode, "ep-final")
    assert f"mean.txt; {left_out}" in source_of(episode, "ep-summary")
    assert "too many" not in source_of(answered(), "ep-final")


def test_the_turn_behind_the_last_step_is_called_the_answer_also_where_it_is_a_cell() -> None:
    episode = answered()
    given = replace(cell(8, 4, 1, "answer = 4.0"), accepted=True, verdict="solved")
    assert episode.answer is not None
    episode = replace(
        episode,
        turns=(*episode.turns[:6], replace(given, number=7)),
        answer=replace(episode.answer, turn=7),
    )
    assert source_of(episode, "s04-plan").startswith("## Answer\n\n1 turn, the answer was taken.")
    assert "| [Answer](#Answer) | the answer was taken |" in source_of(episode, "ep-summary")
    assert wording.place(episode, episode.turns[6]) == "the answer, attempt 1"
    assert line.words(episode, episode.turns[6])[0] == "turn 7, the answer"


NASTY = (
    "```\n# Not a heading\n</details><script>alert(1)</script> [l](javascript:x) | **b** $x$\x1b[1m"
)


def test_text_of_plans_checks_answers_and_tools_is_never_markup() -> None:
    check = Postcondition(f"assert {NASTY!r} == ''", NASTY, "model")
    bare = Postcondition(f"assert {NASTY!r} == ''")
    subtasks = (Subtask(NASTY, (), (check, bare)), Subtask(f"x {NASTY}", (1,)))
    call = ToolCall(NASTY, {NASTY: NASTY, "more": [NASTY]}, "", NASTY, "")
    sorts: tuple[TurnKind, ...] = ("inspection", "plan", "answer")
    verdicts: tuple[Verdict, ...] = ("solved", "failed")
    base = replace(gave_up().turns[0], reply=Reply(NASTY, tool_calls=(call,)), feedback=NASTY)
    turns = tuple(
        replace(base, number=number, attempt=number, kind=what, verdict=verdict)
        for number, (what, verdict) in enumerate(itertools.product(sorts, verdicts))
    )
    plans = (Plan(subtasks, "model", 3), Plan(subtasks[:1], "model", 6, NASTY))
    episode = Episode(
        Task("t", answer=AnswerForm(postconditions=(check,))),
        turns=turns,
        stop=Stop("solved", NASTY),
        plans=plans,
        answer=Answer(NASTY, {NASTY: NASTY, "b": NASTY}),
    )
    html: list[str] = []
    for made in notebook.to_notebook(episode)["cells"]:
        if made["cell_type"] != "markdown":
            continue
        assert "\x1b" not in made["source"]
        for token in MarkdownIt().enable("table").parse(made["source"]):
            kinds = [token, *(token.children or ())]
            html += (kind.content.strip() for kind in kinds if kind.type.startswith("html"))
            links = [kind for kind in kinds if kind.type == "link_open"]
            assert all(str(link.attrs["href"]).startswith("#Step-") for link in links)
            bold = any(kind.type in ("strong_open", "em_open") for kind in kinds)
            assert not bold or token.content.startswith(("**", "Answer: **"))
    assert html == ["<details>\n<summary>Reply and feedback</summary>", "</details>"] * 6
    assert notebook.from_notebook(notebook.to_notebook(episode)) == episode


@pytest.mark.parametrize(
    ("numbers", "words"),
    [((), "no step"), ((2,), "step 2"), ((2, 3), "steps 2 and 3"), ((1, 2, 4), "steps 1, 2 and 4")],
)
def test_steps_are_named_in_words(numbers: tuple[int, ...], words: str) -> None:
    assert listed(numbers) == words
