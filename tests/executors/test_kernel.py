"""Code and tests in one fresh kernel: verdicts, what each check has to itself, what is left."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from nbrefine.errors import RunStopped, UsageError
from nbrefine.executors import KernelCodeExecutor

ADD = "def add(a, b):\n    return a + b"
TESTS = "assert add(1, 2) == 3\nassert add('a', 'b') == 'ab'"
NOT_RUN = "the code did not run to its end"


@pytest.fixture(scope="module")
def kernels() -> Iterator[KernelCodeExecutor]:
    with KernelCodeExecutor(size=2) as executor:
        yield executor


def test_each_test_is_told_by_itself_as_feedback(kernels: KernelCodeExecutor) -> None:
    result = kernels.execute(
        "def add(a, b):\n    print('adding')\n    return a * b",
        "assert add(1, 2) == 3\nassert add(2, 2) == 4",
    )
    assert (result.passed, result.total, result.verdict) == (1, 2, "failed")
    assert result.errors == ("test_1: got 2, expected 3",)
    assert result.stdout == "adding\nadding\n"
    assert result.tier == "feedback"
    assert result.compilation_error is None


def test_right_code_solves(kernels: KernelCodeExecutor) -> None:
    result = kernels.execute(ADD, TESTS)
    assert (result.verdict, result.score, result.errors) == ("solved", 1.0, ())


def test_what_the_compiler_says_of_tests_is_told_where_they_run(
    kernels: KernelCodeExecutor,
) -> None:
    nested = "".join(f"{'  ' * depth}for _ in [0]:\n" for depth in range(20))
    deep = f"{nested}{'  ' * 20}assert add(1, 1) == 2"  # as deep as Python goes
    result = kernels.execute(ADD, f"assert add(1, 2) == 3\n{deep}")
    assert [case.status for case in result.report.cases] == ["passed", "error"]
    assert "too many statically nested blocks" in result.errors[0]
    result = kernels.execute(ADD, "same = add(1, 2) is 3\nassert same")
    assert (result.verdict, result.total) == ("solved", 1)
    assert "SyntaxWarning" in result.stderr


def test_check_is_given_the_entry_point_and_code_what_stands_before_it(
    kernels: KernelCodeExecutor,
) -> None:
    tests = "def check(candidate):\n    assert candidate(2) == 6\n    assert candidate(3) == 10"
    code = "def times(x):\n    return x * FACTOR\ndef other(x):\n    return x"
    result = kernels.execute(code, tests, entry_point="times", setup="FACTOR = 3")
    assert [case.status for case in result.report.cases] == ["passed", "failed"]
    assert result.report.cases[1].got == "9"


@pytest.mark.parametrize(
    ("code", "verdict", "why"),
    [
        ("x = 1\ny = = 2", "failed", "SyntaxError: invalid syntax (line 2)"),
        ("x = 1\n1 / 0", "failed", "ZeroDivisionError: division by zero (line 2)"),
        ("exit()", "failed", "SystemExit: exit() was called (line 1)"),
        ("import os\nos._exit(3)", "crashed", "the kernel died (exit code 3)"),
        ("import os\nos.kill(os.getpid(), 9)", "crashed", "the kernel died (killed by SIGKILL)"),
        ("while True: pass", "timeout", "it ran over 1 s"),
        ("import asyncio\nawait asyncio.sleep(60)", "timeout", "it ran over 1 s"),
    ],
)
def test_code_that_does_not_run_to_its_end(
    kernels: KernelCodeExecutor, code: str, verdict: str, why: str
) -> None:
    result = kernels.execute(code, TESTS, timeout=1.0)
    assert (result.verdict, result.compilation_error) == (verdict, why)
    assert result.errors == (f"test_1: {NOT_RUN}", f"test_2: {NOT_RUN}")


@pytest.mark.parametrize(
    ("body", "verdict", "statuses"),
    [
        ("import os; os._exit(0)", "crashed", ["passed", "error", "not-run"]),
        ("while True: pass", "timeout", ["passed", "timeout", "not-run"]),
        ("raise SystemExit", "failed", ["passed", "error", "passed"]),
    ],
)
def test_a_test_that_ends_badly_is_the_one_that_is_blamed(
    kernels: KernelCodeExecutor, body: str, verdict: str, statuses: list[str]
) -> None:
    tests = "assert True\nassert f() == 1\nassert 1 + 1 == 2"
    result = kernels.execute(f"def f():\n    {body}", tests, timeout=2.0)
    assert [case.status for case in result.report.cases] == statuses
    assert result.verdict == verdict
    assert result.errors[0].startswith("test_2: ")


def test_cells_and_tests_may_await(kernels: KernelCodeExecutor) -> None:
    code = "import asyncio\nawait asyncio.sleep(0)\nasync def three():\n    return 3"
    tests = "assert await three() == 3\nassert await three() == 4\nassert True"
    for source in (code, "async def three():\n    return 3"):
        result = kernels.execute(source, tests)
        assert [case.status for case in result.report.cases] == ["passed", "failed", "passed"]


@pytest.mark.parametrize(
    ("tests", "why"),
    [("", "no tests were found"), ("assert (", "The tests do not parse: line 1")],
)
def test_tests_that_are_none_are_the_task_s_fault(
    kernels: KernelCodeExecutor, tests: str, why: str
) -> None:
    result = kernels.execute(ADD, tests)
    assert (result.verdict, result.total) == ("invalid-task", 0)
    assert result.report.problem.startswith(why)


def test_every_check_has_a_kernel_and_a_folder_to_itself(kernels: KernelCodeExecutor) -> None:
    code = (
        "import builtins, os\nfound = os.listdir(), hasattr(builtins, 'left'), 'before' in dir()\n"
        "before = builtins.left = 1\nopen('left', 'w').close()"
    )
    runs = [kernels.aexecute(code, "assert found == ([], False, False)") for _ in range(5)]
    assert [run.result().errors for run in runs] == [()] * 5


def test_much_that_is_printed_is_cut_and_the_cut_told(kernels: KernelCodeExecutor) -> None:
    result = kernels.execute(f"print('x' * 100_000)\n{ADD}", TESTS)
    assert result.verdict == "solved"
    assert "… 34,465 characters cut …" in result.stdout  # of 100,001, with the line's end, 65,536
    assert len(result.stdout) < 66_000


def test_another_language_s_tests_are_one_cell(bash_kernel: str) -> None:
    pytest.importorskip("bash_kernel")
    with KernelCodeExecutor(bash_kernel, size=1) as executor:
        assert executor.language == "bash"
        code = "double() { echo $(( 2 * $1 )); }"
        right = executor.execute(code, '[ "$(double 4)" = 8 ]', timeout=20)
        assert (right.verdict, right.passed, right.total) == ("solved", 1, 1)
        wrong = executor.execute(code, '[ "$(double 4)" = 9 ]', timeout=20)
        assert (wrong.verdict, wrong.passed, wrong.total) == ("failed", 0, 1)
        broken = executor.execute("false", "true", timeout=20)
        assert (broken.verdict, broken.total) == ("failed", 1)
        assert broken.compilation_error
        assert executor.execute(code, " ").verdict == "invalid-task"


def test_nothing_is_started_before_the_first_check_and_nothing_is_left(
    kernels: KernelCodeExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels.execute(ADD, TESTS)  # what is made once and stays
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = set(psutil.Process().children(recursive=True))
    executor = KernelCodeExecutor(size=1)
    assert set(psutil.Process().children(recursive=True)) <= before
    run = executor.aexecute(ADD, TESTS)
    waiting = executor.aexecute("while True: pass", TESTS, timeout=3600)
    assert run.result().verdict == "solved"
    executor.close()
    executor.close()
    with pytest.raises(RunStopped):
        waiting.result(20)
    left = set(psutil.Process().children(recursive=True)) - before
    psutil.wait_procs(left, timeout=20)
    assert not [each for each in left if each.is_running()]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="closed"):
        executor.execute(ADD, TESTS)


def test_an_executor_that_nobody_refers_to_goes_away() -> None:
    before = set(psutil.Process().children(recursive=True))
    executor = KernelCodeExecutor(size=1)
    assert executor.execute(ADD, TESTS).all_passed
    made = set(psutil.Process().children(recursive=True)) - before
    kernels = [each for each in made if each.name() in ("nb-kernel", "nb-checkpoint")]
    assert len(kernels) == 2
    del executor
    gc.collect()
    _, left = psutil.wait_procs(kernels, timeout=20)
    assert not left


def test_a_fork_of_the_controller_lets_its_executors_be() -> None:
    executor = KernelCodeExecutor(size=1)
    assert executor.execute(ADD, TESTS).all_passed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, from Python 3.12 on
        pid = os.fork()
    if pid == 0:
        del executor
        gc.collect()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert executor.execute(ADD, TESTS).all_passed
    executor.close()


def test_a_lost_kernel_to_branch_from_is_replaced() -> None:
    with KernelCodeExecutor(size=1) as executor:
        assert executor.execute(ADD, TESTS).all_passed
        base = executor._kernels._base
        assert base is not None
        base.run("import os; os.kill(os.getpid(), 9)").result()
        assert executor.execute(ADD, TESTS).all_passed


def test_what_makes_no_executor_is_refused(kernelspec: Callable[..., str]) -> None:
    with pytest.raises(UsageError, match='There is no kernelspec "cobol"'):
        KernelCodeExecutor("cobol")
    with pytest.raises(UsageError, match="0 kernels run at a time"):
        KernelCodeExecutor(size=0)
    with KernelCodeExecutor() as executor, pytest.raises(UsageError, match="given 0 s"):
        executor.execute(ADD, TESTS, timeout=0)
