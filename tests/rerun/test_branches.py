"""Which checks need a branch, so that the cells after them find what they would."""

from __future__ import annotations

import pytest

from nbrefine.rerun.branches import only_looks


@pytest.mark.parametrize(
    ("source", "looks"),
    [
        ("# The frame is there\nassert len(df) == 3 and isinstance(n, int)", True),
        ("assert abs(table.mean['x'] - 2.5) < 0.1", True),
        ("assert rows.pop() == 3", False),
        ("assert sum(numbers) == 3", False),  # which may be a generator
        ("assert 3 in numbers", False),
        ("assert list(numbers)", False),
        ("assert [n for n in numbers]", False),
        ("assert (n := 3)", False),
        ("import os", False),
        ("del rows", False),
        ("assert (", False),
    ],
)
def test_only_what_compares_what_is_there_runs_in_the_session(source: str, looks: bool) -> None:
    assert only_looks(source) is looks
