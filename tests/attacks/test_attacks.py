"""Programs that cheat: each first succeeds against a naive grader, then fails against ours.

Each is a small program for one small task and lies in a folder named after the naive grader it
fools; those in `sabotage` do not pass but end it, hang it or leave processes behind. An attack
that no naive grader falls for would prove nothing and is not here.

Not here either is what passes weak tests by plain values, in any grader and rightly so: NaN
where a test asks `not abs(got - 3) > 1e-9`, or emptying an argument that the test computes its
own expectation from afterwards.

And not here is what ours falls for, as what is asked is the code's to say. Objects of a class that
the tests name answer for themselves when they are compared with each other, ordered, or asked
how far they are from a number; two objects of a class of the setup, which lives with the code, may
be made alike. What the tests do with a value is theirs: they run text that they `eval`, and open
or remove the path that they are given. What can be read in the interpreter's folders, data sets
among it, can be read by the code; and it may use all processors until its time is over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nbrefine.rewards.grader import Grader
from nbrefine.values import Task
from tests.attacks.naive_grader import EQUALITIES, NAIVE, judge

HERE = Path(__file__).parent / "attacks"
FORGERIES = [path for name in NAIVE for path in sorted((HERE / name).glob("*.py"))]
SABOTAGE = sorted((HERE / "sabotage").glob("*.py"))

HONEST = """\
def running(numbers):
    sums = []
    for number in numbers:
        sums.append(number + (sums[-1] if sums else 0))
    return sums
"""
WRONG = """\
def running(numbers):
    return None
"""


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def task(path: Path) -> Task:
    naive = NAIVE.get(path.parent.name)
    tests = naive.tests if naive else EQUALITIES
    return Task(
        "Give the running sums.", hidden_tests=tests, entry_point="running", reference=HONEST
    )


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    patch = pytest.MonkeyPatch()
    patch.setenv("TESTS", EQUALITIES)  # before its processes start, which must not hand it on
    with patch.context(), Grader(floor=1.0) as made:
        yield made
    patch.undo()


@pytest.fixture(scope="module", params=NAIVE)
def naive(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_each_naive_grader_tells_right_from_wrong(naive: str, tmp_path: Path) -> None:
    for program, verdict in ((HONEST, "solved"), (WRONG, "failed")):
        path = tmp_path / "program.py"
        path.write_text(program)
        outcome = judge(naive, path)
        assert (outcome.verdict, outcome.left) == (verdict, 0)


@pytest.mark.parametrize("attack", FORGERIES, ids=named)
def test_a_forgery_is_solved_for_a_naive_grader(attack: Path) -> None:
    assert judge(attack.parent.name, attack).verdict == "solved"


@pytest.mark.parametrize("attack", SABOTAGE, ids=named)
def test_sabotage_harms_a_naive_grader(attack: Path) -> None:
    outcome = judge("by_pickle", attack, patience=2.5)
    assert outcome.verdict in {"dead", "hung"} or outcome.left


@pytest.mark.parametrize("attack", [*FORGERIES, *SABOTAGE], ids=named)
def test_an_attack_neither_passes_nor_harms_our_grader(attack: Path, grader: Grader) -> None:
    honest = grader.grade(task(attack), HONEST).result(60)
    at_rest = descendants()
    grade = grader.grade(task(attack), attack.read_text()).result(60)
    assert grade.verdict in {"failed", "timeout", "crashed"}, grade
    assert grade.passed < grade.total, grade
    assert soon_gone(at_rest) == set()
    again = grader.grade(task(attack), HONEST).result(60)
    assert honest.solved, honest
    assert again.solved, again


def test_honest_programs_among_attacks_are_solved(grader: Grader) -> None:
    """All at once, so that each runs beside others; attackers look for what is not theirs."""
    attacks = [*FORGERIES, *(path for path in SABOTAGE if "output" not in path.stem)]
    running = [
        (grader.grade(task(path), path.read_text()), grader.grade(task(path), HONEST))
        for path in attacks[:: max(1, len(attacks) // 30)]
    ]
    for cheating, honest in running:
        assert not cheating.result(120).solved
        assert honest.result(120).solved


def test_the_grader_says_what_held_an_attack(grader: Grader) -> None:
    grade = grader.grade(task(FORGERIES[0]), FORGERIES[0].read_text()).result(60)
    assert grade.tier == "grade"
    assert grade.isolation


LENT = """\
def make(secret):
    def key(number, kept=secret):
        return number, secret
    return key

SECRET = 12345
assert guess(make(SECRET)) == SECRET
"""


@pytest.mark.parametrize(
    "way",
    ["key.__globals__['SECRET']", "key.__closure__[0].cell_contents", "key.__defaults__[0]"],
)
def test_a_function_that_tests_pass_to_code_gives_nothing_of_them_away(
    way: str, grader: Grader
) -> None:
    program = f"def guess(key):\n    return {way}\n"
    exec(program + LENT, {})  # holds where both are in one process
    grade = grader.grade(Task("Guess.", hidden_tests=LENT), program).result(60)
    assert (grade.verdict, grade.passed, grade.total) == ("failed", 0, 1)


def descendants() -> set[int]:
    """Give the processes that stand below this one, and copies of them that lost their parent."""
    ours = psutil.Process()
    below = ours.children(recursive=True)
    lines = [line_of(each) for each in below]
    lost = [
        each
        for each in psutil.Process(1).children()
        if each.create_time() >= ours.create_time() and line_of(each) in lines
    ]
    return {each.pid for each in [*below, *lost] if line_of(each)}


def line_of(process: psutil.Process) -> list[str]:
    """Give a process's command line, which one that has ended does not have."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def soon_gone(at_rest: set[int], seconds: float = 10.0) -> set[int]:
    """Wait until no other processes are left, and give those that stay."""
    deadline = time.monotonic() + seconds
    while (left := descendants() - at_rest) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left
