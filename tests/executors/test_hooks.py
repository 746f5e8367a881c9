"""What libraries want done after a fork: not in a check's process, but in the forks of that."""

from __future__ import annotations

import sys
from pathlib import Path

from nbrefine.executors import Bench

CODE = """
import os, random, threading

def forked(work):
    hear, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(say, repr(work()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    return os.read(hear, 1000).decode()

def threads():
    wait = threading.Event()
    threading.Thread(target=wait.wait).start()
    told = forked(threading.active_count)
    wait.set()
    return told

def draws():
    return forked(random.random) == forked(random.random)
"""


def test_a_fork_of_the_code_knows_none_of_its_threads(bench: Bench) -> None:
    assert bench.check(CODE, "assert threads() == '1'").result(60).verdict == "solved"


def test_forks_of_the_code_draw_numbers_of_their_own(bench: Bench) -> None:
    assert bench.check(CODE, "assert not draws()").result(60).verdict == "solved"


def test_forks_of_the_tests_draw_numbers_of_their_own(bench: Bench) -> None:
    tests = f"{CODE}\nassert not draws()\nassert threads() == '1'\nassert one() == 1\n"
    assert bench.check("def one(): return 1", tests).result(60).verdict == "solved"


def test_the_code_is_seeded_with_all_that(bench: Bench) -> None:
    code = "import random\ndef first(): return random.random()"
    tests = "import random\nassert first() == random.Random(0).random() == random.random()"
    assert bench.check(code, tests).result(60).verdict == "solved"


def test_the_code_is_seeded_where_the_interpreter_has_hooks_of_its_own(tmp_path: Path) -> None:
    """`random` draws a new seed in each fork of a process that has imported it."""
    (tmp_path / "sitecustomize.py").write_text("import random\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    code = "import random\ndef first(): return random.random()"
    tests = "import random\nassert first() == random.Random(0).random()"
    with Bench(workers=1, python=str(python)) as bench:
        assert bench.check(code, tests).result(60).verdict == "solved"


def test_the_code_is_seeded_in_numpy_where_that_is_imported_beforehand() -> None:
    code = "import numpy\ndef first(): return float(numpy.random.random())"
    tests = "import numpy\nassert first() == numpy.random.RandomState(0).random()"
    with Bench(workers=1, preload=("numpy",)) as bench:
        assert bench.check(code, tests).result(60).verdict == "solved"


def test_what_nobody_is_to_guess_differs_from_one_check_to_the_next(bench: Bench) -> None:
    code = """
import os, random, secrets, tempfile, uuid

def drawn():
    print(os.urandom(8), secrets.token_hex(), uuid.uuid1(), uuid.uuid4(), tempfile.mktemp(),
          random.SystemRandom().random(), random.Random().random(), sep="\\n")
"""
    first, second = (bench.check(code, "drawn()\nassert True").result(60) for _ in range(2))
    drawn = [set(result.stdout.split("\n")) - {""} for result in (first, second)]
    assert [len(each) for each in drawn] == [7, 7]
    assert not drawn[0] & drawn[1]
