from __future__ import annotations

import ast
from collections.abc import Callable
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.executors.live import planned
from nbrefine.source import fault, fenced, parse, warnings_of_compiler


@pytest.mark.parametrize("cell", ["x = 1", "%time f()", "await f()", "!ls {x}", "%%js\n((", "f?"])
def test_a_cell_that_a_notebook_can_run_parses(cell: str) -> None:
    assert isinstance(parse(cell), ast.Module)


@pytest.mark.parametrize(
    "text", ["x = = 1", "a\0b", "x = '\ud800'", "(" * 5000, "-" * 100_000 + "1", "!ls\nx = = 1"]
)
def test_what_cannot_be_parsed_is_none_and_no_error(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("await f()\nx = '\\d' is 1", ""),
        ("", ""),
        ("x = 1\nx = = 1", "line 2: invalid syntax"),
        ("x = 1\nreturn x", "line 2: 'return' outside function"),
        ("break", "line 1: 'break' outside loop"),
        ("!ls", "line 1: invalid syntax"),
    ],
)
def test_a_fault_is_told_with_its_line(code: str, told: str) -> None:
    assert fault(code) == told


@pytest.mark.parametrize("code", ["a\0b", "x = '\ud800'", "(" * 5000, "-" * 100_000 + "1"])
def test_what_python_cannot_even_read_has_a_fault_too(code: str) -> None:
    assert fault(code)


def test_magics_can_be_left_out() -> None:
    assert parse("Really?") is not None
    assert parse("Really?", magics=False) is None


def test_a_fence_is_as_short_as_markdown_allows() -> None:
    assert fenced("x = 1", "python") == "```python\nx = 1\n```"
    assert fenced("``").startswith("```\n")


@given(st.text("`~ax\n"))
def test_nothing_in_a_text_can_close_its_fence(text: str) -> None:
    first, *body, last = fenced(text).split("\n")
    assert "\n".join(body) == text
    assert first == last
    assert all(first not in line for line in body)


@pytest.mark.parametrize("read", [parse, fault, planned])
def test_only_one_thread_at_a_time_changes_the_filters_of_warnings(
    read: Callable[[str], object],
) -> None:
    thread = Thread(target=read, args=("assert True",))
    with warnings_of_compiler("error"):
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(60)
    assert not thread.is_alive()
