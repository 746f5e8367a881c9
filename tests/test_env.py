"""The environment: what one step does, where it runs, and what it leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from nbrefine.env import IsolationPolicy, NotebookEnvironment
from nbrefine.errors import BranchRefused, InvalidTaskError, UsageError
from nbrefine.kernel import Kernel, interrupt
from nbrefine.outputs import Stream
from nbrefine.state import Action, Observation, State, StepResult
from nbrefine.values import Episode, Reply, RewardType, Task, Turn

ADD = Task("Write add(a, b).", tests="assert add(1, 2) == 3\nassert add(-1, 1) == 0")
RIGHT = "def add(a, b):\n    return a + b"
WRONG = "def add(a, b):\n    return a - b"


def fenced(code: str) -> Action:
    return Action.from_text(f"Here it is.\n\n```python\n{code}\n```\n")


def newest(result: StepResult) -> Turn:
    turn: Turn = result.next_state.hidden.episode.turns[-1]
    return turn


def begun(env: NotebookEnvironment) -> State:
    return env.reset(seed=0)[0]


@pytest.fixture
def adding() -> Iterator[NotebookEnvironment]:
    with NotebookEnvironment(ADD) as env:
        yield env


def test_a_right_answer_solves_and_ends_the_episode(adding: NotebookEnvironment) -> None:
    result = adding.step(begun(adding), fenced(RIGHT))
    turn = newest(result)
    assert (result.terminated, result.truncated, result.done) == (True, False, True)
    assert (turn.verdict, turn.accepted, turn.code) == ("solved", True, RIGHT)
    assert result.rewards.single(1.0).total == result.rewards.total
    assert result.rewards.signals[0].reward_type is RewardType.OUTCOME
    assert result.extracted_action == RIGHT
    assert result.info["solved"] is True
    assert result.next_state.metadata.is_terminal
    assert result.next_state.hidden.episode.stop.reason == "solved"


def test_a_wrong_answer_is_told_every_failure_with_got_and_expected(
    adding: NotebookEnvironment,
) -> None:
    result = adding.step(begun(adding), fenced(WRONG))
    turn = newest(result)
    assert not result.done
    assert (turn.verdict, turn.accepted) == ("failed", False)
    assert turn.tests is not None
    assert [(c.got, c.expected) for c in turn.tests.cases] == [("-1", "3"), ("-2", "0")]
    for words in ("0/2 tests passed", "add(1, 2)", "add(-1, 1)", "-1", "-2"):
        assert words in turn.feedback
    assert turn.feedback in result.next_state.observation.messages[-1].content
    assert result.next_state.observation.messages[0].role == "system"


def test_the_reward_is_the_part_of_the_tests_that_passed(adding: NotebookEnvironment) -> None:
    half = "def add(a, b):\n    return 3"
    assert adding.step(begun(adding), fenced(half)).rewards.total == 0.5


def test_a_cell_that_fails_runs_no_tests_and_names_them_all(adding: NotebookEnvironment) -> None:
    turn = newest(adding.step(begun(adding), fenced("import nowhere_to_be_found")))
    assert turn.result is not None
    assert turn.result.status == "error"
    assert turn.tests is not None
    assert [case.status for case in turn.tests.cases] == ["not-run", "not-run"]
    assert "ModuleNotFoundError" in turn.feedback


@pytest.mark.parametrize("isolation", ["fork", "rebuild"])
def test_a_rejected_attempt_leaves_no_trace_in_the_session(isolation: IsolationPolicy) -> None:
    task = Task("t", setup="data = [1, 2]", tests="assert done")
    with NotebookEnvironment(task, isolation=isolation) as env:
        first = env.step(begun(env), fenced("data.append(3)\nleak = 1\ndone = False"))
        second = env.step(
            first.next_state, fenced("done = data == [1, 2] and 'leak' not in globals()")
        )
    assert newest(first).isolation == isolation
    assert newest(second).accepted


def test_without_isolation_a_trace_stays_and_the_turn_says_so() -> None:
    task = Task("t", tests="assert done")
    with NotebookEnvironment(task, isolation="none") as env:
        first = env.step(begun(env), fenced("leak = 1\ndone = False"))
        second = env.step(first.next_state, fenced("done = leak == 1"))
    assert (newest(first).isolation, newest(first).isolation_reason) == ("none", "asked for")
    assert newest(second).accepted


def test_a_session_too_slow_to_rebuild_is_kept_and_the_turn_says_why() -> None:
    task = Task("t", setup="import time; time.sleep(0.3)", tests="assert False")
    with NotebookEnvironment(task, isolation="rebuild", rebuild_limit=0.1) as env:
        turn = newest(env.step(begun(env), fenced("x = 1")))
    assert turn.isolation == "none"
    assert "over 0.1 s" in turn.isolation_reason


def test_a_kernel_that_was_handed_in_is_never_restarted_nor_closed() -> None:
    task = Task("t", tests="assert answer == 42")
    with Kernel.start() as kernel:
        assert kernel.run("precious = 41").result().ok
        with NotebookEnvironment(task, kernel=kernel) as env:
            first = env.step(begun(env), fenced("answer = 0"))
            second = env.step(first.next_state, fenced("answer = precious + 1"))
        assert newest(second).accepted
        assert newest(first).isolation == "fork"
        assert kernel.run("precious, answer").result().text == "(41, 42)\n"


@pytest.mark.parametrize("isolation", ["auto", "rebuild"])
def test_a_kernel_that_was_handed_in_and_cannot_branch_is_not_changed_unasked(
    isolation: IsolationPolicy,
) -> None:
    with Kernel.start(plain=True) as kernel:
        assert kernel.run("precious = [41]").result().ok
        with NotebookEnvironment(Task("t"), kernel=kernel, isolation=isolation) as env:
            state = begun(env)
            with pytest.raises(BranchRefused, match=r"handed in.*isolation='none'"):
                env.step(state, fenced("precious.clear()"))
        assert kernel.run("precious").result().text == "[41]\n"


def test_a_kernel_that_was_handed_in_and_cannot_branch_is_used_where_that_was_agreed_to() -> None:
    with Kernel.start(plain=True) as kernel:
        assert kernel.run("precious = 41").result().ok
        with NotebookEnvironment(Task("t"), kernel=kernel, confirm=lambda why: True) as env:
            turn = newest(env.step(begun(env), fenced("answer = precious + 1")))
        assert turn.isolation == "none"
        assert "handed in" in turn.isolation_reason
        assert kernel.run("answer").result().text == "42\n"
        with NotebookEnvironment(Task("t"), kernel=kernel, isolation="none") as env:
            turn = newest(env.step(begun(env), fenced("answer += 1")))
        assert (turn.isolation, turn.isolation_reason) == ("none", "asked for")
        assert kernel.run("answer").result().text == "43\n"


def test_stepping_twice_from_one_state_gives_both_the_same_session() -> None:
    task = Task("t", setup="n = 0", tests="assert n == 1")
    with NotebookEnvironment(task) as env:
        state = begun(env)
        once, again = env.step(state, fenced("n += 1")), env.step(state, fenced("n += 1"))
    assert newest(once).accepted
    assert newest(again).accepted


def test_without_tests_a_cell_that_ran_is_the_success() -> None:
    with NotebookEnvironment(Task("Print one.")) as env:
        failed = env.step(begun(env), fenced("1 / 0"))
        ran = env.step(failed.next_state, fenced("print(1)"))
    assert not newest(failed).accepted
    assert (newest(ran).accepted, newest(ran).tests) == (True, None)
    assert ran.rewards.total == 1.0


def test_tests_asked_for_and_none_found_is_not_a_success() -> None:
    with NotebookEnvironment(Task("t", tests="x = 1")) as env:
        turn = newest(env.step(begun(env), fenced("print(1)")))
    assert not turn.accepted
    assert turn.tests is not None
    assert "no tests" in turn.tests.problem


def test_a_setup_that_fails_makes_the_task_invalid_and_says_how() -> None:
    with (
        NotebookEnvironment(Task("t", setup="1 / 0")) as env,
        pytest.raises(InvalidTaskError, match="ZeroDivisionError"),
    ):
        env.reset()


def test_tests_that_do_not_parse_make_the_task_invalid_before_a_kernel_starts() -> None:
    with (
        NotebookEnvironment(Task("t", tests="assert ("), kernel="no-such-kernel") as env,
        pytest.raises(InvalidTaskError),
    ):
        env.reset()


@pytest.mark.parametrize(
    "test",
    ["def test_f(tmp_path): ...", "import pytest\n@pytest.mark.skip\ndef test_f(): ..."],
)
def test_tests_that_no_code_can_pass_make_the_task_invalid(test: str) -> None:
    with (
        NotebookEnvironment(Task("t", tests=f"assert True\n{test}")) as env,
        pytest.raises(InvalidTaskError, match="test_f cannot be run"),
    ):
        env.reset()


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("I cannot help with that.", "no-code"), ("```python\ndef add(a, b", "incomplete-reply")],
)
def test_a_reply_without_whole_code_is_a_turn_that_runs_nothing(
    adding: NotebookEnvironment, text: str, verdict: str
) -> None:
    turn = newest(adding.step(begun(adding), Action.from_text(text)))
    assert (turn.verdict, turn.result, turn.tests, turn.code) == (verdict, None, None, "")
    assert turn.feedback


def test_a_reply_cut_at_the_token_limit_is_never_run(adding: NotebookEnvironment) -> None:
    reply = Reply(f"```python\n{RIGHT}", finish="length")
    turn = newest(adding.step(begun(adding), Action.from_reply(reply)))
    assert turn.verdict == "incomplete-reply"
    assert turn.result is None


def test_an_endless_loop_ends_at_its_time_limit_and_the_next_attempt_runs() -> None:
    with NotebookEnvironment(ADD, timeout=1.0) as env:
        first = env.step(begun(env), fenced("while True: pass"))
        second = env.step(first.next_state, fenced(RIGHT))
    assert newest(first).verdict == "timeout"
    assert newest(second).accepted


def test_a_crash_of_the_kernel_is_the_attempt_s_and_the_next_one_runs() -> None:
    task = Task("t", setup="base = 1", tests="assert n == 2")
    with NotebookEnvironment(task) as env:
        first = env.step(begun(env), fenced("import os; os._exit(3)"))
        second = env.step(first.next_state, fenced("n = base + 1"))
    assert newest(first).verdict == "crashed"
    assert "exit code 3" in newest(first).feedback
    assert newest(second).accepted


def test_the_last_turn_truncates_the_episode() -> None:
    with NotebookEnvironment(ADD, max_turns=1) as env:
        result = env.step(begun(env), fenced(WRONG))
        assert (result.terminated, result.truncated) == (False, True)
        assert result.next_state.hidden.episode.stop.reason == "max-turns"
        with pytest.raises(UsageError, match="ended"):
            env.step(result.next_state, fenced(RIGHT))


def test_a_repeated_program_is_answered_with_a_call_for_another_approach(
    adding: NotebookEnvironment,
) -> None:
    first = adding.step(begun(adding), fenced(WRONG))
    again = adding.step(first.next_state, fenced(WRONG + "  # the same"))
    assert not first.next_state.hidden.escalated
    assert again.next_state.hidden.escalated
    assert len(again.next_state.observation.messages[-1].content) > len(
        first.next_state.observation.messages[-1].content
    )


def test_feedback_shows_the_variables_of_the_session() -> None:
    task = Task("t", setup="prices = {'apple': 3}", tests="assert total == 3")
    with NotebookEnvironment(task) as env:
        state = begun(env)
        assert "prices" in state.observation.prompt
        turn = newest(env.step(state, fenced("total = prices['pear']")))
    assert "KeyError" in turn.feedback
    assert "prices" in turn.feedback


def test_feedback_says_that_one_block_of_two_was_run_where_a_name_is_missing(
    adding: NotebookEnvironment,
) -> None:
    reply = "```python\nextra = 0\n```\nThen:\n```python\ndef add(a, b):\n    return {}\n```"
    missed = newest(adding.step(begun(adding), Action(reply.format("a + b + extra"))))
    assert "Your reply had 2 code blocks; only one of them was run." in missed.feedback
    wrong = newest(adding.step(begun(adding), Action(reply.format("a - b"))))
    assert "code blocks" not in wrong.feedback


@pytest.mark.parametrize("isolation", ["fork", "rebuild", "none"])
def test_feedback_shows_the_variables_that_the_next_attempt_finds(
    isolation: IsolationPolicy,
) -> None:
    task = Task("t", setup="prices = [3]", tests="assert False")
    with NotebookEnvironment(task, isolation=isolation) as env:
        first = env.step(begun(env), fenced("rows = [1, 2]\nprices = rows"))
        probe = fenced("print('rows' in globals(), prices)")
        found = newest(env.step(first.next_state, probe)).result
    shown, _, undone = newest(first).feedback.partition("The code had made these variables")
    assert found is not None
    if isolation == "none":
        assert found.text == "True [1, 2]\n"
        assert "rows: list" in shown
        assert undone == ""
    else:
        assert found.text == "False [3]\n"
        assert "rows" not in shown
        assert "prices: list of length 1" in shown
        assert "rows: list of length 2" in undone
        assert "prices: list of length 2" in undone


def test_feedback_names_as_lost_only_what_is_not_built_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interrupt, "PATIENCE", 0.6)
    task = Task("t", setup="prices = [3]", tests="assert False")
    # By the limit the cell must have begun to ignore interrupts, on a busy host too.
    with NotebookEnvironment(task, isolation="none", timeout=3.0) as env:
        hang = "mine = 1\nimport signal; signal.signal(2, signal.SIG_IGN)\nwhile True: pass"
        first = env.step(begun(env), fenced("left = 1"))
        told = newest(env.step(first.next_state, fenced(hang))).feedback
    assert "Lost variables: left." in told
    assert "prices: list" in told


def test_given_code_runs_as_it_is(adding: NotebookEnvironment) -> None:
    turn = newest(adding.step(begun(adding), Action.from_code(RIGHT)))
    assert (turn.extraction.status, turn.accepted, turn.messages) == ("given", True, ())


def test_the_session_is_seeded_and_the_record_says_with_what() -> None:
    code = "import random; n = random.random(); h = hash('text')"
    task = Task("t", tests="assert False, (n, h)")
    seen = []
    for _ in range(2):
        with NotebookEnvironment(task) as env:
            result = env.step(env.reset(seed=7)[0], fenced(code))
        episode: Episode = result.next_state.hidden.episode
        assert episode.seed == 7
        assert episode.setup is not None
        assert "seed(7)" in episode.setup.source
        seen.append(newest(result).feedback)
    assert seen[0] == seen[1]


def test_options_choose_the_task_and_name_the_episode(tmp_path: Path) -> None:
    with NotebookEnvironment([Task("first"), Task("second")], cwd=tmp_path) as env:
        state, info = env.reset(options={"task_index": 1, "episode_id": "e-1"})
        result = env.step(state, fenced("import os; print(os.getcwd())"))
        assert len(env) == 2
        with pytest.raises(UsageError, match="2 tasks"):
            env.reset(options={"task_index": 2})
    assert info == {"task_index": 1}
    assert state.metadata.episode_id == "e-1"
    assert state.observation.task == "second"
    output = newest(result).result
    assert output is not None
    assert Path(output.text.strip()).samefile(tmp_path)


def test_bad_settings_are_refused_at_once() -> None:
    with pytest.raises(UsageError, match="at least one task"):
        NotebookEnvironment([])
    with pytest.raises(UsageError, match="max_turns is 0"):
        NotebookEnvironment(ADD, max_turns=0)
    with pytest.raises(UsageError, match="timeout is 0"):
        NotebookEnvironment(ADD, timeout=0)
    with pytest.raises(UsageError, match="test_timeout is nan"):
        NotebookEnvironment(ADD, test_timeout=float("nan"))
    with pytest.raises(UsageError, match=r"no isolation 'clone'. Use one of: auto, fork"):
        NotebookEnvironment(ADD, isolation="clone")  # type: ignore[arg-type]  # the point
    with NotebookEnvironment(ADD) as env, pytest.raises(UsageError, match="before reset"):
        env.step(State(Observation("t")), Action.from_text("x"))


def test_closing_ends_the_kernel_s_process() -> None:
    with NotebookEnvironment(Task("t")) as env:
        state = begun(env)
        pid = state.hidden.episode.kernel.pid
        assert pid is not None
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_a_rejected_attempt_s_thread_prints_later_is_that_attempt_s() -> None:
    """Not the next one's, and not lost with the process that a rebuild ends."""
    code = (
        "import threading, time\n"
        "def work():\n    time.sleep(0.3)\n    print('late')\n"
        "threading.Thread(target=work).start()\nn = 0"
    )
    task = Task("t", tests="assert n == 1")
    with Kernel.start() as other, NotebookEnvironment(task, isolation="rebuild") as env:
        first = env.step(begun(env), fenced(code))
        assert other.run("import time; time.sleep(1)").result().ok  # the thread has printed
        second = env.step(first.next_state, fenced("n = 1\nprint('mine')"))
    turns = second.next_state.hidden.episode.turns
    assert turns[0].result.outputs == (Stream("stdout", "late\n", late=True),)
    assert turns[1].result.outputs == (Stream("stdout", "mine\n"),)


@pytest.mark.parametrize("call", ["exit()", "quit()"])
def test_a_cell_that_calls_exit_is_not_accepted_for_run_all_would_end_there(call: str) -> None:
    with NotebookEnvironment(Task("t", tests="assert n == 1")) as env:
        first = env.step(begun(env), fenced(f"n = 1\n{call}"))
        second = env.step(first.next_state, fenced("n = 1"))
    assert (newest(first).accepted, newest(first).verdict) == (False, "failed")
    assert "Leave that out" in newest(first).feedback
    assert newest(second).accepted


def test_a_session_that_an_attempt_broke_is_the_attempt_s_fault() -> None:
    with NotebookEnvironment(ADD, isolation="rebuild") as env:
        first = env.step(begun(env), fenced("get_ipython().display_pub.session = None"))
        second = env.step(first.next_state, fenced(RIGHT))
    report = newest(first).tests
    assert report is not None
    assert (newest(first).verdict, report.passed, report.total) == ("failed", 0, 2)
    assert "No test was run: the code broke the session" in newest(first).feedback
    assert newest(second).accepted
