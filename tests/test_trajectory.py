"""A trajectory is an episode seen as transitions, and nothing beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from datasets import Dataset

from nbrefine.trajectory import Trajectory
from nbrefine.values import (
    Episode,
    Extraction,
    Message,
    Reply,
    RewardType,
    Signal,
    SignalBundle,
    Stop,
    StopReason,
    Task,
    Turn,
)


def turn(number: int, reward: float | None, *, given: bool = False) -> Turn:
    return Turn(
        number,
        attempt=number,
        messages=() if given else (Message("user", f"PROMPT{number}"),),
        reply=None if given else Reply(f"REPLY{number}"),
        extraction=Extraction("given" if given else "found", f"code{number}"),
        signals=SignalBundle(
            (
                Signal("tests", RewardType.OUTCOME, reward, "told"),
                Signal("form", RewardType.FORMAT, 1.0, weight=0.5),
            )
        ),
        feedback=f"FEEDBACK{number}",
        accepted=reward == 1.0,
        verdict="solved" if reward == 1.0 else "failed",
    )


def trajectory(*turns: Turn, stop: StopReason | None = "solved") -> Trajectory:
    settings = {"task_index": 3, "sample": 2}
    ended = Stop(stop) if stop else None
    return Trajectory.from_episode(
        Episode(Task("t", "T-1"), "e1", turns=turns, stop=ended, settings=settings)
    )


def test_a_transition_holds_what_was_seen_done_and_given_and_what_was_seen_next() -> None:
    first, second = trajectory(turn(1, 0.25), turn(2, 1.0)).transitions
    assert (first.step, second.step) == (1, 2)
    assert first.prompt == (Message("user", "PROMPT1"),)
    assert first.next_prompt == second.prompt == (Message("user", "PROMPT2"),)
    assert second.next_prompt == ()
    assert (first.action, first.submission, first.feedback) == ("REPLY1", "code1", "FEEDBACK1")
    assert first.signals.by_name("tests") is not None
    assert (first.reward, second.reward) == (0.75, 1.5)
    assert (first.done, second.done) == (False, True)


def test_given_code_is_the_action_where_no_model_was_asked() -> None:
    (only,) = trajectory(turn(1, 1.0, given=True)).transitions
    assert (only.action, only.submission, only.prompt) == ("code1", "code1", ())


@pytest.mark.parametrize(
    ("stop", "terminated", "truncated", "success"),
    [
        ("solved", True, False, True),
        ("submitted", True, False, False),
        ("max-turns", False, True, False),
        ("budget", False, True, False),
        ("cycle", False, True, False),
        ("infra-error", False, True, False),
        (None, False, False, False),
    ],
)
def test_only_the_last_transition_ends_it_and_success_is_a_solved_end(
    stop: StopReason | None, terminated: bool, truncated: bool, success: bool
) -> None:
    it = trajectory(turn(1, 1.0), turn(2, 0.0), stop=stop)
    assert [(t.terminated, t.truncated) for t in it.transitions] == [
        (False, False),
        (terminated, truncated),
    ]
    assert it.success == success
    assert it.is_terminal == (stop is not None)


def test_rewards_without_a_number_are_left_out_of_the_total() -> None:
    assert trajectory(turn(1, None), turn(2, 1.0)).total_reward == 0.5 + 1.5
    assert trajectory(stop="infra-error").total_reward == 0.0


def test_it_is_as_long_as_its_episode_and_knows_task_and_sample() -> None:
    it = trajectory(turn(1, 0.0), turn(2, 1.0))
    assert (it.length, it.task_index, it.sample) == (2, 3, 2)
    plain = Trajectory(replace(it.episode, settings={}))
    assert (plain.task_index, plain.sample) == (None, 0)


def test_a_trajectory_without_a_turn_is_one_too() -> None:
    it = trajectory(stop="infra-error")
    assert (it.length, it.transitions, it.to_rows(), it.is_terminal) == (0, (), [], True)


def test_rows_are_what_datasets_takes_and_keep_all_a_trainer_needs() -> None:
    it = trajectory(turn(1, None), turn(2, 1.0))
    first, second = Dataset.from_list(it.to_rows())
    assert first["prompt"] == [{"role": "user", "content": "PROMPT1"}]
    assert (first["action"], first["code"], first["feedback"]) == ("REPLY1", "code1", "FEEDBACK1")
    assert first["signals"][0] == {
        "name": "tests",
        "type": "outcome",
        "reward": None,
        "feedback": "told",
        "weight": 1.0,
    }
    assert (first["terminated"], second["terminated"]) == (False, True)
    assert (second["success"], second["stop"], second["task"]) == (True, "solved", "T-1")
    assert (second["task_index"], second["sample"], second["turn"]) == (3, 2, 2)
