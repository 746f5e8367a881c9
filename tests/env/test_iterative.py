"""The iterative environment: what a step does, when an episode ends, and what a state keeps."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbrefine.env import (
    Environment,
    IterativeEnvironment,
    IterativeHidden,
    IterativeTask,
    NotebookEnvironment,
    Problem,
    SingleTurnEnvironment,
    UnsolvableWarning,
)
from nbrefine.errors import UsageError
from nbrefine.executors import SubprocessCodeExecutor
from nbrefine.extractors import CodeBlockExtractor, TagBasedExtractor
from nbrefine.rewards.base import RewardFunction
from nbrefine.rewards.code import CodeExecutionReward, program_of
from nbrefine.rewards.format import AnswerReward, FormatReward
from nbrefine.rewards.judge import JudgeReward
from nbrefine.state import Action, EnvironmentSpec, Observation, State, StateMetadata, StepResult
from nbrefine.values import Finish, Message, Reply, RewardType, Signal, SignalBundle, Task, Turn


@dataclass(frozen=True)
class Graded:
    """Rewards by what a submission begins with, such as "0.4 …"."""

    name: str = "graded"
    reward_type: RewardType = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        words = (action.text or "").removeprefix("SUBMIT ").split()
        try:
            reward = float(words[0])
        except (IndexError, ValueError):
            return Signal(self.name, self.reward_type)
        return Signal(self.name, self.reward_type, reward, f"score {words[0]}")


@dataclass(frozen=True)
class Noting:
    """Notes what it is shown."""

    seen: list[tuple[State, Action, State]]
    name: str = "noting"
    reward_type: RewardType = RewardType.PROCESS

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        self.seen.append((state, action, next_state))
        return Signal(self.name, self.reward_type, 0.25, "noted")


GUESS = IterativeTask("Guess a number.", ground_truth="1.0")


def guessing(**settings: Any) -> IterativeEnvironment:
    return IterativeEnvironment(tasks=[GUESS], extra_rewards=(Graded(),), **settings)


@pytest.fixture
def env() -> Iterator[IterativeEnvironment]:
    with guessing() as env:
        yield env


def begun(env: IterativeEnvironment, **options: Any) -> State:
    return env.reset(options=options)[0]


def newest(result: StepResult) -> Turn:
    turn: Turn = result.next_state.hidden.episode.turns[-1]
    return turn


def test_the_defaults_are_those_of_the_page() -> None:
    with guessing() as env:
        assert env.spec == EnvironmentSpec(
            "iterative_iterative", "iterative", max_steps=3, is_multi_turn=True, pure_step=True
        )
        hidden = begun(env).hidden
    assert (hidden.max_turns, hidden.turn, hidden.submissions, hidden.feedback_history) == (
        3,
        0,
        (),
        (),
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "Must provide either 'inner' or 'tasks'"),
        ({"inner": SingleTurnEnvironment([]), "tasks": [GUESS]}, "Both 'inner' and 'tasks'"),
        ({"tasks": []}, "at least one task"),
        ({"tasks": ["Write a poem."]}, "'Write a poem.' is no task"),
        ({"tasks": "Write a poem."}, "'Write a poem.' is no task"),
        ({"inner": GUESS}, "IterativeTask has no spec. Give an Environment, or tasks as tasks="),
        ({"tasks": [GUESS], "max_turns": 0}, "max_turns is 0"),
        ({"tasks": [GUESS], "solved_threshold": float("nan")}, "solved_threshold is nan"),
        ({"tasks": [GUESS], "submit_keyword": " "}, "blank submit_keyword"),
        ({"tasks": [GUESS], "prompts": {"inital": "{task}"}}, "initial, feedback, history_entry"),
        ({"tasks": [GUESS], "prompts": {"initial": None}}, "Give a text"),
        ({"tasks": [GUESS], "summarize_history": True}, "env_model"),
        (
            {
                "tasks": [GUESS],
                "summarize_history": True,
                "env_model": ["x"],
                "history_summarizer": lambda *_: "",
            },
            "two authors",
        ),
        ({"inner": object()}, "object has no spec"),
    ],
)
def test_what_cannot_be_is_a_value_error_that_says_why(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        IterativeEnvironment(**settings)


class Impure(SingleTurnEnvironment):
    @property
    def spec(self) -> EnvironmentSpec:
        return replace(super().spec, name="dice", pure_step=False)


def test_an_inner_environment_without_pure_step_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"dice has no pure_step"):
        IterativeEnvironment(Impure([Problem(Task("t"))]))


def test_an_inner_environment_that_takes_several_turns_is_refused() -> None:
    with guessing() as inner, pytest.raises(UsageError, match="several turns by itself"):
        IterativeEnvironment(inner)
    with (
        NotebookEnvironment(Task("t"), isolation="fork") as live,
        pytest.raises(UsageError, match="notebook takes several turns"),
    ):
        IterativeEnvironment(live)


@dataclass(frozen=True)
class Style:
    """Speaks of form only."""

    name: str = "style"
    reward_type: RewardType = RewardType.FORMAT

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return Signal(self.name, self.reward_type, 1.0)


@pytest.mark.parametrize("extra", [(), (Style(),)], ids=["no-reward", "format-only"])
@pytest.mark.parametrize(
    ("tasks", "which"),
    [
        ([GUESS], r"The task has no test_code"),
        ([IterativeTask("t", test_code="assert f"), GUESS, GUESS], r"2 of 3.*task_index 1"),
    ],
)
def test_a_task_that_nothing_can_find_solved_is_warned_of_and_made(
    tasks: list[IterativeTask], which: str, extra: tuple[Style, ...]
) -> None:
    with pytest.warns(UnsolvableWarning, match=which) as warned:
        env = IterativeEnvironment(tasks=tasks, extra_rewards=extra)
    assert [each.filename for each in warned] == [__file__]
    with env:
        result = env.step(begun(env, task_index=len(tasks) - 1), Action("anything"))
    assert (result.terminated, result.truncated) == (False, False)
    assert newest(result).verdict == "invalid-task"  # nobody's failure


def test_a_step_does_what_the_page_says(env: IterativeEnvironment) -> None:
    state, info = env.reset(seed=7, options={"episode_id": "e-1"})
    assert info == {"task_index": 0}
    result = env.step(state, Action("0.4 it is"))
    after = result.next_state
    assert (result.terminated, result.truncated, result.done) == (False, False, False)
    assert (result.extracted_action, result.resolved_action) == ("0.4 it is", "0.4 it is")
    assert result.info == {
        "turn": 1,
        "submission": "0.4 it is",
        "feedback": ("score 0.4",),
        "solved": False,
        "early_submit": False,
    }
    assert after.metadata == StateMetadata(
        1, "e-1", False, {"task_index": 0, "turn": 1, "solved": False, "early_submit": False}
    )
    assert (after.hidden.turn, after.hidden.submissions) == (1, ("0.4 it is",))
    assert after.hidden.feedback_history == (("score 0.4",),)
    assert after.observation.task == "Guess a number."
    assert after.hidden.episode.seed == 7


def test_the_episode_is_the_truth_of_every_turn(env: IterativeEnvironment) -> None:
    state = begun(env, episode_id="e-2")
    reply = Reply("0.4", model="m", seconds=2.0)
    first = env.step(state, Action.from_reply(reply))
    second = env.step(first.next_state, Action("1 now"))
    episode = second.next_state.hidden.episode
    assert episode.id == "e-2"
    assert (episode.solved, episode.stop.detail) == (True, "the best outcome reward is 1")
    wrong, right = episode.turns
    assert (wrong.reply, wrong.messages) == (reply, state.observation.messages)
    assert (wrong.verdict, wrong.accepted, wrong.feedback) == ("failed", False, "score 0.4")
    assert wrong.seconds >= 2.0
    assert wrong.signals == first.rewards
    assert (right.number, right.attempt, right.code) == (2, 2, "1 now")
    assert (right.verdict, right.accepted, right.reply) == ("solved", True, Reply("1 now"))
    assert (right.messages, right.score) == ((), (1.0, 0))
    assert state.hidden.episode.turns == ()


def test_code_that_the_caller_supplies_is_the_submission_as_it_is() -> None:
    with guessing(submission_extractor=TagBasedExtractor()) as env:
        turn = newest(env.step(begun(env), Action.from_code("SUBMIT <answer>1</answer>")))
    assert (turn.code, turn.extraction.status, turn.reply) == (
        "SUBMIT <answer>1</answer>",
        "given",
        None,
    )
    assert not turn.accepted


def test_the_submission_is_extracted_and_the_response_is_kept() -> None:
    with guessing(submission_extractor=CodeBlockExtractor(language="python")) as env:
        text = "Here.\n```python\nx = 1\n```\n"
        result = env.step(begun(env), Action(text))
    assert result.info["submission"] == result.extracted_action == newest(result).code == "x = 1"
    assert newest(result).extraction.language == "python"
    assert newest(result).reply == Reply(text)
    assert result.next_state.observation.messages[1] == Message("assistant", text)


def test_where_nothing_is_extracted_the_raw_response_is_the_submission() -> None:
    with guessing(submission_extractor=TagBasedExtractor("answer")) as env:
        result = env.step(begun(env), Action("0.5 without a tag"))
    assert result.info["submission"] == "0.5 without a tag"
    assert "nothing was found" in newest(result).extraction.reason


def test_extra_rewards_see_the_whole_response_the_state_and_what_it_hides() -> None:
    seen: list[tuple[State, Action, State]] = []
    inner = SingleTurnEnvironment([Problem(Task("t"), {"k": 1}, "1.0")], rewards=[Graded()])
    extractor = TagBasedExtractor("answer")
    action = Action("I say <answer>0.5</answer>")
    with IterativeEnvironment(inner, None, extractor, extra_rewards=[Noting(seen)]) as env:
        assert [function.name for function in env.reward_functions] == ["graded", "noting"]
        state = begun(env)
        result = env.step(state, action)
    assert [(s.name, s.reward) for s in result.rewards] == [("graded", 0.5), ("noting", 0.25)]
    ((before, told, after),) = seen
    assert (before, told) == (state, action)
    assert (before.hidden.ground_truth, before.hidden.entry) == ("1.0", {"k": 1})
    assert after.hidden.submissions == ("0.5",)
    assert after.metadata.step == 1
    assert result.info["feedback"] == ("score 0.5", "noted")
    assert newest(result).feedback == "score 0.5\n\nnoted"


def test_rewards_can_be_computed_again_for_a_step_that_was_taken() -> None:
    seen: list[tuple[State, Action, State]] = []
    inner = SingleTurnEnvironment([Problem(Task("t"))], rewards=[Graded()])
    with IterativeEnvironment(inner, extra_rewards=[Noting(seen)]) as env:
        state = begun(env)
        result = env.step(state, Action("0.5"))
        again = env.compute_rewards(state, Action("0.5"), result.next_state)
    assert again == result.rewards
    assert seen[1] == (state, Action("0.5"), result.next_state)


def test_judges_form_and_code_judge_one_step_together() -> None:
    """The composability that the page promises; the judge's words reach the solver."""
    inner = SingleTurnEnvironment([Problem(Task("Say yes."), expected_answer="yes")])
    judges = [
        JudgeReward(lambda messages: "Nearly. [[7]]", "iterative_feedback", name="kind"),
        JudgeReward(lambda messages: "No. [[4]]", "helpfulness", name="stern"),
    ]
    own: list[RewardFunction] = [FormatReward(TagBasedExtractor())]
    rewards = [*own, AnswerReward(TagBasedExtractor()), *judges]
    with IterativeEnvironment(inner, extra_rewards=rewards) as env:
        wrong = env.step(begun(env), Action("no"))
        right = env.step(wrong.next_state, Action("<answer>yes</answer>"))
    assert [signal.name for signal in wrong.rewards] == ["format", "correctness", "kind", "stern"]
    assert [signal.reward for signal in wrong.rewards] == [0.0, 0.0, 6 / 9, 3 / 9]
    for words in ("Nearly.", "No."):
        assert words in wrong.next_state.observation.prompt
    assert (wrong.done, right.terminated) == (False, True)


def test_a_judge_that_failed_is_not_held_against_the_model() -> None:
    inner = SingleTurnEnvironment([Problem(Task("Say yes."))])
    judge = JudgeReward(lambda messages: "I cannot say.", "correctness")
    with IterativeEnvironment(inner, extra_rewards=[judge]) as env:
        result = env.step(begun(env), Action("no"))
    assert [signal.reward for signal in result.rewards] == [None]
    assert (newest(result).verdict, result.done) == ("infra-error", False)


class Silent:
    name = "silent"
    reward_type = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        raise OSError("the disk is full")


def test_a_reward_function_that_fails_is_the_host_s_trouble_and_no_turn() -> None:
    with IterativeEnvironment(tasks=[GUESS], extra_rewards=(Silent(),)) as env:
        state = begun(env)
        with pytest.raises(Exception, match="the disk is full"):
            env.step(state, Action("1"))
    assert state.hidden.episode.turns == ()


@pytest.mark.parametrize(
    ("text", "finish", "extractor", "verdict", "told"),
    [
        ("0.5 and", "length", None, "incomplete-reply", True),
        ("0.5 and", "stop", None, "failed", False),
        ("0.5 <answer>0.5</answer> and", "length", TagBasedExtractor(), "failed", False),
        ("0.5 <answer>0.5 and", "length", TagBasedExtractor(), "incomplete-reply", True),
        ("1 and", "length", None, "solved", False),
    ],
)
def test_a_response_that_was_cut_off_is_told_so_and_is_no_plain_failure(
    text: str, finish: Finish, extractor: TagBasedExtractor | None, verdict: str, told: bool
) -> None:
    with guessing(submission_extractor=extractor) as env:
        result = env.step(begun(env), Action.from_reply(Reply(text, finish=finish)))
    assert newest(result).verdict == verdict
    assert ("was cut off before its end" in result.next_state.observation.prompt) == told


def test_one_task_needs_no_tuple() -> None:
    with IterativeEnvironment(tasks=GUESS, extra_rewards=(Graded(),)) as env:
        assert len(env) == 1


def test_a_task_s_prompt_can_be_recorded_and_sent_whatever_it_holds() -> None:
    inner = SingleTurnEnvironment([Problem(Task("caf\ud800"))])
    with IterativeEnvironment(inner) as env:
        state = begun(env)
    assert state.hidden.episode.task.prompt == state.observation.task == "caf\ufffd"
    state.observation.messages[0].content.encode()


def test_lone_surrogates_of_a_response_reach_neither_the_record_nor_the_next_prompt(
    env: IterativeEnvironment,
) -> None:
    result = env.step(begun(env), Action("0.5 \ud800"))
    assert newest(result).code == "0.5 \ufffd"
    for message in result.next_state.observation.messages:
        message.content.encode()


@pytest.mark.parametrize(
    ("rewards", "solved"),
    [
        ([1.0], True),
        ([0.2, 1.0], True),  # the best counts, as the page has it
        ([None, 1.0], True),
        ([0.99], False),
        ([None], False),
        ([], False),
        ([float("nan"), 0.5], False),
    ],
)
def test_solved_is_the_best_outcome_at_the_threshold(
    rewards: list[float | None], solved: bool
) -> None:
    given = [Fixed(Signal(f"s{n}", RewardType.OUTCOME, r)) for n, r in enumerate(rewards)]
    given.append(Fixed(Signal("judge", RewardType.PROCESS, 1.0)))  # no outcome
    inner = SingleTurnEnvironment([Problem(Task("t"))])
    with IterativeEnvironment(inner, extra_rewards=given) as env:
        result = env.step(begun(env), Action("x"))
    assert (result.terminated, result.info["solved"]) == (solved, solved)


@dataclass(frozen=True)
class Fixed:
    """Gives the signal it was made with."""

    signal: Signal

    @property
    def name(self) -> str:
        return self.signal.name

    @property
    def reward_type(self) -> RewardType:
        return self.signal.reward_type

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return self.signal


def test_a_lower_threshold_is_reached_earlier() -> None:
    with guessing(solved_threshold=0.4) as env:
        assert env.step(begun(env), Action("0.4")).terminated
        assert not env.step(begun(env), Action("0.39")).terminated


@pytest.mark.parametrize(
    ("text", "early"),
    [
        ("SUBMIT my final answer is 0", True),
        ("SUBMIT", True),
        ("  \n SUBMIT 0", True),
        ("**SUBMIT** 0", True),
        ("__SUBMIT__ 0", True),
        ("`SUBMIT`: 0", True),
        ("*SUBMIT*\n0", True),
        ("SUBMIT: 0", True),
        ("**SUBMIT:** 0", True),
        ("Submitted earlier; here is a fix", False),
        ("submitting my code below", False),
        ("submit 0", False),
        ("SUBMITTED 0", False),
        ("SUBMIT_NOW = 0", False),
        ("SUBMIT-able code", False),
        ("SUBMIT's rules", False),
        ("I SUBMIT 0", False),
        ("", False),
    ],
)
def test_only_the_keyword_itself_at_the_start_submits_early(
    env: IterativeEnvironment, text: str, early: bool
) -> None:
    result = env.step(begun(env), Action(text))
    assert (result.terminated, result.info["early_submit"]) == (early, early)
    assert result.info["submission"] == text  # it keeps the keyword
    stop = result.next_state.hidden.episode.stop
    assert (stop.reason if stop else None) == ("submitted" if early else None)


def test_an_early_submission_is_still_judged_and_solved_wins(env: IterativeEnvironment) -> None:
    right = env.step(begun(env), Action("SUBMIT 1"))
    wrong = env.step(begun(env), Action("SUBMIT 0.5"))
    assert (right.rewards.total, wrong.rewards.total) == (1.0, 0.5)
    assert right.info["solved"] is right.info["early_submit"] is True
    assert right.next_state.hidden.episode.stop.reason == "solved"
    assert wrong.next_state.hidden.episode.stop.reason == "submitted"
    assert not wrong.next_state.hidden.episode.solved


@pytest.mark.parametrize(
    "text",
    [
        "SUBMIT 1.0",
        "**SUBMIT** 1.0",
        "**SUBMIT:** 1.0",
        "`SUBMIT`\n\n1.0",
        "SUBMIT. 1.0",
        "<think>\nSUBMIT or not?\n</think>\n\nSUBMIT 1.0",
    ],
)
def test_the_keyword_is_no_part_of_what_is_judged(text: str) -> None:
    seen: list[tuple[State, Action, State]] = []
    problems = [Problem(Task("Guess."), expected_answer="1.0")]
    inner = SingleTurnEnvironment(problems, rewards=(AnswerReward(),))
    with IterativeEnvironment(inner=inner, extra_rewards=(Noting(seen),)) as env:
        state = begun(env)
        result = env.step(state, Action(text))
        again = env.compute_rewards(state, Action(text), result.next_state)
    assert result.info["solved"] is result.info["early_submit"] is True
    assert again == result.rewards
    assert [action.text for _, action, _ in seen] == ["1.0", "1.0"]
    assert newest(result).code == "1.0"
    assert result.next_state.hidden.submissions == (text,)


def test_code_without_a_fence_is_judged_and_kept_without_the_keyword() -> None:
    code = "SUBMIT_TO = 2\ndef f():\n    return SUBMIT_TO"
    with IterativeEnvironment(tasks=IterativeTask("Write f.", test_code="assert f() == 2")) as env:
        bare = env.step(begun(env), Action(f"SUBMIT\n{code}"))
        fenced = env.step(begun(env), Action(f"SUBMIT\n```python\nSUBMIT = 2\n{code}\n```"))
    assert (bare.info["solved"], fenced.info["solved"]) == (True, True)
    assert newest(bare).code == code  # so that Run All of its record gives f


@pytest.mark.parametrize(
    ("keyword", "text", "early"),
    [
        (None, "SUBMIT 1", False),
        ("DONE", "SUBMIT 1", False),
        ("DONE", "DONE 0", True),
        ("FINAL ANSWER", "**FINAL ANSWER** 0", True),
        ("(end)", "(end) 0", True),
        ("fertig!", "fertig! 0", True),
    ],
)
def test_the_keyword_is_the_environment_s_own(keyword: str | None, text: str, early: bool) -> None:
    with guessing(submit_keyword=keyword) as env:
        assert env.step(begun(env), Action(text)).info["early_submit"] is early


def test_the_last_turn_truncates(env: IterativeEnvironment) -> None:
    state = begun(env)
    for turn in (1, 2):
        result = env.step(state, Action("0.1"))
        assert (result.done, result.info["turn"]) == (False, turn)
        state = result.next_state
    result = env.step(state, Action("0.1"))
    assert (result.terminated, result.truncated) == (False, True)
    assert result.next_state.hidden.episode.stop.reason == "max-turns"
    assert result.next_state.metadata.is_terminal
    assert result.next_state.observation.prompt == "Episode complete."
    assert result.next_state.observation.messages == ()
    with pytest.raises(UsageError, match="episode has ended"):
        env.step(result.next_state, Action("1"))


MOVES = st.lists(
    st.tuples(st.sampled_from(["none", "0", "0.5", "0.75", "1", "2"]), st.booleans()), max_size=7
)


@given(moves=MOVES, max_turns=st.integers(1, 5), threshold=st.sampled_from([0.5, 1.0, 1.5]))
def test_any_episode_ends_where_the_page_s_table_says(
    moves: list[tuple[str, bool]], max_turns: int, threshold: float
) -> None:
    """Solved, submitted or out of turns: whichever comes first, and nothing else."""
    with guessing(max_turns=max_turns, solved_threshold=threshold) as env:
        state = begun(env)
        for turn, (score, submit) in enumerate(moves, 1):
            result = env.step(state, Action(f"SUBMIT {score}" if submit else score))
            solved = score != "none" and float(score) >= threshold
            assert result.info["solved"] == solved
            assert result.terminated == (submit or solved)
            assert result.truncated == (not result.terminated and turn == max_turns)
            assert result.next_state.metadata.is_terminal == result.done
            state = result.next_state
            assert len(state.hidden.episode.turns) == state.hidden.turn == turn
            assert (state.hidden.episode.stop is not None) == result.done
            if result.done:
                break


def test_states_are_independent_and_may_be_stepped_again(env: IterativeEnvironment) -> None:
    first = env.step(begun(env), Action("0.1")).next_state
    one, two = env.step(first, Action("0.2")), env.step(first, Action("1"))
    again = env.step(first, Action("0.2"))
    assert one.next_state.hidden.submissions == ("0.1", "0.2")
    assert two.next_state.hidden.submissions == ("0.1", "1")
    assert (two.terminated, again.rewards) == (True, one.rewards)


class Dealt(SingleTurnEnvironment):
    """Asks for the number that the seed has dealt: its first state depends on it."""

    async def _reset(
        self, *, seed: int | None, options: dict[str, Any] | None
    ) -> tuple[State, dict[str, Any]]:
        state, info = await super()._reset(seed=seed, options=options)
        return replace(state, hidden=replace(state.hidden, expected_answer=str(seed))), info


@dataclass(frozen=True)
class Matches:
    name: str = "matches"
    reward_type: RewardType = RewardType.OUTCOME

    def compute(self, state: State, action: Action, next_state: State) -> Signal:
        return Signal(
            self.name, self.reward_type, float(action.text == state.hidden.expected_answer)
        )


def dealt() -> IterativeEnvironment:
    return IterativeEnvironment(Dealt([Problem(Task("Which?"))], rewards=[Matches()]))


def test_two_seeds_of_one_task_do_not_collide() -> None:
    with dealt() as env:
        three, four = env.reset(seed=3)[0], env.reset(seed=4)[0]
        assert env.step(three, Action("3")).terminated
        assert not env.step(three, Action("4")).terminated
        assert env.step(four, Action("4")).terminated


def test_concurrent_episodes_on_one_environment_keep_to_themselves() -> None:
    def episode(env: Environment, seed: int) -> list[bool]:
        state = env.reset(seed=seed)[0]
        ends = []
        for answer in (seed + 1, seed):
            result = env.step(state, Action(str(answer)))
            ends.append(result.terminated)
            state = result.next_state
        return ends

    with dealt() as env, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: episode(env, n), range(24))) == [[False, True]] * 24


def test_what_is_no_state_or_no_action_is_told(env: IterativeEnvironment) -> None:
    first: Any = env.reset()
    with pytest.raises(UsageError, match="from a State, not from a tuple"):
        env.step(first, Action("1"))
    text: Any = "1"
    with pytest.raises(UsageError, match=r"an Action, not a str\. Give Action\(text\)"):
        env.step(first[0], text)


def test_an_environment_is_used_from_a_loop_of_the_caller_s() -> None:
    async def episode() -> bool:
        async with dealt() as env:
            state, _ = await env.areset(seed=5)
            results = await asyncio.gather(*(env.astep(state, Action(t)) for t in ("5", "6", "5")))
        return [result.terminated for result in results] == [True, False, True]

    assert asyncio.run(episode())


def test_the_environment_remembers_no_episode() -> None:
    class Mark:
        pass

    mark = Mark()
    gone = weakref.ref(mark)
    inner = SingleTurnEnvironment([Problem(Task("t"), {"mark": mark})])
    with IterativeEnvironment(inner, extra_rewards=[Graded()]) as env:
        for seed in range(3):
            result = env.step(env.reset(seed=seed)[0], Action("0.5"))
        inner.problems = []  # the states alone hold it now
        assert result.next_state.hidden.entry["mark"] is mark
        del mark, result
        gc.collect()
        assert gone() is None


DUPLICATES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    lambda hidden: pickle.loads(pickle.dumps(hidden)),
]


@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_a_hidden_state_is_copied_and_pickled(
    env: IterativeEnvironment, duplicate: Callable[[Any], Any]
) -> None:
    state = env.step(begun(env), Action("0.5")).next_state
    assert duplicate(state.hidden) == state.hidden
    assert duplicate(state) == state
    assert env.step(duplicate(state), Action("1")).terminated


def test_a_hidden_state_passes_unknown_names_on_and_is_frozen(env: IterativeEnvironment) -> None:
    hidden: IterativeHidden = begun(env).hidden
    assert hidden.expected_answer == "1.0"
    assert hidden.task.prompt == "Guess a number."
    with pytest.raises(AttributeError, match="nowhere"):
        _ = hidden.nowhere
    with pytest.raises(FrozenInstanceError):
        hidden.turn = 5  # type: ignore[misc]  # the point


@dataclass
class Answer:
    answer: str


@pytest.mark.parametrize(
    ("inner", "truth"),
    [
        (Answer("a"), "a"),
        ({"target": 7}, "7"),
        ({"ground_truth": "g", "target": "t"}, "g"),
        (GUESS, "1.0"),
        (None, ""),
    ],
)
def test_the_ground_truth_is_found_under_any_of_its_names(inner: object, truth: str) -> None:
    assert IterativeHidden(0, inner, "t").ground_truth == truth


def test_lengths_names_and_bounds_are_those_of_the_inner_environment() -> None:
    inner = SingleTurnEnvironment([Problem(Task("a")), Problem(Task("b"))], name="letters")
    with IterativeEnvironment(inner, max_turns=5) as env:
        assert (len(env), env.spec.name, env.spec.max_steps) == (2, "letters_iterative", 5)
        assert begun(env, task_index=1).observation.task == "b"
        assert begun(env, task_index=1).hidden.task_index == 1
        for index in (-1, 2):
            with pytest.raises(ValueError, match="2 tasks"):
                env.reset(options={"task_index": index})


class Endless:
    def __getitem__(self, index: int) -> Problem:
        return Problem(Task(f"task {index}"))


def test_an_inner_environment_without_a_length_works_and_has_none() -> None:
    with IterativeEnvironment(SingleTurnEnvironment(Endless())) as env:
        assert begun(env, task_index=10**6).observation.task == "task 1000000"
        assert not env.spec.supports_len
        with pytest.raises(TypeError):
            len(env)


class Plain:
    """An environment that knows nothing of ours but the words, and nothing of asyncio."""

    spec = EnvironmentSpec("plain", "own", pure_step=True)
    reward_functions = ()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[State, dict[str, Any]]:
        return State(Observation("Say yes."), {"target": "yes"}), {"own": True}

    def step(self, state: State, action: Action) -> StepResult:
        reward = float(action.text == state.hidden["target"])
        return StepResult(state, SignalBundle.single(reward), terminated=True)


def test_an_environment_of_a_user_s_own_is_wrapped_as_it_is() -> None:
    with IterativeEnvironment(Plain()) as env:  # type: ignore[arg-type]  # it need not be ours
        state, info = env.reset()
        assert info == {"own": True}
        assert state.hidden.ground_truth == "yes"
        assert not env.step(state, Action("no")).done
        assert env.step(state, Action("yes")).terminated


class Closed(SingleTurnEnvironment):
    closed = False

    async def _close(self) -> None:
        self.closed = True
        await super()._close()


def test_closing_it_closes_what_it_wraps() -> None:
    inner = Closed([Problem(Task("t"))])
    with IterativeEnvironment(inner):
        pass
    assert inner.closed


ADD = IterativeTask("Write add(a, b).", test_code="assert add(1, 2) == 3\nassert add(-1, 1) == 0")


def test_a_chat_begins_with_how_code_must_be_written_to_be_found() -> None:
    """A small model that was not told so wrote none: it said SUBMIT, six times out of six."""
    tested = IterativeTask("Write double(x).", test_code="assert double(2) == 4")
    with IterativeEnvironment(tasks=tested) as env:
        system, asked = begun(env).observation.messages
        assert system.role == "system"
        assert "exactly one ```python code block" in system.content
        assert asked.content.startswith("Write double(x).")
        later = env.step(begun(env), Action("No.")).next_state.observation.messages
        assert [message.role for message in later] == ["system", "user", "assistant", "user"]
        assert later[0] == system


def test_an_environment_that_has_a_system_message_keeps_it() -> None:
    class Instructing(Graded):
        instructions = "Write a number."

    for system_prompt in ("Be brief.", ""):
        inner = SingleTurnEnvironment([Problem(Task("Guess."))], system_prompt=system_prompt)
        with IterativeEnvironment(inner, extra_rewards=(Instructing(),)) as env:
            system, _ = begun(env).observation.messages
            assert system.content == (system_prompt or "Write a number.")
    with guessing() as env:
        assert [message.role for message in begun(env).observation.messages] == ["user"]


def test_a_task_with_tests_brings_the_reward_that_runs_them() -> None:
    with IterativeEnvironment(
        tasks=(ADD,), submission_extractor=CodeBlockExtractor("python")
    ) as env:
        assert [function.name for function in env.reward_functions] == ["code_execution"]
        first = env.step(begun(env), Action("```python\ndef add(a, b):\n    return 3\n```"))
        assert first.rewards.total == 0.5
        report = newest(first).tests
        assert report is not None
        assert [case.passed for case in report.cases] == [True, False]
        assert "1/2 tests passed." in first.next_state.observation.prompt
        second = env.step(first.next_state, Action("def add(a, b): return a + b"))
    assert (second.terminated, newest(second).verdict) == (True, "solved")
    assert second.next_state.hidden.episode.stop.detail == "2/2 tests passed"


def test_the_end_names_the_tests_only_where_they_have_decided() -> None:
    half = "def add(a, b): return 3"
    kind = Fixed(Signal("kind", RewardType.OUTCOME, 1.0))
    with IterativeEnvironment(tasks=(ADD,), extra_rewards=(kind,)) as env:
        lenient = env.step(begun(env), Action(half))
    with IterativeEnvironment(tasks=(ADD,), solved_threshold=0.5) as env:
        enough = env.step(begun(env), Action(half))
    details = [each.next_state.hidden.episode.stop.detail for each in (lenient, enough)]
    assert details == ["the best outcome reward is 1", "1/2 tests passed"]


def test_tests_that_a_reward_of_the_caller_runs_are_not_run_again() -> None:
    own = CodeExecutionReward(SubprocessCodeExecutor(), name="mine")
    other = CodeExecutionReward(
        SubprocessCodeExecutor(), name="more", test_extractor=lambda state: "assert add(2, 2) == 4"
    )
    with IterativeEnvironment(tasks=(ADD,), extra_rewards=(own,)) as env:
        told = env.step(begun(env), Action("def add(a, b): return 3")).next_state
        assert [function.name for function in env.reward_functions] == ["mine"]
        assert told.observation.prompt.count("1/2 tests passed.") == 1
    with IterativeEnvironment(tasks=(ADD,), extra_rewards=(other,)) as env:
        assert [each.name for each in env.reward_functions] == ["code_execution", "more"]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("I would rather not.", "no-code"),
        ("import os\ndef add(a, b):\n    os._exit(0)", "crashed"),
        ("def add(a, b):\n    return None", "failed"),
    ],
)
def test_the_verdict_of_the_tests_is_the_turn_s(text: str, verdict: str) -> None:
    with IterativeEnvironment(tasks=(ADD,)) as env:
        turn = newest(env.step(begun(env), Action(text)))
    assert (turn.verdict, turn.accepted) == (verdict, False)


def test_a_check_function_is_given_the_entry_point_that_the_task_names() -> None:
    check = "def check(candidate):\n    assert candidate(1, 2) == 3"
    task = IterativeTask("Write add(a, b).", test_code=check, metadata={"entry_point": "add"})
    with IterativeEnvironment(tasks=[task]) as env:
        assert env.step(begun(env), Action("def add(a, b): return a + b")).terminated
        assert not env.step(begun(env), Action("def add(a, b): return a - b")).terminated


def test_closing_it_ends_every_process_that_ran_its_tests() -> None:
    def children() -> set[int]:
        return {each.pid for each in psutil.Process().children(recursive=True)}

    before = children()
    with IterativeEnvironment(tasks=ADD) as env:
        env.step(begun(env), Action("def add(a, b): return a + b"))
        assert children() - before
    assert children() - before == set()


def test_a_turn_holds_the_program_that_was_run_and_the_step_the_reply_whole() -> None:
    """A record, its rows and its best attempt give code, as `refine` does, and no Markdown."""
    task = Task("Write one().", tests="assert one() == 1")
    reply = "Here:\n```python\ndef one():\n    return 1\n```\nDone."
    wrong = reply.replace("return 1", "return 2")
    with SubprocessCodeExecutor(workers=1) as executor:
        inner = SingleTurnEnvironment([Problem(task)], rewards=[CodeExecutionReward(executor)])
        with IterativeEnvironment(inner) as env:
            first = env.step(begun(env), Action(wrong))
            second = env.step(first.next_state, Action(wrong))
            result = env.step(second.next_state, Action(reply))
    assert "Here:\n```python" in second.next_state.observation.prompt
    turn = newest(result)
    assert turn.code == "def one():\n    return 1"
    assert (turn.extraction.status, turn.extraction.language) == ("found", "python")
    assert turn.reply is not None
    assert turn.reply.text == reply
    assert result.info["submission"] == result.extracted_action == reply
    episode = result.next_state.hidden.episode
    assert [row["code"] for row in episode.to_rows()][-1] == turn.code
    assert program_of(episode) == turn.code
