"""The tests as a cell run in any Jupyter, with the calls that a runner would make."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nbrefine.errors import InvalidTaskError
from nbrefine.kernel import Kernel
from nbrefine.rewards.tests import as_cell


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with Kernel.start() as started:
        started.run("def add(a, b):\n    return a + b\nseen = []").result()
        yield started


def test_plain_asserts_stay_as_they_are() -> None:
    assert as_cell("# one\nassert add(1, 1) == 2\n") == "# one\nassert add(1, 1) == 2\n"


def test_the_missing_call_of_check_is_added() -> None:
    source = "def check(candidate):\n    assert candidate(1, 1) == 2\n"
    assert as_cell(source, "add") == f"{source}check(add)\n"
    assert as_cell(f"{source}check(add)\n", "add") == f"{source}check(add)\n"
    assert as_cell(source) == f"{source}# name the function: check(candidate)\n"


EVERY_KIND = """
import unittest, pytest
def test_one():
    seen.append("one")
async def test_two():
    seen.append("two")
@pytest.mark.parametrize("a,b", [(1, 2), (3, 4)])
def test_rows(b, a):
    seen.append((a, b))
class TestThing:
    def setup_method(self):
        self.three = "three"
    def test_three(self):
        seen.append(self.three)
class TestPlain:
    def test_four(self):
        seen.append("four")
class Case(unittest.TestCase):
    def setUp(self):
        self.five = "five"
    def test_five(self):
        seen.append(self.five)
def test_file(tmp_path):
    seen.append("never")
if __name__ == "__main__":
    unittest.main()
"""


def test_every_kind_of_test_runs_in_a_cell(kernel: Kernel) -> None:
    source = as_cell(EVERY_KIND)
    assert "unittest.main" not in source
    assert "# test_file: pytest fixtures are not supported (tmp_path)" in source
    assert kernel.run(source).result().ok
    told = kernel.run("seen").result().text
    assert told == "['one', 'two', (1, 2), (3, 4), 'three', 'four', 'five']\n"


@pytest.mark.parametrize(
    "source",
    [
        "def check(candidate):\n    return candidate(1, 1) == 2\n",
        "def test_sum():\n    assert add(1, 1) == 2\n    return 5\n",
        "assert add(1, 1) == 2\nadd('ä', 'é')  # a comment\n",
        "assert add(1, 1) == 2\nadd(\n    1,\n    2,\n);\n",
        "assert add(1, 1) == 2\nadd\n\ndef test_file(tmp_path): ...\n",
        "import asyncio\nasync def test_wait():\n    return await asyncio.sleep(0, 5)\n",
    ],
)
def test_no_value_of_a_test_is_shown(kernel: Kernel, source: str) -> None:
    """Nothing shows a value where the tests run as feedback, so the cell must not either."""
    result = kernel.run(as_cell(source, "add")).result()
    assert (result.status, result.outputs) == ("ok", ())


def test_a_failing_test_fails_the_cell(kernel: Kernel) -> None:
    result = kernel.run(as_cell("def test_sum():\n    assert add(1, 1) == 3\n")).result()
    assert result.error is not None
    assert result.error.ename == "AssertionError"


def test_a_source_that_does_not_parse_is_refused() -> None:
    with pytest.raises(InvalidTaskError):
        as_cell("def test(:\n")
