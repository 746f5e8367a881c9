"""Checks in real processes: what comes of them, and that each is held to its time."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from nbrefine.errors import ExecutorError, UsageError
from nbrefine.executors import Bench
from tests.conftest import missing

ADD = "def add(a, b):\n    return a + b"


def test_code_and_tests_meet_and_every_test_is_told(bench: Bench) -> None:
    result = bench.check(ADD, "assert add(1, 2) == 3\nassert add(2, 2) == 5").result()
    assert (result.passed, result.total, result.verdict, result.tier) == (1, 2, "failed", "grade")
    assert [case.status for case in result.report.cases] == ["passed", "failed"]
    assert result.errors == ("test_2: got 4, expected 5",)
    assert set(result.seconds) == {"test_1", "test_2"}
    assert "no privileges" in result.isolation
    assert "4,096 MiB of address space a process" in result.isolation


def test_a_check_function_is_given_the_entry_point(bench: Bench) -> None:
    tests = "def check(candidate):\n    assert candidate(1, 2) == 3"
    result = bench.check(ADD, tests, entry_point="add").result()
    assert (result.verdict, result.total) == ("solved", 1)


def test_setup_runs_before_the_code(bench: Bench) -> None:
    code = "def area(r):\n    return factor * r * r"
    result = bench.check(code, "assert area(2) == 12", setup="factor = 3").result()
    assert result.verdict == "solved"


def test_tests_that_do_not_parse_are_the_fault_of_the_task(bench: Bench) -> None:
    result = bench.check(ADD, "assert add(1, 2 == 3").result()
    assert (result.verdict, result.total) == ("invalid-task", 0)
    assert result.report.problem


def test_code_that_does_not_run_says_why(bench: Bench) -> None:
    result = bench.check("import nothing_like_this", "assert True").result()
    assert result.verdict == "failed"
    assert result.compilation_error is not None
    assert "nothing_like_this" in result.compilation_error


def test_what_the_code_prints_is_kept_with_the_cut_told(bench: Bench) -> None:
    code = (
        "import os, sys\n"
        "def f():\n"
        "    print('begin')\n"
        "    sys.stdout.write('x' * 10_000_000)\n"
        "    os.write(1, b'end')\n"
        "    print('to the side', file=sys.stderr)\n"
        "    return 1"
    )
    result = bench.check(code, "assert f() == 1").result()
    assert result.verdict == "solved"
    assert result.stdout.startswith("begin\nxxx")
    assert "… 9,934,473 bytes cut …" in result.stdout  # 6 + 10,000,000 + 3 - 65,536
    assert result.stdout.endswith("end")
    assert len(result.stdout) < 70_000
    assert result.stderr == "to the side\n"


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("os._exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("os.abort()", "killed by SIGABRT"),
        ("ctypes.string_at(0)", "killed by SIGSEGV"),
    ],
)
def test_how_a_process_ended_is_told(bench: Bench, ending: str, words: str) -> None:
    code = f"import ctypes, os, signal\ndef f():\n    {ending}\ndef g():\n    return 1"
    result = bench.check(code, "assert g() == 1\nassert f() == 1\nassert g() == 1").result()
    assert result.verdict == "crashed"
    assert [case.status for case in result.report.cases] == ["passed", "error", "not-run"]
    assert result.report.cases[1].message == f"the code's process ended: {words}"


def test_a_process_that_ends_while_the_code_runs_is_told(bench: Bench) -> None:
    result = bench.check("import os\nos._exit(0)", "assert True").result()
    assert result.verdict == "crashed"
    assert result.compilation_error == "the code's process ended: exit code 0"
    assert [case.status for case in result.report.cases] == ["not-run"]


def test_a_test_is_held_to_its_time_and_the_next_one_runs(bench: Bench) -> None:
    code = "def f(x):\n    while x:\n        pass\n    return x"
    tests = "assert f(0) == 0\nassert f(1) == 1\nassert f(0) == 0"
    result = bench.check(code, tests, timeout=30, test_timeout=0.3).result()
    assert [case.status for case in result.report.cases] == ["passed", "timeout", "passed"]
    assert result.verdict == "timeout"


def test_code_that_takes_no_interrupt_is_ended(bench: Bench) -> None:
    code = (
        "import signal\n"
        "def f():\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "    while True:\n"
        "        pass"
    )
    tests = "assert f() == 1\nassert f() == 2"
    result = bench.check(code, tests, timeout=60, test_timeout=0.3).result()
    assert [case.status for case in result.report.cases] == ["timeout", "not-run"]
    assert result.verdict == "timeout"


def test_all_of_it_is_held_to_its_time(bench: Bench) -> None:
    code = "import time\ndef f():\n    time.sleep(3600)"
    tests = "assert True\nassert f() == 1\nassert True"
    result = bench.check(code, tests, timeout=0.5, test_timeout=3600).result()
    assert [case.status for case in result.report.cases] == ["passed", "timeout", "not-run"]
    assert result.verdict == "timeout"


def test_code_at_its_top_is_held_to_the_time(bench: Bench) -> None:
    result = bench.check("while True: pass", "assert True", timeout=0.5).result()
    assert (result.verdict, result.passed) == ("timeout", 0)
    assert result.compilation_error is not None
    assert "0.5 s" in result.compilation_error
    result = bench.check("while True: pass", "assert True", timeout=60, code_timeout=0.3).result()
    assert (result.verdict, result.compilation_error) == ("timeout", "ran over 0.3 s")


def test_so_many_tests_that_ran_too_long_are_enough(bench: Bench) -> None:
    code = "def f():\n    while True: pass\n"
    tests = "assert f()\nassert f()"
    result = bench.check(code, tests, timeout=30, test_timeout=0.3, max_timeouts=1).result()
    assert [case.status for case in result.report.cases] == ["timeout", "not-run"]


def test_the_wait_for_a_worker_does_not_count() -> None:
    """Three that take a third of the time each, one after the other, would be over it."""
    slow = "import time\ndef f():\n    time.sleep(0.8)\n    return 1"
    with Bench(workers=1) as bench:
        runs = [bench.check(slow, "assert f() == 1", timeout=2) for _ in range(3)]
        assert [run.result().verdict for run in runs] == ["solved"] * 3


def test_as_many_run_at_a_time_as_there_are_workers(tmp_path: Path) -> None:
    """Each waits for the other to come: alone, none would be done."""
    code = "def nothing(): pass"
    tests = (
        "import pathlib, time\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "def meet(mine, other):\n"
        "    (folder / mine).touch()\n"
        "    while not (folder / other).exists():\n"
        "        time.sleep(0.01)\n"
        "    return True\n"
    )
    with Bench(workers=2) as bench:
        one = bench.check(code, tests + "assert meet('one', 'two')")
        two = bench.check(code, tests + "assert meet('two', 'one')")
        assert {one.result().verdict, two.result().verdict} == {"solved"}


def test_a_hash_of_text_is_the_same_in_every_check(bench: Bench) -> None:
    code = "def order():\n    return list({'a', 'b', 'c', 'd', 'e', 'f'})"
    first = bench.check(code, "assert order() == 0").result().report.cases[0].got
    with Bench(workers=1) as another:
        assert another.check(code, "assert order() == 0").result().report.cases[0].got == first


def test_keys_of_the_controller_are_not_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    monkeypatch.setenv("SOME_SETTING", "something")
    code = "import os\ndef names():\n    return sorted(os.environ)"
    with Bench(workers=1) as bench:
        result = bench.check(code, "assert names() == []").result()
    got = result.report.cases[0].got
    assert "'PATH'" in got
    assert "OPENAI_API_KEY" not in got
    assert "SOME_SETTING" not in got


def test_packages_of_the_interpreter_can_be_imported(bench: Bench) -> None:
    code = "import numpy\ndef total():\n    return int(numpy.arange(4).sum())"
    assert bench.check(code, "assert total() == 6").result().verdict == "solved"


def test_a_package_is_imported_beforehand() -> None:
    code = "import sys\nloaded = 'numpy' in sys.modules\ndef f():\n    return loaded"
    with Bench(workers=1, preload=("numpy",)) as bench:
        assert bench.check(code, "assert f()").result().verdict == "solved"
    with Bench(workers=1) as bench:
        assert bench.check(code, "assert not f()").result().verdict == "solved"


def test_a_package_that_is_not_there_is_the_hosts_trouble() -> None:
    with (
        Bench(workers=1, preload=("nothing_like_this",)) as bench,
        pytest.raises(ExecutorError, match="nothing_like_this"),
    ):
        bench.check(ADD, "assert True").result()


def test_an_interpreter_that_is_not_there_is_the_hosts_trouble() -> None:
    with (
        Bench(workers=1, python="/nothing/like/this") as bench,
        pytest.raises(ExecutorError, match="/nothing/like/this"),
    ):
        bench.check(ADD, "assert True").result()


def test_an_interpreter_that_ends_at_once_is_told_with_its_words(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho broken as can be >&2\nexit 1\n")
    python.chmod(0o755)
    with (
        Bench(workers=1, python=str(python)) as bench,
        pytest.raises(ExecutorError, match="broken as can be"),
    ):
        bench.check(ADD, "assert True").result()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(UsageError):
        Bench(workers=0)
    with pytest.raises(UsageError):
        Bench(memory=1 << 20)
    with Bench(workers=1) as bench:
        for timeout, test_timeout in ((0, None), (-1, None), (1, 0), (float("nan"), None)):
            with pytest.raises(UsageError):
                bench.check(ADD, "assert True", timeout=timeout, test_timeout=test_timeout)


def test_code_that_is_too_long_to_be_sent_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match="too long"):
        bench.check("#" * (65 << 20), "assert True")


def test_half_of_a_character_in_the_code_is_an_error_of_the_code(bench: Bench) -> None:
    result = bench.check("text = '\ud800'", "assert True").result()
    assert result.verdict == "failed"
    assert result.compilation_error


def test_the_code_has_the_memory_it_is_given() -> None:
    code = "def f(n):\n    return len(bytearray(n << 20))"
    tests = "assert f(100) == 100 << 20\nassert f(600) == 600 << 20"
    with Bench(workers=1, memory=512 << 20) as bench:
        result = bench.check(code, tests).result()
    assert [case.status for case in result.report.cases] == ["passed", "error"]
    assert "MemoryError" in result.errors[0]


def test_a_check_takes_its_time_from_when_it_runs(bench: Bench) -> None:
    began = time.monotonic()
    result = bench.check(ADD, "assert add(1, 2) == 3").result()
    assert 0 < result.report.seconds <= time.monotonic() - began


def test_no_time_passes_for_code_that_the_host_has_not_begun() -> None:
    with Bench(workers=1) as bench:
        before = set(psutil.Process().children(recursive=True))
        bench.check(ADD, "assert True").result()
        started = set(psutil.Process().children(recursive=True)) - before
        [nursery] = [each for each in started if each.name() == "nb-candidates"]
        nursery.suspend()
        run = bench.check(ADD, "assert add(1, 2) == 3", timeout=1.0)
        time.sleep(2.5)
        nursery.resume()
        assert run.result(60).verdict == "solved"


def test_what_holds_the_code_is_told_in_words(bench: Bench) -> None:
    held = bench.check(ADD, "assert True").result().isolation
    assert any("namespaces" in words for words in held)
    assert any("Landlock" in words for words in held)


def test_where_memory_runs_out_the_code_ends_first(bench: Bench) -> None:
    code = "def f(): return open('/proc/self/oom_score_adj').read().strip()\n"
    tests = (
        "assert f() == '1000'\nassert open('/proc/self/oom_score_adj').read().strip() != '1000'\n"
    )
    assert bench.check(code, tests).result(30).verdict == "solved"


def test_a_value_at_which_the_tests_break_down_twice_counts_against_the_code(bench: Bench) -> None:
    """As a library of the tests may do; the second time no chance is to blame."""
    tests = """
import ctypes
assert f(1) == 8
assert ctypes.string_at(f(1)) == b""
assert f(2) == 8
"""
    result = bench.check("def f(x): return 8\n", tests).result(30)
    assert (result.verdict, result.passed, result.total) == ("crashed", 1, 3)
    assert result.errors[0] == (
        "test_2: the process that runs the tests was killed by SIGSEGV, by a value of the code's"
    )


def test_a_value_makes_the_tests_take_no_more_memory_than_the_code_has() -> None:
    tests = "assert [0] * f() == [1]\nassert f() == 300_000_000\n"
    with Bench(workers=1, memory=1 << 30) as bench:
        result = bench.check("def f(): return 300_000_000\n", tests).result(30)
    assert [case.message for case in result.report.cases] == ["MemoryError", ""]


def test_the_files_of_the_code_are_bounded_in_number(bench: Bench) -> None:
    code = """
def f():
    try:
        for number in range(70_000):
            open(f"/scratch/{number}", "x").close()
    except OSError as error:
        return error.errno
def g():
    try:
        open("/proc/self/oom_score_adj", "w").write("0")
    except OSError as error:
        return type(error).__name__
"""
    tests = "assert f() == 28  # ENOSPC\nassert g() in ('OSError', 'PermissionError')\n"
    result = bench.check(code, tests).result(60)
    if not any("(namespaces)" in words for words in result.isolation):
        missing("a namespace of one's own")
    assert result.verdict == "solved", result


def test_tests_may_be_long_in_any_script(bench: Bench) -> None:
    tests = f"# {'😀' * 90_000}\nassert f() == 1\n"
    assert bench.check("def f(): return 1\n", tests).result(30).verdict == "solved"
