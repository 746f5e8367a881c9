"""Plans that are nearly YAML, as small models write them."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from nbrefine.errors import UsageError
from nbrefine.planning import read_plan
from nbrefine.planning.entries import split_check, without_backticks

LOAD, MEAN = "Load sales.csv into df", "Compute the mean"


@pytest.mark.parametrize(
    "text",
    [
        "- goal: {load}\n  check: `len(df) > 0`\n- goal: {mean}\n  check: `mean > 0`\n",
        "- goal: {load}\n  check: ```len(df) > 0```\n- goal: {mean}\n  check: `mean > 0`.\n",
        "- goal: {load}\n  check: '`len(df) > 0`'\n- goal: {mean}\n  checks: ['`mean > 0`']\n",
        (
            "Here is the plan:\n\n- goal: {load}\n  check: len(df) > 0\n"
            "- goal: {mean}\n  check: mean > 0\n\nI hope that it helps."
        ),
        "Plan\n- goal: {load}\n  check: len(df) > 0\n- goal: {mean}\n  check: mean > 0\n",
        (
            "- **Goal**: {load}\n  **Check**: `len(df) > 0`\n- **Goal:** {mean}\n"
            "  **Check:** `mean > 0`\n"
        ),
        "- {load}, check: `len(df) > 0`\n- {mean} (check: `mean > 0`)\n",
        "1. {load}\n   - check: `len(df) > 0`\n2. {mean}\n   - check: `mean > 0`\n",
        "1. goal: {load}\n   check: len(df) > 0\n2. goal: {mean}\n   check: mean > 0\n",
        (
            "1. step: 1\n   goal: {load}\n   check: `len(df) > 0`\n"
            "2. step: 2\n   goal: {mean}\n   check: `mean > 0`\n"
        ),
        (
            "- goal: Load sales.csv\n    into df\n  check:\n    - `len(df) > 0`\n"
            "- goal: {mean}\n  checks: ['mean > 0']\nThat: is it.\n"
        ),
    ],
)
def test_goals_and_checks_are_found(text: str) -> None:
    load, mean = read_plan(text.replace("{load}", LOAD).replace("{mean}", MEAN))
    assert (load.goal, [each.source for each in load.postconditions]) == (
        LOAD,
        ["assert len(df) > 0"],
    )
    assert (mean.goal, [each.source for each in mean.postconditions]) == (
        MEAN,
        ["assert mean > 0"],
    )


def test_what_needs_quotes_in_yaml_needs_none_here() -> None:
    first, second = read_plan(
        "- goal: Load: the file\n  check: df['a: b'].sum() > 0\n"
        "- goal: `df` is written\n  needs: step 1\n  check: {file: out.csv}\n"
    )
    assert first.goal == "Load: the file"
    assert first.postconditions[0].source == "assert df['a: b'].sum() > 0"
    assert (second.goal, second.needs) == ("`df` is written", (1,))
    assert second.postconditions[0].writes == "out.csv"


def test_a_check_goes_on_in_lines_that_are_set_in() -> None:
    (only,) = read_plan("- goal: Load: it\n  check: all(x\n    for x in xs)\n")
    assert only.postconditions[0].source == "assert all(x for x in xs)"


def test_a_check_in_words_is_fed_back() -> None:
    with pytest.raises(UsageError, match="check 1: The check `a true expression` is no Python"):
        read_plan("The plan:\n- goal: Load\n  check: a true expression\n")


def test_backticks_go_where_they_are_around_all() -> None:
    assert without_backticks(" `x > 0`. ") == "x > 0"
    assert without_backticks("`x` and `y`") == "`x` and `y`"
    assert without_backticks("x > 0") == "x > 0"


def test_a_goal_is_split_from_a_check_behind_it() -> None:
    assert split_check("Load it \u2014 **check**: `x > 0`.") == ("Load it", "x > 0")
    assert split_check("Load it and check: is it there?") == ("Load it and check: is it there?", "")
    assert split_check("check: `x`") == ("check: `x`", "")


@pytest.mark.parametrize("piece", ["*", "`", "-", " ", "check: `", "check:", "- goal: `\n", "1."])
def test_no_text_takes_long_to_be_read(piece: str) -> None:
    started = time.monotonic()
    for text in (f"- goal: a\n  check: {piece * (30_000 // len(piece))}", piece * 4_000):
        with suppress(UsageError):
            read_plan(text)
    assert time.monotonic() - started < 30


def test_a_key_that_is_not_known_is_fed_back_as_in_yaml() -> None:
    yaml = "- goal: {goal}\n  check: len(df) > 0\n  expected: 4 rows\n"
    for goal in ("'Load: data'", "Load: data"):  # the second is none
        with pytest.raises(UsageError, match='Step 1: unknown key "expected"'):
            read_plan(yaml.replace("{goal}", goal))


def test_a_number_beside_a_goal_is_as_good_as_its_place() -> None:
    (step,) = read_plan("- goal: Load: data\n  id: 1\n  check: len(df) > 0\n")
    assert (step.goal, len(step.postconditions)) == ("Load: data", 1)
