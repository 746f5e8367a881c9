"""DSEval on real kernels: every reference runs, answers are judged on branches of one session.

The kernels are those of an environment of its own, whose packages are the ones that the data set
was run with when its outcomes were recorded. Sets are branches of a kernel that has imported them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nbrefine._portal import Run
from nbrefine.errors import InvalidTaskError
from nbrefine.kernel import Kernel
from nbrefine.solving import solve
from nbrefine.taskdata.dseval import Judgement, ProblemSet, Question, dseval_sets, judge
from nbrefine.taskdata.dseval.verdicts import Check
from tests.conftest import missing
from tests.kernel import environments

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

PACKAGES = (
    "ipykernel==7.4.0 pandas==3.1.1 numpy==2.4.6 scikit-learn==1.9.1 scipy==1.17.1 "
    "matplotlib==3.11.2 statsmodels==0.15.0"
)
IMPORTS = """
import numpy, pandas, scipy.stats, matplotlib.pyplot, sklearn.compose, sklearn.ensemble
import sklearn.impute, sklearn.linear_model, sklearn.metrics, sklearn.model_selection
import sklearn.neighbors, sklearn.pipeline, sklearn.preprocessing, sklearn.tree
del numpy, pandas, scipy, matplotlib, sklearn
"""
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
DIFFERENCES = Path(__file__).with_name("dseval_differences.tsv")
"""Recorded answers whose verdict is another one here, each with the reason."""

SLOW = {"kaggle/students-performance"}
"""Whose third question takes a processor for ten seconds, and is judged by running it twice."""

Key = tuple[str, int]
"""A set's id, and the number of a row in it."""

Visit = Callable[[Kernel, ProblemSet, Question], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Warm:
    """Kernels that sets branch from, in a folder of their own."""

    plain: Kernel
    """With numpy alone: one reference fails only where nothing else has loaded a part of it."""
    full: Kernel
    folder: Path

    @asynccontextmanager
    async def session(self, chosen: ProblemSet) -> AsyncIterator[Kernel]:
        """Give a fresh session whose working folder has the set's files."""
        folder = self.folder / chosen.id.replace("/", "-")
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "inputs").mkdir(parents=True)
        for file in chosen.files:
            shutil.copy(file, folder / "inputs")
        kernel = await (self.plain if "numpyeval" in chosen.id else self.full).branch()
        try:
            moved = await kernel.run(f"import os\nos.chdir({str(folder)!r})\ndel os")
            assert moved.ok, moved.error
            yield kernel
        finally:
            await kernel.aclose()

    def walk(self, chosen: Iterable[ProblemSet], visit: Visit) -> None:
        """Go through the rows of sets in order, two sets at a time."""
        turns = asyncio.Semaphore(2)

        async def through(one: ProblemSet) -> None:
            async with turns, self.session(one) as kernel:
                for row in one.rows:
                    await visit(kernel, one, row)

        async def everything() -> None:
            await asyncio.gather(*map(through, chosen))

        Run(everything()).result()


@pytest.fixture(scope="module")
def folder(shared_data: Path) -> Path:
    return shared_data / "dseval"


@pytest.fixture(scope="module")
def sets(folder: Path) -> dict[str, ProblemSet]:
    rows = (row for name in ("exercise", "kaggle", "so") for row in lines(folder / f"{name}.jsonl"))
    return {each.id: each for each in dseval_sets(rows, inputs=folder / "inputs")}


@pytest.fixture(scope="module")
def recorded(folder: Path) -> dict[Key, dict[str, Any]]:
    rows = lines(folder / "recorded_coml_gpt35.jsonl")
    return {(row["set_id"], row["question_index"]): row for row in rows}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    try:
        made = environments.environment(environments.RUNNING, PACKAGES, borrow=True)
    except environments.CannotBeMade as error:
        missing(f"an environment with {PACKAGES} ({error})")
        raise
    assert made is not None
    folder = tmp_path_factory.mktemp("dseval")
    spec = folder / "kernels" / "dseval" / "kernel.json"
    spec.parent.mkdir(parents=True)
    fields = {"argv": list(made.argv), "display_name": "dseval", "language": "python"}
    spec.write_text(json.dumps(fields))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder))
        starting = [
            Kernel.start("dseval", cwd=folder, workspace="report", env=THREADS) for _ in range(2)
        ]
        with starting[0].result() as plain, starting[1].result() as full:
            for kernel, imports in ((plain, "import numpy\ndel numpy"), (full, IMPORTS)):
                ran = kernel.run(imports).result()
                assert ran.ok, ran.error
            yield Warm(plain, full, folder)


@dataclass(frozen=True, slots=True)
class Walked:
    """What one walk through all sets has found, row by row."""

    ran: dict[Key, tuple[str, str]] = field(default_factory=dict)
    """How each row's own code ended: its status, and the class of its error or ""."""
    references: dict[Key, Judgement] = field(default_factory=dict)
    """What became of references that were judged as answers."""
    answers: dict[Key, str] = field(default_factory=dict)
    """The recorded answers' verdicts, or "not judged"."""


@pytest.fixture(scope="module")
def reference_run(folder: Path) -> dict[Key, tuple[str, str]]:
    return {
        (row["set_id"], row["step"]): (row["status"], row["error"].partition(":")[0])
        for row in lines(folder / "reference_run.jsonl")
    }


@pytest.fixture(scope="module")
def walked(
    warm: Warm,
    sets: dict[str, ProblemSet],
    recorded: dict[Key, dict[str, Any]],
    reference_run: dict[Key, tuple[str, str]],
) -> Walked:
    """Judge on each set's session what is to be judged before its row, then run that."""
    found = Walked()
    chosen = {one for one in list(sets)[::6] if one not in SLOW} | {MODELS}
    runs = {key for key, (status, _) in reference_run.items() if status == "ok"}

    async def visit(kernel: Kernel, one: ProblemSet, row: Question) -> None:
        key = one.id, row.number
        if row.asked and one.id not in SLOW:
            try:
                judged = await judge(kernel, row, recorded[key]["code"])
                found.answers[key] = judged.verdict
            except InvalidTaskError:
                found.answers[key] = "not judged"
        if row.asked and one.id in chosen and key in runs - UNTESTABLE:
            found.references[key] = await judge(kernel, row, row.code)
        ran = await kernel.run(row.code, timeout=300)
        found.ran[key] = (ran.status, ran.error.ename if ran.error else "")

    warm.walk(sets.values(), visit)
    return found


def test_all_437_references_run_or_fail_as_they_were_recorded_to(
    walked: Walked, reference_run: dict[Key, tuple[str, str]]
) -> None:
    assert len(walked.ran) == 437
    assert Counter(status for status, _ in walked.ran.values()) == {"ok": 407, "error": 30}
    different = {key: told for key, told in walked.ran.items() if told != reference_run[key]}
    assert different == {}


def test_references_are_judged_correct_wherever_they_run(walked: Walked) -> None:
    """Every sixth set and one with models, so that each kind of check is among them."""
    verdicts = walked.references
    assert {key: judged for key, judged in verdicts.items() if not judged.correct} == {}
    checks = Counter(remark.check for judged in verdicts.values() for remark in judged.remarks)
    assert len(verdicts) > 50
    assert min(checks[check] for check in CHECKS) > 0, checks


CHECKS: tuple[Check, ...] = (
    "crash",
    "namespace_intact",
    "namespace_check",
    "result",
    "table_test",
    "model",
)

MODELS = "kaggle/automobile-dataset"

UNTESTABLE = {("so/pandaseval-022", 1), ("so/pandaseval-099", 1)}
"""Whose reference is a function that pandas 3 runs no more; defining it raises nothing."""


def test_recorded_answers_get_the_recorded_verdicts_but_for_those_listed(
    walked: Walked, recorded: dict[Key, dict[str, Any]]
) -> None:
    verdicts = walked.answers
    listed = {
        (name, int(number)): (was, now)
        for name, number, was, now, _ in (
            line.split("\t") for line in DIFFERENCES.read_text().splitlines()[1:]
        )
    }
    different = {
        key: (recorded[key]["verdict"], verdict)
        for key, verdict in verdicts.items()
        if verdict not in (recorded[key]["verdict"], "not judged")
    }
    assert different == listed
    judged_at_all = [verdict for verdict in verdicts.values() if verdict != "not judged"]
    assert len(judged_at_all) >= JUDGED
    assert 1 - len(different) / len(judged_at_all) >= AGREEMENT


JUDGED, AGREEMENT = 270, 0.95
"""Questions whose reference runs with the packages of today, and the share of equal verdicts."""


@pytest.fixture(scope="module")
def users(sets: dict[str, ProblemSet]) -> ProblemSet:
    return sets["exercise/01-getting-knowing-your-data-occupation"]


def test_an_agent_that_changes_what_it_should_not_is_caught(
    warm: Warm, users: ProblemSet, tmp_path: Path
) -> None:
    """Its answer is right, and the table that all later questions are about is another one."""
    first, second = users.questions[:2]
    cells = [first.code, "users = users.sort_values('age')\nusers.sort_index().head(25)"]
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    shutil.copy(users.files[0], inputs)
    episode = solve(
        "Answer two questions about users.",
        data=inputs / "u.user",
        setup=users.rows[0].code,
        subtasks=[first.text, second.text],
        model=[f"```python\n{cell}\n```" for cell in cells],
        cwd=tmp_path,
    )
    assert episode.solved
    answers = [turn.code for turn in episode.turns if turn.accepted]
    judged: list[Judgement] = []

    async def through() -> None:
        async with warm.session(users) as kernel:
            await kernel.run(users.rows[0].code)
            for question, code in zip((first, second), answers, strict=True):
                judged.append(await judge(kernel, question, code))
                await kernel.run(question.code)
            # Nothing that was judged has reached the session.
            assert (await kernel.run("users.index.is_monotonic_increasing")).text == "True\n"

    Run(through()).result()
    assert [each.verdict for each in judged] == ["CORRECT", "INTACT_VIOLATION"]
    assert judged[1].detail == "users should not have been changed"


@pytest.mark.parametrize(
    ("code", "verdict", "category"),
    [
        ("users.head(25)", "CORRECT", ""),
        ("users.head(25);", "CORRECT", ""),
        ("top = users[:25]\ntop", "CORRECT", ""),
        ("users.head(24)", "WRONG_OUTPUT", "SHAPE_MISMATCH"),
        ("users.head(25)['age']", "WRONG_OUTPUT", "UNEXPECTED_TYPE"),
        ("users.head(25).reset_index()", "PRESENTATION_ERROR", "PARTIAL_MATCH"),
        ("print(users.head(25))", "PRESENTATION_ERROR", "MISSING_RETURN"),
        ("users.head(25)[::-1]", "PRESENTATION_ERROR", "INDEX_MISMATCH"),
        ("users.heads(25)", "CRASH", "ATTRIBUTE_ERROR"),
        ("users.head(25", "SYNTAX_ERROR", ""),
        ("del users", "WRONG_OUTPUT", ""),
        ("import os\nos._exit(3)", "CRASH", ""),
    ],
)
def test_a_scripted_answer_gets_its_verdict(
    asked_of_users: Callable[[str], Judgement], code: str, verdict: str, category: str
) -> None:
    judged = asked_of_users(code)
    assert (judged.verdict, judged.category) == (verdict, category), judged


def test_an_answer_without_end_is_stopped(
    asked_of_users: Callable[[str], Judgement], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("FLOOR", "FACTOR"):
        monkeypatch.setattr(f"nbrefine.taskdata.dseval.judging.{limit}", 5.0)
    judged = asked_of_users("while True:\n    pass")
    assert judged.verdict == "TIMEOUT"
    assert asked_of_users("users.head(25)").correct


@pytest.fixture(scope="module")
def asked_of_users(warm: Warm, users: ProblemSet) -> Iterator[Callable[[str], Judgement]]:
    """Judge answers to the second question, all on one session."""
    session = warm.session(users)

    async def opened() -> Kernel:
        kernel = await session.__aenter__()
        for row in users.rows[:2]:
            assert (await kernel.run(row.code)).ok
        return kernel

    async def closed() -> None:
        await session.__aexit__(None, None, None)

    kernel = Run(opened()).result()
    try:
        yield lambda code: judge(kernel, users.questions[1], code).result()
    finally:
        Run(closed()).result()


def test_a_question_whose_reference_fails_is_not_judged(warm: Warm, users: ProblemSet) -> None:
    broken = Question(1, "nowhere", "What is it?", {"crash": None})

    async def judged() -> None:
        async with warm.session(users) as kernel:
            await judge(kernel, broken, "1")

    with pytest.raises(InvalidTaskError, match="question 1 fails here: NameError"):
        Run(judged()).result()


def test_an_answer_reads_no_file_that_the_reference_is_just_writing(
    warm: Warm, users: ProblemSet
) -> None:
    read = "value = open('inputs/value.txt').read()"
    writes = f"""
import time
with open('inputs/value.txt', 'w') as file:
    for part in ('first ', 'second'):
        print(part, end='', file=file, flush=True)
        time.sleep(0.5)
{read}
"""
    question = Question(1, writes, "What is the value?", {"namespace_check": {"value": None}})

    async def judged() -> Judgement:
        async with warm.session(users) as kernel:
            await kernel.run("open('inputs/value.txt', 'w').write('first second')")
            return await judge(kernel, question, read)

    assert Run(judged()).result().correct
