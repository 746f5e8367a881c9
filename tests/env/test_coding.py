"""Coding sets as loops: the data, the executor and the tests' feedback in one call.

The programs are the data sets' own or one-line answers of ours; no test names a solution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from nbrefine import executors
from nbrefine.env.coding import IterativeCodingEnvironment
from nbrefine.env.iterative import IterativeEnvironment
from nbrefine.errors import UsageError
from nbrefine.executors import CodeExecutionResult
from nbrefine.extractors import RawGenerationExtractor, TagBasedExtractor
from nbrefine.rewards.code import CodeExecutionReward
from nbrefine.state import Action, State, StepResult
from nbrefine.taskdata import humaneval_task, mbpp_task
from nbrefine.values import Message, RewardType, Task

if TYPE_CHECKING:
    from tests.hub import Hub

ROWS: list[dict[str, Any]] = [
    {
        "prompt": "Write double(x): twice x.",
        "canonical_solution": "def double(x):\n    return 2 * x\n",
        "test": "assert double(2) == 4\nassert double('ab') == 'abab'",
    }
]


def fenced(code: str, tag: str = "python") -> str:
    return f"Here it is.\n\n```{tag}\n{code}\n```\n"


def answer(env: IterativeEnvironment, state: State, text: str) -> StepResult:
    return env.step(state, Action.from_text(text))


def reward_of(result: StepResult, name: str = "code_execution") -> float | None:
    signal = result.rewards.by_name(name)
    assert signal is not None
    return signal.reward


@pytest.mark.usefixtures("hub")
def test_humaneval_is_solved_by_its_reference_and_not_by_none() -> None:
    with IterativeCodingEnvironment.from_humaneval() as env:
        assert len(env) == 164
        assert env.max_turns == 5
        for index in (0, 38, 163):
            state, _ = env.reset(options={"task_index": index})
            entry = state.hidden.entry
            name = entry["entry_point"]
            nothing = answer(env, state, fenced(f"def {name}(*args):\n    return None"))
            reward = reward_of(nothing)
            assert reward is not None
            assert reward < 1.0  # `check` is really called
            assert not nothing.done
            assert "None" in nothing.next_state.observation.prompt
            whole = fenced(entry["prompt"] + entry["canonical_solution"])
            solved = answer(env, nothing.next_state, whole)
            assert solved.terminated
            assert reward_of(solved) == 1.0


@pytest.mark.usefixtures("hub")
def test_a_function_alone_or_its_body_alone_runs_with_what_the_prompt_gives() -> None:
    with IterativeCodingEnvironment.from_humaneval(size=1) as env:
        state, _ = env.reset()
        entry = state.hidden.entry
        assert "from typing import List" in entry["prompt"]
        alone = entry["prompt"].replace("from typing import List", "")
        assert answer(env, state, fenced(alone + entry["canonical_solution"])).terminated
        assert answer(env, state, fenced(entry["canonical_solution"])).terminated


@pytest.mark.usefixtures("hub")
def test_mbpp_shows_its_tests_and_is_solved_by_its_reference() -> None:
    with IterativeCodingEnvironment.from_mbpp(size=3) as env:
        assert env.max_turns == 3
        state, _ = env.reset(options={"task_index": 2})
        entry = state.hidden.entry
        assert entry["text"] in state.observation.prompt
        assert all(test in state.observation.prompt for test in entry["test_list"])
        solved = answer(env, state, fenced(entry["code"]))
        assert solved.terminated
        assert solved.next_state.hidden.episode.stop.detail == "3/3 tests passed"


@pytest.mark.usefixtures("hub")
def test_the_sanitized_subset_and_any_split_can_be_asked_for() -> None:
    with IterativeCodingEnvironment.from_mbpp(subset="sanitized", split="prompt") as env:
        assert len(env) == 7
        state, _ = env.reset()
        assert answer(env, state, fenced(state.hidden.entry["code"])).terminated


@pytest.mark.usefixtures("hub")
def test_any_coding_set_of_the_hub_makes_a_loop() -> None:
    """The page's example, which names no subset."""
    env = IterativeCodingEnvironment.create(
        dataset="bigcode/humanevalpack",
        language="python",
        max_turns=5,
        question_column="prompt",
        answer_column="canonical_solution",
        test_column="test",
    )
    with env:
        assert len(env) == 98
        state, _ = env.reset()
        entry = state.hidden.entry
        buggy = answer(env, state, fenced(entry["declaration"] + entry["buggy_solution"]))
        assert not buggy.done
        right = fenced(entry["declaration"] + entry["canonical_solution"])
        assert answer(env, buggy.next_state, right).terminated


def test_rows_of_ones_own_make_a_loop_that_counts_turns_and_tells_failures() -> None:
    with IterativeCodingEnvironment.create(ROWS, max_turns=2) as env:
        assert env.spec.max_steps == 2
        state, _ = env.reset()
        first = answer(env, state, fenced("def double(x):\n    return x + 2"))
        assert reward_of(first) == 0.5
        told = first.next_state.observation.prompt
        assert "1/2 tests passed" in told
        assert "double('ab')" in told
        second = answer(env, first.next_state, "I give up.")
        assert second.truncated
        assert reward_of(second) == 0.0


def test_a_response_is_extracted_once_so_that_a_fence_in_the_code_stays_code() -> None:
    docstring = '"""Doubles.\n\n    ```python\n    x = 0\n    ```\n    """'
    code = f"def double(x):\n    {docstring}\n    return 2 * x"
    with IterativeCodingEnvironment.create(ROWS) as env:
        state, _ = env.reset()
        result = answer(env, state, f"~~~~python\n{code}\n~~~~")
        assert result.terminated
        assert result.extracted_action is not None
        assert result.extracted_action.strip() == code


def test_an_extractor_of_ones_own_finds_the_code_for_the_tests_too() -> None:
    with IterativeCodingEnvironment.create(
        ROWS, submission_extractor=TagBasedExtractor("code")
    ) as env:
        state, _ = env.reset()
        code = "def double(x):\n    return 2 * x"
        assert answer(env, state, f"So: <code>\n{code}\n</code>").terminated
        assert reward_of(answer(env, state, fenced(code))) == 0.0


def test_a_submission_that_begins_with_the_keyword_is_judged_and_final() -> None:
    with IterativeCodingEnvironment.create(ROWS) as env:
        state, _ = env.reset()
        result = answer(env, state, "SUBMIT\n" + fenced("def double(x):\n    return x"))
        assert result.terminated
        assert result.info["early_submit"]
        assert reward_of(result) == 0.0


@dataclass
class Noting:
    """An executor that notes what it is asked and lets everything pass."""

    asked: list[tuple[str, str, float]] = field(default_factory=list)
    closed: int = 0

    def execute(self, code: str, test_code: str, *, timeout: float = 30.0) -> CodeExecutionResult:
        self.asked.append((code, test_code, timeout))
        return CodeExecutionResult(1, 1)

    async def aclose(self) -> None:
        self.closed += 1


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    "make",
    [
        IterativeCodingEnvironment.from_humaneval,
        IterativeCodingEnvironment.from_mbpp,
        partial(IterativeCodingEnvironment.create, ROWS),
    ],
)
def test_the_time_limit_reaches_the_executor_which_stays_open_for_its_maker(
    make: Callable[..., IterativeEnvironment],
) -> None:
    for given, expected in (({}, 30), ({"timeout": 7}, 7)):
        executor = Noting()
        with make(executor=executor, **given) as env:
            state, _ = env.reset()
            answer(env, state, fenced("x = 1"))
        assert [timeout for _, _, timeout in executor.asked] == [expected]
        assert executor.closed == 0


def test_an_executor_that_a_loop_has_made_is_closed_with_it() -> None:
    with IterativeCodingEnvironment.create(ROWS) as env:
        (reward,) = env.reward_functions
        assert isinstance(reward, CodeExecutionReward)
    with pytest.raises(UsageError, match="closed"):
        reward.executor.execute("", "assert True")


def test_code_that_never_ends_is_stopped_at_the_limit() -> None:
    with IterativeCodingEnvironment.create(ROWS, timeout=1) as env:
        state, _ = env.reset()
        result = answer(env, state, fenced("def double(x):\n    while True: pass"))
        assert reward_of(result) == 0.0
        assert result.next_state.hidden.episode.turns[0].verdict == "timeout"


def comment(messages: tuple[Message, ...]) -> str:
    assert "double" in messages[-1].content
    return "Think of the text too.\n[[10]]"


def test_a_judge_comments_as_a_process_and_cannot_end_the_episode() -> None:
    with IterativeCodingEnvironment.create(ROWS, judge_backend=comment) as env:
        assert [function.name for function in env.reward_functions] == [
            "code_execution",
            "judge_feedback",
        ]
        state, _ = env.reset()
        result = answer(env, state, fenced("def double(x):\n    return x + 2"))
        signal = result.rewards.by_name("judge_feedback")
        assert signal is not None
        assert (signal.reward_type, signal.reward) == (RewardType.PROCESS, 1.0)
        assert not result.terminated


def test_extra_rewards_come_after_the_tests() -> None:
    extra = CodeExecutionReward(Noting(), code_extractor=RawGenerationExtractor(), name="extra")
    with IterativeCodingEnvironment.create(ROWS, extra_rewards=(extra,)) as env:
        assert [function.name for function in env.reward_functions] == ["code_execution", "extra"]


@pytest.mark.usefixtures("hub")
def test_hidden_tests_reach_no_prompt_and_no_feedback() -> None:
    for env, make in (
        (IterativeCodingEnvironment.from_humaneval, humaneval_task),
        (IterativeCodingEnvironment.from_mbpp, mbpp_task),
    ):
        with env(task=partial(make, split=True), size=3) as split:
            state, _ = split.reset(options={"task_index": 2})
            task = state.hidden.task
            assert task.tests
            assert task.hidden_tests
            result = answer(
                split, state, fenced(f"def {task.entry_point}(*args):\n    return None")
            )
            told = f"{state.observation} {result.next_state.observation} {result.rewards}"
            lines = [line.strip() for line in task.hidden_tests.splitlines() if "assert" in line]
            assert lines
            assert not [line for line in lines if line in told]


@pytest.mark.parametrize("language", ["java", "Brainfuck"])
def test_a_language_without_a_kernel_is_refused_before_anything_is_loaded(
    hub: Hub, language: str
) -> None:
    with pytest.raises(UsageError, match=f"No kernel runs {language}") as caught:
        IterativeCodingEnvironment.create("bigcode/humanevalpack", language=language)
    assert "python3 (python)" in caught.value.message
    assert f"Install a Jupyter kernel for {language}" in caught.value.hint
    assert hub.asked == []


def test_another_language_runs_in_its_kernel(
    bash_kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def executor(*, kernel: str) -> Noting:
        made.append(kernel)
        return Noting()

    monkeypatch.setattr(executors, "KernelCodeExecutor", executor, raising=False)
    rows = [{"prompt": "Print hello.", "canonical_solution": "echo hello", "test": "true"}]
    with IterativeCodingEnvironment.create(rows, language="Bash") as env:
        assert made == [bash_kernel]
        state, _ = env.reset()
        assert state.hidden.task.metadata["language"] == "Bash"
        result = answer(env, state, fenced("echo hello", "sh"))
        assert result.extracted_action == "echo hello"


def test_rows_without_tests_are_refused_with_their_columns() -> None:
    rows = [{"prompt": "Q", "canonical_solution": "A", "level": 1}]
    with pytest.raises(UsageError, match="the columns are prompt, canonical_solution, level"):
        IterativeCodingEnvironment.create(rows)


@pytest.mark.usefixtures("hub")
def test_columns_that_a_set_has_not_are_told_with_those_it_has() -> None:
    with pytest.raises(UsageError, match="no column 'prompt'; the columns are task_id, text, code"):
        IterativeCodingEnvironment.create("google-research-datasets/mbpp")


def test_rows_with_tests_need_no_reference_unless_one_is_named() -> None:
    rows = [{"prompt": ROWS[0]["prompt"], "test": ROWS[0]["test"]}]
    with IterativeCodingEnvironment.create(rows) as env:
        state, _ = env.reset()
        assert state.hidden.task.reference == ""
        assert answer(env, state, fenced("def double(x):\n    return 2 * x")).terminated
    with pytest.raises(UsageError, match="no column 'solution'"):
        IterativeCodingEnvironment.create(rows, answer_column="solution")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_turn": 2}, "create takes no max_turn. Did you mean max_turns"),
        ({"rewards": []}, "create takes no rewards. Did you mean extra_rewards"),
        ({"colour": 2}, "create takes no colour. Give answer_column, answer_extractor, "),
    ],
)
def test_a_wrong_argument_is_told_with_the_right_one(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        IterativeCodingEnvironment.create(ROWS, **settings)
    assert str(caught.value).startswith(said)
    with pytest.raises(UsageError, match="from_humaneval takes no dataset"):
        IterativeCodingEnvironment.from_humaneval(dataset="mine")


def test_a_task_of_refine_is_a_task_of_a_loop_too() -> None:
    task = Task("Write double(x).", setup="import math", tests="assert double(4) == 8")
    with IterativeEnvironment(tasks=task) as env:
        state, _ = env.reset()
        assert state.hidden.task.setup == "import math"
        assert answer(env, state, "def double(x):\n    return 2 * x").terminated
