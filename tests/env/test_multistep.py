"""Work in steps on one live kernel: what is accepted, what is given up, and how it ends."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from nbrefine.env import MultiStepEnvironment
from nbrefine.errors import InvalidTaskError, UsageError
from nbrefine.kernel import Kernel
from nbrefine.planning import StepLimits
from nbrefine.postconditions import file_written, frame, holds
from nbrefine.state import Action, State
from nbrefine.values import (
    Postcondition,
    Reply,
    Stop,
    Subtask,
    Task,
    Tool,
)
from tests.multistep import TWO, called, cell, driven, episode_of, newest, prompt, text


def test_steps_share_the_session_and_each_is_done_when_its_postconditions_hold(
    kernel: Kernel, folder: Path
) -> None:
    with MultiStepEnvironment(Task("Write rows", subtasks=TWO), kernel=kernel) as env:
        state = driven(
            env,
            cell("rows = [1, 2]"),
            cell("rows = [1, 2, 3]"),
            cell("open('out.txt', 'w').write(repr(rows))"),
        )
    episode = episode_of(state)
    assert [(turn.step, turn.attempt, turn.accepted) for turn in episode.turns] == [
        (1, 1, False),
        (1, 2, True),
        (2, 1, True),
    ]
    failed = episode.turns[0]
    assert failed.result is not None
    assert failed.result.ok
    assert failed.tests is not None
    assert [(case.status, case.got) for case in failed.tests.cases] == [("failed", "2")]
    assert "len(rows) == 3" in failed.feedback
    assert (folder / "out.txt").read_text() == "[1, 2, 3]"
    digest = hashlib.sha256(b"[1, 2, 3]").hexdigest()
    assert [(a.path, a.size, a.sha256) for a in episode.artifacts] == [("out.txt", 9, digest)]
    assert episode.stop is not None
    assert (episode.stop.reason, episode.stop.detail) == ("solved", "2 steps done, 2 checks held")
    assert kernel.run("rows").result().text == "[1, 2, 3]\n"


def test_a_cell_that_writes_the_file_and_then_fails_leaves_no_file(
    kernel: Kernel, folder: Path
) -> None:
    task = Task("Write", subtasks=(Subtask("Write", postconditions=(file_written("out.txt"),)),))
    with MultiStepEnvironment(task, kernel=kernel) as env:
        state = driven(env, cell("open('out.txt', 'w').write('half')\n1 / 0"))
    assert not (folder / "out.txt").exists()
    assert (
        "out.txt"
        not in prompt(state).partition("Files in the working folder")[2].partition("</files")[0]
    )
    assert newest(state).artifacts == ()


def test_without_a_plan_every_cell_that_ran_ends_a_step_and_an_answer_ends_the_work(
    kernel: Kernel,
) -> None:
    with MultiStepEnvironment(Task("What is 6 times 7?"), kernel=kernel) as env:
        state = driven(
            env, cell("x = 6"), cell("oops"), cell("y = x * 7"), cell("print('ANSWER:', y)")
        )
    episode = episode_of(state)
    assert [(turn.step, turn.attempt) for turn in episode.turns] == [(1, 1), (2, 1), (2, 2), (3, 1)]
    assert episode.answer is not None
    assert (episode.answer.text, episode.answer.turn) == ("42", 4)
    assert episode.solved
    assert "nothing else checks it" in episode.stop.detail if episode.stop else False


def test_the_model_may_make_a_plan_whose_checks_hold_for_its_steps(kernel: Kernel) -> None:
    plan = "```plan\n- goal: Make x\n  check: x > 1\n- goal: Say it\n```"
    with MultiStepEnvironment(Task("Make x and say it"), kernel=kernel) as env:
        state = driven(env, text(plan), cell("x = 1"))
        assert [turn.kind for turn in episode_of(state).turns] == ["plan", "attempt"]
        assert (newest(state).accepted, newest(state).step) == (False, 1)
        assert "Make x (now)" in prompt(state)
        for action in (cell("x = 2"), cell("print('ANSWER:', x)")):
            state = env.step(state, action).next_state
    episode = episode_of(state)
    assert [subtask.goal for subtask in episode.plans[0].subtasks] == ["Make x", "Say it"]
    assert (episode.plans[0].origin, episode.plans[0].since) == ("model", 2)
    assert episode.answer is not None
    assert episode.answer.text == "2"


def test_a_plan_that_is_asked_for_is_asked_again_once_and_then_done_without(
    kernel: Kernel,
) -> None:
    with MultiStepEnvironment(Task("Count"), kernel=kernel, planning="ask") as env:
        state = driven(env, cell("x = 1"))
        assert (newest(state).kind, newest(state).verdict) == ("plan", "failed")
        assert "plan" in newest(state).feedback
        assert (state.hidden.wants, newest(state).result) == ("plan", None)
        for action in (text("no idea"), cell("x = 1")):
            state = env.step(state, action).next_state
    assert newest(state).accepted
    assert episode_of(state).plans == ()


def test_a_plan_with_a_check_that_no_cell_can_run_is_fed_back(kernel: Kernel) -> None:
    plan = "```plan\n- goal: Make x\n  check: {}\n```"
    with MultiStepEnvironment(Task("Count"), kernel=kernel, planning="ask") as env:
        state = driven(env, text(plan.format("x >")))
        assert (newest(state).kind, newest(state).verdict) == ("plan", "failed")
        assert "x >" in newest(state).feedback
    assert episode_of(state).plans == ()


def test_a_plan_that_nobody_asked_for_uses_up_the_step_and_the_code_beside_it_runs(
    kernel: Kernel,
) -> None:
    plan = "```plan\n- goal: Make rows\n```\n"
    with MultiStepEnvironment(
        Task("Make rows", subtasks=TWO[:1]), kernel=kernel, limits_per_step=StepLimits(attempts=2)
    ) as env:
        state = driven(env, text(plan))
        first = newest(state)
        assert (first.kind, first.verdict) == ("attempt", "no-code")
        assert "There is a plan already: go on with step 1." in first.feedback
        state = env.step(state, text(f"{plan}```python\nrows = [1]\n```")).next_state
        assert newest(state).code == "rows = [1]"
        assert "The plan beside the code was not taken" in newest(state).feedback
        assert state.hidden.wants == "plan"  # the two attempts are used up


def test_a_plan_of_the_model_s_that_cannot_be_checked_does_not_go_on_for_ever(
    kernel: Kernel,
) -> None:
    unfit = called("make_plan", subtasks=[{"goal": "Make x", "check": "os.path.exists('x') =="}])
    with MultiStepEnvironment(
        Task("Make x"), kernel=kernel, style="tools", limits_per_step=StepLimits(attempts=2)
    ) as env:
        state = driven(env, unfit, unfit)
    assert [turn.kind for turn in episode_of(state).turns] == ["attempt", "attempt"]
    assert state.hidden.wants == "plan"


def test_a_step_that_is_used_up_is_planned_anew_and_the_task_s_postconditions_stay(
    kernel: Kernel,
) -> None:
    limits = StepLimits(attempts=2)
    with MultiStepEnvironment(
        Task("Write rows", subtasks=TWO), kernel=kernel, limits_per_step=limits
    ) as env:
        state = driven(env, cell("rows = [1]"), cell("rows = [2]"))
        assert state.hidden.wants == "plan"
        assert "2 tries" in prompt(state)
        for action in (
            text("```plan\n- Make three numbers\n```"),
            cell("three = (1, 2, 3)"),
            cell("rows = list(three)"),
            cell("open('out.txt', 'w').write('x')"),
        ):
            state = env.step(state, action).next_state
    episode = episode_of(state)
    assert episode.plan is not None
    goals = [subtask.goal for subtask in episode.plan.subtasks]
    assert goals == ["Load the rows", "Make three numbers", "Load the rows", "Write them"]
    assert episode.plan.subtasks[3].needs == (3,)
    assert episode.plan.reason != ""
    assert [turn.step for turn in episode.turns] == [1, 1, 1, 2, 3, 4]
    assert episode.solved


def test_what_is_given_up_blocks_what_needs_it_and_the_rest_is_done(kernel: Kernel) -> None:
    subtasks = (*TWO, Subtask("Say hello", postconditions=(holds("hello == 'hi'"),)))
    limits = StepLimits(attempts=2)
    with MultiStepEnvironment(
        Task("Do it", subtasks=subtasks), kernel=kernel, limits_per_step=limits, planning="none"
    ) as env:
        state = driven(env, cell("rows = [1]"), cell("rows = [1, 2]\n"))
        assert (state.hidden.now.step, state.hidden.now.blocked) == (3, (2,))
        state = env.step(state, cell("hello = 'hi'")).next_state
    episode = episode_of(state)
    assert episode.turns[-1].accepted
    assert episode.stop is not None
    assert episode.stop.reason == "gave-up"
    assert "step 1 (Load the rows) was given up after 2 attempts" in episode.stop.detail
    assert "step 2" in episode.stop.detail
    assert episode.verdict == "failed"


def test_a_repeated_attempt_uses_up_its_step_before_the_limit_does(kernel: Kernel) -> None:
    limits = StepLimits(attempts=9)
    with MultiStepEnvironment(
        Task("Do it", subtasks=TWO[:1]), kernel=kernel, limits_per_step=limits, max_replans=0
    ) as env:
        state = driven(env, cell("rows = [1]"), cell("rows = [1]"))
        assert state.hidden.escalated
        state = env.step(state, cell("rows = [1]")).next_state
    assert episode_of(state).stop is not None
    assert episode_of(state).stop.reason == "gave-up"  # type: ignore[union-attr]


def test_a_cell_that_is_run_for_ever_ends_the_episode_without_a_plan(kernel: Kernel) -> None:
    with MultiStepEnvironment(Task("Say hello"), kernel=kernel, planning="none") as env:
        state = driven(env, cell("x = 1"), cell("x = 1"))
        assert episode_of(state).stop is None
        state = env.step(state, cell("x = 1")).next_state
    assert episode_of(state).stop == Stop(
        "gave-up",
        "step 4 was given up without an attempt: "
        "the same cell with the same outcome was run 3 times in a row",
    )


def test_the_best_attempt_is_adopted_where_that_was_asked_for_and_never_called_solved(
    kernel: Kernel,
) -> None:
    checks = (holds("x > 0"), holds("y > 0"))
    task = Task("Do it", subtasks=(Subtask("x, y", postconditions=checks), Subtask("go on")))
    with MultiStepEnvironment(
        task,
        kernel=kernel,
        limits_per_step=StepLimits(attempts=3),
        max_replans=0,
        accept_best=True,
    ) as env:
        state = driven(env, cell("x = y = 0"), cell("x = 5; y = 0"), cell("x = y = 9; 1 / 0"))
        episode = episode_of(state)
        assert [turn.accepted for turn in episode.turns] == [False, True, False]
        assert episode.turns[1].verdict == "failed"
        assert "best" in episode.turns[1].isolation_reason
        assert "x: int = 5" in prompt(state)
        state = env.step(state, cell("z = x + y")).next_state
    episode = episode_of(state)
    assert newest(state).accepted
    assert kernel.run("x, y, z").result().text == "(5, 0, 5)\n"
    assert episode.stop is not None
    assert (episode.stop.reason, "step 1" in episode.stop.detail) == ("gave-up", True)


def test_limits_of_tokens_and_turns_end_a_step_and_the_episode(kernel: Kernel) -> None:
    from nbrefine.values import Usage

    dear = Action.from_reply(Reply("```python\nrows = [1]\n```", usage=Usage(90, 20)))
    with MultiStepEnvironment(
        Task("Do it", subtasks=TWO[:1]),
        kernel=kernel,
        limits_per_step=StepLimits(tokens=100),
        max_replans=0,
    ) as env:
        state = driven(env, dear)
    assert episode_of(state).stop == Stop(
        "gave-up",
        "step 1 (Load the rows) was given up after 1 attempt "
        "(the best was attempt 1, 0/1 of its checks held)",
    )
    with MultiStepEnvironment(Task("Do it"), kernel=kernel, max_turns=2) as env:
        state = driven(env, cell("x = 1"), cell("x = 2"))
    episode = episode_of(state)
    assert episode.stop is not None
    assert (episode.stop.reason, episode.verdict) == ("max-turns", "failed")
    assert episode.stop.detail == "the limit of turns (2) was reached"


def test_visible_tests_hold_at_the_end_of_all_steps_without_an_answer(kernel: Kernel) -> None:
    task = Task("Make rows", subtasks=TWO[:1], tests="assert sum(rows) == 6")
    with MultiStepEnvironment(task, kernel=kernel) as env:
        state = driven(env, cell("rows = [0, 0, 0]"))
        assert episode_of(state).stop is None
        told = newest(state).feedback
        assert "0/1 tests of the whole task" in told
        assert "sum(rows) == 6\n  got: 0" in told
        state = env.step(state, called("inspect_variable", name="rows")).next_state
        assert "whole task" not in newest(state).feedback
        state = env.step(state, cell("rows = [1, 2, 3]")).next_state
    assert [turn.step for turn in episode_of(state).turns] == [1, 2, 2]
    assert episode_of(state).stop == Stop(
        "solved", "2 steps done, 1 check held, 1 test of the whole task passed"
    )


def test_tests_of_the_whole_task_judge_the_best_attempt_at_its_last_step(kernel: Kernel) -> None:
    task = Task("Make rows", subtasks=TWO[:1], tests="assert sum(rows) == 6")
    with MultiStepEnvironment(
        task,
        kernel=kernel,
        limits_per_step=StepLimits(attempts=2),
        max_replans=0,
        accept_best=True,
    ) as env:
        good = driven(env, cell("rows = [6]"), cell("1 / 0"))
        bad = driven(env, cell("rows = [5]"), cell("1 / 0"))
    assert episode_of(good).stop == Stop(
        "gave-up", "not all checks of step 1 held; the best attempt was kept there"
    )
    assert episode_of(bad).stop is None
    assert "sum(rows) == 6\n  got: 5" in newest(bad).feedback


def test_a_look_runs_no_cell_keeps_nothing_and_is_told(kernel: Kernel, folder: Path) -> None:
    (folder / "data.csv").write_text("a,b\n1,2\n3,4\n")
    task = Task("Look", files=("data.csv",), setup="numbers = list(range(100))")
    with MultiStepEnvironment(task, kernel=kernel, style="tools", planning="none") as env:
        state = driven(
            env,
            called("inspect_variable", name="numbers"),
            called("read_file", path="data.csv", start=2),
            called("read_file", path="/etc/passwd"),
            called("inspect_variable", name="nothing"),
        )
    assert episode_of(state).stop is None  # looks at different things are no cycle
    assert (state.hidden.now.exhausted, state.hidden.escalated) == ("", False)
    turns = episode_of(state).turns
    assert [turn.kind for turn in turns] == ["inspection"] * 4
    assert [turn.verdict for turn in turns] == ["solved", "solved", "failed", "failed"]
    assert [(turn.result, turn.accepted, turn.step) for turn in turns] == [(None, False, 1)] * 4
    assert "numbers: list of length 100" in turns[0].feedback
    assert "[19] 19" in turns[0].feedback
    assert "lines 2 to 3 of 3" in turns[1].feedback
    assert "3,4" in turns[1].feedback
    assert "outside" in turns[2].feedback
    assert "root" not in turns[2].feedback
    assert "There is no variable nothing" in turns[3].feedback


def test_tools_are_offered_as_they_are_of_use(kernel: Kernel) -> None:
    def names(state: State) -> list[str]:
        tools: tuple[Tool, ...] = state.observation.available_tools
        return [tool.name for tool in tools]

    with MultiStepEnvironment(Task("Do it", subtasks=TWO[:1]), kernel=kernel, style="tools") as env:
        state = driven(env)
        assert names(state) == ["run_cell", "inspect_variable", "read_file"]
        state = env.step(state, called("run_cell", code="rows = [1, 2, 3]")).next_state
        assert (newest(state).code, names(state)) == ("rows = [1, 2, 3]", [])
    with MultiStepEnvironment(Task("Do it"), kernel=kernel, style="tools") as env:
        state = driven(env)
        assert names(state)[-2:] == ["make_plan", "finish"]
        state = env.step(state, called("finish", answer="it is done")).next_state
    assert episode_of(state).answer is not None
    with MultiStepEnvironment(Task("Do it"), kernel=kernel) as env:
        assert names(driven(env)) == []


PICTURE = """\
import base64
from IPython.display import Image, display
png = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
display(Image(png))
"""


@pytest.mark.parametrize("images", [True, False])
def test_pictures_are_told_and_go_with_the_next_prompt_where_asked_for(
    kernel: Kernel, images: bool
) -> None:
    with MultiStepEnvironment(Task("Draw"), kernel=kernel, images=images) as env:
        state = driven(env, cell(PICTURE))
        assert "image/png 1x1" in newest(state).feedback
        shown = [image.mime for message in state.observation.messages for image in message.images]
        assert shown == (["image/png"] if images else [])
        state = env.step(state, cell("x = 1")).next_state
        assert not any(message.images for message in state.observation.messages)


def test_stepping_twice_from_one_state_gives_two_futures(kernel: Kernel) -> None:
    with MultiStepEnvironment(Task("Do it", setup="items = []"), kernel=kernel) as env:
        start = driven(env)
        one = env.step(start, cell("items.append(1)")).next_state
        two = env.step(start, cell("items += [2, 2]")).next_state
        assert env.spec.pure_step
        for state, length in ((one, 1), (two, 2), (start, 0)):
            after = env.step(state, cell("print(len(items))")).next_state
            result = newest(after).result
            assert result is not None
            assert result.text == f"{length}\n"


def test_rows_of_files_that_nobody_named_are_not_shown(kernel: Kernel, folder: Path) -> None:
    """A prompt may leave the machine."""
    (folder / "orders.csv").write_text("region,n\nNorth,10\n")
    (folder / "private.csv").write_text("name,salary\nAda,9000\n")
    elsewhere = folder.parent / "elsewhere.csv"
    elsewhere.write_text("k,v\n1,2\n")
    task = Task("Sum up", files=("orders.csv", str(elsewhere)))
    with MultiStepEnvironment(task, kernel=kernel) as env:
        before = prompt(driven(env))
        after = prompt(driven(env, cell("open('mine.csv', 'w').write('shop,sum\\nSouth,5\\n')")))
    data, _, listed = before.partition("Files in the working folder:")
    listed = listed.partition("</files")[0]
    listing = data.rpartition("Data files:")[2]
    assert f"{elsewhere} (8 B): k,v\n  first row: 1,2" in listing
    assert "orders" not in listing
    assert "orders.csv (18 B): region,n\n  first row: North,10" in listed
    assert "private.csv (21 B)\n" in listed
    assert "elsewhere" not in listed
    assert "mine.csv (17 B): shop,sum\n  first row: South,5" in after
    assert not any(secret in text for text in (before, after) for secret in ("Ada", "salary"))


def test_a_frame_is_checked_by_its_columns(kernel: Kernel) -> None:
    checks = (frame("df", rows=2, columns=["a", "c"]),)
    task = Task("Make df", subtasks=(Subtask("Make df", postconditions=checks),))
    with MultiStepEnvironment(task, kernel=kernel) as env:
        state = driven(env, cell("import pandas as pd\ndf = pd.DataFrame({'a': [1]})"))
        told = "message: df has 1 row, not 2; columns missing: c; it has: a"
        assert told in newest(state).feedback
        assert "got:" not in newest(state).feedback
        state = env.step(
            state, cell("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'c': 0})")
        ).next_state
    assert episode_of(state).solved


@pytest.mark.parametrize(
    "task",
    [
        Task("t", subtasks=(Subtask("s", postconditions=(file_written("x"),)), Subtask("u", (3,)))),
        Task("t", subtasks=(Subtask("s", postconditions=(Postcondition("x = 1"),)),)),
        Task("t", tests="assert ("),
    ],
)
def test_a_task_that_cannot_be_worked_on_is_refused(task: Task, kernel: Kernel) -> None:
    with MultiStepEnvironment(task, kernel=kernel) as env, pytest.raises(InvalidTaskError):
        env.reset()


def test_settings_out_of_range_are_refused() -> None:
    for settings in ({"max_turns": 0}, {"max_replans": -1}, {"planning": "x"}, {"style": "x"}):
        with pytest.raises(UsageError):
            MultiStepEnvironment(Task("t"), **settings)
    with pytest.raises(UsageError):
        MultiStepEnvironment([])
