"""Wrong tests are told from wrong code, and right tests are left in peace."""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbrefine.executors import SubprocessCodeExecutor
from nbrefine.findings import (
    Finding,
    findings,
    suspect_reference,
    suspect_tests,
    suspect_tiers,
)
from nbrefine.kernel import Kernel
from nbrefine.rewards.grader import Grader
from nbrefine.rewards.tests import run_tests
from nbrefine.source import shape
from nbrefine.taskdata import humanevalpack_task
from nbrefine.values import CaseResult, Episode, Extraction, Task, TestReport, Turn

DOUBLE = "Write double(x), twice x."


@pytest.fixture(scope="module")
def executor() -> Iterator[SubprocessCodeExecutor]:
    with SubprocessCodeExecutor(workers=2) as made:
        yield made


def turns(executor: SubprocessCodeExecutor, task: Task, codes: Sequence[str]) -> list[Turn]:
    """Run programs with the visible tests of a task."""
    running = [
        executor.aexecute(
            code, task.tests, timeout=5.0, entry_point=task.entry_point, setup=task.setup
        )
        for code in codes
    ]
    return [
        Turn(number, extraction=Extraction("found", code), tests=run.result(60).report)
        for number, (code, run) in enumerate(zip(codes, running, strict=True), 1)
    ]


def found(executor: SubprocessCodeExecutor, tests: str, *codes: str) -> tuple[Finding, ...]:
    task = Task(DOUBLE, "double", tests=tests, entry_point="double")
    return suspect_tests(turns(executor, task, codes), task)


RIGHT = (
    "def double(x):\n    return 2 * x",
    "def double(x):\n    return x + x",
    "def double(x):\n    'Twice.'\n    y = x\n    return y + x",
)
"""Three different programs that are right."""

GOOD = "assert double(1) == 2\nassert double(4) == 8"
BAD = "assert double(3) == 7"


def test_a_test_that_right_programs_fail_alike_is_likely_wrong(
    executor: SubprocessCodeExecutor,
) -> None:
    (finding,) = found(executor, f"{GOOD}\n{BAD}", *RIGHT)
    assert finding.kind == "same-failure"
    assert finding.likely
    assert (finding.test, finding.task) == ("test_3", "double")
    assert finding.detail == (
        "3 different programs pass every other test and fail test_3 (double(3) == 7) with the "
        "same value: 6, where it wants 7"
    )
    assert finding.evidence == tuple(
        f"attempt {n}: test_3 failed: got 6, expected 7" for n in (1, 2, 3)
    )


def test_without_another_test_to_bear_it_out_it_is_only_possible(
    executor: SubprocessCodeExecutor,
) -> None:
    (finding,) = found(executor, BAD, *RIGHT)
    assert finding.kind == "same-failure"
    assert not finding.likely
    assert "they share a misreading" in finding.detail


def test_one_program_that_was_given_three_times_is_one_witness(
    executor: SubprocessCodeExecutor,
) -> None:
    # Docstrings, comments and layout make no other program.
    same = [RIGHT[0], "def double(x):\n    'Twice.'\n    return 2 * x", f"# again\n{RIGHT[0]}"]
    assert found(executor, f"{GOOD}\n{BAD}", *same) == ()
    assert found(executor, f"{GOOD}\n{BAD}", *same, RIGHT[1]) == ()
    assert len(found(executor, f"{GOOD}\n{BAD}", *same, *RIGHT[1:])) == 1


def test_a_test_that_one_program_passes_is_not_suspected(
    executor: SubprocessCodeExecutor,
) -> None:
    passing = "def double(x):\n    return 7 if x == 3 else 2 * x"
    assert found(executor, f"{GOOD}\n{BAD}", *RIGHT, passing) == ()


def test_programs_that_fail_in_different_ways_accuse_no_test(
    executor: SubprocessCodeExecutor,
) -> None:
    wrong = [f"def double(x):\n    return x + {n}" for n in (5, 6, 7)]
    assert found(executor, GOOD, *wrong) == ()


def test_a_wrong_start_does_not_hide_a_wrong_test(executor: SubprocessCodeExecutor) -> None:
    start = "def double(x):\n    return -1"
    (finding,) = found(executor, f"{GOOD}\n{BAD}", start, *RIGHT)
    assert finding.kind == "same-failure"
    assert not finding.likely  # since not all agree
    assert len(finding.evidence) == 3


def test_false_for_true_is_no_evidence(executor: SubprocessCodeExecutor) -> None:
    wrong = [f"def double(x):\n    return x > {n}" for n in (100, 200, 300)]
    assert found(executor, "assert double(1) == True\nassert not double(0)", *wrong) == ()


def test_code_that_breaks_has_itself_to_blame(executor: SubprocessCodeExecutor) -> None:
    broken = [f"def double(x):\n    y = {n}\n    return x + nowhere" for n in range(3)]
    assert found(executor, GOOD, *broken) == ()
    does_not_run = [f"y = {n}\nraise ValueError(y)" for n in range(3)]
    assert found(executor, GOOD, *does_not_run) == ()
    nothing = [f"def double(x):\n    y = {n}" for n in range(3)]
    # round(None) breaks inside the test, by what the code gave.
    assert found(executor, "assert round(double(1)) == 2\nassert double(4) == 8", *nothing) == ()


BREAKS = {
    "ModuleNotFoundError": "import no_such_module_anywhere\nassert double(1) == 2",
    "NameError: name 'helper' is not defined": f"{GOOD}\nassert helper(double(1)) == 2",
    "CannotSend": f"{GOOD}\nassert double(open('/dev/null')) is None",
}


@pytest.mark.parametrize("error", BREAKS)
def test_a_test_that_breaks_by_itself_is_told_after_one_attempt(
    executor: SubprocessCodeExecutor, error: str
) -> None:
    (finding,) = found(executor, BREAKS[error], RIGHT[0])
    assert finding.kind == "test-error"
    assert finding.likely
    assert error in finding.detail
    assert finding.test in finding.detail
    assert len(finding.evidence) == 1


def test_a_test_that_breaks_by_itself_is_told_in_a_live_kernel_too() -> None:
    tests = f"{GOOD}\nassert helper(double(1)) == 2\nassert double([].pop()) == 1"
    task = Task(DOUBLE, tests=tests, entry_point="double")
    with Kernel.start() as kernel:
        kernel.run(RIGHT[0]).result()
        report = run_tests(kernel, tests).result()
    attempt = Turn(1, extraction=Extraction("found", RIGHT[0]), tests=report)
    (finding,) = suspect_tests([attempt], task)
    assert (finding.kind, finding.test) == ("test-error", "test_3")


def test_an_error_inside_a_test_that_right_programs_all_meet_is_likely_its_own(
    executor: SubprocessCodeExecutor,
) -> None:
    (finding,) = found(executor, f"{GOOD}\nassert double([].pop()) == 1", *RIGHT)
    assert finding.kind == "same-failure"
    assert finding.likely
    assert "the same error inside the test: IndexError: pop from empty list" in finding.detail


def test_a_name_that_the_code_was_to_have_is_the_codes(executor: SubprocessCodeExecutor) -> None:
    tests = "assert double(1) == 2"
    assert found(executor, tests, "def twice(x):\n    return 2 * x") == ()
    # The prompt names it.
    asked = Task("Write double(x) and halve(x).", tests="assert halve(2) == 1\nassert double(1)==2")
    assert suspect_tests(turns(executor, asked, RIGHT[:1]), asked) == ()
    # Nothing says what was asked for, and the code has none of it.
    silent = Task("Do it.", tests="assert halve(2) == 1")
    assert suspect_tests(turns(executor, silent, RIGHT[:1]), silent) == ()
    # Another attempt has it.
    both = Task("Do it.", tests="assert double(1) == 2\nassert halve(double(1)) == 1")
    other = "def halve(x):\n    return x / 2"
    assert suspect_tests(turns(executor, both, [RIGHT[0], other]), both) == ()
    # Nobody has it, and it is not all that the tests use.
    (finding,) = suspect_tests(turns(executor, both, RIGHT[:1]), both)
    assert finding.kind == "test-error"


def test_tests_that_cannot_be_read_are_told_once(executor: SubprocessCodeExecutor) -> None:
    (finding,) = found(executor, "assert double(1) ==", *RIGHT[:2])
    assert (finding.kind, finding.test) == ("test-error", "")
    assert "the tests do not parse" in finding.detail


def test_attempts_of_several_samples_of_a_task_count_together(
    executor: SubprocessCodeExecutor,
) -> None:
    task = Task(DOUBLE, "double", tests=f"{GOOD}\n{BAD}", entry_point="double")
    samples = [Episode(task, turns=(turn,)) for turn in turns(executor, task, RIGHT)]
    assert [finding.test for finding in findings(samples)] == ["test_3"]
    assert findings(samples[0]) == ()
    other = replace(samples[2], task=replace(task, id="another"))
    assert findings([*samples[:2], other]) == ()


def test_turns_that_were_not_tested_say_nothing() -> None:
    assert findings(Episode(Task("Go."))) == ()
    assert suspect_tests([Turn(1), Turn(2, extraction=Extraction("found", "x = 1"))]) == ()


def test_a_reference_that_fails_is_a_finding_and_its_limit_is_not() -> None:
    task = Task(DOUBLE, "double", tests=f"{GOOD}\n{BAD}", entry_point="double", reference=RIGHT[0])
    with Grader(workers=1) as grader:
        broken = suspect_reference(task, grader.preflight(task).result(60))
        fine = replace(task, tests=GOOD)
        assert suspect_reference(fine, grader.preflight(fine).result(60)) is None
    assert broken is not None
    assert broken.kind == "reference-fails"
    assert broken.task == "double"
    assert "double(3) == 7" in broken.detail


def test_a_visible_test_that_hidden_ones_contradict_is_a_finding() -> None:
    task = Task(DOUBLE, "double", tests=f"{GOOD}\n{BAD}", hidden_tests=GOOD, entry_point="double")
    with Grader(workers=1) as grader:
        (finding,) = suspect_tiers(task, grader.grade(task, RIGHT[0]).result(60))
        wrong = grader.grade(task, "def double(x):\n    return x").result(60)
    assert (finding.kind, finding.test) == ("hidden-pass", "test_3")
    assert "all 2 hidden tests pass" in finding.detail
    assert suspect_tiers(task, wrong) == ()


def test_one_tier_alone_contradicts_nothing() -> None:
    class Grade:
        visible = TestReport((CaseResult("test_1", "failed"),))
        hidden = None

    assert suspect_tiers(Task("t"), Grade()) == ()


def with_wrong_value(tests: Sequence[str]) -> tuple[list[str], str] | None:
    """Change what the first test wants for which that can be done; give its name too."""
    for number, test in enumerate(tests, 1):
        tree = ast.parse(test)
        match tree.body[0]:
            case ast.Assert(test=ast.Compare(ops=[ast.Eq()], comparators=[wanted]) as compared):
                try:
                    value: Any = ast.literal_eval(wanted)
                except ValueError:
                    continue
                if isinstance(value, bool) or not isinstance(value, int | float | str | list):
                    continue
                more: Any = "x" if isinstance(value, str) else [7] if isinstance(value, list) else 1
                compared.comparators = [ast.Constant(value + more)]
                changed = [*tests[: number - 1], ast.unparse(tree), *tests[number:]]
                return changed, f"test_{number}"
    return None


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_of_real_programs_right_tests_are_left_in_peace_and_most_wrong_ones_found(
    executor: SubprocessCodeExecutor, shared_data: Path
) -> None:
    path = shared_data / "recorded" / "humaneval_first_attempts.jsonl.gz"
    attempts: dict[str, list[str]] = {}
    tests: dict[str, list[str]] = {}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        row = json.loads(line)
        attempts.setdefault(row["task_id"], []).append(row["solution"] or "pass")
        tests[row["task_id"]] = row["given_tests"]
    could, did = 0, 0
    for name in list(attempts)[::4]:
        task = Task("", name, tests="\n".join(tests[name]))
        found = suspect_tests(turns(executor, task, attempts[name]), task)
        assert [finding for finding in found if finding.likely] == [], name
        changed = with_wrong_value(tests[name])
        if changed is None:
            continue
        task = replace(task, tests="\n".join(changed[0]))
        ran = turns(executor, task, attempts[name])
        found = suspect_tests(ran, task)
        assert {finding.test for finding in found if finding.likely} <= {changed[1]}, name
        others = {
            shape(turn.code)
            for turn in ran
            if turn.tests and turn.tests.failed == 1 < turn.tests.total
            for case in turn.tests.cases
            if case.name == changed[1] and not case.passed
        }
        if len(others) >= 3:
            could += 1
            did += changed[1] in {finding.test for finding in found}
    assert could >= 10
    assert did / could > 0.7, (did, could)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_bug_of_humanevalpack_accuses_its_tests(
    executor: SubprocessCodeExecutor, shared_data: Path
) -> None:
    path = shared_data / "humanevalpack" / "python" / "test.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    accused: list[Finding] = []
    tasks = [humanevalpack_task(row) for row in rows]
    codes = [row["declaration"] + row["buggy_solution"] for row in rows]
    # Four of them never end, and need not be waited for one after the other.
    running = [
        executor.aexecute(
            code, task.tests, timeout=2.0, entry_point=task.entry_point, setup=task.setup
        )
        for task, code in zip(tasks, codes, strict=True)
    ]
    for task, code, run in zip(tasks, codes, running, strict=True):
        turn = Turn(1, extraction=Extraction("found", code), tests=run.result(120).report)
        accused += suspect_tests([turn], task)
    assert len(rows) == 98
    assert accused == []
