"""Which tests are found in a source, under which names, without running anything."""

from __future__ import annotations

import pytest

from nbrefine.kernel.inside.cases import Call, plan


def names(source: str, entry_point: str = "") -> list[str]:
    return [case.name for case in plan(source, entry_point).cases]


def test_each_top_level_assert_is_a_test_and_other_lines_are_none() -> None:
    planned = plan("import math\nx = 2\nassert x == 2\nprint(x)\nassert math.pi > 3, 'pi'\n")
    assert [(case.name, case.expression) for case in planned.cases] == [
        ("test_1", "x == 2"),
        ("test_2", "math.pi > 3"),
    ]


def test_an_assert_in_a_loop_or_block_is_one_test() -> None:
    source = "for i in x:\n    if i:\n        assert f(i)\nwith open(p) as text:\n    assert text\n"
    planned = plan(source)
    assert [(case.name, case.looped) for case in planned.cases] == [
        ("test_1", True),
        ("test_2", False),
    ]


def test_asserts_whose_failure_a_handler_waits_for_are_one_test_with_their_try() -> None:
    source = "try:\n    f(-1)\n    assert False, 'must raise'\nexcept ValueError:\n    pass\n"
    assert names(source) == ["test_1"]


def test_each_assert_of_check_is_a_test_that_runs_as_a_unit_of_its_own() -> None:
    source = "def check(candidate):\n    x = candidate(1)\n    assert x == 2\n    assert x != 3\n"
    planned = plan(source, "add")
    assert [case.name for case in planned.cases] == ["check[1]", "check[2]"]
    assert [planned.of(unit) for unit in range(len(planned.units))] == [[], [0], [1]]
    assert planned.added == "check(add)"


def test_a_check_that_the_source_calls_is_not_called_again() -> None:
    planned = plan("def check(f):\n    assert f(1) == 2\ncheck(add)\n")
    assert [case.name for case in planned.cases] == ["check[1]"]
    assert planned.added == ""


def test_a_check_that_returns_in_between_is_one_test() -> None:
    source = "def check(c):\n    if c(1):\n        return\n    assert c(2)\n    assert c(3)\n"
    assert names(source, "f") == ["check"]


def test_functions_and_methods_are_tests_and_their_helpers_are_none() -> None:
    source = """
def helper(): return 1
def test_one(): assert helper()
async def test_two(): assert helper()
class TestThing:
    def setup_method(self): ...
    def test_three(self): assert helper()
    def other(self): ...
class More(unittest.TestCase):
    def test_four(self): self.assertEqual(1, 1)
class TestChild(TestThing):
    pass
test_one()
"""
    assert names(source) == [
        "test_one",
        "test_two",
        "TestThing.test_three",
        "More.test_four",
        "TestChild.test_three",
    ]


def test_rows_of_a_literal_parametrize_are_tests_each() -> None:
    source = (
        "@pytest.mark.parametrize('x, y', [(1, 2), (2, 3)])\ndef test_add(x, y):\n"
        "    assert add(x) == y\n"
    )
    planned = plan(source)
    assert [case.name for case in planned.cases] == ["test_add[1]", "test_add[2]"]
    assert [unit.row for unit in planned.units if isinstance(unit, Call)] == [0, 1]


def test_a_test_that_needs_a_fixture_is_kept_by_name_and_says_so() -> None:
    (case,) = plan("def test_file(tmp_path):\n    assert tmp_path\n").cases
    assert case.name == "test_file"
    assert case.unsupported == "pytest fixtures are not supported (tmp_path)"


def test_a_function_that_the_source_gives_its_arguments_is_no_test_with_fixtures() -> None:
    source = (
        "def test_add(given, wanted):\n    assert add(*given) == wanted\n"
        "for row in [((1, 1), 2), ((1, 2), 3)]:\n    test_add(*row)\n"
    )
    planned = plan(source)
    assert [(case.name, case.expression, case.looped) for case in planned.cases] == [
        ("test_1", "test_add(*row)", True)
    ]


def test_calls_of_checking_functions_and_raises_blocks_are_tests() -> None:
    source = """
def same(a, b): assert a == b
def other(a): return a
same(f(1), 2)
other(f(2))
np.testing.assert_allclose(f(3), 3)
with pytest.raises(ValueError):
    f(-1)
for x in range(3):
    same(f(x), x)
"""
    assert [case.expression for case in plan(source).cases] == [
        "same(f(1), 2)",
        "np.testing.assert_allclose(f(3), 3)",
        "with pytest.raises(ValueError): f(-1)",
        "same(f(x), x)",
    ]


def test_a_main_block_counts_only_if_it_holds_tests() -> None:
    runner = "def test_a(): assert f(1)\nif __name__ == '__main__':\n    unittest.main()\n"
    assert names(runner) == ["test_a"]
    holding = "def check(f):\n    assert f(1)\nif __name__ == '__main__':\n    check(add)\n"
    assert names(holding) == ["check[1]"]
    assert plan(holding).added == ""


def test_a_source_is_shown_by_the_lines_python_counts() -> None:
    source = "x = 'a\x0cb\u2028c'\r\nassert f(x) == 'é', 1\n"
    assert [case.expression for case in plan(source).cases] == ["f(x) == 'é'"]


def test_names_are_unique() -> None:
    found = names("assert a\ndef test_1(): assert b\n")
    assert len(set(found)) == len(found) == 2


@pytest.mark.parametrize("source", ["", "x = 1\n", "def helper():\n    assert 1\n", "'text'\n"])
def test_without_a_test_nothing_is_found(source: str) -> None:
    assert names(source) == []


@pytest.mark.parametrize("source", ["assert (", "return 1", "def f(:\n    pass"])
def test_a_source_that_does_not_compile_is_refused(source: str) -> None:
    with pytest.raises(SyntaxError):
        plan(source)
