"""The record of several steps: what a reader sees of them, and what Run All runs and passes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
import pytest
from markdown_it import MarkdownIt

from nbrefine import notebook
from nbrefine.files import FileChanges
from nbrefine.notebook import codec, document, line, wording
from nbrefine.notebook.steps import listed, steps_of
from nbrefine.outputs import CellResult, Display, Failure, Stream
from nbrefine.postconditions import holds
from nbrefine.values import (
    Answer,
    AnswerForm,
    CaseResult,
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
    TestReport,
    ToolCall,
    TurnKind,
    Verdict,
)
from tests.conftest import ROOT
from tests.steps import answered, cell, gave_up

EPISODES = (answered, gave_up)


def _cells(episode: Episode) -> dict[str, Any]:
    return {cell["id"]: cell for cell in notebook.to_notebook(episode)["cells"]}


def _source(episode: Episode, cell_id: str) -> str:
    return str(_cells(episode)[cell_id]["source"])


def _fates(episode: Episode) -> list[str]:
    return [step.fate for step in steps_of(episode)]


def _kept() -> Episode:
    """A step whose best attempt was adopted though one of two checks failed."""
    episode = answered()
    failed, last = episode.turns[4], episode.turns[5]
    assert failed.tests is not None
    first, second = failed.tests.cases
    half = replace(failed.tests, cases=(replace(first, status="passed"), second))
    kept = replace(failed, accepted=True, tests=half)
    rejected = replace(last, accepted=False, verdict="failed", tests=failed.tests, artifacts=())
    return replace(episode, turns=(*episode.turns[:4], kept, rejected), stop=Stop("gave-up"))


def test_every_step_has_its_plan_its_turns_and_its_checks_in_order() -> None:
    kinds = [(name, made["cell_type"]) for name, made in _cells(answered()).items()]
    assert kinds == [
        ("ep-summary", "markdown"),
        ("ep-params", "code"),
        ("ep-setup", "code"),
        ("s01-plan", "markdown"),
        ("s01-a01", "markdown"),
        ("s01-a02", "markdown"),
        ("s01-diff", "markdown"),
        ("s01-a03", "code"),
        ("s01-checks", "code"),
        ("s02-plan", "markdown"),
        ("s02-a01", "code"),
        ("s02-checks", "code"),
        ("s03-plan", "markdown"),
        ("s03-a01", "markdown"),
        ("s03-diff", "markdown"),
        ("s03-a02", "code"),
        ("s03-checks", "code"),
        ("s04-plan", "markdown"),
        ("s04-a01", "markdown"),
        ("s04-a02", "markdown"),
        ("ep-checks", "code"),
        ("ep-tests", "code"),
        ("ep-final", "markdown"),
    ]


@pytest.mark.parametrize("make", EPISODES)
def test_the_file_is_valid_and_gives_the_same_episode_at_any_turn(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "LONG", 10)  # every text goes the way of long ones
    whole = make()
    for count in range(len(whole.turns) + 1):
        plans = tuple(plan for plan in whole.plans if plan.since <= count + 1)
        part = replace(whole, turns=whole.turns[:count], plans=plans, stop=None, answer=None)
        episode = whole if count == len(whole.turns) else part
        path = tmp_path / "episode.ipynb"
        notebook.save(episode, path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made = nbformat.read(path, as_version=nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
            nbformat.validate(made)
        assert nbformat.writes(made) + "\n" == path.read_text()  # type: ignore[no-untyped-call]
        assert notebook.load(path) == episode


def _run_all(path: Path) -> subprocess.CompletedProcess[str]:
    home = {name: str(path.parent / name) for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR")}
    command = ["nbconvert", "--log-level=ERROR", "--to", "notebook", "--execute", "--inplace"]
    return subprocess.run(
        [sys.executable, "-m", *command, str(path)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | home,
    )


def test_run_all_gives_the_recorded_outputs_and_passes_every_check(tmp_path: Path) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(answered(), path)
    before = _outputs(path)
    ran = _run_all(path)
    assert ran.returncode == 0, ran.stderr
    after = _outputs(path)
    assert after == before
    assert after["s02-a01"] != []
    assert {"s01-checks", "s02-checks", "s03-checks", "ep-checks", "ep-tests"} <= set(after)
    assert (tmp_path / "mean.txt").read_text() == "4.0"
    assert notebook.load(path) == answered()


def test_a_check_that_no_longer_holds_ends_run_all(tmp_path: Path) -> None:
    path = tmp_path / "episode.ipynb"
    notebook.save(answered(), path)
    made = json.loads(path.read_bytes())
    cell_of_step = next(each for each in made["cells"] if each["id"] == "s02-a01")
    cell_of_step["source"] = "mean = 400"
    path.write_text(json.dumps(made))
    ran = _run_all(path)
    assert ran.returncode != 0
    assert "assert 0 <= mean <= 10" in ran.stderr


def _outputs(path: Path) -> dict[str, Any]:
    """Give the outputs of every code cell, without the counts that a new run gives anew."""
    return {
        made["id"]: [
            {key: value for key, value in output.items() if key != "execution_count"}
            for output in made["outputs"]
        ]
        for made in json.loads(path.read_bytes())["cells"]
        if made["cell_type"] == "code"
    }


def test_checks_leave_no_names_and_show_what_they_had_shown() -> None:
    own = holds("import os as secret\nassert print('seen', secret.sep) is None")
    episode = answered()
    turn = episode.turns[3]
    assert turn.tests is not None
    told = replace(turn, tests=replace(turn.tests, outputs=(Stream("stdout", "seen /\n"),)))
    subtasks = (
        episode.task.subtasks[0],
        replace(episode.task.subtasks[1], postconditions=(own,)),
        *episode.task.subtasks[2:],
    )
    turns = (*episode.turns[:3], told, *episode.turns[4:])
    made = _cells(replace(episode, turns=turns, plans=(Plan(subtasks),)))["s02-checks"]
    assert made["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "seen /\n"}]
    names: dict[str, Any] = {}
    exec(made["source"], names)
    assert "secret" not in names


def test_a_step_tells_its_goal_what_it_needs_and_its_checks_in_words_or_code() -> None:
    assert _source(answered(), "s03-plan") == (
        "## Step 3: Write the mean to mean.txt\n\n"
        "Done at attempt 2, 2 turns, needs steps 1 and 2.\n\n"
        "It is done when these checks hold:\n\n"
        "- mean.txt is written and not empty\n"
        "- `import os; assert os.path.getsize('mean.txt') == 3`\n\n"
        "Attempt 2, accepted: wrote mean.txt (3 B)"
    )
    assert "- `assert rows == 5` (the model's own check)" in _source(gave_up(), "s01-plan")


def test_the_summary_tells_answer_steps_and_files() -> None:
    source = _source(answered(), "ep-summary")
    assert "| mean | 4.0 |" in source
    assert "| Steps | 3 of 3 done |" in source
    assert "| Files | mean.txt |" in source
    assert "| Tests |" not in source  # what the last step's checks said is none of the tests'
    row = "| [Step 2: Compute the mean](#Step-2:-Compute-the-mean) | done at attempt 1 | 1 | 1/1"
    assert row in source
    assert "The task asks for 3 steps." in source


@pytest.mark.parametrize("make", EPISODES)
def test_every_link_of_the_summary_leads_to_a_heading(make: Any) -> None:
    """JupyterLab and nbconvert name a heading by its text with hyphens for blanks."""
    episode = make()
    plan = replace(
        episode.plan.subtasks[0], goal="Read `a_b` & *c* [x](y), 100 % of #1 in São Paulo?"
    )
    subtasks = (plan, *episode.plan.subtasks[1:])
    episode = replace(
        episode, plans=(*episode.plans[:-1], replace(episode.plan, subtasks=subtasks))
    )
    headings, links = set(), []
    for made in _cells(episode).values():
        if made["cell_type"] == "markdown":
            tokens = MarkdownIt().enable("table").parse(made["source"])
            for place, token in enumerate(tokens):
                if token.type == "heading_open":
                    words = tokens[place + 1].children or []
                    headings.add("".join(word.content for word in words).replace(" ", "-"))
                links += [
                    unquote(str(child.attrs["href"]))
                    for child in token.children or ()
                    if child.type == "link_open"
                ]
    assert len(links) == len(steps_of(episode))
    assert {link.removeprefix("#") for link in links} <= headings


def test_another_plan_is_told_where_it_was_made_and_in_the_summary() -> None:
    episode = gave_up()
    told = (
        "From turn 6 on another plan holds (Step 1 has had 2 attempts of 2): step 1 is given up, "
        "and steps 2, 3 and 4 are new; no longer planned: Draw a plot."
    )
    assert told in _source(episode, "ep-summary")
    made = _source(episode, "s01-a05")
    assert made.startswith("**Turn 5: the model made a plan**")
    assert told in made
    assert "1. Count the rows\n2. Count the rows by hand\n3. Check the count (needs step 2)" in made
    assert "made no plan that can be followed" in _source(episode, "s01-a04")
    first = _source(episode, "s01-a01")
    assert "1. Count the rows\n2. Draw a plot (needs step 1)" in first


def test_given_up_replaced_and_blocked_steps_are_told_apart() -> None:
    episode = gave_up()
    assert _fates(episode) == ["replaced", "given-up", "blocked", "done"]
    assert _source(episode, "s03-plan") == (
        "## Step 3: Check the count\n\nNot begun, as it needs step 2."
    )
    assert "| given up for another plan | 5 | 0/1 checks held |" in _source(episode, "ep-summary")
    checks = _cells(episode)["s01-checks"]
    assert checks["cell_type"] == "markdown"
    assert "as text, because no attempt passes them all" in checks["source"]
    assert "s02-checks" not in _cells(episode)
    assert "1 of 3 done; step 2 given up" in _source(episode, "ep-summary")


def test_a_running_and_a_stopped_episode_tell_how_far_they_got() -> None:
    whole = answered()
    running = replace(whole, turns=whole.turns[:5], stop=None, answer=None)
    assert _fates(running) == ["done", "done", "running"]
    early = replace(running, turns=whole.turns[:1])
    assert _fates(early) == ["running", "not-begun", "not-begun"]
    stopped = replace(running, stop=Stop("max-turns", "the limit of turns (5) was reached"))
    assert _fates(stopped) == ["done", "done", "unfinished"]
    assert "No answer was taken." in _source(stopped, "ep-final")
    assert "No answer was taken." not in _source(running, "ep-final")
    for episode in (running, early, stopped):
        cells = _cells(episode)
        assert cells["ep-checks"]["cell_type"] == cells["ep-tests"]["cell_type"] == "markdown"


def test_steps_stand_in_the_order_in_which_their_cells_ran(tmp_path: Path) -> None:
    """A step that was given up is gone back to, where its limits are higher."""
    subtasks = (
        Subtask("Fill", (), (holds("items == [2, 1]"),)),
        Subtask("Begin", (), (holds("items == [2]"),)),
        Subtask("Look"),
    )
    turns = (
        cell(1, 1, 1, "items.append(1)", error=Failure("NameError", "items", ())),
        cell(2, 2, 1, "items = [2]", tests=TestReport((CaseResult("test_1", "passed"),))),
        cell(3, 1, 2, "1 / 0", error=Failure("ZeroDivisionError", "division by zero", ())),
        cell(4, 1, 3, "items.append(1)", tests=TestReport((CaseResult("test_1", "passed"),))),
    )
    episode = replace(answered(), task=Task("Fill"), turns=turns, plans=(Plan(subtasks),))
    episode = replace(episode, setup=None, stop=None, answer=None)
    chapters = [name for name in _cells(episode) if name.endswith("-plan")]
    assert chapters == ["s02-plan", "s01-plan", "s03-plan"]
    path = tmp_path / "episode.ipynb"
    notebook.save(episode, path)
    ran = _run_all(path)
    assert ran.returncode == 0, ran.stderr
    assert _fates(episode) == ["done", "done", "not-begun"]
    # What is gone back to is worked on, and what was left is not.
    assert _fates(replace(episode, turns=turns[:3])) == ["running", "done", "not-begun"]
    assert _fates(replace(episode, turns=turns[:2])) == ["given-up", "done", "not-begun"]


def test_a_kept_attempt_is_code_and_its_checks_are_text(tmp_path: Path) -> None:
    episode = _kept()
    assert _fates(episode) == ["done", "done", "kept"]
    cells = _cells(episode)
    order = [name for name in cells if name.startswith("s03")]
    assert order == ["s03-plan", "s03-a01", "s03-a02", "s03-diff", "s03-checks"]
    assert cells["s03-a01"]["cell_type"] == "code"
    assert cells["s03-checks"]["cell_type"] == "markdown"
    assert (
        "| import os assert os.path.getsize('mean.txt') == 3 | error |"
        in (cells["s03-checks"]["source"])
    )
    assert "Attempt 1 was kept, though not all of its checks held" in cells["s03-plan"]["source"]
    path = tmp_path / "episode.ipynb"
    notebook.save(episode, path)
    assert _run_all(path).returncode == 0


def test_a_step_without_a_plan_is_told_as_in_an_episode_of_one_step() -> None:
    turns = (cell(1, 1, 1, "a = 1"), cell(2, 2, 1, "b = a"))
    form = AnswerForm("value", variable="b")
    episode = Episode(
        Task("Make b.", answer=form),
        turns=turns,
        stop=Stop("solved", "answered in the asked form; nothing else checks it"),
        answer=Answer("1", 1, turn=2),
    )
    assert _fates(episode) == ["unplanned", "unplanned"]
    assert _source(episode, "s02-plan") == "## Step 2\n\n1 attempt, accepted: attempt 1."
    assert "Answer: **1**" in _source(episode, "ep-summary")
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
        _source(episode, "ep-final").replace("\\\\", "\\")
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
    cells = _cells(episode)
    assert cells["s02-a01"]["outputs"][0]["data"]["image/png"] == picture.data
    told = cells["s03-a01"]["source"]
    assert 'read_file(path="fares.csv", start=2)' in told
    assert 'run_cell({"code": "x)' in told


def test_attempts_are_counted_by_what_was_tried_and_a_reply_without_code_is_told_as_such() -> None:
    episode = answered()
    silent = replace(episode.turns[4], result=None, tests=None, verdict="no-code")
    silent = replace(silent, extraction=Extraction("no-code"), feedback="There is no code in it.")
    episode = replace(episode, turns=(*episode.turns[:4], silent, *episode.turns[5:]))
    assert "**Attempt 1 of 2 was rejected (failed)**" in _source(episode, "s01-a02")
    told = _source(episode, "s03-a01")
    assert told.startswith(f"**Turn {silent.number}: the model gave a reply without code**")
    assert "There is no code in it." in told
    assert "Done at attempt 1, 2 turns" in _source(episode, "s03-plan")


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
    told = _source(episode, "s03-a01")
    assert "`A person did not let this cell run: it deletes files`" in told
    assert told.endswith("Nothing was run.")
    assert "Attempt 2: A person edited the proposed cell." in _source(episode, "s03-plan")


def test_variables_that_were_lent_are_named() -> None:
    lent = replace(answered(), handed_in=("df", "rates"), settings={"lent": ["df", "rates"]})
    source = _source(lent, "ep-summary")
    assert "Before its setup, df, rates came by value from another session." in source
    assert "must be there" not in source  # no cell reads them
    assert "Run All gives the accepted state" not in source


def test_variables_that_must_be_there_before_run_all_are_named_in_the_head() -> None:
    episode = replace(answered(), setup=None, task=replace(answered().task, setup=""))
    names = ("mean", "fares", "spare")
    read = replace(episode, turns=episode.turns[3:], handed_in=names)
    source = _source(read, "ep-summary")
    assert "held mean, fares, spare." in source
    assert "Before Run All, fares must be there: its cells read what no cell makes." in source
    assert "must be there" not in _source(replace(episode, handed_in=names), "ep-summary")


def test_a_variable_that_code_may_come_to_is_told_apart_from_one_that_must_be_there() -> None:
    episode = replace(answered(), setup=None, task=replace(answered().task, setup=""))
    turn = episode.turns[3]
    turn = replace(turn, result=CellResult("def f(): return spare\nfares.sum()", "ok"))
    read = replace(episode, turns=(turn, *episode.turns[4:]), handed_in=("fares", "spare"))
    source = _source(read, "ep-summary")
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
    assert f"{left_out}." in _source(episode, "ep-final")
    assert f"mean.txt; {left_out}" in _source(episode, "ep-summary")
    assert "too many" not in _source(answered(), "ep-final")


def test_the_turn_behind_the_last_step_is_called_the_answer_also_where_it_is_a_cell() -> None:
    episode = answered()
    given = replace(cell(8, 4, 1, "answer = 4.0"), accepted=True, verdict="solved")
    assert episode.answer is not None
    episode = replace(
        episode,
        turns=(*episode.turns[:6], replace(given, number=7)),
        answer=replace(episode.answer, turn=7),
    )
    assert _source(episode, "s04-plan").startswith("## Answer\n\n1 turn, the answer was taken.")
    assert "| [Answer](#Answer) | the answer was taken |" in _source(episode, "ep-summary")
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


def test_records_of_before_there_were_steps_are_read_and_look_the_same() -> None:
    found = sorted((ROOT / "benchmarks" / "demo").glob("*.ipynb"))
    assert len(found) >= 5
    for path in found:
        episode = notebook.load(path)
        assert episode.plans == ()
        assert {turn.kind for turn in episode.turns} <= {"attempt"}
        assert [made["id"] for made in notebook.to_notebook(episode)["cells"]] == [
            made["id"] for made in json.loads(path.read_bytes())["cells"]
        ]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [((), "no step"), ((2,), "step 2"), ((2, 3), "steps 2 and 3"), ((1, 2, 4), "steps 1, 2 and 4")],
)
def test_steps_are_named_in_words(numbers: tuple[int, ...], words: str) -> None:
    assert listed(numbers) == words
