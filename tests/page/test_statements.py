"""What the page says beside its programs: each statement, in our words, and the test that holds it.

Where no other file has such a test it stands below the table.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nbrefine.config import CodeExecutionConfig, IterativeConfig
from nbrefine.env import (
    IterativeEnvironment,
    IterativeTask,
    Problem,
    SingleTurnEnvironment,
)
from nbrefine.executors import CodeExecutionResult, CodeExecutor, SubprocessCodeExecutor
from nbrefine.extractors import CodeBlockExtractor, RawGenerationExtractor, TagBasedExtractor
from nbrefine.models.scripted import ScriptedModel
from nbrefine.rewards import (
    JUDGE_TEMPLATES,
    CodeExecutionReward,
    FormatReward,
    JudgeReward,
    RewardFunction,
)
from nbrefine.runner import TrajectoryRunner, TurnInfoConfig
from nbrefine.state import Action, State, StepResult
from nbrefine.values import RewardType, Signal, SignalBundle, Task

TESTS = Path(__file__).parents[1]

EXAMPLES = "page/test_examples.py::test_"
HERE = "page/test_statements.py::test_"
LOOP = "env/test_iterative.py::test_"
ENDS = "env/test_iterative_ends.py::test_"
STATES = "env/test_iterative_states.py::test_"
TESTED = "env/test_iterative_tests.py::test_"
HISTORY = "env/test_history.py::test_"
PROMPTS = "env/test_prompts.py::test_"
CODING = "env/test_coding.py::test_"
EXECUTED = "rewards/test_code_reward_executors.py::test_"
JUDGE = "rewards/test_judge_reward.py::test_"
CONFIG = "config/test_evaluation_config.py::test_"
FACTORY = "config/test_factories.py::test_"
RUNNER = "runner/test_prompts.py::test_"
BATCHES = "runner/test_batches.py::test_"
CONTAINER = "env/test_container.py::test_"

STATEMENTS = {
    # The loop
    "any single-turn environment becomes one of many turns": (
        STATES + "an_environment_of_a_user_s_own_is_wrapped_as_it_is"
    ),
    "it goes on until solved, submitted or out of turns": (
        ENDS + "any_episode_ends_where_the_page_s_table_says"
    ),
    "a step looks for the keyword, extracts, judges, adds rewards, tells feedback, in this order": (
        HERE + "a_step_goes_through_its_parts_in_the_page_s_order"
    ),
    "the inner environment must have pure_step": (
        LOOP + "an_inner_environment_without_pure_step_is_refused_by_name"
    ),
    "most single-turn environments have it": HERE + "single_turn_environments_have_pure_step",
    "every submission is judged from the inner environment's first state": (
        HERE + "every_submission_is_judged_from_the_stored_first_state"
    ),
    "neither inner nor tasks is an error": (LOOP + "what_cannot_be_is_a_value_error_that_says_why"),
    # How an episode ends
    "solved: the best outcome reward reaches the threshold: terminated": (
        ENDS + "solved_is_the_best_outcome_at_the_threshold"
    ),
    "submitted: the response begins with the keyword: terminated": (
        ENDS + "only_the_keyword_itself_at_the_start_submits_early"
    ),
    "out of turns: truncated": ENDS + "the_last_turn_truncates",
    "an early submission is judged and keeps its keyword": (
        ENDS + "an_early_submission_is_still_judged_and_solved_wins"
    ),
    "no keyword, no early submission": ENDS + "the_keyword_is_the_environment_s_own",
    # Signals
    "a signal has a number and a text": EXAMPLES + "a_signal",
    "all feedback that is not None is collected and shown": (
        HERE + "all_feedback_that_is_not_none_reaches_the_observation"
    ),
    # Submission extraction
    "by default the whole response is the submission": (
        HERE + "the_default_extractor_gives_what_no_extractor_gives"
    ),
    "an extractor of one's own finds it": (
        LOOP + "the_submission_is_extracted_and_the_response_is_kept"
    ),
    "where it finds nothing, the raw response is the submission": (
        LOOP + "where_nothing_is_extracted_the_raw_response_is_the_submission"
    ),
    # History and prompts
    "by default earlier attempts and their feedback are shown after the first turn": (
        HISTORY + "by_default_every_earlier_attempt_is_told_with_its_feedback"
    ),
    "history begins with the second feedback": (
        HISTORY + "history_begins_with_the_second_feedback"
    ),
    "the sample of a history": EXAMPLES + "what_history_looks_like",
    "include_history=False shows the current feedback alone": (
        HISTORY + "without_history_only_the_current_feedback_is_shown"
    ),
    "a summarizer is a callable of submissions and feedback": (
        HISTORY + "a_summarizer_is_given_what_came_before_in_a_thread_of_its_own"
    ),
    "the templates are initial, feedback and history_entry": (
        PROMPTS + "the_templates_are_told_and_a_changed_copy_changes_nothing"
    ),
    "a template that is not named stays": (
        PROMPTS + "custom_prompts_of_the_page_replace_only_what_they_name"
    ),
    "turns are not counted by the environment": (
        PROMPTS + "the_default_prompts_have_the_page_s_headings_and_count_no_turns"
    ),
    "they are in the page's quick start": (
        EXAMPLES + "the_turns_in_the_quick_start_s_comments_are_there_with_counted_prompts"
    ),
    "TurnInfoConfig on the runner counts them": (
        RUNNER + "turn_info_follows_the_task_and_precedes_what_is_newest"
    ),
    "without it they are not told": RUNNER + "turns_are_not_told_unless_asked_for",
    # Coding environments
    "a factory makes a data set's environment, an executor, a reward and the loop": (
        EXAMPLES + "each_factory_is_made_of_the_four_parts_that_the_page_lists"
    ),
    "from_humaneval has 5 turns, from_mbpp 3": HERE + "the_factories_have_the_page_s_defaults",
    "HumanEval is solved by its reference": (
        CODING + "humaneval_is_solved_by_its_reference_and_not_by_none"
    ),
    "MBPP is solved by its reference": (
        CODING + "mbpp_shows_its_tests_and_is_solved_by_its_reference"
    ),
    "judge_backend adds a judge with the template iterative_feedback": (
        EXAMPLES + "a_factory_with_a_judge"
    ),
    "its time limit reaches the executor": (
        CODING + "the_time_limit_reaches_the_executor_which_stays_open_for_its_maker"
    ),
    "a language without a kernel is refused": (
        CODING + "a_language_without_a_kernel_is_refused_before_anything_is_loaded"
    ),
    "code and tests run in a subprocess": (
        EXECUTED + "code_and_tests_in_separate_processes_give_a_grade_and_all_that_was_seen"
    ),
    "they give a score and feedback": EXAMPLES + "code_execution",
    "what an executor is and gives": HERE + "executors_and_their_results_have_the_page_s_form",
    # The file
    "the page's file is read": CONFIG + "the_page_s_file_is_read",
    "its table of defaults": HERE + "the_defaults_of_the_table_are_those_of_file_and_class",
    "max_turns": FACTORY + "max_turns_is_where_a_loop_is_cut",
    "include_history": FACTORY + "history_is_told_or_not",
    "summarize_history": FACTORY + "history_is_summed_up_by_the_environment_s_own_model",
    "submit_keyword": FACTORY + "a_submit_keyword_ends_a_loop_and_null_disables_it",
    "submission_extractor and its config": FACTORY + "a_submission_is_extracted_as_asked_for",
    "solved_threshold": FACTORY + "a_threshold_solves",
    "code_execution and its timeout": FACTORY + "tests_judge_submissions_within_their_time",
    "judge.model and judge.template": FACTORY + "every_key_of_a_judge_takes_effect",
    "a container runs every turn's code": (
        CONTAINER + "defect_4_the_page_s_file_loops_and_every_turn_runs_in_the_container"
    ),
    # What goes together
    "extra_rewards see the loop's own state": (
        LOOP + "extra_rewards_see_the_whole_response_the_state_and_what_it_hides"
    ),
    "a judge reads IterativeHidden.ground_truth": HERE + "a_judge_is_shown_the_ground_truth",
    "the ground truth is found under any of its names": (
        STATES + "the_ground_truth_is_found_under_any_of_its_names"
    ),
    "FormatReward, judges and code judge one step together": (
        LOOP + "judges_form_and_code_judge_one_step_together"
    ),
    "an environment can be in a container inside the loop": (
        CONTAINER + "an_environment_in_a_container_can_be_wrapped_into_a_loop"
    ),
    "or around it": CONTAINER + "any_environment_that_runs_code_runs_it_in_the_container",
    "TrajectoryRunner drives the loop through observation.messages": (
        HERE + "a_runner_sends_the_observation_s_messages_and_runs_batches"
    ),
    "batches": BATCHES + "a_batch_keeps_the_order_of_its_tasks_and_numbers_the_samples",
    # The checklist's further points
    "rewards can be computed again": (
        LOOP + "rewards_can_be_computed_again_for_a_step_that_was_taken"
    ),
    "lengths, names and bounds": (
        STATES + "lengths_names_and_bounds_are_those_of_the_inner_environment"
    ),
    "hidden states are frozen and pass unknown names on": (
        STATES + "a_hidden_state_passes_unknown_names_on_and_is_frozen"
    ),
    "every place may stand in every template": (
        PROMPTS + "every_place_may_stand_in_every_template"
    ),
    "a task that nothing can find solved is warned of": (
        LOOP + "a_task_that_nothing_can_find_solved_is_warned_of_and_made"
    ),
    "test_code brings the reward that runs it": (
        TESTED + "a_task_with_tests_brings_the_reward_that_runs_them"
    ),
    "values have the checklist's fields": HERE + "values_have_the_fields_that_the_page_names",
    "bundles sum, select and begin empty": HERE + "a_bundle_sums_selects_and_may_be_empty",
    "the judge's defaults": HERE + "the_judge_has_the_checklist_s_settings",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_has_its_test(statement: str) -> None:
    file, _, name = STATEMENTS[statement].partition("::")
    assert name in functions_of(TESTS / file)


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


# What no other file shows


class Noting:
    """Notes that it was asked, and from which state."""

    reward_type = RewardType.PROCESS

    def __init__(self, name: str, notes: list[Any], feedback: str | None = None) -> None:
        self.name = name
        self.notes = notes
        self.feedback = feedback

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        self.notes.append((self.name, action.text, state))
        return Signal(self.name, self.reward_type, None, self.feedback)


class Extracting:
    """Notes that it was asked."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def extract(self, text: str) -> tuple[str | None, dict[str, Any]]:
        self.notes.append(("extractor", text, None))
        return text.rpartition(" ")[2], {}


def loop(
    *rewards: RewardFunction, inner: tuple[RewardFunction, ...] = (), **settings: Any
) -> IterativeEnvironment:
    problems = [Problem(Task(f"Task {n}"), expected_answer=f"answer {n}") for n in range(3)]
    single = SingleTurnEnvironment(problems, rewards=inner)
    return IterativeEnvironment(single, extra_rewards=rewards, **settings)


def answered(env: IterativeEnvironment, *responses: str) -> list[StepResult]:
    state, results = env.reset()[0], []
    for response in responses:
        results.append(env.step(state, Action(response)))
        state = results[-1].next_state
    return results


def test_a_step_goes_through_its_parts_in_the_page_s_order() -> None:
    notes: list[Any] = []

    def summarizer(submissions: tuple[str, ...], _: tuple[tuple[str, ...], ...]) -> str:
        notes.append(("history", submissions, None))
        return ""

    env = loop(
        Noting("extra", notes, "extra said"),
        inner=(Noting("inner", notes, "inner said"),),
        submission_extractor=Extracting(notes),
        history_summarizer=summarizer,
        max_turns=2,
    )
    (first,) = answered(env, "it is 42")
    assert [(who, what) for who, what, _ in notes] == [
        ("extractor", "it is 42"),
        ("inner", "42"),
        ("extra", "it is 42"),
    ]
    assert first.info["feedback"] == ("inner said", "extra said")
    assert "inner said\n\nextra said" in first.next_state.observation.prompt
    assert not first.done
    notes.clear()
    last = env.step(first.next_state, Action("SUBMIT it is 43"))
    # It was found to be the end before any next observation was made, history and all.
    assert [who for who, _, _ in notes] == ["extractor", "inner", "extra"]
    assert (last.info["early_submit"], last.terminated, last.truncated) == (True, True, False)
    assert last.next_state.observation.prompt == "Episode complete."


def test_single_turn_environments_have_pure_step() -> None:
    with SingleTurnEnvironment([Problem(Task("Do it."))]) as env:
        assert env.spec.pure_step
        assert not env.spec.is_multi_turn


def test_every_submission_is_judged_from_the_stored_first_state() -> None:
    notes: list[Any] = []
    env = loop(inner=(Noting("inner", notes),), max_turns=3)
    *_, last = answered(env, "one", "two", "three")
    assert [text for _, text, _ in notes] == ["one", "two", "three"]
    first = last.next_state.hidden.inner_state
    assert all(state is first for _, _, state in notes)
    assert first.metadata.step == 0


def test_all_feedback_that_is_not_none_reaches_the_observation() -> None:
    env = loop(Noting("a", [], "It leaks."), Noting("b", []), Noting("c", [], "It is slow."))
    (result,) = answered(env, "x")
    assert result.rewards.feedback_texts() == ("It leaks.", "It is slow.")
    assert "It leaks.\n\nIt is slow." in result.next_state.observation.prompt


def test_the_default_extractor_gives_what_no_extractor_gives() -> None:
    text = "Thoughts.\n```python\nx = 1\n```"
    for env in (loop(), loop(submission_extractor=RawGenerationExtractor())):
        assert answered(env, text)[0].extracted_action == text


def test_the_factories_have_the_page_s_defaults() -> None:
    from nbrefine.env import IterativeCodingEnvironment

    def defaults(name: str) -> dict[str, Any]:
        taken = inspect.signature(getattr(IterativeCodingEnvironment, name)).parameters
        return {key: each.default for key, each in taken.items()}

    own = {"timeout": 30, "judge_backend": None, "extra_rewards": ()}
    assert defaults("from_humaneval").items() >= {"max_turns": 5, **own}.items()
    assert defaults("from_mbpp").items() >= {"max_turns": 3, **own}.items()
    assert (
        defaults("create").items()
        >= {
            **own,
            "language": "python",
            "max_turns": 3,
            "question_column": "prompt",
            "answer_column": "canonical_solution",
            "test_column": None,
            "judge_template": "iterative_feedback",
            "submission_extractor": None,
        }.items()
    )


def test_executors_and_their_results_have_the_page_s_form() -> None:
    executor: CodeExecutor = SubprocessCodeExecutor()
    assert inspect.signature(executor.execute).parameters["timeout"].default == 30.0
    names = {field.name for field in dataclasses.fields(CodeExecutionResult)}
    assert names >= {"passed", "total", "errors", "compilation_error", "stdout", "stderr"}
    assert (CodeExecutionResult(3, 5).score, CodeExecutionResult(3, 5).all_passed) == (0.6, False)
    reward = CodeExecutionReward(executor=executor)
    assert (reward.name, reward.reward_type, reward.weight) == (
        "code_execution",
        RewardType.OUTCOME,
        1.0,
    )
    assert reward.code_extractor == CodeBlockExtractor(language="python")


TABLE = {
    "max_turns": 3,
    "include_history": True,
    "summarize_history": False,
    "submit_keyword": "SUBMIT",
    "submission_extractor": None,
    "submission_extractor_config": {},
    "solved_threshold": 1.0,
    "code_execution": None,
}


def test_the_defaults_of_the_table_are_those_of_file_and_class() -> None:
    assert IterativeConfig().model_dump() == TABLE
    assert CodeExecutionConfig().timeout == 30.0
    taken = inspect.signature(IterativeEnvironment).parameters
    of_the_class = {key: each.default for key, each in taken.items() if key in TABLE}
    assert of_the_class == {key: TABLE[key] for key in of_the_class}
    # The rest is made of a name and of blocks by the file's factory.
    assert set(TABLE) - set(of_the_class) == {"submission_extractor_config", "code_execution"}


def test_a_judge_is_shown_the_ground_truth() -> None:
    model = ScriptedModel(["[[3]]"])
    env = loop(JudgeReward(model, "correctness"))
    (result,) = answered(env, "answer 1")
    assert "answer 0" in model.requests[0][-1].content
    assert "answer 0" not in result.next_state.observation.prompt


def test_a_runner_sends_the_observation_s_messages_and_runs_batches() -> None:
    model = ScriptedModel(lambda messages: f"reply to {len(messages)}")
    env = loop(Noting("a", [], "No."), max_turns=2)
    trajectories = TrajectoryRunner(env, model).run_batch([0, 1, 2], batch_size=2)
    assert [each.task_index for each in trajectories] == [0, 1, 2]
    state, _ = env.reset(options={"task_index": 1})
    first, second = trajectories[1].transitions
    assert first.prompt == state.observation.messages
    after = env.step(state, Action("reply to 1")).next_state
    assert second.prompt == after.observation.messages
    assert second.truncated


def test_values_have_the_fields_that_the_page_names() -> None:
    assert [field.name for field in dataclasses.fields(IterativeTask)] == [
        "prompt",
        "ground_truth",
        "test_code",
        "metadata",
    ]
    assert [field.name for field in dataclasses.fields(Signal)] == [
        "name",
        "reward_type",
        "reward",
        "feedback",
        "metadata",
        "weight",
    ]
    assert {kind.name for kind in RewardType} == {"OUTCOME", "STEP", "FORMAT", "PROCESS"}
    assert TurnInfoConfig() == TurnInfoConfig(
        task_suffix="\n\nYou have a maximum of {max_steps} turns.",
        state_prefix="[Turn {turn}/{max_steps}]\n",
        task_suffix_no_max="",
        state_prefix_no_max="[Turn {turn}]\n",
    )
    reward = FormatReward(answer_extractor=TagBasedExtractor())
    assert reward.reward_type is RewardType.FORMAT


def test_a_bundle_sums_selects_and_may_be_empty() -> None:
    tests = Signal("tests", RewardType.OUTCOME, 0.5, weight=2.0)
    judge = Signal("judge", RewardType.PROCESS, None, "Try again.")
    bundle = SignalBundle((tests, judge))
    assert bundle.total == 1.0
    assert bundle.by_name("judge") is judge
    assert bundle.by_type(RewardType.OUTCOME) == (tests,)
    assert bundle.numeric_signals() == (tests,)
    assert bundle.feedback_texts() == ("Try again.",)
    assert list(SignalBundle.empty()) == []
    (single,) = SignalBundle.single(0.25)
    assert (single.name, single.reward_type, single.reward) == ("reward", RewardType.OUTCOME, 0.25)


def test_the_judge_has_the_checklist_s_settings() -> None:
    assert set(JUDGE_TEMPLATES) == {
        "correctness",
        "helpfulness",
        "safety",
        "iterative_feedback",
    }
    judge = JudgeReward(ScriptedModel([]), "safety")
    assert (judge.name, judge.weight, judge.normalize) == ("judge", 1.0, True)
    assert (judge.sampling_params.temperature, judge.sampling_params.max_tokens) == (0.0, 512)
    assert judge.template.score_range == (1, 10)
