"""An episode as a notebook for students: the checks are whole, the work is left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest

from nbrefine import notebook
from nbrefine.errors import RecordError
from nbrefine.outputs import CellResult
from nbrefine.values import AnswerForm, Episode, Extraction, KernelInfo, Task, Turn
from nbrefine.views import handout
from nbrefine.views.stubs import needed, stub
from tests.steps import answered, gave_up


def cells(episode: Episode, *, attempts: bool = False) -> dict[str, str]:
    made = handout.to_notebook(episode, attempts=attempts)
    nbformat.validate(nbformat.from_dict(made))  # type: ignore[no-untyped-call]
    return {cell["id"]: cell["source"] for cell in made["cells"]}


def test_a_task_its_setup_a_stub_and_the_tests(repaired: Episode) -> None:
    found = cells(repaired)
    assert list(found) == ["task", "setup", "step-1-work-1", "tests"]
    assert "Compute `mean`, the mean of the prices." in found["task"]
    assert found["setup"] == repaired.task.setup
    assert found["step-1-work-1"] == "# Your code here\nvalues = ...\nmean = ..."
    assert found["tests"].splitlines() == repaired.task.tests.splitlines()


def test_steps_keep_goals_and_checks_and_the_answer_its_form() -> None:
    found = cells(answered())
    assert found["step-1"].startswith("## Step 1: Read")
    assert found["step-1-work-1"] == "# Your code here\nfares = ..."
    assert found["step-2-checks"] == "# mean is between 0 and 10\nassert 0 <= mean <= 10"
    assert found["step-3-work-1"] == "# Your code here"
    assert found["answer"].endswith("Fields: `mean`.\n\n*Your answer here*")
    assert found["answer-checks"] == "assert mean == 4"


def test_steps_that_were_not_done_are_left_to_the_students() -> None:
    found = cells(gave_up())
    assert [name for name in found if name.count("-") == 1] == ["step-2", "step-3", "step-4"]
    assert found["step-2-work"] == found["step-3-work"] == "# Your code here"


def test_nothing_in_the_file_tells_the_solution(tmp_path: Path, repaired: Episode) -> None:
    task = replace(
        repaired.task, hidden_tests="assert hidden_one", reference="two_ref", metadata={"k": "m_3"}
    )
    path = tmp_path / "h.ipynb"
    for attempts in (False, True):
        handout.write(replace(repaired, task=task), path, attempts=attempts, overwrite=True)
        text = path.read_text(encoding="utf-8")
        for secret in ("sum(values)", "hidden_one", "two_ref", "m_3", "nbrefine.episode"):
            assert (secret in text) is (secret == "sum(values)" and attempts)
        assert set(json.loads(text)["metadata"]) == {"title", "kernelspec", "language_info"}


def test_failed_attempts_are_text_where_they_are_asked_for(repaired: Episode) -> None:
    found = cells(repaired, attempts=True)
    failed = found["step-1-failed-1"]
    assert 'values = prices["Price"]' in failed
    assert "KeyError: 'Price'" in failed
    assert "0/2 tests passed." in failed
    assert "step-1-failed-1" not in cells(repaired)


def test_a_failed_attempt_that_says_what_was_accepted_later_is_left_out(
    repaired: Episode,
) -> None:
    """Such as one that a person did not let run at first."""
    first, second = repaired.turns
    same = replace(first, extraction=Extraction("found", f"# why\n{second.code}"))
    found = cells(replace(repaired, turns=(same, second)), attempts=True)
    assert "step-1-failed-1" not in found


def test_attempts_of_one_number_have_cells_of_their_own(repaired: Episode) -> None:
    """An infrastructure error counts as no attempt, so the next one has its number."""
    first = repaired.turns[0]
    found = cells(replace(repaired, turns=(first, replace(first, number=2))), attempts=True)
    assert [name for name in found if "failed" in name] == ["step-1-failed-1", "step-1-failed-2"]


def test_functions_and_classes_keep_what_they_promise() -> None:
    code = '''
import re
from math import sqrt
@cached
def norm(xs: list[float], *, p: int = 2) -> float:
    """Give the norm.

    ...
    """
    return sqrt(sum(x ** p for x in xs))  # secret
class Point(Base):
    """A point."""
    x: float = 0.0
    scale = 42
    def far(self): return self.x > 9
async def wait(): await secret()
LIMIT = 99
print(norm([3, 4]))
'''
    assert (
        stub(code, ["LIMIT", "norm", "re"])
        == '''import re
from math import sqrt

@cached
def norm(xs: list[float], *, p: int=2) -> float:
    """Give the norm.

    ...
    """
    # Your code here
    ...

class Point(Base):
    """A point."""
    x: float = 0.0
    scale = ...

    def far(self):
        # Your code here
        ...

async def wait():
    # Your code here
    ...

# Your code here
LIMIT = ...'''
    )


def test_a_stub_of_what_is_no_python_is_a_gap() -> None:
    assert stub("def f(:", []) == "# Your code here"
    assert stub("", []) == "# Your code here"
    assert stub("%matplotlib inline\nimport re\nx = 1", ["x"]).endswith("# Your code here\nx = ...")


def test_names_are_needed_where_later_code_reads_them_first() -> None:
    code = "a = 1\nb = 2\nfor c in range(3):\n    d = c\ndef f(): e = 1"
    assert needed(code, ["b = 3", "print(a)\nassert f() == d"]) == ("a", "d", "f")
    assert needed("no python (", ["a"]) == ()


def test_a_stub_runs_and_its_checks_fail(repaired: Episode) -> None:
    """A handout that nobody has worked on must not pass."""
    found = cells(repaired)
    space: dict[str, object] = {}
    exec(found["setup"], space)
    exec(found["step-1-work-1"], space)
    with pytest.raises(AssertionError):
        exec(found["tests"], space)


def test_other_languages_answers_in_words_and_empty_episodes(repaired: Episode) -> None:
    (second,) = repaired.turns[1:]
    other = replace(repaired, kernel=KernelInfo("bash", "Bash", "bash"), turns=(second,))
    assert cells(other)["step-1-work-1"] == "# Your code here"
    java = replace(repaired, kernel=KernelInfo("java", "Java", "java"), turns=(second,))
    assert cells(java)["step-1-work-1"] == ""
    assert cells(java)["tests"].startswith("The tests:")
    words = replace(second, result=None, tests=None, extraction=Extraction("found", "Four."))
    assert cells(replace(repaired, turns=(words,)))["step-1-work-1"] == "*Your answer here*"
    assert list(cells(Episode(Task("Set x.")))) == ["task", "work"]


def test_a_value_that_is_the_answer_gets_a_name(repaired: Episode) -> None:
    code = "rows = [1]\nanswer = 3"
    turn: Turn = replace(
        repaired.turns[1], extraction=Extraction("found", code), result=CellResult(code, "ok")
    )
    task = Task("Count.", answer=AnswerForm("value"))
    found = cells(replace(repaired, task=task, turns=(turn,)))
    assert found["step-1-work-1"] == "# Your code here\nanswer = ..."
    assert "It is the value of `answer`." in found["answer"]
    files = AnswerForm("files", files=("a.csv", "b.csv"))
    found = cells(replace(repaired, task=replace(task, answer=files), turns=(turn,)))
    assert "Files: `a.csv`, `b.csv`." in found["answer"]


def test_awkward_text_gives_a_valid_notebook(tmp_path: Path, repaired: Episode) -> None:
    nasty = "``` \x00 \ud800 \x1b[31m {x} </script>"
    task = replace(repaired.task, prompt=nasty, tests=nasty, id=nasty, setup=nasty)
    turn = replace(repaired.turns[0], feedback=nasty, extraction=Extraction("found", nasty))
    path = tmp_path / "h.ipynb"
    handout.write(replace(repaired, task=task, turns=(turn,)), path, attempts=True)
    text = path.read_text(encoding="utf-8")
    assert nbformat.reads(text, as_version=4).nbformat_minor == 5  # type: ignore[no-untyped-call]


def test_a_handout_replaces_a_file_only_where_it_may_and_never_a_record(
    tmp_path: Path, repaired: Episode
) -> None:
    record, path = tmp_path / "e.ipynb", tmp_path / "h.ipynb"
    notebook.save(repaired, record)
    before = record.read_bytes()
    assert handout.write(record, path) == path
    with pytest.raises(RecordError, match="is there already"):
        handout.write(record, path)
    handout.write(record, path, overwrite=True)
    with pytest.raises(RecordError, match="is the record of an episode"):
        handout.write(record, record, overwrite=True)
    with pytest.raises(RecordError, match="not a notebook's name"):
        handout.write(record, tmp_path / "h.txt")
    assert record.read_bytes() == before
