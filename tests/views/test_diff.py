"""Two episodes compared: what stands side by side, in what it differs, and how that is told."""

from __future__ import annotations

import base64
import difflib
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import nbrefine
from nbrefine import notebook
from nbrefine.errors import RecordError
from nbrefine.notebook import Recorder
from nbrefine.outputs import CellResult, Display, Failure, Output, Stream
from nbrefine.values import (
    Answer,
    CaseResult,
    Episode,
    Extraction,
    GradeNote,
    KernelInfo,
    Message,
    Stop,
    Task,
    TestReport,
    Turn,
)
from nbrefine.views.diff import EpisodeDiff, diff
from nbrefine.views.diff.changes import LINES, changes, counted
from tests.steps import answered, gave_up

PNG = b"\x89PNG\r\n\x1a\n"


def attempt(number: int, code: str = "x = 1", *, good: bool = False, **fields: Any) -> Turn:
    """Give an attempt with two tests, of which the second holds where it is good."""
    cases = (
        CaseResult("test_1", "passed", "x > 0"),
        CaseResult("test_2", "passed" if good else "failed", "x == 2", "" if good else "1"),
    )
    outputs: tuple[Output, ...] = fields.pop("outputs", (Stream("stdout", f"x is {code}\n"),))
    error = fields.pop("error", None)
    return Turn(
        number=number,
        attempt=number,
        extraction=Extraction("found", code, "python"),
        result=CellResult(code, "error" if error else "ok", outputs, error),
        tests=fields.pop("tests", TestReport(cases)),
        verdict="solved" if good else "failed",
        accepted=good,
        seconds=1.0,
        **fields,
    )


def episode(*turns: Turn, reason: Any = "solved", **fields: Any) -> Episode:
    stop = Stop(reason, "it is over") if reason else None
    return Episode(Task("Find x.", id="find-x"), turns=turns, stop=stop, **fields)


def told(compared: EpisodeDiff) -> list[tuple[str, str]]:
    return [(pair.place, pair.told) for pair in compared.pairs]


LONG = episode(*(attempt(n, f"x = {n * 10}") for n in range(1, 6)), reason="cycle")
SHORT = episode(attempt(1, "x = 10"), attempt(2, "x = 2", good=True))


def test_the_first_sentence_says_who_solved_it_and_where_they_part() -> None:
    compared = nbrefine.diff(LONG, SHORT)
    assert compared.sentence == (
        "B solved it in attempt 2; A gave up after 5 attempts (cycle). They part at attempt 2: "
        "other code, another verdict, other results of tests and other output."
    )
    assert str(compared) == compared.sentence
    assert repr(compared) == f"<EpisodeDiff {compared.sentence}>"
    assert diff(SHORT, LONG).sentence.startswith("A solved it in attempt 2; B gave up after 5")
    assert diff(SHORT, SHORT).sentence == "No differences."


def test_attempts_stand_side_by_side_by_number_and_those_without_another_alone() -> None:
    compared = diff(LONG, SHORT)
    assert not compared.equal
    assert told(compared) == [
        ("Attempt 1", "the same"),
        ("Attempt 2", "code, verdict, tests, output"),
        ("Attempt 3", "only in A"),
        ("Attempt 4", "only in A"),
        ("Attempt 5", "only in A"),
    ]
    assert [each.what for each in compared.ends] == ["Stop"]
    second, third = compared.pairs[1:3]
    assert second.code == "@@ -1 +1 @@\n-x = 20\n+x = 2"
    assert second.output == "@@ -1 +1 @@\n-x is x = 20\n+x is x = 2"
    assert second.tests == [("test_2: x == 2", "fail", "pass")]
    assert third.code == "@@ -1 +0,0 @@\n-x = 30"
    assert third.tests == []
    one_more = episode(*SHORT.turns[:1], attempt(2, "x = 3"), reason="max-turns")
    assert diff(replace(one_more, turns=one_more.turns[:1]), one_more).sentence == (
        "A ran out of turns after 1 attempt; B ran out of turns after 2 attempts. "
        "They part at attempt 2, which only B has."
    )


def test_the_same_code_with_another_verdict_is_told_as_that() -> None:
    """A test that asks for the time, or a result that depends on chance."""
    good, bad = attempt(1, good=True), attempt(1)
    compared = diff(episode(good), episode(bad, reason="max-turns"))
    assert compared.sentence == (
        "A solved it in attempt 1; B ran out of turns after 1 attempt. They part at attempt 1: "
        "the same code, but another verdict and other results of tests."
    )
    assert compared.pairs[0].code == ""
    assert compared.pairs[0].output == ""


def test_a_test_that_fails_in_another_way_is_a_difference() -> None:
    other = CaseResult("test_2", "failed", "x == 2", "7")
    first = attempt(1, tests=TestReport((CaseResult("test_2", "failed", "x == 2", "1"),)))
    second = attempt(1, tests=TestReport((other, CaseResult("test_3", "error", message="no y"))))
    compared = diff(episode(first), episode(second))
    assert compared.pairs[0].differs == ("tests",)
    assert compared.pairs[0].tests == [
        ("test_2: x == 2", "fail: got 1", "fail: got 7"),
        ("test_3", "not there", "error"),
    ]


def test_blank_lines_at_the_end_and_colours_are_no_difference() -> None:
    plain = attempt(1, "x = 1", outputs=(Stream("stdout", "one\ntwo\n"),))
    other = attempt(
        1, "x = 1\n\n", outputs=(Stream("stdout", "\x1b[31mone\x1b[0m\n"), Stream("stdout", "two"))
    )
    assert diff(episode(plain), episode(other)).sentence == "No differences."


def test_outputs_of_all_kinds_are_compared() -> None:
    picture = Display({"image/png": base64.b64encode(PNG).decode(), "text/plain": "<Figure>"})
    other = Display({"image/png": base64.b64encode(PNG + b"1").decode(), "text/plain": "<Figure>"})
    table = Display({"application/x-own": {"a": 1}})
    error = Failure("ValueError", "no x", ("a stack", "in line 1"))
    same = Failure("ValueError", "no x", ("another stack",))
    before = attempt(1, outputs=(Stream("stderr", "1\n"), picture, table, error), error=error)
    compared = diff(episode(before), episode(replace(before)))
    assert compared.equal
    outputs = (Stream("stdout", "1\n"), other, table, same)
    compared = diff(episode(before), episode(attempt(1, outputs=outputs, error=same)))
    assert compared.pairs[0].differs == ("output",)
    changed = [line for line in compared.pairs[0].output.splitlines() if line[0] in "+-"]
    assert [line[:12] for line in changed] == ["-[image/png,", "+[image/png,"]


def test_what_the_runs_began_with_is_told_first() -> None:
    def began(**fields: Any) -> Episode:
        packages = {"numpy": "2.1", "pandas": fields.pop("pandas"), **fields.pop("more", {})}
        messages = (Message("system", fields.pop("system")), Message("user", "Find x."))
        kernel = KernelInfo("python3", language_version="3.11.7", packages=packages)
        turn = attempt(1, "import scipy", good=True, messages=messages)
        return episode(turn, kernel=kernel, **fields)

    compared = diff(
        began(
            pandas="2.2", system="You write\nPython.", model="small", settings={"rules": {"n": 2}}
        ),
        began(
            pandas="3.1",
            system="You write\nR.",
            model="large",
            settings={"rules": {"n": 3}, "timeout": None},
            more={"scipy": "1.0"},
        ),
    )
    assert [(each.what, each.a, each.b) for each in compared.runs] == [
        ("Model", "small", "large"),
        ("First prompt (system)", "You write\nPython.", "You write\nR."),
        ("Setting rules.n", "2", "3"),
        ("Setting timeout", "", "None"),
        ("Package scipy", "", "1.0"),
        ("Package pandas", "2.2", "3.1"),
    ]
    assert compared.runs[1].long
    assert compared.runs[1].changes == "@@ -1,2 +1,2 @@\n You write\n-Python.\n+R."
    assert compared.first is None
    assert not compared.equal
    assert compared.sentence == (
        "Both solved it in attempt 1. Turn by turn they are the same; what the runs began with "
        "differs: model, first prompt (system), setting rules.n, 3 more."
    )


def test_hidden_tests_and_solutions_are_told_apart_without_being_shown() -> None:
    task = Task("Find x.", hidden_tests="assert x == 41", reference="x = 41")
    other = replace(task, hidden_tests="assert x == 43", reference="")
    compared = diff(replace(SHORT, task=task), replace(SHORT, task=other))
    assert [(each.what, each.a, each.b) for each in compared.runs] == [
        ("Hidden tests", "one, not shown here", "another, not shown here"),
        ("Reference solution", "one, not shown here", ""),
    ]
    assert "41" not in json.dumps(compared.to_dict())


def test_times_tokens_and_names_make_no_episode_another() -> None:
    slow = tuple(replace(turn, seconds=9.0, started="2026") for turn in SHORT.turns)
    compared = diff(SHORT, replace(SHORT, turns=slow, id="b", created="2026"))
    assert compared.equal
    assert compared.sentence == "No differences but times."
    assert [each.what for each in compared.costs] == ["Time"]


def test_what_differs_at_the_end_is_told_where_no_turn_differs() -> None:
    ours = replace(SHORT, grade=GradeNote("solved", 4, 4), answer=Answer("2", turn=2))
    theirs = replace(SHORT, grade=GradeNote("failed", 3, 4), answer=Answer("3", turn=2))
    compared = diff(ours, theirs)
    assert [(each.what, each.a, each.b) for each in compared.ends] == [
        ("Answer", "2", "3"),
        ("Grade", "solved, 4/4 tests", "failed, 3/4 tests"),
    ]
    assert compared.sentence.endswith("Turn by turn they are the same, but not at the end.")


@pytest.mark.parametrize(
    ("reason", "ended"),
    [
        ("submitted", "handed in its last submission after 2 attempts"),
        ("budget", "ran out of its budget after 2 attempts"),
        ("stagnation", "gave up after 2 attempts (stagnation)"),
        ("gave-up", "gave up after 2 attempts"),
        ("stopped", "was stopped after 2 attempts"),
        ("killed", "was killed after 2 attempts"),
        ("invalid-task", "had a task that cannot be judged"),
        ("infra-error", "was ended by trouble of the host after 2 attempts"),
        (None, "is not at its end after 2 attempts"),
    ],
)
def test_every_end_has_its_words(reason: Any, ended: str) -> None:
    other = replace(SHORT, stop=Stop(reason) if reason else None)
    assert diff(SHORT, other).sentence == (
        f"A solved it in attempt 2; B {ended}. Turn by turn they are the same, but not at the end."
    )


def test_who_failed_the_grade_has_not_solved_it() -> None:
    cheat = replace(SHORT, grade=GradeNote("failed", 1, 2))
    assert diff(cheat, SHORT).sentence.startswith(
        "B solved it in attempt 2; "
        "A passed the tests it was shown in attempt 2 and failed its grade. "
    )


def test_an_episode_without_turns_stands_beside_any_other() -> None:
    empty = episode(reason="infra-error")
    compared = diff(empty, SHORT)
    assert told(compared) == [("Attempt 1", "only in B"), ("Attempt 2", "only in B")]
    assert compared.sentence == (
        "B solved it in attempt 2; A was ended by trouble of the host after 0 attempts. "
        "They part at attempt 1, which only B has."
    )
    assert diff(empty, empty).sentence == "No differences."
    assert diff(empty, empty).pairs == ()


def test_steps_stand_side_by_side_by_their_goals() -> None:
    ours = answered()
    plan = ours.plans[0]
    first, second, third = plan.subtasks
    moved = replace(plan, subtasks=(first, replace(second, goal="Draw a plot"), second, third))
    theirs = replace(ours, plans=(moved,), turns=ours.turns[:3])
    titles = [step.titles for step in diff(ours, theirs).steps]
    assert titles == [
        ("Step 1: Read `fares` from fares.csv",) * 2,
        ("", "Step 2: Draw a plot"),
        ("Step 2: Compute the mean", "Step 3: Compute the mean"),
        ("Step 3: Write the mean to mean.txt", "Step 4: Write the mean to mean.txt"),
        ("Answer", ""),
    ]
    gone = replace(ours, plans=(replace(plan, subtasks=(first, third)),), turns=ours.turns[:3])
    titles = [step.titles for step in diff(ours, gone).steps]
    assert titles[1] == ("Step 2: Compute the mean", "")


def test_looks_plans_and_answers_stand_beside_their_like() -> None:
    compared = diff(answered(), gave_up())
    assert compared.in_steps
    step = compared.steps[0]
    assert [(pair.place, pair.told) for pair in step.pairs] == [
        ("Turn 1", "only in B"),
        ("Turn 1", "only in A"),
        ("Step 1, attempt 1", "code, tests, output"),
        ("Step 1, attempt 2", "code, verdict, tests"),
        ("Turn 4", "only in B"),
        ("Turn 5", "only in B"),
    ]
    assert step.pairs[0].text.endswith("+1. Count the rows\n+2. Draw a plot (needs step 1)")
    assert step.pairs[2].tests == [
        ("len(fares) == 3", "not run", "not there"),
        ("rows == 5", "not there", "fail"),
    ]
    assert compared.sentence == (
        "Their tasks differ. A solved it after 8 turns; B gave up after 7 turns. They part at "
        "turn 1 of B, where the model made a plan; A has nothing beside it."
    )
    fates = {each.what: (each.a, each.b) for each in compared.ends}
    assert fates["Step 1"] == ("done at attempt 2", "given up for another plan")
    assert diff(answered(), answered()).equal


def test_a_step_that_ended_otherwise_is_a_difference() -> None:
    ours = answered()
    theirs = replace(ours, plans=(replace(ours.plans[0], origin="model"),))
    assert [each.what for each in diff(ours, theirs).runs] == ["Plan of the task"]
    unfinished = replace(ours, turns=ours.turns[:4], stop=Stop("stopped"), answer=None)
    ends = {each.what: (each.a, each.b) for each in diff(ours, unfinished).ends}
    assert ends["Step 3"] == ("done at attempt 2", "not begun")


def test_records_and_journals_are_read_and_other_files_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    notebook.save(SHORT, path)
    recorder = Recorder(tmp_path / "b.ipynb")
    running = replace(SHORT, turns=SHORT.turns[:1], stop=None)
    recorder.begin(replace(running, turns=()))
    recorder.turn(running)
    try:
        compared = diff(path, tmp_path / "b.nbrefine.jsonl")
    finally:
        recorder.close()
    assert (compared.a.name, compared.b.name) == (str(path), str(tmp_path / "b.nbrefine.jsonl"))
    assert told(compared) == [("Attempt 1", "the same"), ("Attempt 2", "only in A")]
    assert diff(path, SHORT).b.name == "find-x"
    assert diff(path, SHORT).equal
    with pytest.raises(RecordError):
        diff(path, tmp_path / "c.ipynb")


def test_all_of_it_is_plain_json() -> None:
    found = json.loads(json.dumps(diff(LONG, SHORT).to_dict()))
    assert (found["equal"], found["first"]) == (False, "Attempt 2")
    assert found["a"]["stop"] == {"reason": "cycle", "detail": "it is over"}
    assert (found["a"]["attempts"], found["b"]["attempts"]) == (5, 2)
    (step,) = found["steps"]
    second, third = step["turns"][1:3]
    assert second["differs"] == ["code", "verdict", "tests", "output"]
    assert second["changes"]["code"] == "@@ -1 +1 @@\n-x = 20\n+x = 2"
    assert second["tests"] == [{"name": "test_2: x == 2", "a": "fail", "b": "pass"}]
    assert second["b"]["tests"] == {"passed": 2, "total": 2}
    assert third["b"] is None
    assert third["a"]["cell"] == "s01-a03"


def test_texts_far_too_long_are_compared_from_their_first_difference_on() -> None:
    old = "\n".join(f"line {number}" for number in range(50_000))
    assert changes(old, old) == ""
    new = old.replace("line 40000\n", "line\n")
    assert changes(old, new).split("\n") == [
        "@@ -39998,7 +39998,7 @@",
        *(f" line {number}" for number in (39_997, 39_998, 39_999)),
        "-line 40000",
        "+line",
        *(f" line {number}" for number in (40_001, 40_002, 40_003)),
        f"@@ {50_000 - 39_997 - LINES:,} more lines are not compared @@",
    ]
    assert counted(changes(old, new)) == "1 line only in A, 1 line only in B"


@pytest.mark.parametrize("seed", range(20))
def test_a_difference_is_what_difflib_gives_where_lines_do_not_come_often(seed: int) -> None:
    random = Random(seed)
    ours, theirs = ([str(random.randrange(9)) for _ in range(12)] for _ in range(2))
    expected = list(difflib.unified_diff(ours, theirs, lineterm=""))[2:]
    assert changes("\n".join(ours), "\n".join(theirs)).split("\n") == expected


def test_lines_that_come_often_are_compared_by_their_turn() -> None:
    old = ["again"] * 400 + ["end"]
    new = ["again"] * 399 + ["more", "again", "end"]
    told = changes("\n".join(old), "\n".join(new)).split("\n")
    assert [line for line in told if line[0] in "-+"] == ["+more"]


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        ("<f at 0x7f0000000010>\n", "<f at 0x7f00000000aa>\n", "the same after address"),
        ("mean 0.30000000000000004\n", "mean 0.3\n", "the same after float"),
        ("{'b',\n 'a'}\n", "{'a',\n 'b'}\n", "the same after set order"),
        ("one 1\ntwo 0x7f0000000010\n", "one 2\ntwo 0x7f00000000aa\n", "output"),
        ("{'b': 0x7f0000000010,\n", "{'c': 0x7f00000000aa,\n", "output"),
        ("<f at 0x7f0000000010>\n", "", "output"),
    ],
)
def test_outputs_that_differ_by_chance_alone_are_the_same_and_told_so(
    ours: str, theirs: str, told: str
) -> None:
    first, second = (attempt(1, outputs=(Stream("stdout", text),)) for text in (ours, theirs))
    pair = diff(episode(first), episode(second)).pairs[0]
    assert pair.told == told
    assert bool(pair.output) == (told == "output")


def test_prompts_and_tests_that_differ_by_chance_alone_are_the_same() -> None:
    def ran(address: str) -> Episode:
        case = CaseResult("test_1", "failed", "f() == 1", f"<f at 0x7f00000000{address}>")
        said = (Message("user", f"There is <f at 0x7f00000000{address}>."),)
        return episode(attempt(1, tests=TestReport((case,)), messages=said))

    assert diff(ran("10"), ran("aa")).sentence == "No differences."


def test_what_comes_after_a_cell_has_ended_is_no_difference() -> None:
    late = (Stream("stdout", "x is x = 1\n"), Stream("stdout", "later\n", late=True))
    assert diff(episode(attempt(1, outputs=late)), episode(attempt(1))).equal
