"""The grader on small tasks: what it takes to be solved, when a task is invalid, how long it waits.

That it cannot be fooled is shown in tests/attacks, what it says of whole data sets in
test_graded_sets.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nbrefine._portal import Run
from nbrefine.errors import KernelError, RunStopped, UsageError
from nbrefine.executors import CodeExecutionResult, SubprocessCodeExecutor
from nbrefine.rewards.grader import FLOOR, UNMEASURED, Grader
from nbrefine.values import Task

DOUBLE = "def double(x):\n    return 2 * x\n"
SQUARE = "def double(x):\n    return x * x\n"
ENDLESS = "def double(x):\n    while True:\n        pass\n"
TASK = Task(
    "Double x.",
    tests="assert double(2) == 4\nassert double(0) == 0",
    hidden_tests="def check(double):\n    assert double(3) == 6\n    assert double(0) == 0",
    entry_point="double",
    reference=DOUBLE,
)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=2) as made:
        yield made


def test_a_program_is_solved_when_it_passes_visible_and_hidden_tests(grader: Grader) -> None:
    grade = grader.grade(TASK, DOUBLE).result(60)
    assert (grade.verdict, grade.solved, grade.tier) == ("solved", True, "grade")
    assert (grade.passed, grade.total, grade.score) == (4, 4, 1.0)
    assert grade.visible is not None
    assert [case.status for case in grade.visible.cases] == ["passed", "passed"]
    assert (grade.passing_but_wrong, grade.rerun, grade.detail) == (False, False, "")


def test_passing_the_visible_tests_alone_is_passing_but_wrong(grader: Grader) -> None:
    # 2 and 0 are the two numbers whose square is their double.
    grade = grader.grade(TASK, SQUARE).result(60)
    assert (grade.verdict, grade.passing_but_wrong) == ("failed", True)
    assert (grade.passed, grade.total, grade.score) == (3, 4, 0.75)
    assert grade.hidden is not None
    assert [case.status for case in grade.hidden.cases] == ["failed", "passed"]
    assert "double(3) == 6" in grade.detail
    assert "got 9" in grade.detail


def test_failing_the_visible_tests_is_just_wrong(grader: Grader) -> None:
    grade = grader.grade(TASK, "def double(x):\n    return None\n").result(60)
    assert (grade.verdict, grade.passed, grade.total) == ("failed", 0, 4)
    assert not grade.passing_but_wrong


def test_without_hidden_tests_the_visible_ones_are_the_grade(grader: Grader) -> None:
    grade = grader.grade(replace(TASK, hidden_tests=""), SQUARE).result(60)
    assert (grade.verdict, grade.hidden, grade.total) == ("solved", None, 2)


def test_code_that_does_not_run_fails_and_says_why(grader: Grader) -> None:
    grade = grader.grade(TASK, "def double(x):\n    return 2 *\n").result(60)
    assert (grade.verdict, grade.passed, grade.total) == ("failed", 0, 4)
    assert "SyntaxError" in grade.detail


def test_a_program_that_ends_its_process_has_crashed(grader: Grader) -> None:
    grade = grader.grade(TASK, "def double(x):\n    import os; os._exit(3)\n").result(60)
    assert grade.verdict == "crashed"
    assert grade.score == 0.0


def test_setup_runs_before_the_code(grader: Grader) -> None:
    task = replace(TASK, setup="import math\nTWO = 2", reference="")
    assert grader.grade(task, "def double(x):\n    return math.prod((TWO, x))\n").result(60).solved


def test_a_task_whose_reference_fails_here_is_invalid_whatever_the_program(grader: Grader) -> None:
    task = replace(TASK, reference=SQUARE)
    for code in (DOUBLE, SQUARE):
        grade = grader.grade(task, code).result(60)
        assert grade.verdict == "invalid-task"
        assert grade.detail.startswith("the reference fails here: ")
        assert "double(3) == 6" in grade.detail
        assert (grade.visible, grade.hidden, grade.total) == (None, None, 0)


def test_a_reference_that_does_not_run_here_makes_the_task_invalid(grader: Grader) -> None:
    task = replace(TASK, reference="import no_such_module")
    found = grader.preflight(task).result(60)
    assert "no_such_module" in found.problem
    assert grader.grade(task, DOUBLE).result(60).verdict == "invalid-task"


@pytest.mark.parametrize("reference", ["", DOUBLE])
@pytest.mark.parametrize("tests", ["", "  \n", "number = double(2)", "assert double(2) =="])
def test_a_task_without_a_case_to_count_is_invalid(
    grader: Grader, tests: str, reference: str
) -> None:
    task = Task("Double x.", tests=tests, reference=reference)
    grade = grader.grade(task, DOUBLE).result(60)
    assert grade.verdict == "invalid-task"
    assert grade.detail


SLEEPS = "import time\n\ndef double(x):\n    time.sleep({seconds})\n    return 2 * x\n"


def test_the_limit_is_a_multiple_of_what_the_slowest_test_takes_with_the_reference() -> None:
    task = replace(TASK, reference=SLEEPS.format(seconds="0.2 * (x > 2)"))
    with Grader(floor=0.1, factor=10.0) as grader:
        found = grader.preflight(task).result(60)
        assert found.measured
        assert 2.0 <= found.limit == pytest.approx(10 * found.seconds, rel=0.5)
        # Five times as slow as the reference is within the limit of ten times.
        slow = SLEEPS.format(seconds="1.0 * (x > 2)")
        assert grader.grade(task, slow).result(60).solved


def test_no_limit_is_below_the_floor(grader: Grader) -> None:
    found = grader.preflight(TASK).result(60)
    assert (found.problem, found.limit, found.measured) == ("", FLOOR, True)
    assert found.seconds < FLOOR


def test_without_a_reference_the_limit_is_the_stated_one(grader: Grader) -> None:
    found = grader.preflight(replace(TASK, reference="")).result(60)
    assert (found.limit, found.measured, found.visible) == (UNMEASURED, False, None)


def test_a_test_that_runs_out_of_time_twice_counts_as_timed_out() -> None:
    task = replace(TASK, hidden_tests="", tests="assert double(1) == 2")
    with Grader(floor=0.3) as grader:
        grade = grader.grade(task, ENDLESS).result(60)
    assert (grade.verdict, grade.rerun, grade.passed, grade.total) == ("timeout", True, 0, 1)
    assert grade.limit == pytest.approx(0.3)


def test_a_test_that_runs_out_of_time_once_does_not_count(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    tests = (
        f"from pathlib import Path\nmark = Path({str(mark)!r})\n"
        "first = not mark.exists()\nmark.touch()\nassert wait(first) == 1"
    )
    code = "def wait(first):\n    while first:\n        pass\n    return 1\n"
    with Grader() as grader:
        task = Task("Wait.", tests=tests)
        limited = replace(task, reference=code)
        mark.touch()  # the reference does not have to wait
        assert grader.preflight(limited).result(60).problem == ""
        mark.unlink()
        grade = grader.grade(limited, code).result(60)
    assert (grade.verdict, grade.rerun) == ("solved", True)


def test_what_comes_of_a_second_run_in_time_is_what_counts(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    tests = (
        f"from pathlib import Path\nmark = Path({str(mark)!r})\n"
        "assert wait(False) == 1\n"
        "first = not mark.exists()\nmark.touch()\nassert wait(first) == 2"
    )
    code = "def wait(first):\n    while first:\n        pass\n    return 1\n"
    with Grader(floor=1.0) as grader:
        right = code.replace("return 1", "wait.n = getattr(wait, 'n', 0) + 1\n    return wait.n")
        task = Task("Wait.", tests=tests, reference=right)
        mark.touch()
        assert grader.preflight(task).result(60).problem == ""
        mark.unlink()
        grade = grader.grade(task, code).result(60)
    assert (grade.verdict, grade.rerun, grade.passed) == ("failed", True, 1)


def test_the_reference_is_measured_once_for_each_task(tmp_path: Path) -> None:
    log = tmp_path / "log"
    told = f"with open({str(log)!r}, 'a') as log:\n    log.write('.')\n"
    task = replace(TASK, tests=told + TASK.tests, hidden_tests="")
    with Grader() as grader:
        grades = [grader.grade(task, DOUBLE) for _ in range(3)]
        assert all(grade.result(60).solved for grade in grades)
        grader.preflight(replace(task, prompt="Asked in other words.")).result(60)
        assert log.read_text() == "." * 4
        grader.preflight(replace(task, reference=DOUBLE + "\n")).result(60)
        assert log.read_text() == "." * 5


def test_one_who_stops_waiting_takes_no_preflight_from_the_others() -> None:
    task = replace(TASK, reference=SLEEPS.format(seconds=0.3))
    with Grader() as grader:
        first, second = grader.grade(task, DOUBLE), grader.grade(task, DOUBLE)
        first.stop()
        assert second.result(60).solved
        with pytest.raises(RunStopped):
            first.result(60)


def test_closing_ends_a_preflight_under_way() -> None:
    grader = Grader()
    waiting = grader.grade(replace(TASK, reference=ENDLESS), DOUBLE)
    with pytest.raises(TimeoutError):
        waiting.result(0.5)
    grader.close()
    with pytest.raises(RunStopped):
        waiting.result(10)


def test_many_grades_run_side_by_side_and_keep_apart(grader: Grader) -> None:
    codes = [f"def double(x):\n    return 2 * x + {extra}\n" for extra in (0, 1) * 10]
    grades = [grader.grade(TASK, code) for code in codes]
    assert [grade.result(60).verdict for grade in grades] == ["solved", "failed"] * 10


class Troubled(SubprocessCodeExecutor):
    """Fails once as a host does, then works."""

    troubles = 1

    def aexecute(self, *args: Any, **kwargs: Any) -> Run[CodeExecutionResult]:
        if self.troubles:
            self.troubles -= 1
            raise KernelError("No process could be started")
        return super().aexecute(*args, **kwargs)


def test_trouble_of_the_host_is_an_error_and_spoils_no_later_grade() -> None:
    with Troubled(workers=1) as executor, Grader(executor=executor) as grader:
        with pytest.raises(KernelError, match="No process"):
            grader.grade(TASK, DOUBLE).result(60)
        assert grader.grade(TASK, DOUBLE).result(60).solved


class Together(SubprocessCodeExecutor):
    """Says that it ran tests and code in one process."""

    def aexecute(self, *args: Any, **kwargs: Any) -> Run[CodeExecutionResult]:
        async def run() -> CodeExecutionResult:
            result = await super(Together, self).aexecute(*args, **kwargs)
            return replace(result, tier="feedback")

        return Run(run())


def test_feedback_from_a_shared_process_is_never_called_a_grade() -> None:
    with (
        Together(workers=1) as executor,
        Grader(executor=executor) as grader,
        pytest.raises(UsageError, match="no grade"),
    ):
        grader.grade(TASK, DOUBLE).result(60)


def test_an_executor_that_was_given_stays_open() -> None:
    with SubprocessCodeExecutor(workers=1) as executor:
        with Grader(executor=executor) as grader:
            assert grader.grade(TASK, DOUBLE).result(60).solved
        assert executor.execute(DOUBLE, TASK.tests).all_passed


@pytest.mark.parametrize(("floor", "factor"), [(0.0, 4.0), (4.0, 0.5), (float("nan"), 4.0)])
def test_limits_that_are_none_are_refused(floor: float, factor: float) -> None:
    with pytest.raises(UsageError, match="floor is"):
        Grader(floor=floor, factor=factor)


class Counting(SubprocessCodeExecutor):
    """Keeps what each check was asked."""

    def __init__(self) -> None:
        super().__init__(workers=1)
        self.asked: list[dict[str, Any]] = []

    def aexecute(self, *args: Any, **kwargs: Any) -> Run[CodeExecutionResult]:
        self.asked.append(kwargs)
        return super().aexecute(*args, **kwargs)


def test_tests_run_again_only_where_time_alone_has_decided_and_to_the_first_time_out() -> None:
    tests = "assert double(1) == 2\nassert double(2) == 4\nassert double(3) == 6"
    task = replace(TASK, tests=tests, hidden_tests=tests)
    wrong_too = "def double(x):\n    while x == 1:\n        pass\n    return 3 * x\n"
    with Counting() as executor, Grader(executor=executor, floor=0.2) as grader:
        grader.preflight(task).result(60)
        executor.asked.clear()
        late = grader.grade(task, ENDLESS).result(60)
        assert [asked["max_timeouts"] for asked in executor.asked] == [3, 1, 3]
        assert (late.verdict, late.rerun, late.passed, late.total) == ("timeout", True, 0, 6)
        executor.asked.clear()
        wrong = grader.grade(task, wrong_too).result(60)
        assert [asked["max_timeouts"] for asked in executor.asked] == [3, 3]
        assert (wrong.solved, wrong.rerun) == (False, False)


def test_code_that_never_ends_has_no_longer_than_code_may_take(grader: Grader) -> None:
    found = grader.preflight(TASK).result(60)
    assert found.loading == 10.0  # stated; four times what the reference takes is less
    with Counting() as executor, Grader(executor=executor) as other:
        assert other.grade(TASK, DOUBLE).result(60).solved
        # The reference runs with its limit, 60 s, for whatever it does.
        assert [asked.get("code_timeout") for asked in executor.asked] == [None, None, 10.0, 10.0]


def test_code_in_a_fence_is_told_to_be_given_bare(grader: Grader) -> None:
    grade = grader.grade(TASK, f"```python\n{DOUBLE}```\n").result(60)
    assert grade.verdict == "failed"
    assert "SyntaxError" in grade.detail
    assert "nbrefine.extraction.extract" in grade.detail


@pytest.mark.parametrize(("task", "code"), [("x", "y"), (TASK, None), (None, "y")])
def test_what_is_no_task_or_no_code_is_refused_at_once(
    grader: Grader, task: Any, code: Any
) -> None:
    with pytest.raises(UsageError, match=r"Grader\.grade is given"):
        grader.grade(task, code)


def test_a_closed_grader_says_so() -> None:
    with SubprocessCodeExecutor(workers=1) as executor:
        grader = Grader(executor=executor)
        grader.close()
        with pytest.raises(UsageError, match=r"grader is closed\. Make a new one"):
            grader.grade(TASK, DOUBLE).result(60)


def test_a_detail_tells_each_thing_once_and_which_tests_are_hidden(grader: Grader) -> None:
    hidden = grader.grade(TASK, SQUARE).result(60)
    assert hidden.detail == "hidden check[1] (failed): double(3) == 6, got 9, expected 6"
    shown = grader.grade(TASK, "def double(x):\n    return 5\n").result(60)
    assert shown.detail == "test_1 (failed): double(2) == 4, got 5, expected 4"


UNSENDABLE = Task("Count lines.", tests="import io\nassert lines(io.StringIO('a')) == 1")


def test_tests_that_pass_what_cannot_be_sent_count_for_nobody(grader: Grader) -> None:
    code = "def lines(file):\n    return len(list(file))\n"
    grade = grader.grade(UNSENDABLE, code).result(60)
    assert (grade.verdict, grade.visible, grade.total) == ("invalid-task", None, 0)
    assert grade.detail.startswith("no program can be graded by test_1: the tests pass an object")
    assert "StringIO" in grade.detail
    assert "Pass numbers, texts" in grade.detail


@pytest.mark.parametrize(
    "tests",
    [
        "class Dog(Animal):\n    pass\nassert Dog().speak() == 'x'",
        "def test_it():\n    class Dog(Animal): pass\n    assert Dog().speak() == 'x'",
        "Dog = type('Dog', (Animal,), {})\nassert Dog().speak() == 'x'",
    ],
)
def test_tests_that_derive_from_the_code_s_classes_count_for_nobody(
    grader: Grader, tests: str
) -> None:
    code = "class Animal:\n    def speak(self):\n        return 'x'\n"
    task = Task("Write Animal.", tests=tests)
    grade = grader.grade(task, code).result(60)
    assert grade.verdict == "invalid-task"
    assert "the tests derive class Dog from the code's class Animal. Pass" in grade.detail
    assert "make objects of the code's classes" in grade.detail
    both = replace(task, tests=f"{tests}\nassert Animal().speak() == 'y'")
    assert grader.grade(both, code).result(60).verdict == "failed"


def test_a_program_cannot_say_so_itself_or_have_other_failures_forgiven(grader: Grader) -> None:
    made_up = (
        "class CannotSend(Exception): pass\n"
        "def double(x):\n    exec(\"raise CannotSend('the tests pass an object')\", globals())\n"
    )
    task = replace(TASK, reference="")
    grade = grader.grade(task, made_up).result(60)
    assert grade.detail.startswith("test_1 (error): double(2) == 4, expected 4: CannotSend: ")
    assert (grade.verdict, grade.total) == ("failed", 4)
    both = replace(UNSENDABLE, tests=f"{UNSENDABLE.tests}\nassert lines([]) == 1")
    wrong = "def lines(file):\n    return 0\n"
    assert grader.grade(both, wrong).result(60).verdict == "failed"
