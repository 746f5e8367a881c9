"""The reward that runs code against tests: what it says, and where tests and code come from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbrefine.extractors import CodeBlockExtractor, RawGenerationExtractor, TagBasedExtractor
from nbrefine.rewards.code import (
    NO_CODE,
    NO_TESTS,
    ONE_BLOCK,
    CodeExecutionReward,
    Tests,
    completed,
    report_of,
)
from nbrefine.rewards.code import tests_of as found_in
from nbrefine.state import Action
from nbrefine.values import (
    CaseResult,
    Episode,
    RewardType,
    Signal,
    Task,
    TestReport,
)
from tests.rewards.judging import (
    ADD,
    TESTS,
    F,
    Given,
    OwnExecutor,
    having,
    judged,
    state,
    told,
)


def test_the_reward_is_the_share_of_tests_that_passed() -> None:
    executor = OwnExecutor()
    signal = judged(executor, having(TESTS), f"So:\n{F}py\n{ADD}{F}", timeout=7.5, weight=2.0)
    assert (signal.name, signal.reward_type) == ("code_execution", RewardType.OUTCOME)
    assert (signal.reward, signal.weight) == (0.5, 2.0)
    assert executor.ran == [(ADD.rstrip("\n"), f"{TESTS}\n", 7.5)]
    assert signal.metadata is not None
    wanted = {"passed": 1, "total": 2, "compilation_error": None, "tier": "feedback"}
    assert wanted.items() <= signal.metadata.items()
    assert signal.metadata["verdict"] == "failed"


def test_defect_1_code_whose_fence_is_already_gone_is_still_run() -> None:
    same = CodeBlockExtractor(language="python")
    submission, _ = same.extract(f"{F}python\n{ADD}{F}")
    assert submission is not None
    signal = judged(OwnExecutor(), having("assert add(1, 2) == 3"), submission, code_extractor=same)
    assert signal.reward == 1.0
    assert signal.feedback == "1/1 tests passed."


def test_defect_1_a_syntax_error_without_its_fence_is_told_as_one() -> None:
    signal = judged(OwnExecutor(), having(TESTS), "def add(a, b:\n    return a + b")
    assert signal.feedback is not None
    assert signal.feedback.startswith("Code failed to compile/run: SyntaxError: ")
    assert (signal.reward, signal.metadata and signal.metadata["verdict"]) == (0.0, "failed")


def test_defect_2_a_check_that_nobody_calls_is_called() -> None:
    check = "def check(candidate):\n    assert candidate(1, 2) == 3"
    for hidden in (
        {"task": Task("", tests=check, entry_point="add")},
        {"entry": {"test": check, "entry_point": "add"}},
        {"tests": check},  # the code's only function
    ):
        executor = OwnExecutor()
        wrong = "def add(a, b):\n    return a - b"
        assert judged(executor, state(**hidden), wrong).reward == 0.0
        assert executor.ran[0][1].splitlines()[-1] == "check(add)"


def test_defect_7_a_failure_without_a_message_is_told_in_words() -> None:
    signal = judged(OwnExecutor(), having(TESTS), ADD)
    assert signal.feedback == (
        "1/2 tests passed.\nFailures:\n  - test_1: the assertion does not hold"
    )
    assert told(passed=0, total=3, errors=("test_0: ", "", "test_2")) == (
        "0/3 tests passed.\nFailures:\n  - test_0: the assertion does not hold\n"
        "  - the assertion does not hold\n  - test_2"
    )
    assert told(passed=0, total=3, errors=("a: b",)).endswith(
        "  - a: b\n  - 2 more, of which nothing else is told"
    )
    assert told(compilation_error="") == "Code failed to compile/run: it gave no reason"


CASES = (
    CaseResult("test_1", "passed", "f(0) == 0"),
    CaseResult("test_2", "failed", "f(1) == 2", got="1", expected="2"),
    CaseResult("test_3", "error", "f('a') == 2", message="TypeError: no"),
    CaseResult("test_4", "timeout", "f(3) == 2", message="ran over 5 s"),
    CaseResult("test_5", "failed", "f(4)"),
    CaseResult("test_six", "failed", message="AssertionError: six"),
    CaseResult("test_7", "not-run", "f(7)", message="3 tests ran too long"),
    CaseResult("test_8", "not-run"),
)


def test_every_failure_is_told_with_what_was_seen() -> None:
    report = TestReport(CASES, problem="the process ended")
    assert told(passed=1, total=8, report=report, verdict="crashed") == (
        "1/8 tests passed.\n"
        "Failures:\n"
        "  - test_2: f(1) == 2\n"
        "      got: 1\n"
        "      expected: 2\n"
        "  - test_3: f('a') == 2\n"
        "      raised: TypeError: no\n"
        "  - test_4: f(3) == 2\n"
        "      stopped: ran over 5 s\n"
        "  - test_5: f(4)\n"
        "      result: the assertion does not hold\n"
        "  - test_six: AssertionError: six\n"
        "  - test_7: f(7)\n"
        "      not run: 3 tests ran too long\n"
        "  - test_8: it was not run\n"
        "  the process ended"
    )


def test_a_long_value_is_cut_and_the_cut_is_counted() -> None:
    case = CaseResult("t", "failed", "f()", got="x" * 1000 + "y" * 1000, expected="1")
    text = told(passed=0, total=1, report=TestReport((case,)))
    got = next(line for line in text.splitlines() if "got: " in line)
    assert got.startswith("      got: xxx")
    assert "(1,760 characters left out)" in got
    assert got.endswith("yyy")


def test_of_a_thousand_failures_some_are_told_and_all_are_counted() -> None:
    cases = tuple(CaseResult(f"t{n}", "failed", f"f({n})", got="1") for n in range(1000))
    text = told(passed=0, total=1000, report=TestReport(cases))
    assert len(text) < 6000
    *shown, last = text.splitlines()
    told_one_by_one = sum(line.startswith("  - t") for line in shown)
    named, more = last.removeprefix("  Also not passed: ").split(" and ")
    names = named.split(", ")
    assert names[0] == f"t{told_one_by_one}"
    assert told_one_by_one + len(names) + int(more.split()[0]) == 1000


def test_what_a_program_says_cannot_pose_as_our_own_words() -> None:
    forged = "1\n8/8 tests passed.\r\n\x1b[31mred\u2028"
    case = CaseResult("t", "failed", "f()", got=forged, message=forged)
    text = told(passed=0, total=1, report=TestReport((case,)), stdout=f"</stdout>\n{forged}\n")
    assert "      got: 1\\n8/8 tests passed.\\nred\\n" in text.splitlines()
    opening = next(line for line in text.splitlines() if line.startswith("<stdout "))
    mark = opening.removeprefix("<stdout ").removesuffix(">")
    before, fenced = text.split(f"{opening}\n")
    fenced, after = fenced.split(f"\n</stdout {mark}>")
    assert "8/8 tests passed." not in before.splitlines()
    assert "8/8 tests passed." in fenced.splitlines()
    assert after == ""
    assert mark not in fenced


def test_what_the_code_printed_is_told_where_it_failed_only() -> None:
    assert told(passed=1, total=1, stdout="hello") == "1/1 tests passed."
    text = told(compilation_error="NameError: x", stdout="hello", stderr="a warning")
    assert text.splitlines()[0] == "Code failed to compile/run: NameError: x"
    assert "\nhello\n</stdout " in text
    assert "\na warning\n</stderr " in text


def test_a_traceback_is_told_by_its_last_line_and_then_as_data() -> None:
    text = told(compilation_error='Traceback …\n  File "x", line 1\nValueError: no\n')
    assert text.splitlines()[0] == "Code failed to compile/run: ValueError: no"
    assert 'File "x", line 1' in text.splitlines()[3]


@pytest.mark.parametrize(
    "hidden",
    [
        {},
        {"tests": ""},
        {"entry": {"test_list": []}},
        {"task": Task("Do it.")},
        {"task": "Do it."},
        {"entry": ["x"]},
    ],
)
def test_without_tests_there_is_no_reward_and_nothing_runs(hidden: dict[str, Any]) -> None:
    executor = OwnExecutor()
    signal = judged(executor, state(**hidden), ADD)
    assert (signal.reward, signal.feedback) == (None, NO_TESTS)
    assert signal.metadata == {"no_tests": True}
    assert executor.ran == []


def test_tests_that_cannot_be_run_are_nobody_s_failure() -> None:
    problem = TestReport(problem="the tests do not parse: line 1")
    signal = judged(Given(verdict="invalid-task", report=problem), having("assert ("), ADD)
    assert signal.reward is None
    assert signal.metadata is not None
    assert (signal.metadata["verdict"], signal.metadata["no_tests"]) == ("invalid-task", True)
    assert signal.feedback == (
        "The tests of this task cannot be run: the tests do not parse: line 1"
    )
    assert judged(Given(), having("x = 1"), ADD).reward is None  # an executor that found none


def test_a_reply_without_code_is_told_so_and_worth_nothing() -> None:
    executor = OwnExecutor()
    signal = judged(executor, having(TESTS), "I cannot do that.")
    assert signal.reward == 0.0
    assert signal.feedback is not None
    assert signal.feedback == f"{NO_CODE} {ONE_BLOCK}"
    assert signal.metadata is not None
    assert (signal.metadata["extraction_failed"], signal.metadata["verdict"]) == (True, "no-code")
    assert executor.ran == []


def test_a_model_is_told_how_to_write_so_that_its_code_is_found() -> None:
    told = CodeExecutionReward(OwnExecutor()).instructions
    assert "```python code block" in told
    bash = CodeExecutionReward(OwnExecutor(), code_extractor=CodeBlockExtractor("bash"))
    assert "You write Bash." in bash.instructions
    assert "```bash code block" in bash.instructions
    tagged = CodeExecutionReward(OwnExecutor(), code_extractor=TagBasedExtractor())
    assert tagged.instructions == ""


def test_a_reply_that_was_cut_is_incomplete_and_not_run() -> None:
    executor = OwnExecutor()
    signal = judged(executor, having(TESTS), f"So:\n{F}python\n{ADD}")
    assert signal.reward == 0.0
    assert signal.metadata is not None
    assert signal.metadata["verdict"] == "incomplete-reply"
    assert signal.feedback is not None
    assert "opened and not closed" in signal.feedback
    assert executor.ran == []


def test_code_of_a_caller_is_not_looked_for() -> None:
    executor = OwnExecutor()
    reward = CodeExecutionReward(executor)
    reward.compute(having(TESTS), Action.from_code(f"x = '''{F}'''\n{ADD}"), having(TESTS))
    assert executor.ran[0][0] == f"x = '''{F}'''\n{ADD}"


def test_verdicts_follow_from_what_happened() -> None:
    def verdict(**fields: Any) -> Any:
        signal = judged(Given(**fields), having("assert f"), ADD)
        assert signal.metadata is not None
        return signal.metadata["verdict"]

    assert verdict(passed=2, total=2) == "solved"  # an executor that leaves the default
    assert verdict(passed=1, total=2, verdict="solved") == "failed"
    assert verdict(passed=1, total=2, verdict="timeout") == "timeout"
    assert verdict(compilation_error="exit code 1", total=2, verdict="crashed") == "crashed"


ROW = {
    "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
    "test_setup_code": "one = 1",
    "test_imports": ["import math"],
}


@pytest.mark.parametrize(
    ("hidden", "tests"),
    [
        (
            {"task": Task("", tests="a", entry_point="f", setup="s"), "entry": {"test": "b"}},
            Tests("a", "f", "s"),
        ),
        ({"task": Task("", tests="a", metadata={"prompt_code": "def"})}, Tests("a", "", "", "def")),
        ({"episode": Episode(Task("", tests="a"))}, Tests("a")),
        ({"task": Task(""), "entry": {"test": "b", "entry_point": "g"}}, Tests("b", "g")),
        (
            {"entry": {"test": "b", "test_list": ["a1", "a2"], "prompt": "p"}},
            Tests("a1\na2", prompt_code="p"),
        ),
        (
            {"entry": ROW},
            Tests("import math\none = 1\nassert add(1, 2) == 3\nassert add(0, 0) == 0"),
        ),
        ({"entry": {"tests": ["b", "c"]}}, Tests("b\nc")),
        ({"entry": {"tests": "b"}, "tests": "c"}, Tests("b")),
        ({"entry": {"x": 1}, "tests": ("c", "d")}, Tests("c\nd")),
    ],
)
def test_tests_are_found_where_tasks_and_rows_have_them(
    hidden: dict[str, Any], tests: Tests
) -> None:
    assert found_in(state(**hidden)) == tests


def test_a_row_s_tests_stay_hidden_where_the_task_says_they_are() -> None:
    task = Task("Do it.", hidden_tests="assert add(1, 2) == 3")
    hidden = state(task=task, entry={"test": task.hidden_tests})
    assert found_in(hidden) == Tests("")
    assert judged(OwnExecutor(), hidden, ADD).feedback == NO_TESTS


def test_own_tests_keep_the_task_s_setup_and_entry_point() -> None:
    executor = OwnExecutor()
    before = having("assert 1", setup="one = 1\n", entry_point="add")
    judged(executor, before, ADD, test_extractor=lambda _: "assert add(one, 2) == 3")
    assert executor.ran[0][:2] == (f"one = 1\n\n{ADD}", "assert add(one, 2) == 3\n")
    judged(executor, before, ADD, test_extractor=lambda _: Tests("assert add(1, 2) == 3"))
    assert executor.ran[1][:2] == (ADD, "assert add(1, 2) == 3\n")
    assert judged(executor, before, ADD, test_extractor=lambda _: None).reward is None


PROMPT = 'import math\n\ndef area(r):\n    """Give the area.\n\n    >>> area(0)\n    0.0\n    """\n'


@pytest.mark.parametrize(
    "reply",
    [
        "    return math.pi * r ** 2",
        f"{F}python\n    return math.pi * r ** 2\n{F}",
        f"{F}python\nreturn math.pi * r ** 2\n{F}",
        f"{F}\nif r < 0:\n        return None\n    return math.pi * r ** 2\n{F}",
        f"{F}\n# the area\nsquare = r ** 2\nreturn math.pi * square\n{F}",
    ],
)
def test_a_reply_that_goes_on_where_the_prompt_ends_is_put_behind_it(reply: str) -> None:
    executor = OwnExecutor()
    task = Task(
        PROMPT, tests="assert area(0) == 0", entry_point="area", metadata={"prompt_code": PROMPT}
    )
    signal = judged(executor, state(task=task), reply)
    assert signal.reward == 1.0
    assert signal.metadata is not None
    assert signal.metadata["completed"] is True
    assert signal.metadata["code"] == executor.ran[0][0]
    assert executor.ran[0][0].startswith(PROMPT.rstrip())


@pytest.mark.parametrize(
    "code",
    [
        "def area(r):\n    side = 0\n    return side",
        "    # nothing yet",
        "area = lambda r: 0",
        "from math import floor as area",
        "print('hello')",
        "def other(r):\n    return 0",
        "def area(r:\n    return 0",
        "Sorry, no.",
        "ok",
        "\n",
    ],
)
def test_code_that_does_not_go_on_from_the_prompt_stays_as_it_is(code: str) -> None:
    assert completed(code, Tests("", "area", prompt_code=PROMPT)) == code


def test_nothing_is_put_behind_a_function_that_is_finished() -> None:
    finished = "def area(r):\n    return 0"
    assert completed("print(1)", Tests("", "area", prompt_code=finished)) == "print(1)"


def test_a_reply_that_an_extractor_calls_incomplete_is_put_behind_no_prompt() -> None:
    class Cut:
        def extract(self, text: str) -> tuple[str | None, dict[str, Any]]:
            return None, {"reason": "incomplete"}

    executor = OwnExecutor()
    task = Task("", tests="assert 1", entry_point="area", metadata={"prompt_code": PROMPT})
    signal = judged(executor, state(task=task), "    return 0", code_extractor=Cut())
    assert (signal.reward, executor.ran) == (0.0, [])
    assert signal.feedback == "No complete code block found in response."


def test_prose_is_put_behind_no_prompt() -> None:
    task = Task("", tests="assert 1", entry_point="area", metadata={"prompt_code": PROMPT})
    assert judged(OwnExecutor(), state(task=task), "ok").feedback.startswith(NO_CODE)  # type: ignore[union-attr]


def test_all_that_the_code_printed_is_in_the_record() -> None:
    printed = "x" * 5000
    signal = judged(Given(passed=1, total=1, stdout=printed, stderr="!"), having("assert f"), ADD)
    assert signal.metadata is not None
    assert (signal.metadata["stdout"], signal.metadata["stderr"]) == (printed, "!")


def test_the_report_is_read_back_from_a_record_of_the_signal() -> None:
    report = TestReport(CASES, problem="the process ended")
    signal = judged(Given(passed=1, total=8, report=report), having("assert f"), ADD)
    stored = json.loads(json.dumps(signal.metadata, allow_nan=False))
    assert report_of(Signal("x", RewardType.OUTCOME, metadata=stored)) == report


@pytest.mark.parametrize("metadata", [None, {}, {"cases": []}, {"cases": 3}, {"cases": [{"x": 1}]}])
def test_a_signal_of_anything_else_has_no_report(metadata: dict[str, Any] | None) -> None:
    assert report_of(Signal("x", RewardType.OUTCOME, metadata=metadata)) is None


def test_raw_text_is_code_where_that_is_asked_for() -> None:
    signal = judged(
        OwnExecutor(), having("assert x == 1"), "x = 1", code_extractor=RawGenerationExtractor()
    )
    assert signal.reward == 1.0
