"""Plans as task files and models write them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.errors import UsageError
from nbrefine.planning import MOST_SUBTASKS, plan_of, read_plan, reading, subtasks_of
from nbrefine.postconditions import file_written, frame, holds
from nbrefine.values import Subtask


def goals(text: str) -> list[str]:
    found = read_plan(text)
    assert not any(each.needs or each.postconditions for each in found)
    return [each.goal for each in found]


def test_a_task_s_steps_are_goals_or_entries() -> None:
    data = yaml.safe_load("""
    - Load the survey
    - goal: |
        Drop the rows without an age
      needs: 1
      check: {frame: df, rows: 100, columns: [age]}
    - goal: Save them
      needs: [1, step 2, 2]
      check: total == 12
      checks:
        - {file: out/clean.csv}
        - assert done
    """)
    assert subtasks_of(data, origin="task") == (
        Subtask("Load the survey"),
        Subtask("Drop the rows without an age", (1,), (frame("df", rows=100, columns=["age"]),)),
        Subtask(
            "Save them",
            (1, 2),
            (holds("total == 12"), file_written("out/clean.csv"), holds("assert done")),
        ),
    )


def test_checks_say_who_asks_for_them() -> None:
    data = [{"goal": "a", "check": "x > 0"}]
    (of_task,) = subtasks_of(data, origin="task")
    (of_model,) = subtasks_of(data, origin="model")
    (read,) = read_plan(json.dumps(data))
    assert [each.postconditions[0].origin for each in (of_task, of_model, read)] == [
        "task",
        "model",
        "model",
    ]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("Load", "The steps are a list, not 'Load'"),
        ({"goal": "Load"}, "The steps are a list"),
        (None, "The steps are a list, not None"),
        ([], f"There are 0 steps, but 1 to {MOST_SUBTASKS} are expected"),
        (["a"] * 21, "There are 21 steps, but 1 to 20 are expected"),
        (["a", " \n"], r"Step 2 has the goal ' \n', which says nothing"),
        (["a", {"check": "x"}], "Step 2 has no goal"),
        (["a", {"goal": 3}], "Step 2 has the goal 3, which says nothing"),
        (["a", ["b"]], "Step 2 is ['b'], which is no goal"),
        (["a", None], "Step 2 is None, which is no goal"),
        ([{"gaol": "a"}], 'Step 1: unknown key "gaol". Did you mean "goal"? Allowed: goal, needs,'),
        ([{"goal": "a", 1: "b"}], 'Step 1: unknown key "1". Allowed: goal, needs, check, checks'),
        ([{"goal": "a", "needs": 1}], "Step 1 needs step 1, which does not come before it"),
        ([{"goal": "a", "needs": [2]}, "b"], "Step 1 needs step 2, which does not come before it"),
        (["a", {"goal": "b", "needs": 0}], "Step 2 needs step 0, which does not come before it"),
        (["a", {"goal": "b", "needs": -1}], "Step 2 needs step -1, which does not come before it"),
        (["a", {"goal": "b", "needs": True}], "Step 2 needs True, which is no number of a step"),
        (["a", {"goal": "b", "needs": "a"}], "Step 2 needs 'a', which is no number of a step"),
        ([{"goal": "a", "check": {"fil": "x"}}], "Step 1, check 1: The check `{'fil': 'x'}` is of"),
        ([{"goal": "a", "checks": ["x > 1", "x = 1"]}], "Step 1, check 2: The check `x = 1` asse"),
        ([{"goal": "a", "check": True}], "Step 1, check 1: A check is a text or a mapping"),
    ],
)
def test_what_is_no_plan_is_told_with_its_step(data: Any, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        subtasks_of(data, origin="task")
    assert problem in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "1. Load the file\n2. Count: all rows\n3. Save it",
        "1) Load the file\n2) Count: all rows\n3) Save it",
        "(1) Load the file\n(2) Count: all rows\n(3) Save it",
        "  1. Load the file\n  2. Count: all rows\n\n  3. Save it\n",
        "- Load the file\n- Count: all rows\n- Save it",
        "* Load the file\n* Count: all rows\n* Save it",
        "\u2022 Load the file\n\u2022 Count: all rows\n\u2022 Save it",
        "- [ ] Load the file\n- [ ] Count: all rows\n- [x] Save it",
        "Step 1: Load the file\nStep 2: Count: all rows\nStep 3: Save it",
        "**Step 1:** Load the file\n**Step 2:** Count: all rows\n**Step 3:** Save it",
        "### Step 1 - Load the file\n### Step 2 - Count: all rows\n### Step 3 - Save it",
        "1. **Load** the file\n2. **Count:** all rows\n3. Save **it**",
        "Here is my plan:\n1. Load the file\n2. Count: all rows\n3. Save it\n\nThat is all.",
        "## Plan\n\n1. Load the file\n\n2. Count: all rows\n\n3. Save it\n",
        "1. Load\n   the file\n2. Count: all\nrows\n3. Save it",
        "1. Load\n- the file\n2. Count: all rows\n3. Save it",
        "```plan\n1. Load the file\n2. Count: all rows\n3. Save it\n```",
        "My plan\n```\n- Load the file\n- Count: all rows\n- Save it\n```\nas asked",
        "['Load the file', 'Count: all rows', 'Save it']",
        '["Load the file", "Count: all rows", "Save it"]',
        '{"subtasks": [{"goal": "Load the file"}, "Count: all rows", {"goal": "Save it"}]}',
        "Plan:\n- Load the file\n- Count: all rows\n- Save it",
        "my own:\n- goal: Load the file\n- goal: 'Count: all rows'\n- goal: Save it",
        "steps: |\n  1. Load the file\n  2. Count: all rows\n  3. Save it",
        "- step: 1\n  goal: Load the file\n- step: 2\n  task: 'Count: all rows'\n- title: Save it",
        "- id: 1\n  description: Load the file\n- n: 2\n  goal: 'Count: all rows'\n- Goal: Save it",
        "- {step: 3, goal: Load the file}\n- {step: 4, goal: 'Count: all rows'}\n- Save it",
        "- Load the file\r\n- Count: all rows\r\n- Save it\r\n",
    ],
)
def test_one_plan_in_many_forms(text: str) -> None:
    assert goals(text) == ["Load the file", "Count: all rows", "Save it"]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("- `df` is loaded\n- @mean is found", ["`df` is loaded", "@mean is found"]),
        ("- Load:\n    - the file\n    - its words", ["Load: the file; its words"]),
        ("1. Load\n   - the file\n   - its words\n2. Save", ["Load the file its words", "Save"]),
        ("- *Load* it\n- save it", ["*Load* it", "save it"]),
        ("goal: Load it", ["Load it"]),
        ("1. 3.5 mm and more\n2. under 3.5 mm", ["3.5 mm and more", "under 3.5 mm"]),
        ("10. Load\n11. Save", ["Load", "Save"]),
        ("1. Load the data: a: b\n2. {x}", ["Load the data: a: b", "{x}"]),
    ],
)
def test_forms_that_yaml_would_break(text: str, read: list[str]) -> None:
    assert goals(text) == read


def test_what_models_call_needs_and_checks() -> None:
    text = """
    - task: Load
      verify: len(df) > 0
    - task: Save
      depends_on: [1]
      postconditions:
        - file: out.csv
    """
    load, save = read_plan(text)
    assert load.postconditions[0].source == "assert len(df) > 0"
    assert save.needs == (1,)
    assert save.postconditions[0].source == file_written("out.csv").source


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (" \n", "The plan is empty"),
        ("```plan\n```", "The plan is empty"),
        ("I would load the data and then look at it.", "The plan holds no list of steps"),
        ("{}", "The plan holds no list of steps"),
        ("[]", "The plan holds no list of steps"),
        ("12", "The plan holds no list of steps"),
        ("\0", "The plan holds no list of steps"),
        ('{"checks": ["x"]}', "The plan holds no list of steps"),
        ("[" * 9000, "The plan holds no list of steps"),
        ("x" * 40_001, "A plan of 40,001 characters is too long"),
        ("- goal: Load\n  check: a: b", "Step 1, check 1: The check `a: b` asserts nothing"),
        ("- goal: a\n  check: *b", "Step 1, check 1: The check `*b` is no Python"),
        ("[{goal: a: b}]", "The plan is no YAML: line 1: "),
        ("[{goal: &b a, check: *b}]", "The plan is no YAML: it refers to another part of itself"),
        ("- goal: a\n  check: x > 0\n  check: y > 0", 'The plan has the key "check" twice'),
        ('[{"goal": "a", "check": "x", "check": "y"}]', 'The plan has the key "check" twice'),
        ("- goal: a\n  title: b", 'Step 1: unknown key "title"'),
        ("- goal: a\n  verfy: x > 0", 'Step 1: unknown key "verfy"'),
        ("- gaol: a", 'Step 1: unknown key "gaol"'),
        ("- goal: a\n- step: 4\n  goal: b\n  needs: 3", 'Step 2: unknown key "step"'),
        ("- step: load\n  goal: a", 'Step 1: unknown key "step"'),
        ("- title: a\n  step: b", 'Step 1: unknown key "step"'),
        ("- a\n- 5", "Step 2 is 5, which is no goal"),
        ("- a\n-", "Step 2 is None, which is no goal"),
        ("- goal: a\n  check: 2020-13-45", "The check `assert 2020-13-45` looks at nothing"),
        ("- goal: a\n  check: !!bool x", "The check `!!bool x` is no Python"),
        ("[{goal: 2020-13-45}]", "The plan is no YAML: a value in it cannot be read"),
        ('[{"goal": "a", "needs": ' + "9" * 5_000 + "}]", "The plan is no YAML: a number in it"),
        ("- a\n- 0x" + "f" * 5_000, "The plan holds a number that is too long"),
        ("- a\n- goal: ''", "Step 2 has the goal '', which says nothing"),
        ("1. a\n2.\n3. c", "Step 2 has the goal '', which says nothing"),
        (
            "- goal: a\n  needs: 2\n- goal: b\n  needs: 1",
            "Step 1 needs step 2, which does not come",
        ),
        ("- goal: a\n  check: {sum: 3}", "Step 1, check 1: The check `{'sum': 3}` is of no kind"),
        ("- goal: a\n  check: there are rows", "is no Python: line 1: invalid syntax"),
        ("\n".join(f"{n}. a" for n in range(1, 22)), "There are 21 steps, but 1 to 20 are exp"),
    ],
)
def test_what_cannot_be_followed_is_told_so_that_it_can_be_fed_back(
    text: str, problem: str
) -> None:
    with pytest.raises(UsageError) as refused:
        read_plan(text)
    assert problem in str(refused.value)
    assert refused.value.hint
    assert len(str(refused.value)) < 400


def test_what_reads_like_another_value_is_a_goal_all_the_same() -> None:
    assert goals("- 2020-13-45\n- b") == ["2020-13-45", "b"]


def test_data_without_bounds_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(3_000):
        nested = [nested]
    for items, problem in (
        ([{"goal": "x" * 50_000}], "A plan of 50,0.. characters is too long"),
        ([{"goal": "a", "check": {"assert": "x", "told": "y" * 50_000}}], "is too long"),
        ([{"goal": nested}], "nested too deeply"),
        ([10**5_000], "a number that is too long"),
    ):
        with pytest.raises(UsageError, match=problem):
            plan_of(items)


@pytest.mark.parametrize("pattern", [reading._STRUCTURED, reading._FENCED])
def test_blank_lines_are_read_once(pattern: re.Pattern[str]) -> None:
    """A pattern that runs over the ends of lines, from each of them on, would take for ever."""
    assert pattern.search("\n" * 300_000) is None


def test_a_plan_that_grows_without_bounds_is_refused_at_once() -> None:
    bomb = "a: &a [x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(UsageError, match="no list of steps"):
        read_plan(bomb * 30)


@given(st.text(max_size=80) | st.text("-1. :{}[]'\"\n\tgoalchek&*#>|%@!?`,", max_size=80))
def test_any_text_is_a_plan_or_refused(text: str) -> None:
    try:
        found = read_plan(text)
    except UsageError:
        return
    assert 1 <= len(found) <= MOST_SUBTASKS
    assert all(each.goal.strip() for each in found)


WORDS = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
GOALS = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=20)


@given(GOALS)
def test_json_yaml_and_lists_are_read_alike(given_goals: list[str]) -> None:
    data = [{"goal": goal} for goal in given_goals]
    numbered = "\n".join(f"{n}. {goal}" for n, goal in enumerate(given_goals, 1))
    assert goals(json.dumps(data)) == given_goals
    assert goals(yaml.safe_dump({"plan": data}, allow_unicode=True)) == given_goals
    assert goals(numbered) == given_goals


@pytest.mark.parametrize(
    "data",
    [
        ["a", {"task": "b", "depends_on": 1}],
        {"steps": ["a", {"goal": "b", "needs": [1]}]},
        "- a\n- goal: b\n  needs: 1",
    ],
)
def test_the_argument_of_a_call_is_read_as_kindly(data: Any) -> None:
    assert plan_of(data) == (Subtask("a"), Subtask("b", (1,)))


@pytest.mark.parametrize("data", [None, 3, {}, [], {"goal": None}, [[]]])
def test_an_argument_that_is_no_plan_is_refused(data: Any) -> None:
    with pytest.raises(UsageError):
        plan_of(data)
