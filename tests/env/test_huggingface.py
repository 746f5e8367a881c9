"""Rows of a data set as an environment of single turns."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nbrefine.env.huggingface import HuggingFaceEnvironment
from nbrefine.errors import InvalidTaskError, UsageError
from nbrefine.extractors import NumericExtractor
from nbrefine.state import Action, StepResult
from nbrefine.taskdata import humaneval_task
from nbrefine.values import Task

if TYPE_CHECKING:
    from tests.hub import Hub

# GSM8K's form, with sums of our own.
SUMS: list[dict[str, Any]] = [
    {"question": "What is 40 + 2?", "answer": "40 and 2 make 42.\n#### 42"},
    {"question": "What is 600 * 2?", "answer": "Twice 600.\n#### 1,200"},
    {"question": "What is 1 + 1?", "answer": "#### 2"},
]


def answered(env: HuggingFaceEnvironment, index: int, text: str) -> StepResult:
    state, _ = env.reset(options={"task_index": index})
    return env.step(state, Action.from_text(text))


def test_a_set_on_the_hub_is_read_as_it_is_meant(hub: Hub) -> None:
    env = HuggingFaceEnvironment("openai/openai_humaneval")
    assert len(env) == 164
    state, info = env.reset(options={"task_index": 2})
    assert info == {"task_index": 2}
    assert state.observation.prompt == state.hidden.entry["prompt"]
    assert state.hidden.entry["task_id"] == state.hidden.task.id == "HumanEval/2"
    assert state.hidden.task.entry_point == "truncate_number"
    assert env.reward_functions == ()  # its tests need an executor
    assert (env.spec.name, env.spec.adapter) == ("openai/openai_humaneval", "huggingface")
    assert env.spec.pure_step
    assert hub.asked


@pytest.mark.usefixtures("hub")
def test_the_yaml_of_the_page_names_columns_of_its_own() -> None:
    env = HuggingFaceEnvironment(
        "openai/openai_humaneval",
        split="test",
        question_column="prompt",
        answer_column="canonical_solution",
    )
    task = env.reset()[0].hidden.task
    assert task.setup == "from typing import List"
    assert task.tests.lstrip().startswith("METADATA")
    assert task.reference == env.rows[0]["prompt"] + env.rows[0]["canonical_solution"]


@pytest.mark.usefixtures("hub")
def test_a_set_with_a_subset_for_each_language_is_read_in_that_of_the_answers() -> None:
    env = HuggingFaceEnvironment("bigcode/humanevalpack")
    assert env.reset()[0].hidden.task.prompt.startswith("Write a Python function")
    env = HuggingFaceEnvironment(
        "bigcode/humanevalpack",
        language="java",
        question_column="prompt",
        answer_column="task_id",
    )
    assert env.reset()[0].hidden.task.metadata["language"] == "java"
    assert len(env) == 1


@pytest.mark.parametrize("extractor", ["gsm8k", "numeric", NumericExtractor()])
def test_one_extractor_reads_the_answer_of_a_reply_and_of_the_row(extractor: Any) -> None:
    env = HuggingFaceEnvironment(SUMS, answer_extractor=extractor)
    assert env.reset()[0].hidden.expected_answer == "42"
    right = answered(env, 0, "40 and 2 are 42, so\n#### 42")
    assert [signal.reward for signal in right.rewards] == [1.0]
    assert right.info["solved"]
    wrong = answered(env, 0, "#### 41")
    assert [signal.reward for signal in wrong.rewards] == [0.0]
    assert "42" not in f"{wrong.rewards} {wrong.next_state.observation}"


def test_without_an_extractor_the_whole_reply_is_compared_with_the_column() -> None:
    env = HuggingFaceEnvironment([{"question": "Yes?", "answer": " yes "}])
    assert answered(env, 0, "yes\n").info["solved"]
    assert not answered(env, 0, "Well, yes").info["solved"]


def test_the_reference_is_the_expected_answer_where_a_function_makes_the_tasks() -> None:
    env = HuggingFaceEnvironment(
        SUMS,
        task=lambda row: Task(f"Only the number: {row['question']}", reference="42"),
        size=1,
    )
    assert env.reset()[0].observation.prompt == "Only the number: What is 40 + 2?"
    assert answered(env, 0, "42").info["solved"]


@pytest.mark.usefixtures("hub")
def test_a_function_of_ones_own_splits_the_tests_of_a_known_set() -> None:
    env = HuggingFaceEnvironment(
        "openai/openai_humaneval", task=partial(humaneval_task, split=True), size=4
    )
    task = env.reset(options={"task_index": 3})[0].hidden.task
    assert task.tests.startswith("assert below_zero(")
    assert "def check(candidate)" in task.hidden_tests


@pytest.mark.usefixtures("hub")
def test_the_tests_of_a_known_set_can_be_split_and_those_of_another_not() -> None:
    env = HuggingFaceEnvironment("openai/openai_humaneval", split_tests=True, size=4)
    task = env.reset(options={"task_index": 3})[0].hidden.task
    assert task.tests.startswith("assert below_zero(")
    assert "def check(candidate)" in task.hidden_tests
    with pytest.raises(UsageError, match="The tests of rows cannot be split"):
        HuggingFaceEnvironment(SUMS, split_tests=True)


@pytest.mark.usefixtures("hub")
def test_a_named_column_of_a_known_set_is_never_ignored() -> None:
    env = HuggingFaceEnvironment(
        "openai/openai_humaneval",
        question_column="prompt",
        answer_column="canonical_solution",
        test_column="",
        hidden_test_column="test",
    )
    task = env.reset()[0].hidden.task
    assert task.tests == ""
    assert "def check(candidate)" in task.hidden_tests
    assert env.reward_functions == ()
    with pytest.raises(UsageError, match="no column 'question'; the columns are task_id, prompt"):
        HuggingFaceEnvironment("openai/openai_humaneval", test_column="")


def test_size_seed_and_shuffle_choose_the_tasks() -> None:
    rows = [{"question": f"{number}?", "answer": f"{number}"} for number in range(50)]

    def asked(**settings: Any) -> list[str]:
        env = HuggingFaceEnvironment(rows, **settings)
        states = [env.reset(options={"task_index": index})[0] for index in range(len(env))]
        return [state.observation.prompt for state in states]

    assert asked(size=2) == ["0?", "1?"]
    assert asked(size=2, seed=7) == ["0?", "1?"]  # a seed shuffles nothing by itself
    drawn = asked(size=5, seed=7, shuffle=True)
    assert drawn == asked(size=5, seed=7, shuffle=True)
    assert drawn != asked(size=5, seed=8, shuffle=True)
    assert len(asked(size=99)) == 50


def test_a_row_becomes_a_task_only_when_it_is_asked_for() -> None:
    env = HuggingFaceEnvironment([SUMS[0], {"question": None, "answer": "1"}])
    assert answered(env, 0, SUMS[0]["answer"]).info["solved"]
    with pytest.raises(InvalidTaskError, match="asks nothing"):
        env.reset(options={"task_index": 1})


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_beyond_the_rows_is_refused(index: int) -> None:
    with pytest.raises(UsageError, match=f"task_index is {index}"):
        HuggingFaceEnvironment(SUMS).reset(options={"task_index": index})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"question_column": "questoin"}, "no column 'questoin'; the columns are question, answer"),
        ({"answer_column": "target"}, "no column 'target'"),
        ({"test_column": "tests"}, "no column 'tests'"),
        ({"answer_extractor": "gsm9k"}, 'no extractor "gsm9k"'),
        ({"size": 0}, "size is 0"),
    ],
)
def test_a_wrong_setting_is_told_at_once(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as caught:
        HuggingFaceEnvironment(SUMS, **settings)
    assert told in caught.value.message


def test_a_set_without_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    path.write_text("")
    with pytest.raises(UsageError, match="has no rows"):
        HuggingFaceEnvironment(str(path))


def test_a_local_file_is_a_data_set_too(tmp_path: Path) -> None:
    path = tmp_path / "sums.csv"
    path.write_text("question,answer\nWhat is 3 + 4?,007\n")
    env = HuggingFaceEnvironment(path)
    assert env.reset()[0].hidden.expected_answer == "007"


def test_a_column_of_hidden_tests_reaches_the_grade_alone() -> None:
    rows = [{"question": "Q?", "answer": "A", "test": "assert f(1)", "kept": "assert f(2)"}]
    env = HuggingFaceEnvironment(rows, hidden_test_column="kept")
    state, _ = env.reset()
    assert (state.hidden.task.tests, state.hidden.task.hidden_tests) == (
        "assert f(1)",
        "assert f(2)",
    )
    assert "assert f(2)" not in state.observation.prompt
