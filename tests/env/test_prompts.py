"""The three templates of an iterative environment, and what stands in their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from nbrefine.env import COUNTED_PROMPTS, IterativeEnvironment, IterativeTask
from nbrefine.state import Action, State, StepResult
from nbrefine.values import RewardType, Signal

TASK = "Write a function that adds two numbers."
TASKS = (IterativeTask(TASK, ground_truth="def add(a, b): return a + b"),)


@dataclass(frozen=True)
class Passed:
    """Tells how many of five tests passed: as many as the response has exclamation marks."""

    name: str = "tests"
    reward_type: RewardType = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        n = (action.text or "").count("!")
        return Signal(self.name, self.reward_type, n / 5, f"{n}/5 tests passed.")


def played(*responses: str, **settings: Any) -> list[str]:
    """Give the prompt at the start and after each response."""
    chosen: dict[str, Any] = {"tasks": TASKS, "extra_rewards": (Passed(),), "max_turns": 5}
    with IterativeEnvironment(**(chosen | settings)) as env:
        state = env.reset()[0]
        shown = [state.observation.prompt]
        for response in responses:
            result: StepResult = env.step(state, Action(response))
            state = result.next_state
            shown.append(state.observation.prompt)
    return shown


def test_the_default_prompts_have_the_page_s_headings_and_count_no_turns() -> None:
    first, second, third = played("bad", "better!")
    assert first.startswith(TASK)
    assert second.startswith("## Feedback on your previous submission\n\n0/5 tests passed.\n\n")
    assert "## Previous attempts" not in second
    assert (
        "\n\n1/5 tests passed.\n\n## Previous attempts\n\n### Turn 1\n**Submission:**\nbad\n\n"
        "**Feedback:**\n0/5 tests passed.\n\n"
    ) in third
    for shown in (first, second, third):
        assert "turn(s)" not in shown
        assert "/5)" not in shown


def test_counted_prompts_read_as_the_page_s_quick_start_and_its_sample() -> None:
    first, _, third = played("bad", "b!!!", prompts=COUNTED_PROMPTS, submit_keyword=None)
    assert first == f"{TASK}\n\nYou have 5 turn(s) to solve this task."
    assert third == (
        "## Feedback on your previous submission (Turn 2/5)\n\n"
        "3/5 tests passed.\n\n"
        "## Previous attempts\n\n"
        "### Turn 1\n**Submission:**\nbad\n\n**Feedback:**\n0/5 tests passed.\n\n"
        "You have 3 turn(s) remaining."
    )


@pytest.mark.parametrize("prompts", [None, COUNTED_PROMPTS], ids=["default", "counted"])
@pytest.mark.parametrize("keyword", ["SUBMIT", "DONE", None])
def test_the_prompts_name_the_keyword_that_there_is_or_none(
    keyword: str | None, prompts: dict[str, str] | None
) -> None:
    for shown in played("bad", "worse", prompts=prompts, submit_keyword=keyword):
        for word in ("SUBMIT", "DONE"):
            assert (word in shown) == (word == keyword)


def test_custom_prompts_of_the_page_replace_only_what_they_name() -> None:
    prompts = {
        "initial": "{task}\n\nSay DONE when finished.",
        "feedback": "Previous feedback: {feedback}\n{history_section}Please revise.",
    }
    first, second, third = played("bad", "b!", prompts=prompts)
    assert first == f"{TASK}\n\nSay DONE when finished."
    assert second == "Previous feedback: 0/5 tests passed.\nPlease revise."
    assert third == (
        "Previous feedback: 1/5 tests passed.\n## Previous attempts\n\n### Turn 1\n"
        "**Submission:**\nbad\n\n**Feedback:**\n0/5 tests passed.\n\nPlease revise."
    )


EVERY = (
    "{task}|{feedback}|{history_section}|{turn}|{max_turns}|{turns_remaining}|{submission}|"
    "{best_score}"
)


def test_every_place_may_stand_in_every_template() -> None:
    prompts = {"initial": EVERY, "feedback": EVERY, "history_entry": f"<{EVERY}>"}
    first, second, third, fourth = played("a!!", "b", "c!", prompts=prompts)
    assert first == f"{TASK}|||0|5|5||0"
    assert second == f"{TASK}|2/5 tests passed.||1|5|4|a!!|0.4"
    entry = f"<{TASK}|2/5 tests passed.||1|5|4|a!!|0.4>"
    past = f"## Previous attempts\n\n{entry}\n\n"
    assert third == f"{TASK}|0/5 tests passed.|{past}|2|5|3|b|0.4"
    entry += f"\n\n<{TASK}|0/5 tests passed.||2|5|3|b|0.4>"
    past = f"## Previous attempts\n\n{entry}\n\n"
    assert fourth == f"{TASK}|1/5 tests passed.|{past}|3|5|2|c!|0.4"


def test_braces_and_places_in_code_stay_as_they_are() -> None:
    """The texts of tasks, models and tests are put in once and never read as templates."""
    code = 'd = {}\nprint(f"{task} {0} {turn!r} {{feedback}}")'
    prompts = {"feedback": "{submission}|{unknown}|{}|{{turn}}|{feedback}"}
    assert played(code, prompts=prompts)[1] == (code + "|{unknown}|{}|{1}|1/5 tests passed.")
    assert code in played(code, "b")[2]


def test_the_templates_are_told_and_a_changed_copy_changes_nothing() -> None:
    with IterativeEnvironment(
        tasks=TASKS, extra_rewards=(Passed(),), prompts={"initial": "{task}?"}
    ) as env:
        told = env.prompts
        assert sorted(told) == ["feedback", "history_entry", "initial"]
        assert told["initial"] == "{task}?"
        told["initial"] = "changed"
        assert env.reset()[0].observation.prompt == f"{TASK}?"


@dataclass(frozen=True)
class Mute:
    name: str = "mute"
    reward_type: RewardType = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return Signal(
            self.name, self.reward_type, 0.0, "  " if "blank" in str(action.text) else None
        )


def test_without_feedback_the_prompt_says_that_there_is_none() -> None:
    _, second, third = played("a", "blank", extra_rewards=(Mute(),))
    assert "submission\n\nNo specific feedback available.\n\n" in second
    assert "submission\n\nNo specific feedback available.\n\n" in third
    assert "**Feedback:**\n(no feedback)\n\n" in third
